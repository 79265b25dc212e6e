"""Corpus tools that look around: `inspect_metadata`, `get_chunks` and `list_stores`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.corpus.library import Library
from antiphon.tools.base import HostedCall, Outcome, Session
from antiphon.tools.corpus.arguments import invalid, said, strings_said
from antiphon.tools.corpus.base import CITE, LibraryTool, function
from antiphon.tools.corpus.entries import CorpusEntry
from antiphon.tools.corpus.results import CHARACTERS_A_TOKEN, clipped, corpus_result
from antiphon.tools.corpus.search import STORE

__all__ = ["GetChunks", "InspectMetadata", "ListStores"]

MOST_CHUNKS: Final = 20
"""Chunks that one call may ask for."""

EACH: Final = 8_000 * CHARACTERS_A_TOKEN
"""The text of one of them: four times what a search gives."""


class InspectMetadata(LibraryTool):
    """Tells which metadata the documents have."""

    def __init__(self, library: Library, declared: Mapping[str, Any], entry: CorpusEntry) -> None:
        self._entry = entry
        named = entry.store_identifiers is not None
        told = function(
            entry.type,
            "See which metadata the documents have, with frequent values, to filter by.",
            {} if named else STORE,
            () if named else ("store",),
        )
        super().__init__(library, declared, entry.store_identifiers, told, f"{entry.type}_call")

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call."""
        return {"type": self.item_type, "store": (call.arguments or {}).get("store"), "facets": None}

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Look.

        Raises:
            APIError: a filter of the entry cannot be read, or a store is not there.
        """
        facets = await self.library.facets(
            session.scope,
            await self.stores(call, session.scope),
            filters=[] if self._entry.filters is None else [self._entry.filters],
            most_values=self._entry.max_values_per_field or 8,
        )
        shown = [
            {"field": facet.name, "values": [{"value": value, "count": count} for value, count in facet.values]}
            for facet in facets
        ]
        rankable = [facet.name for facet in facets if facet.rankable]
        return Outcome({"status": "completed", "facets": shown, "rankable_fields": rankable})

    def failed(self, call: HostedCall, error: Any) -> Outcome:
        """A failed item has no facets."""
        fields = super().failed(call, error).fields
        return Outcome({name: value for name, value in fields.items() if name != "results"} | {"facets": None})


class GetChunks(LibraryTool):
    """Reads chunks whose ids the model knows, with more of their text than a search gives."""

    def __init__(self, library: Library, declared: Mapping[str, Any], entry: CorpusEntry) -> None:
        self.cites = bool(entry.citations)
        about = "Read passages in full by their chunk ids."
        named = entry.store_identifiers is not None
        told = function(
            entry.type,
            f"{about} {CITE}" if self.cites else about,
            {
                "chunk_ids": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_CHUNKS},
                **({} if named else STORE),
            },
            ("chunk_ids",) if named else ("chunk_ids", "store"),
        )
        super().__init__(library, declared, entry.store_identifiers, told, f"{entry.type}_call")

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call, with the ids echoed."""
        arguments = call.arguments or {}
        item = {"type": self.item_type, "chunk_ids": arguments.get("chunk_ids"), "results": None}
        return item if self.identifiers is not None else {**item, "store": arguments.get("store")}

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Read; each id that is not there has an error of its own.

        Raises:
            APIError: the ids are none or too many, or a store is not there.
        """
        ids = list(dict.fromkeys(strings_said(call, "chunk_ids", most=MOST_CHUNKS)))
        stores = await self.stores(call, session.scope)
        found = await self.library.get(session.scope, stores, ids)
        there = clipped([corpus_result(each) for each in found if each is not None], call.characters, EACH)
        given = {result["chunk_id"]: result for result in there}
        results: list[dict[str, Any]] = []
        for identity, each in zip(ids, found, strict=True):
            if each is None:
                message = f"There is no chunk '{identity[:100]}' in this store."
                results.append({"chunk_id": identity, "error": {"code": "not_found", "message": message}})
            elif identity in given:
                results.append(given[identity])
            else:
                message = "There is no room for it beside the others. Ask for fewer chunks at once."
                results.append({"chunk_id": identity, "error": {"code": "no_room", "message": message}})
        return Outcome({"status": "completed", "results": results})

    def settle(self, call: HostedCall, outcome: Outcome, session: Session) -> Outcome:
        """Number those that are there."""
        results = outcome.fields.get("results")
        if not self.cites or not results:
            return outcome
        there = Outcome({"results": [result for result in results if "error" not in result]})
        numbered = {result["chunk_id"]: result for result in super().settle(call, there, session).fields["results"]}
        kept = [numbered.get(result["chunk_id"], result) for result in results]
        return Outcome({**outcome.fields, "results": kept}, outcome.also)


class ListStores(LibraryTool):
    """Tells which stores there are."""

    def __init__(self, library: Library, declared: Mapping[str, Any], entry: CorpusEntry) -> None:
        self._limit = entry.limit or 20
        cursor = {"cursor": {"type": "string", "description": "Where the previous list ended."}}
        told = function(entry.type, "List the document stores by name, with what they hold.", cursor)
        super().__init__(library, declared, None, told, f"{entry.type}_call")

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call."""
        return {"type": self.item_type, "cursor": (call.arguments or {}).get("cursor"), "stores": None}

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """List.

        Raises:
            APIError: the cursor is none.
        """
        cursor = said(call).get("cursor") or ""
        if not isinstance(cursor, str):
            raise invalid("'cursor' must be what the previous list gave as 'next_cursor'.")
        stores, more = await self.library.listed(session.scope, limit=self._limit, after=cursor)
        shown: list[dict[str, Any]] = [
            {"name": store.name or store.id, "description": _description(store.detail), "connectors": list[str]()}
            for store in stores
        ]
        return Outcome(
            {
                "status": "completed",
                "stores": shown,
                "has_more": more,
                "next_cursor": stores[-1].id if more and stores else None,
            }
        )

    def failed(self, call: HostedCall, error: Any) -> Outcome:
        """A failed item has no stores."""
        fields = super().failed(call, error).fields
        return Outcome({name: value for name, value in fields.items() if name != "results"} | {"stores": None})


class _Described(msgspec.Struct):
    description: str | None = None


_described = msgspec.json.Decoder(_Described)


def _description(detail: bytes) -> str | None:
    return _described.decode(detail).description if detail else None

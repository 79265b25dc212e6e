"""Corpus search by meaning, by pattern and by metadata: `search_corpus`, `grep` and `filter_chunks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from antiphon.corpus.library import Library, Ranking
from antiphon.tools.base import HostedCall, Outcome, Session
from antiphon.tools.corpus.arguments import FILTER_PARAMETERS, filters_said, invalid, number_said, queries_said, said
from antiphon.tools.corpus.base import CITE, LibraryTool, function
from antiphon.tools.corpus.entries import CorpusEntry
from antiphon.tools.corpus.file_search import QUERIES
from antiphon.tools.corpus.results import (
    CHARACTERS_A_TOKEN,
    clipped,
    corpus_result,
    match_result,
    noted,
    reference,
    seen_chunks,
)

__all__ = ["STORE", "FilterChunks", "Grep", "SearchCorpus"]

EACH: Final = 2_000 * CHARACTERS_A_TOKEN

STORE: Final[dict[str, Any]] = {"store": {"type": "string", "description": "The name or id of the store."}}
"""The parameter that says which store a call is about, where the request does not."""


class _Finding(LibraryTool):
    """A tool that gives chunks; `echoed` are the arguments that its item shows."""

    about: ClassVar[str]
    parameters: ClassVar[dict[str, Any]]
    required: ClassVar[tuple[str, ...]] = ()
    echoed: ClassVar[tuple[str, ...]]

    def __init__(self, library: Library, declared: Mapping[str, Any], entry: CorpusEntry) -> None:
        self.entry = entry
        self.cites = bool(entry.citations)
        named = entry.store_identifiers is not None
        properties = {**self.parameters, **FILTER_PARAMETERS, **({} if named else STORE)}
        told = function(
            entry.type,
            f"{self.about} {CITE}" if self.cites else self.about,
            properties,
            self.required if named else (*self.required, "store"),
        )
        super().__init__(library, declared, entry.store_identifiers, told, f"{entry.type}_call")

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call, with its arguments echoed."""
        arguments = call.arguments or {}
        names = (*self.echoed, "metadata_filters", "filter_mode", "store")
        return {"type": self.item_type, **{name: arguments.get(name) for name in names}, "results": None}

    def filters(self, call: HostedCall) -> list[Mapping[str, Any]]:
        """The filters of the entry, which the model cannot lift (B11), and those of the call."""
        return [*([] if self.entry.filters is None else [self.entry.filters]), *filters_said(call)]

    def settle(self, call: HostedCall, outcome: Outcome, session: Session) -> Outcome:
        """Refer to what this run has given already, and number the rest."""
        outcome = super().settle(call, outcome, session)
        results: Sequence[dict[str, Any]] = outcome.fields.get("results") or ()
        seen = seen_chunks(session.own)
        if not any(result["chunk_id"] in seen for result in results):
            return outcome
        kept = [
            self.again(result) if result["chunk_id"] in seen else result
            for result in results
            if result["chunk_id"] not in seen or self.again(result)
        ]
        return Outcome({**outcome.fields, "results": kept}, outcome.also)

    def again(self, result: dict[str, Any]) -> dict[str, Any]:
        """What stands for a chunk that was given before; empty where nothing does."""
        return reference(result)


class SearchCorpus(_Finding):
    """Searches by meaning and by words; what this run has given already is not given again."""

    about = "Search the documents for passages about something. Ask several questions at once where it helps."
    parameters = QUERIES
    required = ("queries",)
    echoed = ("queries",)

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Search.

        Raises:
            APIError: the queries are none, a filter cannot be read, or a store is not there.
        """
        found = await self.library.search(
            session.scope,
            await self.stores(call, session.scope),
            queries_said(call),
            most=self.entry.max_num_results or 5,
            filters=self.filters(call),
            ranking=Ranking(threshold=self.entry.score_threshold or 0.0),
            without=frozenset(seen_chunks(session.own)),
        )
        results = clipped([corpus_result(each) for each in found.chunks], call.characters, EACH)
        return Outcome({"status": "completed", "results": results, **noted(found.note)})

    def again(self, result: dict[str, Any]) -> dict[str, Any]:
        """Nothing: another search of the same turn has given it."""
        return {}


class Grep(_Finding):
    """Searches for a pattern."""

    about = "Find the passages whose text matches a regular expression (RE2), such as a name, a number or a code."
    parameters: ClassVar[dict[str, Any]] = {
        "pattern": {"type": "string", "minLength": 1, "maxLength": 1024, "description": "A regular expression of RE2."},
        "case_sensitive": {"type": "boolean"},
        "targets": {
            "type": "array",
            "items": {"type": "string", "enum": ["text", "generated"]},
            "description": "Where to look: the text itself, or text that was generated about it.",
        },
    }
    required = ("pattern",)
    echoed = ("pattern", "targets", "case_sensitive")

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Search.

        Raises:
            APIError: the pattern or a filter cannot be read, or a store is not there.
        """
        arguments = said(call)
        pattern = arguments.get("pattern")
        if not isinstance(pattern, str) or not pattern:
            raise invalid("'pattern' must be a regular expression.")
        stores = await self.stores(call, session.scope)
        if arguments.get("targets") == ["generated"]:
            # No text is generated about documents here.
            return Outcome({"status": "completed", "results": []})
        matches = await self.library.grep(
            session.scope,
            stores,
            pattern,
            most=self.entry.max_num_results or 10,
            case_sensitive=arguments.get("case_sensitive") is True,
            filters=self.filters(call),
        )
        results = clipped([match_result(match) for match in matches], call.characters, EACH)
        return Outcome({"status": "completed", "results": results})


class FilterChunks(_Finding):
    """Lists passages by metadata, ranked by a number where one is named."""

    about = "List the passages of documents by their metadata, ranked by a numeric field where that is wanted."
    parameters: ClassVar[dict[str, Any]] = {
        "rank_by": {"type": "string", "description": "A numeric field of the metadata."},
        "direction": {"type": "string", "enum": ["asc", "desc"]},
        "max_num_results": {"type": "integer", "minimum": 1, "maximum": 30},
    }
    echoed = ("rank_by", "direction")

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """List.

        Raises:
            APIError: a filter cannot be read, or a store is not there.
        """
        arguments = said(call)
        rank_by = arguments.get("rank_by")
        if rank_by is not None and not isinstance(rank_by, str):
            raise invalid("'rank_by' must be the name of a field.")
        most = self.entry.max_num_results or 30
        stores = await self.stores(call, session.scope)
        filters = self.filters(call)
        applied = None
        if rank_by:
            facets = await self.library.facets(session.scope, stores, filters=filters)
            applied = any(facet.name == rank_by and facet.rankable for facet in facets)
        found = await self.library.chunks(
            session.scope,
            stores,
            most=number_said(call, "max_num_results", min(10, most), most),
            filters=filters,
            rank_by=rank_by if applied else None,
            descending=arguments.get("direction") != "asc",
        )
        results = clipped([corpus_result(each) for each in found.chunks], call.characters, EACH)
        fields: dict[str, Any] = {"status": "completed", "results": results, **noted(found.note)}
        if applied is False:
            fields["rank_by_applied"] = False
        return Outcome(fields)

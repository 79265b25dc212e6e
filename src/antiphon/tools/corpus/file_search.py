"""OpenAI's `file_search`: one function over all entries of it, with citations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.corpus.library import Found, FoundChunk, Library, chunk_id
from antiphon.tools.base import HostedCall, Outcome, Session
from antiphon.tools.corpus.arguments import queries_said
from antiphon.tools.corpus.base import CITE, LibraryTool, function
from antiphon.tools.corpus.entries import FILE_SEARCH, FileSearchEntry, file_search_entry, ranking_of
from antiphon.tools.corpus.results import CHARACTERS_A_TOKEN, clipped, file_result, noted

__all__ = ["QUERIES", "FileSearch"]

MOST_RESULTS: Final = 10
"""Results of a call where the entry does not say how many."""

EACH: Final = 2_000 * CHARACTERS_A_TOKEN

QUERIES: Final[dict[str, Any]] = {
    "queries": {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": 1024},
        "minItems": 1,
        "maxItems": 8,
        "description": "What to search for: whole questions or key words, each about one thing.",
    }
}
"""The parameter of a search."""


class FileSearch(LibraryTool):
    """Searches the vector stores of each entry and merges what they give, best first."""

    cites = True

    def __init__(self, library: Library, declared: Sequence[dict[str, Any]]) -> None:
        told = function(FILE_SEARCH, f"Search the uploaded files. {CITE}", QUERIES, ["queries"])
        super().__init__(library, declared[0], None, told, "file_search_call")
        self._entries = [file_search_entry(entry) for entry in declared]

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call: its queries are told when it is done, as OpenAI's are (hosted-tools A2)."""
        return {"type": self.item_type, "queries": [], "results": None}

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Search.

        Raises:
            APIError: the queries are none, or a vector store is not there.
        """
        queries = queries_said(call)
        found: dict[str, FoundChunk] = {}
        most = 0
        notes: list[str] = []
        for entry in self._entries:
            wanted = entry.max_num_results or MOST_RESULTS
            most = max(most, wanted)
            answer = await self._search(entry, queries, wanted, session)
            notes.append(answer.note)
            for each in answer.chunks:
                found.setdefault(chunk_id(each.file.file_id, each.index), each)
        best = sorted(found.values(), key=lambda each: -(each.score or 0.0))[:most]
        results = clipped([file_result(each) for each in best], call.characters, EACH)
        return Outcome({"status": "completed", "queries": queries, "results": results, **noted(*notes)})

    async def _search(self, entry: FileSearchEntry, queries: Sequence[str], most: int, session: Session) -> Found:
        stores = await self.library.stores(session.scope, entry.vector_store_ids)
        filters = [] if entry.filters is None else [entry.filters]
        ranking = ranking_of(entry.ranking_options)
        return await self.library.search(session.scope, stores, queries, most=most, filters=filters, ranking=ranking)

"""The provider of the tools over documents: which functions the entries of a request become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from antiphon.corpus.library import Library
from antiphon.errors import InvalidRequestError
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import NamedToolChoice
from antiphon.tools.base import HostedTool, Opened, Provider, Session
from antiphon.tools.corpus.entries import (
    CORPUS_TYPES,
    FILE_SEARCH,
    KINDS,
    CorpusEntry,
    check_scope,
    corpus_entry,
    file_search_entry,
)
from antiphon.tools.corpus.file_search import FileSearch
from antiphon.tools.corpus.reading import GetChunks, InspectMetadata, ListStores
from antiphon.tools.corpus.search import FilterChunks, Grep, SearchCorpus

__all__ = ["CorpusProvider"]

_Maker = Callable[[Library, Mapping[str, Any], CorpusEntry], HostedTool]

_MAKERS: Final[Mapping[str, _Maker]] = {
    "search_corpus": SearchCorpus,
    "grep": Grep,
    "filter_chunks": FilterChunks,
    "inspect_metadata": InspectMetadata,
    "get_chunks": GetChunks,
    "list_stores": ListStores,
}


class CorpusProvider(Provider):
    """Runs `file_search` and the tools of corpus search over one library."""

    types = CORPUS_TYPES | {FILE_SEARCH}

    def __init__(self, library: Library) -> None:
        self._library = library

    def check(self, declared: Sequence[dict[str, Any]], request: CreateResponse) -> None:
        """See that the entries can be read, that they have one scope, and that `get_chunks` is not forced (B7).

        Raises:
            InvalidRequestError: which of these does not hold.
        """
        for entry in declared:
            if entry["type"] == FILE_SEARCH:
                file_search_entry(entry)
        entries = [corpus_entry(entry) for entry in declared if entry["type"] != FILE_SEARCH]
        kinds = [entry.type for entry in entries]
        twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
        if twice is not None:
            raise InvalidRequestError(
                f"Invalid 'tools': '{twice}' is declared more than once.", param="tools", code="invalid_value"
            )
        check_scope(entries)
        choice = request.tool_choice
        if isinstance(choice, NamedToolChoice) and choice.type == "get_chunks":
            raise InvalidRequestError(
                "Invalid 'tool_choice': 'get_chunks' cannot be forced, since it needs ids that only a search gives.",
                param="tool_choice",
                code="invalid_value",
            )

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """One function for all entries of `file_search`, and one for each other entry."""
        tools: list[HostedTool] = []
        files = [entry for entry in declared if entry["type"] == FILE_SEARCH]
        if files:
            tools.append(FileSearch(self._library, files))
        for entry in declared:
            kind = KINDS.get(entry["type"])
            if kind is not None:
                tools.append(_MAKERS[kind](self._library, entry, corpus_entry(entry)))
        return Opened(tools)

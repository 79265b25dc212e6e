"""The entries of `tools` that search documents: their fields, defaults and bounds (hosted-search 3.1, hosted-tools A1).

All entries of corpus search have one scope (B10): the same `store_identifiers`, or none, and then the model names a
store in each call and can list them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from antiphon.corpus.library import Ranking
from antiphon.errors import InvalidRequestError
from antiphon.protocol.json import field_error
from antiphon.protocol.vector_stores import HybridWeights, RankingOptions

__all__ = [
    "CORPUS_TYPES",
    "FILE_SEARCH",
    "KINDS",
    "CorpusEntry",
    "FileSearchEntry",
    "check_scope",
    "corpus_entry",
    "file_search_entry",
    "ranking_of",
]

FILE_SEARCH: Final = "file_search"

KINDS: Final[Mapping[str, str]] = {
    "search_corpus": "search_corpus",
    "grep": "grep",
    "filter_chunks": "filter_chunks",
    "inspect_metadata": "inspect_metadata",
    "get_chunks": "get_chunks",
    "list_stores": "list_stores",
    "store_search": "search_corpus",
    "store_grep": "grep",
    "store_list_chunks": "filter_chunks",
    "store_metadata_facets": "inspect_metadata",
}
"""What each type of corpus tool is; the later ones are older names, and their calls have items by those names."""

CORPUS_TYPES: Final = frozenset(KINDS)

_MOST_STORES = 16
_Identifier = Annotated[str, Meta(min_length=1, max_length=256)]


class FileSearchEntry(Struct):
    """OpenAI's `file_search`."""

    vector_store_ids: Annotated[list[_Identifier], Meta(max_length=_MOST_STORES)] = []
    filters: dict[str, Any] | None = None
    max_num_results: Annotated[int, Meta(ge=1, le=50)] | None = None
    ranking_options: RankingOptions | None = None


class CorpusEntry(Struct):
    """A tool of corpus search; which of the fields it heeds depends on its type."""

    type: str
    store_identifiers: Annotated[list[_Identifier], Meta(min_length=1, max_length=_MOST_STORES)] | None = None
    filters: dict[str, Any] | None = None
    score_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    citations: bool | None = None
    max_num_results: Annotated[int, Meta(ge=1, le=30)] | None = None
    max_values_per_field: Annotated[int, Meta(ge=1, le=20)] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] | None = None


def file_search_entry(declared: Mapping[str, Any], path: str = "tools") -> FileSearchEntry:
    """An entry of `file_search`.

    Raises:
        InvalidRequestError: a field has a wrong type or is out of range.
    """
    return _converted(declared, FileSearchEntry, path)


def corpus_entry(declared: Mapping[str, Any], path: str = "tools") -> CorpusEntry:
    """An entry of corpus search.

    Raises:
        InvalidRequestError: a field has a wrong type or is out of range.
    """
    return _converted(declared, CorpusEntry, path)


def check_scope(entries: Sequence[CorpusEntry]) -> None:
    """See that all entries have one scope (B10).

    Raises:
        InvalidRequestError: they name different stores, or none while the model cannot list them.
    """
    scopes = {
        None if entry.store_identifiers is None else tuple(entry.store_identifiers)
        for entry in entries
        if KINDS[entry.type] != "list_stores"
    }
    if len(scopes) > 1:
        raise InvalidRequestError(
            "Invalid 'tools': all tools over stores must have the same 'store_identifiers'.",
            param="tools",
            code="invalid_value",
        )
    if None in scopes and all(KINDS[entry.type] != "list_stores" for entry in entries):
        raise InvalidRequestError(
            "Invalid 'tools': give 'store_identifiers', or declare 'list_stores' too, so that the model can choose.",
            param="tools",
            code="missing_required_parameter",
        )


def ranking_of(options: RankingOptions | None) -> Ranking:
    """How the results of `file_search` are ranked."""
    if options is None:
        return Ranking()
    weights = options.hybrid_search or HybridWeights()
    return Ranking(
        text_weight=weights.text_weight,
        vector_weight=weights.embedding_weight,
        threshold=options.score_threshold or 0.0,
        rerank=options.ranker != "none",
    )


_Entry = FileSearchEntry | CorpusEntry


def _converted(declared: Mapping[str, Any], kind: type[Any], path: str) -> Any:
    # A null is the same as an absent field (client-contract 4.4).
    given = {name: value for name, value in declared.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None

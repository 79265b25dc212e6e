"""What can be asked of the documents in vector stores, for hosted tools and for the API alike.

The one way to search: `Library` is made by the runtime over a store and an embedder. A vector store is named by its id
or its name (`store_identifiers`, hosted-search 3.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from antiphon.store.base import Scope
from antiphon.store.corpora import StoredVectorStore, StoreFile

__all__ = ["RANKING", "Facet", "Found", "FoundChunk", "Library", "Match", "Ranking", "chunk_id", "split_chunk_id"]


class Ranking(Struct, frozen=True):
    """How results are ranked.

    The weights are those of reciprocal rank fusion; `threshold` is the least score, from 0 to 1; `rerank` asks a
    reranker where there is one.
    """

    text_weight: float = 1.0
    vector_weight: float = 1.0
    threshold: float = 0.0
    rerank: bool = True


RANKING = Ranking()
"""How results are ranked where nobody says otherwise."""


class FoundChunk(Struct, frozen=True):
    """A chunk that was found, with its file; `score` is from 0 to 1, None where nothing was scored.

    `detail` is what is known of the chunk (heading path, page, lines), `attributes` are those of its file.
    """

    store: StoredVectorStore
    file: StoreFile
    index: int
    heading: str
    text: str
    score: float | None
    attributes: Mapping[str, Any]
    detail: Mapping[str, Any]


class Found(Struct, frozen=True):
    """The answer of a search. `note` says what was not done, such as that there are no vectors; empty for nothing."""

    chunks: Sequence[FoundChunk]
    note: str = ""


class Match(Struct, frozen=True):
    """A chunk in which a pattern was found; `text` are windows of about 100 tokens around the matches, joined."""

    chunk: FoundChunk
    text: str
    matches: int


class Facet(Struct, frozen=True):
    """A field of the files' attributes: its values with how many chunks have them, and whether it can be ranked by."""

    name: str
    values: Sequence[tuple[Any, int]]
    rankable: bool


class Library(ABC):
    """Search over vector stores. `filters` are trees as OpenAI or Mixedbread write them (see `corpus.filters`)."""

    @abstractmethod
    async def stores(self, scope: Scope, identifiers: Sequence[str]) -> Sequence[StoredVectorStore]:
        """The vector stores of these ids or names, in that order.

        Raises:
            NotFoundError: there is none by one of them in this scope; the message names it.
        """

    @abstractmethod
    async def search(
        self,
        scope: Scope,
        stores: Sequence[StoredVectorStore],
        queries: Sequence[str],
        *,
        most: int,
        filters: Sequence[Mapping[str, Any]] = (),
        ranking: Ranking = RANKING,
        without: frozenset[str] = frozenset(),
    ) -> Found:
        """The best chunks for some queries together; all the filters must hold, and chunks of these ids are left out.

        Raises:
            InvalidRequestError: a filter cannot be read.
        """

    @abstractmethod
    async def grep(
        self,
        scope: Scope,
        stores: Sequence[StoredVectorStore],
        pattern: str,
        *,
        most: int,
        case_sensitive: bool = False,
        filters: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Match]:
        """The first chunks whose text matches a pattern of RE2.

        Raises:
            InvalidRequestError: the pattern or a filter cannot be read.
        """

    @abstractmethod
    async def chunks(
        self,
        scope: Scope,
        stores: Sequence[StoredVectorStore],
        *,
        most: int,
        filters: Sequence[Mapping[str, Any]] = (),
        rank_by: str | None = None,
        descending: bool = True,
        after: str | None = None,
    ) -> Found:
        """Chunks by their files' attributes, ranked by a numeric one where `rank_by` names it; beyond a chunk's id.

        Raises:
            InvalidRequestError: a filter cannot be read.
        """

    @abstractmethod
    async def get(
        self, scope: Scope, stores: Sequence[StoredVectorStore], ids: Sequence[str]
    ) -> Sequence[FoundChunk | None]:
        """The chunks of these ids, each or None."""

    @abstractmethod
    async def facets(
        self,
        scope: Scope,
        stores: Sequence[StoredVectorStore],
        *,
        filters: Sequence[Mapping[str, Any]] = (),
        most_values: int = 8,
        most_fields: int = 64,
    ) -> Sequence[Facet]:
        """What attributes the files of these vector stores have.

        Raises:
            InvalidRequestError: a filter cannot be read.
        """

    @abstractmethod
    async def listed(self, scope: Scope, *, limit: int, after: str = "") -> tuple[Sequence[StoredVectorStore], bool]:
        """Vector stores of the tenant, newest first, and whether more follow."""


def chunk_id(file_id: str, index: int) -> str:
    """The id of a chunk, the same in every request (hosted-search 3.1)."""
    return f"{file_id}:{index}"


def split_chunk_id(identity: str) -> tuple[str, int] | None:
    """The file's id and the index; None where it is no such id."""
    file_id, _, index = identity.rpartition(":")
    if not file_id or not index.isascii() or not index.isdigit() or len(index) > 9:
        return None
    return file_id, int(index)

"""Search in the documents of vector stores: by words and by vectors together, by pattern, by attributes, by id.

Whatever cannot be had, vectors, words or the reranker, is done without, and the answer says so.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from antiphon.corpus.embedding import TextEmbedder
from antiphon.corpus.facets import MOST_SCANNED, facets_of
from antiphon.corpus.filters import read_filters
from antiphon.corpus.grep import Scan
from antiphon.corpus.library import RANKING, Facet, Found, FoundChunk, Library, Match, Ranking, split_chunk_id
from antiphon.corpus.patterns import compiled
from antiphon.corpus.reranking import Reranker
from antiphon.corpus.searching import OnFault, Search, Searching
from antiphon.corpus.shelf import Shelf, ShelvedFile, Shelves
from antiphon.corpus.vectors import VectorSearch
from antiphon.errors import InvalidRequestError, NotFoundError
from antiphon.protocol.json import quoted
from antiphon.settings import Settings
from antiphon.store.base import Scope
from antiphon.store.corpora import CorpusStore, Place, StoredChunk, StoredVectorStore, VectorStorePage

__all__ = ["Librarian"]

MOST_QUESTIONS: Final = 32
_PAGE: Final = 256
_GREP_SECONDS: Final = 10.0
"""After so long a search for a pattern ends with what it has."""

_USED_EVERY: Final = 60.0
"""Seconds for which a use of a vector store is not noted again."""

_MOST_USED: Final = 1_000


class Librarian(Library):
    """The library over one store.

    `embedder` makes the vectors of questions, and must be the one that makes those of documents; None for none.
    `on_fault` is told what a search did without, and why; `on_search` how each ended (whole, partial where something
    was done without, or failed) and after how many seconds.
    """

    def __init__(
        self,
        store: CorpusStore,
        embedder: TextEmbedder | None,
        settings: Settings,
        reranker: Reranker | None = None,
        clock: Callable[[], float] = time.time,
        on_fault: OnFault | None = None,
        on_search: Callable[[str, float], None] = lambda _outcome, _seconds: None,
    ) -> None:
        self._store = store
        self._shelves = Shelves(store)
        self._vectors = VectorSearch(store, settings.max_vector_bytes)
        self._searching = Searching(store, self._vectors, embedder, reranker, on_fault)
        self._clock = clock
        self._on_search = on_search
        self._used: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def close(self) -> None:
        """End what goes on in the background; the embedder and the reranker are closed by whoever made them."""
        await self._vectors.close()

    async def stores(self, scope: Scope, identifiers: Sequence[str]) -> Sequence[StoredVectorStore]:
        """See `Library.stores`."""
        found: list[StoredVectorStore] = []
        for identifier in identifiers:
            row = await self._store.find_vector_store(scope, identifier)
            row = row or await self._store.find_vector_store_named(scope, identifier)
            if row is None:
                raise NotFoundError(f"There is no vector store '{quoted(identifier)}'.", code="vector_store_not_found")
            if all(row.id != other.id for other in found):
                found.append(row)
        return found

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
        """See `Library.search`."""
        questions = list(dict.fromkeys(query for query in queries if query.strip()))
        if not 1 <= len(questions) <= MOST_QUESTIONS:
            raise _invalid("query", f"1 to {MOST_QUESTIONS} questions are expected, and none of them empty")
        if ranking.text_weight <= 0 and ranking.vector_weight <= 0:
            raise _invalid("ranking_options", "one of the weights is more than 0")
        shelves = await self._opened(scope, stores)
        files = await _holding(shelves, filters)
        began, outcome = time.monotonic(), "failed"
        try:
            found = await self._searching.run(scope, Search(shelves, files, questions, most, ranking, without))
            outcome = "partial" if found.note else "whole"
        finally:
            self._on_search(outcome, time.monotonic() - began)
        return found

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
        """See `Library.grep`.

        Raises:
            InvalidRequestError: the pattern or a filter cannot be read, or nothing was found in the time there is.
            UnsupportedError: RE2 is not installed.
        """
        scan = Scan(compiled(pattern, case_sensitive=case_sensitive), most)
        shelves = await self._opened(scope, stores)
        files = await _holding(shelves, filters)
        ends = time.monotonic() + _GREP_SECONDS
        matches: list[Match] = []
        for shelf, only in zip(shelves, files, strict=True):
            seen = len(scan.found)
            looked = await self._scanned(scope, shelf, only, scan, ends)
            for match in scan.found[seen:]:
                chunk = shelf.found(match.chunk)
                if chunk is not None:
                    matches.append(Match(chunk, match.text, match.matches))
            if not looked and not matches:
                raise InvalidRequestError(
                    f"The pattern was not found in {_GREP_SECONDS:g} seconds, in which not all documents could be "
                    "looked at. Name fewer stores, or filter their files.",
                    param="pattern",
                    code="search_too_long",
                )
        return matches

    async def _scanned(
        self, scope: Scope, shelf: Shelf, files: Collection[str] | None, scan: Scan, ends: float
    ) -> bool:
        """Search in the chunks of a vector store; False where the time ended before that."""
        async with aclosing(self._pages(scope, shelf, files)) as pages:
            async for page in pages:
                start = 0
                while start < len(page) and not scan.done:
                    if time.monotonic() >= ends:
                        return False
                    start += await asyncio.to_thread(scan.slice, page[start:])
                if scan.done:
                    break
        return True

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
        """See `Library.chunks`. Files without the number that they are ranked by come last."""
        beyond = None if after is None else split_chunk_id(after)
        if after is not None and beyond is None:
            raise _invalid("after", "the id of a chunk is expected")
        shelves = await self._opened(scope, stores)
        pairs = list(zip(shelves, await _holding(shelves, filters), strict=True))
        note = ""
        if rank_by is not None and not _rankable(pairs, rank_by):
            note = f"The chunks are not ranked: '{quoted(rank_by)}' is no number of these files."
            rank_by = None
        order = _ordered(pairs, rank_by, descending)
        found: list[FoundChunk] = []
        if beyond is not None:
            place = next((at for at, (_, file) in enumerate(order) if file.row.file_id == beyond[0]), None)
            if place is None:
                raise NotFoundError(f"There is no chunk '{quoted(after or '')}' among these.", param="after")
            order = order[place:]
        for shelf, file in order:
            if len(found) >= most:
                break
            if not file.row.chunks:
                continue
            file_id = file.row.file_id
            start = beyond if beyond is not None and beyond[0] == file_id else None
            rows = await self._store.list_chunks(scope, shelf.store.id, start, most - len(found), [file_id])
            found += [chunk for chunk in map(shelf.found, rows) if chunk is not None]
        return Found(found, note)

    async def get(
        self, scope: Scope, stores: Sequence[StoredVectorStore], ids: Sequence[str]
    ) -> Sequence[FoundChunk | None]:
        """See `Library.get`."""
        places = [split_chunk_id(identity) for identity in ids]
        wanted = [place for place in dict.fromkeys(places) if place is not None]
        found: dict[Place, FoundChunk] = {}
        for shelf in await self._opened(scope, stores):
            missing = [place for place in wanted if place not in found and place[0] in shelf.files]
            for row in await self._store.find_chunks(scope, shelf.store.id, missing) if missing else ():
                chunk = shelf.found(row)
                if chunk is not None:
                    found[row.file_id, row.index] = chunk
        return [None if place is None else found.get(place) for place in places]

    async def facets(
        self,
        scope: Scope,
        stores: Sequence[StoredVectorStore],
        *,
        filters: Sequence[Mapping[str, Any]] = (),
        most_values: int = 8,
        most_fields: int = 64,
    ) -> Sequence[Facet]:
        """See `Library.facets`; of many files, the first ones are looked at."""
        shelves = await self._opened(scope, stores)
        order = _ordered(list(zip(shelves, await _holding(shelves, filters), strict=True)), None, True)
        looked = [(file.attributes, file.row.chunks) for _, file in order[:MOST_SCANNED]]
        return await asyncio.to_thread(facets_of, looked, most_values, most_fields)

    async def listed(self, scope: Scope, *, limit: int, after: str = "") -> tuple[Sequence[StoredVectorStore], bool]:
        """See `Library.listed`."""
        rows = await self._store.list_vector_stores(scope, VectorStorePage(limit + 1, after=after))
        return rows[:limit], len(rows) > limit

    async def _opened(self, scope: Scope, stores: Sequence[StoredVectorStore]) -> list[Shelf]:
        """The files of vector stores, which are used by that."""
        now = self._clock()
        for row in stores:
            key = (scope.tenant, row.id)
            if now - self._used.get(key, -_USED_EVERY) >= _USED_EVERY:
                self._used[key] = now
                self._used.move_to_end(key)
                if len(self._used) > _MOST_USED:
                    self._used.popitem(last=False)
                await self._store.use_vector_store(scope, row.id, int(now))
        return [await self._shelves.of(scope, row) for row in stores]

    async def _pages(
        self, scope: Scope, shelf: Shelf, files: Collection[str] | None
    ) -> AsyncGenerator[Sequence[StoredChunk]]:
        after: Place | None = None
        only = None if files is None else list(files)
        while only is None or only:
            page = await self._store.list_chunks(scope, shelf.store.id, after, _PAGE, only)
            if page:
                yield page
            if len(page) < _PAGE:
                return
            after = page[-1].file_id, page[-1].index


Pairs = Sequence[tuple[Shelf, Collection[str] | None]]


async def _holding(shelves: Sequence[Shelf], filters: Sequence[Mapping[str, Any]]) -> list[Collection[str] | None]:
    """For each vector store the files that all filters let through; None for all of them."""
    wanted = read_filters(filters)
    if wanted is None:
        return [None for _ in shelves]
    return [await asyncio.to_thread(shelf.holding, wanted) for shelf in shelves]


def _number(file: ShelvedFile, name: str) -> float | None:
    value = file.attributes.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _rankable(pairs: Pairs, name: str) -> bool:
    """Whether files have a number of that name, and none has anything else by it."""
    files = [file for shelf, only in pairs for file in _files(shelf, only) if file.attributes.get(name) is not None]
    return bool(files) and all(_number(file, name) is not None for file in files)


def _files(shelf: Shelf, only: Collection[str] | None) -> list[ShelvedFile]:
    return [file for file_id, file in shelf.files.items() if only is None or file_id in only]


def _ordered(pairs: Pairs, rank_by: str | None, descending: bool) -> list[tuple[Shelf, ShelvedFile]]:
    """The files of some vector stores in the order in which their chunks are listed."""
    order = [(shelf, file) for shelf, only in pairs for file in _files(shelf, only)]
    if rank_by is None:
        return order

    def key(pair: tuple[Shelf, ShelvedFile]) -> tuple[bool, float]:
        value = _number(pair[1], rank_by)
        return value is None, 0.0 if value is None else -value if descending else value

    return sorted(order, key=key)


def _invalid(param: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid '{param}': {what}.", param=param, code="invalid_value")

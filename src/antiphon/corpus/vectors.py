"""Search by vectors in the chunks of vector stores: exact in memory, or by a graph where a store is large.

Where the store can search vectors itself, it does, and nothing is kept of them here. Else they are read from the store
page by page. What is in memory follows the store's version by what has changed, and is bounded in bytes: what was used
least recently goes. A vector store that alone is larger than the bound, or whose graph is still being made, is read
page by page for each search.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.corpus.matrix import (
    BLOCK_ROWS,
    FILE,
    GRAPH_ROW,
    PLACE,
    Block,
    Graph,
    VectorHit,
    VectorIndex,
    best_of,
    block_of,
    queries_of,
)
from antiphon.corpus.numbers import numpy
from antiphon.corpus.shelf import Shelf
from antiphon.errors import AntiphonError
from antiphon.store.base import Scope
from antiphon.store.corpora import ChunkVector, CorpusStore, Place

__all__ = ["EXACT_MOST", "Nearest", "VectorSearch"]

EXACT_MOST: Final = 100_000
"""Chunks of a vector store that are compared one by one; beyond, a graph is made."""

_PAGE: Final = 512
"""Vectors of one read, which keeps others from the event loop for a few milliseconds."""

_AT_ONCE: Final = 2
"""Searches that compute at the same time, and stores that are read: more would take turns at the same processors."""


class Nearest(Struct, frozen=True):
    """For each question the nearest chunks, best first, and how many chunks have no vector of the questions' length."""

    hits: Sequence[Sequence[VectorHit]]
    missing: int = 0


class _Kept:
    """The index of one vector store for vectors of one length."""

    def __init__(self, width: int) -> None:
        self.index = VectorIndex(width)
        self.version = -1
        self.lock = asyncio.Lock()
        self.building: asyncio.Task[None] | None = None


Key = tuple[str, str, int]


class VectorSearch:
    """Searches vector stores by vectors; `most_bytes` bounds what is kept of all of them."""

    def __init__(self, store: CorpusStore, most_bytes: int, exact_most: int = EXACT_MOST) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._exact_most = exact_most
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._computing = asyncio.Semaphore(_AT_ONCE)
        self._reading = asyncio.Semaphore(_AT_ONCE)

    @property
    def kept_bytes(self) -> int:
        """Bytes of all that is kept."""
        return sum(each.index.nbytes for each in self._kept.values())

    async def close(self) -> None:
        """End what goes on in the background, and keep nothing."""
        tasks = [each.building for each in self._kept.values() if each.building is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._kept.clear()

    async def search(
        self, scope: Scope, shelf: Shelf, vectors: Sequence[bytes], most: int, files: Collection[str] | None = None
    ) -> Nearest:
        """For each vector of a question the nearest chunks of a vector store, of these files where given.

        Vectors of another length than the questions' were made by another model, and are not found.
        """
        width = len(vectors[0]) // 4
        queries = queries_of(vectors)
        if files is not None and not files:
            return Nearest([[] for _ in vectors])
        near = await self._store.search_vectors(scope, shelf.store.id, vectors, most, files)
        if near is not None:
            self._let_go((scope.tenant, shelf.store.id, width))
            hits = [[VectorHit(hit.score, hit.file_id, hit.index) for hit in each] for each in near.hits]
            return Nearest(hits, max(0, shelf.chunks - near.count))
        if self._needed(shelf, width) > self._most_bytes:
            return await self._streamed(scope, shelf, queries, most, files)
        kept = self._entry((scope.tenant, shelf.store.id, width))
        async with kept.lock:
            if kept.version < shelf.store.version:
                await self._follow(scope, shelf, kept)
            index = kept.index
            whole = kept.version >= shelf.store.version
        self._make_room(kept)
        if not whole:
            return await self._streamed(scope, shelf, queries, most, files)
        async with self._computing:
            return await asyncio.to_thread(_nearest, index, shelf, queries, most, files)

    def _needed(self, shelf: Shelf, width: int) -> int:
        """Bytes of the index of some files."""
        row = 4 * width if shelf.chunks <= self._exact_most else 2 * width + GRAPH_ROW
        return shelf.chunks * (row + PLACE) + len(shelf.files) * FILE

    def _entry(self, key: Key) -> _Kept:
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(key[2])
        self._kept.move_to_end(key)
        return kept

    def _make_room(self, used: _Kept) -> None:
        """Let go of what was used least recently, but not of what is in use now."""
        for key in list(self._kept):
            if self.kept_bytes <= self._most_bytes:
                return
            if self._kept[key] is not used:
                self._let_go(key)

    def _let_go(self, key: Key) -> None:
        """Keep an index no longer, unless it is being read."""
        each = self._kept.get(key)
        if each is not None and not each.lock.locked():
            del self._kept[key]
            if each.building is not None:
                each.building.cancel()

    async def _follow(self, scope: Scope, shelf: Shelf, kept: _Kept) -> None:
        """Bring an index to the version of the files; one that grew too large for blocks is left as it is."""
        wanted = {file_id: file.row.revision for file_id, file in shelf.files.items()}
        index = kept.index
        gone = {file_id for file_id, revision in index.revisions.items() if wanted.get(file_id) != revision}
        new = {file_id: revision for file_id, revision in wanted.items() if index.revisions.get(file_id) != revision}
        more = sum(shelf.files[file_id].row.chunks for file_id in new)
        exact = sum(block.size for block in index.blocks) + more
        if exact > self._exact_most:
            self._begin_graph(scope, shelf, kept)
        if exact > 2 * self._exact_most or (exact > self._exact_most and not index.blocks):
            # Too much to be read beside the graph that is being made.
            return
        index, numbers = (await asyncio.to_thread(index.without, gone)).numbered(new)
        blocks: list[Block] = []
        if new:
            only = None if 2 * len(new) > len(wanted) else list(new)
            blocks = [block async for block in self._blocks(scope, shelf, index.width, numbers, only)]
        kept.index = await asyncio.to_thread(index.extended, blocks)
        kept.version = shelf.store.version
        if kept.index.graph_worn:
            self._begin_graph(scope, shelf, kept)

    def _begin_graph(self, scope: Scope, shelf: Shelf, kept: _Kept) -> None:
        if kept.building is None:
            kept.building = asyncio.create_task(self._build(scope, shelf, kept))
            kept.building.add_done_callback(_reported)

    async def _build(self, scope: Scope, shelf: Shelf, kept: _Kept) -> None:
        """Make the graph of a large vector store; what changes meanwhile is followed afterwards."""
        try:
            revisions = {file_id: file.row.revision for file_id, file in shelf.files.items()}
            index, numbers = VectorIndex(kept.index.width).numbered(revisions)
            graph = Graph(index.width)
            parts: list[Block] = []
            async for block in self._blocks(scope, shelf, index.width, numbers, None):
                await asyncio.to_thread(graph.add, block.rows)
                parts.append(replace(block, rows=None))
            owners, positions = await asyncio.to_thread(_columns, parts)
            async with kept.lock:
                kept.index = replace(index, graph=graph, owners=owners, positions=positions)
                kept.version = shelf.store.version
        finally:
            kept.building = None

    async def _blocks(
        self, scope: Scope, shelf: Shelf, width: int, numbers: dict[str, int], only: Collection[str] | None
    ) -> AsyncGenerator[Block]:
        """The vectors of files that have a number, in blocks of up to `BLOCK_ROWS`."""
        waiting: list[ChunkVector] = []
        async with self._reading, contextlib.aclosing(self._pages(scope, shelf, only)) as pages:
            async for page in pages:
                waiting.extend(page)
                if len(waiting) >= BLOCK_ROWS:
                    block = await asyncio.to_thread(block_of, waiting, width, numbers)
                    waiting = []
                    if block is not None:
                        yield block
        block = await asyncio.to_thread(block_of, waiting, width, numbers)
        if block is not None:
            yield block

    async def _pages(
        self, scope: Scope, shelf: Shelf, only: Collection[str] | None
    ) -> AsyncGenerator[Sequence[ChunkVector]]:
        after: Place | None = None
        while page := await self._store.chunk_vectors(scope, shelf.store.id, after, _PAGE, only):
            yield page
            if len(page) < _PAGE:
                return
            after = page[-1].file_id, page[-1].index

    async def _streamed(
        self, scope: Scope, shelf: Shelf, queries: Any, most: int, files: Collection[str] | None
    ) -> Nearest:
        """The nearest chunks of a vector store that is not in memory."""
        width = queries.shape[1]
        best: list[list[VectorHit]] = [[] for _ in range(len(queries))]
        wanted = shelf.files.keys() if files is None else files

        def compared(page: Sequence[ChunkVector]) -> None:
            index, numbers = VectorIndex(width).numbered({each.file_id: 0 for each in page})
            block = block_of(page, width, {name: number for name, number in numbers.items() if name in wanted})
            if block is not None:
                for found, more in zip(best, index.extended([block]).search(queries, most), strict=True):
                    both = [(hit.score, hit.file_id, hit.index) for hit in (*found, *more)]
                    found[:] = best_of(both, most)

        async with self._reading, contextlib.aclosing(self._pages(scope, shelf, files)) as pages:
            async for page in pages:
                await asyncio.to_thread(compared, page)
        return Nearest(best)


def _reported(task: asyncio.Task[None]) -> None:
    """Report what ended the making of a graph; that the store is away is told by the searches themselves."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, AntiphonError):
        context = {"message": "the graph of a vector store could not be made", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


def _nearest(index: VectorIndex, shelf: Shelf, queries: Any, most: int, files: Collection[str] | None) -> Nearest:
    return Nearest(index.search(queries, most, files), max(0, shelf.chunks - index.found))


def _columns(parts: Sequence[Block]) -> tuple[Any, Any]:
    np = numpy()
    if not parts:
        return np.zeros(0, "<i4"), np.zeros(0, "<i4")
    return np.concatenate([part.owners for part in parts]), np.concatenate([part.positions for part in parts])

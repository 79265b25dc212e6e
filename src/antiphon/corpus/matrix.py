"""The vectors of one vector store in memory: exact ones in blocks, those of a large store in a graph of usearch.

An index is never changed: one that differs by some files is made of it, with the same blocks. What is gone is masked
until it is a good part of everything. All of it is work for a thread.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.corpus.numbers import numpy
from antiphon.store.corpora import ChunkVector

__all__ = [
    "BLOCK_ROWS",
    "FILE",
    "GRAPH_ROW",
    "PLACE",
    "Block",
    "Graph",
    "VectorHit",
    "VectorIndex",
    "best_of",
    "block_of",
    "queries_of",
]

BLOCK_ROWS: Final = 16_384
"""Rows of a block that is left alone; smaller ones are joined when there are many."""

_MANY_SMALL: Final = 16
_SPARSE: Final = 0.2
"""Where fewer rows than this part are looked for, they are taken out before anything is computed."""

_GRAPH_SLICE: Final = 64
_GRAPH_WIDEN: Final = 4
_GRAPH_MOST: Final = 4_096
_GRAPH_EXACT: Final = 20_000
_GRAPH_SEARCH: Final = 128
"""How many vectors a walk through a graph keeps in view: the more, the less it misses."""

GRAPH_ROW: Final = 1_000
"""About what a vector in a graph takes beside its numbers, in bytes."""

PLACE: Final = 8
"""Bytes of the place that a vector has."""

FILE: Final = 100
"""About what a file takes, in bytes."""


class VectorHit(Struct, frozen=True, order=True):
    """A chunk near a question; `score` is the cosine of the angle between them."""

    score: float
    file_id: str
    index: int


class Block(Struct, frozen=True, eq=False):
    """Some vectors, row by row: of which file, by its number in the index, and of which of its chunks."""

    rows: Any
    owners: Any
    positions: Any

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.owners)


def queries_of(vectors: Sequence[bytes]) -> Any:
    """The vectors of questions as the rows of an array."""
    np = numpy()
    return np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)


def block_of(vectors: Sequence[ChunkVector], width: int, numbers: Mapping[str, int]) -> Block | None:
    """The vectors that have so many numbers, of the files that have a number; None where there are none."""
    np = numpy()
    kept = [each for each in vectors if len(each.vector) == 4 * width and each.file_id in numbers]
    if not kept:
        return None
    rows = np.frombuffer(b"".join(each.vector for each in kept), "<f4").reshape(-1, width)
    owners = np.fromiter((numbers[each.file_id] for each in kept), "<i4", len(kept))
    return Block(rows, owners, np.fromiter((each.index for each in kept), "<i4", len(kept)))


def _joined(blocks: Sequence[Block], alive: Any) -> Block:
    """Some blocks as one, without the rows of files that are gone."""
    np = numpy()
    kept = [alive[block.owners] for block in blocks]
    return Block(
        np.concatenate([block.rows[keep] for block, keep in zip(blocks, kept, strict=True)]),
        np.concatenate([block.owners[keep] for block, keep in zip(blocks, kept, strict=True)]),
        np.concatenate([block.positions[keep] for block, keep in zip(blocks, kept, strict=True)]),
    )


Candidates = list[list[tuple[float, int, int]]]
"""For each question: scores, numbers of files, and positions."""


def _best_rows(block: Block, queries: Any, mask: Any, most: int, into: Candidates) -> None:
    """Add the best rows of a block, of those that the mask of files lets through."""
    np = numpy()
    keep = mask[block.owners]
    count = int(keep.sum())
    if not count:
        return
    rows, owners, positions = block.rows, block.owners, block.positions
    if count < _SPARSE * block.size:
        rows, owners, positions = rows[keep], owners[keep], positions[keep]
        keep = None
    scores = rows @ queries.T
    if keep is not None:
        scores[~keep] = -np.inf
    taken = min(most, count)
    for number, found in enumerate(into):
        column = scores[:, number]
        best = np.argpartition(column, -taken)[-taken:]
        found.extend(zip(column[best].tolist(), owners[best].tolist(), positions[best].tolist(), strict=True))


class Graph:
    """The vectors of a large store as 16-bit floats, found by walking a graph; rows are only ever added."""

    def __init__(self, width: int) -> None:
        index: Any = importlib.import_module("usearch.index").Index
        self._index = index(ndim=width, metric="ip", dtype="f16", expansion_search=_GRAPH_SEARCH)
        self._lock = threading.Lock()
        self._size = 0

    @property
    def size(self) -> int:
        """How many vectors it has."""
        return self._size

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return int(self._index.memory_usage)

    def add(self, rows: Any) -> None:
        """Add rows, which get the next numbers; others search in between."""
        np = numpy()
        for start in range(0, len(rows), _GRAPH_SLICE):
            piece = rows[start : start + _GRAPH_SLICE]
            with self._lock:
                self._index.add(np.arange(self._size, self._size + len(piece)), piece, threads=1)
                self._size += len(piece)

    def near(self, query: Any, count: int) -> tuple[list[int], list[float]]:
        """The numbers of the rows near a question, and their cosines; those that are approximately the nearest."""
        with self._lock:
            found = self._index.search(query, min(count, self._size))
        return found.keys.tolist(), (1.0 - found.distances).tolist()

    def rows(self, numbers: Any) -> Any:
        """Rows by their numbers."""
        with self._lock:
            return self._index.get(numbers, dtype=numpy().float32)


class VectorIndex(Struct, frozen=True, eq=False):
    """The vectors of the files of a vector store that are found.

    `files` are ids by number, `alive` says which of them are still there, and `revisions` those of the ones that are.
    Rows of the graph have an owner and a position, by their number.
    """

    width: int
    files: Sequence[str] = ()
    alive: Any = None
    revisions: Mapping[str, int] = {}
    blocks: Sequence[Block] = ()
    graph: Graph | None = None
    owners: Any = None
    positions: Any = None

    @property
    def size(self) -> int:
        """How many vectors there are, those that are masked included."""
        graph = 0 if self.owners is None else len(self.owners)
        return graph + sum(block.size for block in self.blocks)

    @property
    def found(self) -> int:
        """How many vectors there are of files that are still there."""
        graph = 0 if self.owners is None else int(self.alive[self.owners].sum())
        return graph + sum(int(self.alive[block.owners].sum()) for block in self.blocks)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        graph = 0 if self.graph is None else self.graph.nbytes + PLACE * len(self.owners)
        return graph + sum(block.size * (4 * self.width + PLACE) for block in self.blocks) + FILE * len(self.files)

    @property
    def graph_worn(self) -> bool:
        """Whether most rows of the graph are of files that are gone."""
        return self.graph is not None and int(self.alive[self.owners].sum()) * 2 < len(self.owners)

    def without(self, gone: Collection[str]) -> VectorIndex:
        """The index without some files."""
        if not gone:
            return self
        np = numpy()
        alive = self.alive.copy()
        for number in np.flatnonzero(alive).tolist():
            if self.files[number] in gone:
                alive[number] = False
        kept = {file_id: revision for file_id, revision in self.revisions.items() if file_id not in gone}
        return replace(self, alive=alive, revisions=kept)._tidied()

    def numbered(self, files: Mapping[str, int]) -> tuple[VectorIndex, dict[str, int]]:
        """The index with further files of these revisions, which have no vectors yet, and their numbers."""
        np = numpy()
        numbers = {file_id: len(self.files) + at for at, file_id in enumerate(files)}
        old = np.zeros(0, bool) if self.alive is None else self.alive
        alive = np.concatenate([old, np.ones(len(files), bool)])
        return (
            replace(self, files=[*self.files, *files], alive=alive, revisions={**self.revisions, **files}),
            numbers,
        )

    def extended(self, blocks: Iterable[Block]) -> VectorIndex:
        """The index with further blocks of files that have numbers."""
        return replace(self, blocks=[*self.blocks, *blocks])._tidied()

    def _tidied(self) -> VectorIndex:
        """The same with fewer blocks, where there are many small ones, or many rows of files that are gone."""
        rows = sum(block.size for block in self.blocks)
        dead = sum(int((~self.alive[block.owners]).sum()) for block in self.blocks)
        small = [block for block in self.blocks if block.size < BLOCK_ROWS]
        if dead * 2 > rows:
            whole = [_joined([block], self.alive) for block in self.blocks]
            return replace(self, blocks=[block for block in whole if block.size])
        if len(small) <= _MANY_SMALL:
            return self
        large = [block for block in self.blocks if block.size >= BLOCK_ROWS]
        return replace(self, blocks=[*large, _joined(small, self.alive)])

    def search(self, queries: Any, most: int, allowed: Collection[str] | None = None) -> list[list[VectorHit]]:
        """For each question the chunks that are nearest, best first; of these files where given."""
        found: Candidates = [[] for _ in range(len(queries))]
        if self.alive is not None and most > 0:
            mask = self._mask(allowed)
            for block in self.blocks:
                _best_rows(block, queries, mask, most, found)
            if self.graph is not None and len(self.owners):
                self._walk(queries, mask, most, found)
        return [best_of(((score, self.files[owner], at) for score, owner, at in each), most) for each in found]

    def _mask(self, allowed: Collection[str] | None) -> Any:
        if allowed is None:
            return self.alive
        np = numpy()
        return self.alive & np.fromiter((file_id in allowed for file_id in self.files), bool, len(self.files))

    def _walk(self, queries: Any, mask: Any, most: int, into: Candidates) -> None:
        """Add what the graph has near the questions; where few rows are looked for, all of them are compared."""
        assert self.graph is not None  # noqa: S101 - the caller looked
        np = numpy()
        keep = mask[self.owners]
        wanted = np.flatnonzero(keep)
        if len(wanted) <= _GRAPH_EXACT:
            for start in range(0, len(wanted), BLOCK_ROWS):
                part = wanted[start : start + BLOCK_ROWS]
                block = Block(self.graph.rows(part), self.owners[part], self.positions[part])
                _best_rows(block, queries, mask, most, into)
            return
        for number, found in enumerate(into):
            count = 2 * most
            while True:
                keys, scores = self.graph.near(queries[number], count)
                # Rows that came later than this index are not its own.
                near = [(score, key) for key, score in zip(keys, scores, strict=True) if key < len(keep) and keep[key]]
                if len(near) >= most or count >= _GRAPH_MOST:
                    break
                count *= _GRAPH_WIDEN
            found.extend((score, int(self.owners[key]), int(self.positions[key])) for score, key in near[:most])


def best_of(candidates: Iterable[tuple[float, str, int]], most: int) -> list[VectorHit]:
    """The best of some candidates; those that are equally good in the order of their places."""
    ranked = sorted(candidates, key=lambda each: (-each[0], each[1], each[2]))
    return [VectorHit(*each) for each in ranked[:most]]

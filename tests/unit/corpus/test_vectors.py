"""Search by vectors: exact and by a graph, over what changes, within a bound of memory."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.corpus import matrix
from antiphon.corpus.matrix import VectorHit
from antiphon.corpus.shelf import Shelves
from antiphon.corpus.vectors import VectorSearch
from antiphon.errors import UnavailableError
from antiphon.store.corpora import ChunkVector, NewChunk, Place
from antiphon.store.memory import MemoryStore
from antiphon.store.rows import Scope, StoreLimits
from support.corpora import ROOM, claimed, fill, new_file, new_store, upload
from support.stores import OURS

requirement = pytest.mark.requirement

Numbers = Sequence[float]
ENOUGH = 2**30


def packed(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def unit(seed: int, count: int, width: int = 8) -> Any:
    rows = np.random.default_rng(seed).standard_normal((count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")


class Corpus:
    """A vector store in memory, what is in it, and a search over it that counts what it reads."""

    def __init__(self, **fields: Any) -> None:
        self.store = MemoryStore(StoreLimits())
        self.rows: dict[str, Any] = {}
        self.read = self.missing = 0
        given = {"most_bytes": ENOUGH, **fields}
        self.search = VectorSearch(self.store, **given)
        self.shelves = Shelves(self.store)
        whole = self.store.chunk_vectors

        async def counted(scope: Scope, name: str, after: Place | None, most: int, files: Any = None) -> Any:
            found: Sequence[ChunkVector] = await whole(scope, name, after, most, files)
            self.read += len(found)
            return found

        self.store.chunk_vectors = counted

    async def put(self, file_id: str, rows: Any) -> None:
        if await self.store.find_file(OURS, file_id) is None:
            await upload(self.store, file_id)
        assert await self.store.add_store_files(OURS, "vs-1", [new_file(file_id)], ROOM) == []
        ingestion = await claimed(self.store)
        chunks = [NewChunk(at, "", "x", b"{}", row.tobytes()) for at, row in enumerate(rows)]
        for start in range(0, len(chunks), 500):
            assert await self.store.add_chunks(ingestion, chunks[start : start + 500])
        assert await self.store.finish_ingestion(ingestion, None)
        self.rows[file_id] = rows

    async def remove(self, file_id: str) -> None:
        assert await self.store.remove_store_file(OURS, "vs-1", file_id)
        del self.rows[file_id]

    async def found(self, queries: Any, most: int, files: Sequence[str] | None = None) -> list[list[VectorHit]]:
        row = await self.store.find_vector_store(OURS, "vs-1")
        assert row is not None
        shelf = await self.shelves.of(OURS, row)
        nearest = await self.search.search(OURS, shelf, [each.tobytes() for each in queries], most, files)
        self.missing = nearest.missing
        return [list(hits) for hits in nearest.hits]

    def expected(self, query: Any, most: int, files: Sequence[str] | None = None) -> list[tuple[str, int]]:
        scored = [
            (-float(np.dot(row, query)), file_id, at)
            for file_id, rows in self.rows.items()
            if files is None or file_id in files
            for at, row in enumerate(rows)
            if len(row) == len(query)
        ]
        return [(file_id, at) for _, file_id, at in sorted(scored)[:most]]


async def corpus(**fields: Any) -> Corpus:
    made = Corpus(**fields)
    await made.store.create_vector_store(OURS, new_store(), ROOM)
    return made


def places(hits: Sequence[VectorHit]) -> list[tuple[str, int]]:
    return [(hit.file_id, hit.index) for hit in hits]


@requirement("search:vectors:exact")
async def test_the_nearest_are_found_with_their_cosines_for_several_questions_at_once():
    over = await corpus()
    for number in range(5):
        await over.put(f"file-{number}", unit(number, 40))
    queries = unit(99, 3)
    found = await over.found(queries, 7)
    assert [places(each) for each in found] == [over.expected(query, 7) for query in queries]
    best = found[0][0]
    assert abs(best.score - float(np.dot(over.rows[best.file_id][best.index], queries[0]))) < 1e-6
    some = ["file-1", "file-3"]
    assert [places(each) for each in await over.found(queries, 7, some)] == [
        over.expected(query, 7, some) for query in queries
    ]
    assert places((await over.found(queries, 500, ["file-4"]))[1]) == over.expected(queries[1], 500, ["file-4"])
    assert await over.found(queries, 7, []) == [[], [], []]
    assert await over.found(queries, 7, ["absent"]) == [[], [], []]


@requirement("search:vectors:incremental")
async def test_what_has_changed_is_read_and_nothing_else():
    over = await corpus()
    for number in range(4):
        await over.put(f"file-{number}", unit(number, 30))
    query = unit(7, 1)
    await over.found(query, 5)
    assert over.read == 120
    await over.found(query, 5)
    assert over.read == 120
    await over.put("file-9", unit(9, 10))
    assert places((await over.found(query, 50))[0]) == over.expected(query[0], 50)
    assert over.read == 130
    await over.remove("file-1")
    assert places((await over.found(query, 50))[0]) == over.expected(query[0], 50)
    assert over.read == 130
    await over.put("file-2", unit(22, 30))
    assert places((await over.found(query, 50))[0]) == over.expected(query[0], 50)
    assert over.read == 160


STEPS = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 6)), max_size=8)


@requirement("search:vectors:incremental")
@settings(max_examples=25)
@given(STEPS, st.integers(1, 12))
def test_whatever_comes_and_goes_the_index_is_that_of_what_is_there(steps: list[tuple[str, int]], most: int):
    async def run() -> None:
        over = await corpus()
        query = unit(1, 1)
        for number, (name, count) in enumerate(steps):
            if count == 0 and name in over.rows:
                await over.remove(name)
            else:
                await over.put(name, unit(number + 10, count))
            if number % 2:
                assert places((await over.found(query, most))[0]) == over.expected(query[0], most)
        assert places((await over.found(query, most))[0]) == over.expected(query[0], most)

    asyncio.run(run())


@requirement("search:vectors:incremental")
async def test_small_blocks_are_joined_and_those_that_are_gone_leave_memory():
    over = await corpus()
    query = unit(7, 1)
    for number in range(40):
        await over.put(f"file-{number:02}", unit(number, 3))
        await over.found(query, 1)
    kept = next(iter(over.search._kept.values()))  # pyright: ignore[reportPrivateUsage]
    assert len(kept.index.blocks) <= 17
    assert places((await over.found(query, 9))[0]) == over.expected(query[0], 9)
    for number in range(30):
        await over.remove(f"file-{number:02}")
    assert places((await over.found(query, 100))[0]) == over.expected(query[0], 100)
    assert sum(block.size for block in kept.index.blocks) == 30


@requirement("search:vectors:bound")
async def test_memory_is_bounded_and_what_has_no_room_is_searched_all_the_same():
    over = await corpus(most_bytes=1_000)
    for number in range(3):
        await over.put(f"file-{number}", unit(number, 20))
    queries = unit(7, 2)
    for files in (None, ["file-0", "file-2"]):
        found = await over.found(queries, 8, files)
        assert [places(each) for each in found] == [over.expected(query, 8, files) for query in queries]
    assert over.search.kept_bytes == 0
    # Two stores of which one has room.
    over = await corpus(most_bytes=3_500)
    await over.store.create_vector_store(OURS, new_store("vs-2"), ROOM)
    await over.put("file-0", unit(0, 60))
    await fill(over.store, "file-9", *("x" * 200), vector_store="vs-2")
    for name, wide in (("vs-1", 8), ("vs-2", 2), ("vs-1", 8)):
        row = await over.store.find_vector_store(OURS, name)
        assert row is not None
        shelf = await over.shelves.of(OURS, row)
        nearest = await over.search.search(OURS, shelf, [unit(1, 1, wide)[0].tobytes()], 5)
        assert len(nearest.hits[0]) == 5
        assert 0 < over.search.kept_bytes <= 3_500


@requirement("search:vectors:model")
async def test_vectors_of_another_model_are_not_found():
    over = await corpus()
    await over.put("old", unit(0, 5, 4))
    await over.put("new", unit(1, 5, 8))
    query = unit(2, 1)
    assert {file_id for file_id, _ in places((await over.found(query, 50))[0])} == {"new"}
    assert over.missing == 5
    await fill(over.store, "none", "x", "y")
    assert len((await over.found(query, 50))[0]) == 5
    assert over.missing == 7


@requirement("search:vectors:graph")
async def test_a_large_store_is_searched_by_a_graph_that_follows_what_changes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(matrix, "_GRAPH_EXACT", 50)
    over = await corpus(exact_most=200)
    for number in range(6):
        await over.put(f"file-{number}", unit(number, 100))
    queries = unit(99, 4)

    async def overlap(files: Sequence[str] | None = None) -> float:
        found = await over.found(queries, 10, files)
        wanted = [over.expected(query, 10, files) for query in queries]
        return sum(len({*places(a)} & {*b}) for a, b in zip(found, wanted, strict=True)) / 40

    assert await overlap() == 1.0, "read page by page while the graph is made"
    kept = next(iter(over.search._kept.values()))  # pyright: ignore[reportPrivateUsage]
    assert kept.building is not None
    await kept.building
    assert kept.index.graph is not None
    assert (kept.index.graph.size, kept.index.blocks) == (600, ())
    before = over.read
    assert await overlap() >= 0.9
    assert await overlap(["file-2", "file-5"]) >= 0.9
    assert over.read == before
    await over.put("file-7", unit(77, 20))
    await over.remove("file-0")
    assert await overlap() >= 0.9
    assert await overlap(["file-7"]) == 1.0, "few rows are all compared"
    assert over.read == before + 20
    for number in (1, 2, 3):
        await over.remove(f"file-{number}")
    assert await overlap() >= 0.9
    assert kept.building is not None, "most of the graph is gone"
    await kept.building
    assert (kept.index.graph.size, await overlap()) == (220, 1.0)
    await over.search.close()


@requirement("search:vectors:graph")
async def test_a_graph_that_is_being_made_ends_with_the_search():
    over = await corpus(exact_most=10)
    await over.put("file", unit(0, 100))
    await over.found(unit(1, 1), 3)
    kept = next(iter(over.search._kept.values()))  # pyright: ignore[reportPrivateUsage]
    building = kept.building
    assert building is not None
    await over.search.close()
    assert building.done()


@requirement("search:vectors:exact")
async def test_several_searches_at_once_read_a_store_once():
    over = await corpus()
    await over.put("file", unit(0, 50))
    query = unit(1, 1)
    found = await asyncio.gather(*(over.found(query, 5) for _ in range(8)))
    assert all(each == found[0] for each in found)
    assert over.read == 50


@requirement("search:vectors:graph")
async def test_a_store_that_is_away_while_a_graph_is_made_is_asked_again():
    over = await corpus(exact_most=10)
    await over.put("file", unit(0, 100))
    query = unit(1, 1)
    whole, away = over.store.chunk_vectors, 1

    async def failing(*arguments: Any) -> Any:
        nonlocal away
        if asyncio.current_task() is kept.building and away:
            away = 0
            raise UnavailableError("away")
        return await whole(*arguments)

    over.store.chunk_vectors = failing
    entry = over.search._entry  # pyright: ignore[reportPrivateUsage]
    kept = entry(("ours", "vs-1", 8))
    for _ in range(2):
        assert places((await over.found(query, 5))[0]) == over.expected(query[0], 5)
        if kept.building is not None:
            await asyncio.wait({kept.building})
    assert kept.index.graph is not None
    assert places((await over.found(query, 5))[0]) == over.expected(query[0], 5)

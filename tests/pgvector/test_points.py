"""Vectors that are searched in PostgreSQL: the same as elsewhere, whatever comes and goes."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from antiphon.corpus.matrix import VectorHit
from antiphon.corpus.shelf import Shelves
from antiphon.corpus.vectors import Nearest, VectorSearch
from antiphon.store import postgres_points
from antiphon.store.base import Store
from antiphon.store.corpora import CorpusStore, NewChunk
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres_care import backup_database
from antiphon.store.rows import Scope, StoreLimits
from antiphon.store.sealed import SealedStore
from support.corpora import ROOM, claimed, new_file, new_store, upload
from support.postgres import Cluster, binaries
from support.stores import MASTER, OURS, Clock

requirement = pytest.mark.requirement
Open = Callable[[], Awaitable[PostgresStore]]
TABLES = "SELECT count(*) FROM pg_tables WHERE tablename IN ('corpus_points', 'corpus_pointed')"


@pytest.fixture
async def server(postgres: Cluster, database: str) -> AsyncIterator[Open]:
    """Opens stores over one database, as many servers would."""
    async with AsyncExitStack() as opened:

        async def open_one() -> PostgresStore:
            store = PostgresStore(postgres.url(database), StoreLimits(), Clock())
            await store.open()
            opened.push_async_callback(store.close)
            return store

        yield open_one


def unit(seed: int, count: int, width: int = 32) -> Any:
    rows = np.random.default_rng(seed).standard_normal((count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")


async def put(store: Store, file_id: str, rows: Any, vector_store: str = "vs-1", scope: Scope = OURS) -> None:
    """Bring a file with these vectors into a vector store, again where it is there."""
    if await store.find_file(scope, file_id) is None:
        await upload(store, file_id, scope=scope)
    assert await store.add_store_files(scope, vector_store, [new_file(file_id)], ROOM) == []
    ingestion = await claimed(store)
    new = [NewChunk(at, "", f"text {at}", b"{}", bytes(row)) for at, row in enumerate(rows)]
    assert await store.add_chunks(ingestion, new)
    assert await store.finish_ingestion(ingestion, None)


async def searched(
    store: CorpusStore, rows: Any, most: int = 10, files: Sequence[str] | None = None, scope: Scope = OURS
) -> tuple[Nearest, int]:
    """What a new server finds, and how many bytes of vectors it keeps then."""
    search = VectorSearch(store, 2**30)
    try:
        row = await store.find_vector_store(scope, "vs-1")
        assert row is not None
        found = await search.search(
            scope, await Shelves(store).of(scope, row), [bytes(each) for each in rows], most, files
        )
        return found, search.kept_bytes
    finally:
        await search.close()


def same(one: Nearest, other: Nearest) -> None:
    """Both found the same, with scores that are equal but for their rounding."""
    assert one.missing == other.missing
    for left, right in zip(one.hits, other.hits, strict=True):
        assert [(hit.file_id, hit.index) for hit in left] == [(hit.file_id, hit.index) for hit in right]
        assert [hit.score for hit in left] == pytest.approx([hit.score for hit in right], abs=1e-5)


async def both(store: PostgresStore, memory: MemoryStore, **how: Any) -> None:
    """The database finds what is found in memory, and the server keeps nothing."""
    asked = unit(99, 3, how.pop("width", 32))
    here, kept = await searched(store, asked, **how)
    there, _ = await searched(memory, asked, **how)
    same(here, there)
    assert kept == 0


@requirement("corpus-store:pgvector")
async def test_the_database_finds_the_same_with_the_same_scores(server: Open) -> None:
    store, memory = await server(), MemoryStore(StoreLimits(), Clock())
    for each in (store, memory):
        await each.create_vector_store(OURS, new_store(), ROOM)
        for number in range(12):
            await put(each, f"file-{number}", unit(number, 40 + number))
        # Of another model, and of none.
        await put(each, "file-wide", unit(1, 20, 48))
        await put(each, "file-none", [b"", b"", b""])
    hows: list[dict[str, Any]] = [
        {},
        {"most": 1},
        {"most": 1_000},
        {"width": 48},
        {"width": 3},
        {"files": ["file-3"]},
        {"files": ["file-3", "file-5", "file-none", "nothing"]},
        {"files": ["a\0b"]},
    ]
    for how in hows:
        await both(store, memory, **how)
    # What is no vector at all is found by nobody.
    await put(store, "file-odd", [b"\0\0\xc0\x7f" * 32, b"123"])
    found, _ = await searched(store, unit(5, 1), most=1_000)
    assert len(found.hits[0]) == sum(40 + number for number in range(12))
    assert found.missing == 20 + 3 + 2


@requirement("corpus-store:pgvector")
async def test_the_first_searches_of_several_servers_come_at_once(server: Open) -> None:
    stores = [await server(), await server()]
    await stores[0].create_vector_store(OURS, new_store(), ROOM)
    for number in range(3):
        await put(stores[0], f"file-{number}", unit(number, 30))
    asked = unit(99, 1)
    found = await asyncio.gather(*(searched(store, asked) for store in stores * 4))
    assert [kept for _, kept in found] == [0] * 8
    assert all(near == found[0][0] for near, _ in found)


@requirement("corpus-store:pgvector")
async def test_chunks_with_the_same_vector_come_in_the_order_of_their_places(server: Open) -> None:
    store = await server()
    await store.create_vector_store(OURS, new_store(), ROOM)
    for name in ("file-b", "file-a", "file-c"):
        await put(store, name, np.repeat(unit(4, 1), 9, axis=0))
    found, _ = await searched(store, unit(99, 1), most=13)
    places = [("file-a", at) for at in range(9)] + [("file-b", at) for at in range(4)]
    assert [(hit.file_id, hit.index) for hit in found.hits[0]] == places


@requirement("corpus-store:pgvector:changes")
async def test_what_is_removed_or_comes_again_is_followed_by_every_server(
    server: Open, postgres: Cluster, database: str
) -> None:
    first, second, memory = await server(), await server(), MemoryStore(StoreLimits(), Clock())
    for each in (first, memory):
        await each.create_vector_store(OURS, new_store(), ROOM)
        for number in range(6):
            await put(each, f"file-{number}", unit(number, 30))
    await both(first, memory)
    for each in (second, memory):
        await each.remove_store_file(OURS, "vs-1", "file-2")
        await put(each, "file-3", unit(33, 10))
        await each.delete_file(OURS, "file-4")
    await both(first, memory)
    await both(second, memory, most=200)
    assert postgres.execute("SELECT count(*) FROM corpus_points", database) == "100"
    assert postgres.execute("SELECT count(*) FROM corpus_pointed WHERE width = 32", database) == "4"
    # A file that comes in while nobody finds it.
    for each in (first, memory):
        await each.add_store_files(OURS, "vs-1", [new_file("file-5")], ROOM)
    await both(second, memory)
    await second.delete_vector_store(OURS, "vs-1")
    await second.sweep(2_000_000.0)
    assert postgres.execute("SELECT count(*) FROM corpus_points", database) == "0"


@requirement("corpus-store:pgvector:tenants")
async def test_a_search_finds_nothing_of_another_vector_store_or_tenant(server: Open) -> None:
    store, foreign = await server(), Scope("foreign")
    rows = unit(1, 20)
    for scope, name in ((OURS, "vs-1"), (OURS, "vs-2"), (foreign, "vs-1")):
        await store.create_vector_store(scope, new_store(name), ROOM)
        await put(store, f"file-{name}-{scope.tenant or 'x'}", rows, name, scope)
    for scope, name in ((OURS, "vs-1"), (OURS, "vs-2"), (foreign, "vs-1")):
        near = await store.search_vectors(scope, name, [bytes(rows[0])], 100)
        assert near is not None
        assert {hit.file_id for hit in near.hits[0]} == {f"file-{name}-{scope.tenant or 'x'}"}
        assert near.count == 20
        others = ["file-vs-2-" + (OURS.tenant or "x")] if name == "vs-1" else ["file-vs-1-foreign"]
        near = await store.search_vectors(scope, name, [bytes(rows[0])], 100, others)
        assert near is not None
        assert near.hits == [[]]
    near = await store.search_vectors(foreign, "vs-2", [bytes(rows[0])], 100)
    assert near is not None
    assert near.hits == [[]]


@requirement("corpus-store:pgvector:comes-and-goes")
async def test_the_extension_may_be_dropped_and_come_again(
    server: Open, postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, memory = await server(), MemoryStore(StoreLimits(), Clock())
    for each in (store, memory):
        await each.create_vector_store(OURS, new_store(), ROOM)
        await put(each, "file-1", unit(1, 30))
    assert postgres.execute(TABLES, database) == "0"
    await both(store, memory)
    assert postgres.execute(TABLES, database) == "2"
    postgres.execute("DROP EXTENSION vector CASCADE", database)
    with caplog.at_level(logging.WARNING):
        found, kept = await searched(store, unit(99, 3))
    assert "vectors are not searched in the database" in caplog.text
    same(found, (await searched(memory, unit(99, 3)))[0])
    assert kept > 0
    # All goes on without it.
    for each in (store, memory):
        await put(each, "file-2", unit(2, 30))
        await each.remove_store_file(OURS, "vs-1", "file-1")
    same((await searched(store, unit(99, 3)))[0], (await searched(memory, unit(99, 3)))[0])
    monkeypatch.setattr(postgres_points, "_AGAIN_SECONDS", 0.0)
    await both(store, memory)
    # Another server made everything anew meanwhile.
    other = await server()
    postgres.execute("DROP EXTENSION vector CASCADE", database)
    await both(other, memory)
    await both(store, memory)


@requirement("corpus-store:pgvector:comes-and-goes")
async def test_a_backup_leaves_the_copy_out(
    server: Open, postgres: Cluster, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = binaries()
    assert programs is not None
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    store, memory = await server(), MemoryStore(StoreLimits(), Clock())
    for each in (store, memory):
        await each.create_vector_store(OURS, new_store(), ROOM)
        await put(each, "file-1", unit(1, 30))
    await both(store, memory)
    await backup_database(postgres.url(database), tmp_path / "a.dump")
    name = postgres.create_database(empty=True)
    try:
        url = postgres.url(name)
        await asyncio.to_thread(
            subprocess.run, [programs / "pg_restore", f"--dbname={url}", tmp_path / "a.dump"], check=True
        )
        assert postgres.execute(TABLES, name) == "0"
        again = PostgresStore(url, StoreLimits(), Clock())
        await again.open()
        await both(again, memory)
        await again.close()
        assert postgres.execute(TABLES, name) == "2"
    finally:
        postgres.drop_database(name)


@requirement("corpus-store:pgvector:comes-and-goes")
async def test_a_user_who_may_not_make_tables_searches_as_without_it(postgres: Cluster, database: str) -> None:
    user = f"poor_{secrets.token_hex(4)}"
    postgres.execute(
        f"CREATE ROLE {user} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user}; "
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {user}",
        database,
    )
    store, memory = PostgresStore(postgres.url(database, user=user), StoreLimits(), Clock()), MemoryStore(StoreLimits())
    await store.open()
    try:
        for each in (store, memory):
            await each.create_vector_store(OURS, new_store(), ROOM)
            await put(each, "file-1", unit(1, 30))
        here, kept = await searched(store, unit(9, 2))
        same(here, (await searched(memory, unit(9, 2)))[0])
        assert kept > 0
    finally:
        await store.close()
    assert postgres.execute(TABLES, database) == "0"


@requirement("corpus-store:pgvector:sealed")
async def test_a_sealed_store_has_no_vector_in_the_database(postgres: Cluster, database: str) -> None:
    sealed = SealedStore(PostgresStore(postgres.url(database), StoreLimits(), Clock()), MASTER)
    await sealed.open()
    await sealed.create_vector_store(OURS, new_store(), ROOM)
    await put(sealed, "file-1", unit(1, 30))
    found, kept = await searched(sealed, unit(1, 1))
    assert found.hits[0][0] == VectorHit(pytest.approx(1.0, abs=1e-5), "file-1", 0)
    assert kept > 0
    await sealed.close()
    assert postgres.execute(TABLES, database) == "0"


async def settled(store: PostgresStore, what: str) -> None:
    """Wait for what goes on in the background."""
    task = getattr(store, what)
    assert isinstance(task, asyncio.Task)
    await task


@requirement("corpus-store:pgvector:graph")
async def test_a_large_vector_store_is_copied_and_gets_a_graph_in_the_background(
    server: Open, postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_points, "EXACT_MOST", 2_000)
    store, memory = await server(), MemoryStore(StoreLimits(), Clock())
    for each in (store, memory):
        await each.create_vector_store(OURS, new_store(), ROOM)
        for number in range(8):
            await put(each, f"file-{number}", unit(number, 500))
    asked = unit(77, 30)
    here, kept = await searched(store, asked)
    there, _ = await searched(memory, asked)
    same(here, there)
    assert kept > 0
    await settled(store, "_copying")
    here, kept = await searched(store, asked)
    same(here, there)
    assert kept == 0
    await settled(store, "_graph_making")
    graph = "SELECT relname FROM pg_class WHERE relname LIKE 'corpus_points_near%'"
    assert postgres.execute(graph, database).endswith("_32")
    here, kept = await searched(store, asked)
    hit = [
        len({(one.file_id, one.index) for one in left} & {(one.file_id, one.index) for one in right})
        for left, right in zip(here.hits, there.hits, strict=True)
    ]
    assert sum(hit) / (10 * len(asked)) >= 0.95
    assert postgres.execute("SELECT idx_scan > 0 FROM pg_stat_user_indexes WHERE indexrelname LIKE '%near%'", database)
    # Held to some files, and where most of what it has is gone, all are compared.
    await both(store, memory, files=["file-2", "file-6"])
    for each in (store, memory):
        for number in range(1, 8):
            await each.remove_store_file(OURS, "vs-1", f"file-{number}")
    await both(store, memory)
    # Its making was cut short.
    postgres.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = (SELECT oid FROM pg_class WHERE "
        "relname LIKE 'corpus_points_near%')",
        database,
    )
    monkeypatch.setattr(postgres_points, "EXACT_MOST", 100)
    other = await server()
    await both(other, memory)
    await settled(other, "_graph_making")
    assert (
        postgres.execute(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = (SELECT oid FROM pg_class WHERE "
            "relname LIKE 'corpus_points_near%')",
            database,
        )
        == "t"
    )
    await other.delete_vector_store(OURS, "vs-1")
    await other.sweep(2_000_000.0)
    assert postgres.execute(graph, database) == ""

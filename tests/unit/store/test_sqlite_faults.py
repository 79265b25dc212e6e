"""What the store in a file does when it cannot write or read: errors, and nothing lost or half done."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError, ConflictError, InternalError, UnavailableError
from antiphon.store import sqlite_writer
from antiphon.store.base import StoredItem, StoreLimits
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite_ledger import Ledger
from support.stores import OURS, Clock, add, batch, begun, ended, ids, writing_connection


class NoRollback:
    """A connection whose transactions fail at their end, and then cannot be rolled back at once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.failing = True

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        if self.failing and statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return self.connection.execute(statement, values)

    def rollback(self) -> None:
        if self.failing:
            raise sqlite3.OperationalError("disk I/O error")
        self.connection.rollback()


@contextmanager
def broken(store: SQLiteStore, path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A store that cannot end a large response until this is over."""
    connection = writing_connection(store)
    if fault == "no page":
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        yield
        connection.execute("PRAGMA max_page_count = 1000000")
    elif fault == "no growth":
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("a.db-wal").stat().st_size + 20_000, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    elif fault == "job":
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "add_items", lambda *_: 1 / 0)
            yield
    else:
        assert store._opened is not None
        store._opened.writer._connection = failing = NoRollback(connection)  # type: ignore[assignment]
        yield
        failing.failing = False


@pytest.mark.requirement("store:sqlite:open-errors")
async def test_a_file_that_is_damaged_while_it_is_served_is_a_503(store: SQLiteStore, path: Path) -> None:
    await asyncio.gather(*(add(store, f"r{number}") for number in range(200)))
    connection = writing_connection(store)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    connection.execute("PRAGMA shrink_memory")
    for call in (store.get_response(OURS, "r7"), store.chain(OURS, "r7"), add(store, "new")):
        with pytest.raises(UnavailableError, match="damaged"):
            await call
    await store.close()
    with pytest.raises(ConfigurationError, match="malformed"):
        await store.open()


@pytest.mark.requirement("store:sqlite:disk-full")
async def test_a_full_disk_is_a_503_without_a_path_and_passes(store: SQLiteStore, path: Path) -> None:
    await add(store, "a")
    connection = writing_connection(store)
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    before = await store.status()
    large = begun("large", items=[StoredItem("large", b"x" * 100_000)])
    with pytest.raises(UnavailableError) as full:
        await store.create_finished_response(OURS, large, ended("large"))
    assert (full.value.http_status, full.value.retry_after) == (503, 5.0)
    assert "disk is full" in full.value.message
    assert str(path.parent) not in full.value.message
    assert await store.status() == before
    assert await store.get_response(OURS, "large") is None
    assert await store.get_response(OURS, "a") is not None

    connection.execute("PRAGMA max_page_count = 1000000")
    await store.create_finished_response(OURS, large, ended("large"))
    assert await store.get_items(OURS, ["large"]) == {"large": b"x" * 100_000}


@pytest.mark.requirement("store:sqlite:disk-full")
async def test_on_a_full_disk_a_small_write_beside_a_large_one_still_fits(store: SQLiteStore) -> None:
    await add(store, "a")
    connection = writing_connection(store)
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    large = begun("large", items=[StoredItem("large", b"x" * 100_000)])
    results = await asyncio.gather(
        store.create_response(OURS, begun("b")),
        store.create_response(OURS, large),
        store.create_response(OURS, begun("c")),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), UnavailableError, type(None)]
    assert await ids(store, "c") == ["c"]


@pytest.mark.requirement("store:sqlite:disk-full")
async def test_a_file_that_may_not_grow_is_a_503_and_passes(store: SQLiteStore, path: Path) -> None:
    await add(store, "a")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    now = path.with_name("a.db-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (now, hard))
    try:
        with pytest.raises(UnavailableError):
            await add(store, "b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await add(store, "b")
    assert await ids(store, "b") == ["b"]


@pytest.mark.requirement("store:response:end-again", "store:sqlite:disk-full")
@pytest.mark.parametrize("limits", [StoreLimits(), StoreLimits(max_entries=2, max_bytes=1_000_000)])
@pytest.mark.parametrize("fault", ["no page", "no growth", "job", "rollback"])
async def test_a_response_can_be_ended_after_an_end_that_failed_half_way(
    path: Path, monkeypatch: pytest.MonkeyPatch, limits: StoreLimits, fault: str
) -> None:
    store = SQLiteStore(path, limits, Clock())
    await store.open()
    for name in ("old", "older"):
        await add(store, name)
    await store.create_response(OURS, begun("a"))
    await store.append_events(OURS, "a", batch(0, b"e0"))
    before = await store.status()
    outputs = [StoredItem("small", b"o"), StoredItem("large", b"x" * 100_000)]
    end = ended("a", "failed", [batch(1, b"e" * 50_000)], outputs)
    with broken(store, path, fault, monkeypatch):
        for _ in range(2):
            with pytest.raises((UnavailableError, InternalError)):
                await store.finish_response(OURS, end)
            assert await store.status() == before
            running = await store.get_response(OURS, "a")
            assert running is not None
            assert running.status == "in_progress"
    assert await store.finish_response(OURS, end)
    assert not await store.finish_response(OURS, end)
    assert [len(one.body) for one in await store.events(OURS, "a")] == [2, 50_000]
    assert len((await store.get_items(OURS, ["small", "large"]))["large"]) == 100_000
    status = await store.status()
    assert status.responses == (3 if limits.max_entries is None else 2)
    await store.close()
    await store.open()
    assert await store.status() == status
    assert await store.orphans([]) == []
    await store.close()


@pytest.mark.requirement("store:sqlite:locked")
async def test_a_lock_of_another_program_is_waited_for(store: SQLiteStore, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(add(store, "a"))
    # Reads and the event loop go on while the write waits.
    for _ in range(20):
        assert await store.get_response(OURS, "a") is None
        await asyncio.sleep(0)
    assert not waiting.done()
    other.execute("COMMIT")
    other.close()
    await waiting
    assert await store.get_response(OURS, "a") is not None


@pytest.mark.requirement("store:sqlite:unflushed")
async def test_what_is_not_flushed_waits_for_a_lock_too_and_is_flushed_then(store: SQLiteStore, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(store.create_response(OURS, begun("a"), flush=False))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    other.execute("COMMIT")
    other.close()
    await waiting
    assert await store.get_response(OURS, "a") is not None
    assert writing_connection(store).execute("PRAGMA synchronous").fetchone() == (2,)


@pytest.mark.requirement("store:sqlite:locked")
async def test_a_lock_that_stays_is_a_503(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writer, "_BUSY_MILLISECONDS", 10)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    results = await asyncio.gather(*(add(store, f"r{number}") for number in range(5)), return_exceptions=True)
    assert [str(result) for result in results] == ["The store cannot be used now: it is locked by another program."] * 5
    other.execute("ROLLBACK")
    other.close()
    await add(store, "a")


@pytest.mark.requirement("store:sqlite:locked")
async def test_each_write_waits_for_a_lock_as_long_as_the_others(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sqlite_writer, "_BUSY_MILLISECONDS", 50)
    early = [asyncio.create_task(add(store, f"early {number}")) for number in range(3)]
    await asyncio.sleep(0)
    monkeypatch.setattr(sqlite_writer, "_BUSY_MILLISECONDS", 60_000)
    late = [asyncio.create_task(add(store, f"late {number}")) for number in range(3)]
    results = await asyncio.gather(*early, return_exceptions=True)
    assert [type(result) for result in results] == [UnavailableError] * 3
    assert not any(task.done() for task in late)
    other.execute("COMMIT")
    other.close()
    await asyncio.gather(*late)
    assert [await store.get_response(OURS, f"early {number}") for number in range(3)] == [None] * 3
    assert all([await store.get_response(OURS, f"late {number}") for number in range(3)])
    assert (await store.status()).responses == 3


@pytest.mark.requirement("store:lru")
async def test_the_order_of_use_outlives_a_transaction_that_was_to_write_it(path: Path) -> None:
    store = SQLiteStore(path, StoreLimits(max_entries=3), Clock())
    await store.open()
    for name in "abc":
        await add(store, name)
    await store.get_response(OURS, "a")
    results = await asyncio.gather(store.sweep(0), add(store, "b"), return_exceptions=True)
    assert [type(result) for result in results] == [int, ConflictError]
    await store.close()
    await store.open()
    await add(store, "d")
    assert [name for name in "abcd" if await store.get_response(OURS, name)] == ["a", "c", "d"]
    await store.close()


@pytest.mark.requirement("store:tombstone:retained")
async def test_a_sweep_that_fails_leaves_its_work_to_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writer, "_BUSY_MILLISECONDS", 10)
    store = SQLiteStore(path, StoreLimits(max_entries=3), Clock())
    await store.open()
    for name in "abc":
        await add(store, name)
    with store.retain(OURS, "b"):
        await store.delete_response(OURS, "b")
    await store.get_response(OURS, "a")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError):
        await store.sweep(0)
    other.execute("ROLLBACK")
    other.close()
    assert await store.sweep(0) == 1
    assert (await store.status()).items == 4
    await store.close()

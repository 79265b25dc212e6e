"""What only the store in a file has: durability, the file itself, and its faults."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError, ConflictError, UnavailableError
from antiphon.store import sqlite_writer
from antiphon.store.base import StoredItem, StoreLimits
from antiphon.store.sqlite import SQLiteStore
from support.stores import OURS, THEIRS, Clock, add, batch, begun, ended, ids, size


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state" / "a.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, StoreLimits(), Clock())
    await store.open()
    yield store
    await store.close()


def writing_connection(store: SQLiteStore) -> sqlite3.Connection:
    opened = store._opened
    assert opened is not None
    return opened.connection


@pytest.mark.requirement("store:sqlite:group-commit")
async def test_callers_at_the_same_time_share_transactions(store: SQLiteStore) -> None:
    statements: list[str] = []
    writing_connection(store).set_trace_callback(statements.append)
    await asyncio.gather(*(add(store, f"r{number}") for number in range(50)))
    writing_connection(store).set_trace_callback(None)
    assert statements.count("COMMIT") == 1
    assert (await store.status()).responses == 50


@pytest.mark.requirement("store:sqlite:group-commit")
async def test_one_failing_write_of_a_group_does_not_harm_the_others(store: SQLiteStore) -> None:
    await add(store, "r3")
    results = await asyncio.gather(*(add(store, f"r{number}") for number in range(8)), return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 3 + [ConflictError] + [type(None)] * 4
    assert (await store.status()).responses == 8
    assert [await ids(store, f"r{number}") for number in range(8)] == [[f"r{number}"] for number in range(8)]


@pytest.mark.requirement("store:sqlite:group-commit")
async def test_a_caller_that_gives_up_harms_neither_its_write_nor_the_others(store: SQLiteStore) -> None:
    impatient = asyncio.create_task(add(store, "a"))
    patient = asyncio.create_task(add(store, "b"))
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    with pytest.raises(asyncio.CancelledError):
        await impatient
    assert await store.get_response(OURS, "a") is not None


@pytest.mark.requirement("store:sqlite:durable")
async def test_commits_reach_the_disk_before_they_are_acknowledged(store: SQLiteStore) -> None:
    connection = writing_connection(store)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert (await store.status()).durable


@pytest.mark.requirement("store:sqlite:durable")
async def test_all_is_there_after_reopening(store: SQLiteStore) -> None:
    await add(store, "a")
    await store.create_finished_response(OURS, begun("b", "a"), ended("b", events=[batch(0, b"one", b"two")]))
    await store.delete_response(OURS, "a")
    before = await store.status()
    await store.close()
    await store.open()
    assert await store.status() == before
    assert await ids(store, "b") == ["a", "b"]
    (kept,) = await store.events(OURS, "b")
    assert (kept.body, list(kept.offsets)) == (b"onetwo", [0, 3])
    assert await store.interrupted() == []


WRITER = """
import asyncio, sys
from pathlib import Path
from antiphon.store.base import StoreLimits
from antiphon.store.sqlite import SQLiteStore
from support.stores import OURS, add, batch, begun

async def write(store, lane):
    number = 0
    while True:
        name = f"r{lane}_{number}"
        await add(store, name, f"r{lane}_{number - 1}" if number else None)
        print(name, flush=True)
        number += 1

async def main():
    store = SQLiteStore(Path(sys.argv[1]), StoreLimits())
    await store.open()
    await store.create_response(OURS, begun("running"))
    await store.append_events(OURS, "running", batch(0, b"e0", b"e1"))
    await store.append_events(OURS, "running", batch(2, b"e2"))
    await store.create_response(OURS, begun("queued", status="queued"))
    await asyncio.gather(*(write(store, lane) for lane in range(8)))

asyncio.run(main())
"""


@pytest.mark.requirement("store:sqlite:kill", "store:sqlite:interrupted")
async def test_a_kill_loses_no_acknowledged_write_and_shows_what_was_running(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip() for _ in range(400)]
        process.kill()
        acknowledged += process.stdout.read().split("\n")[:-1]
    assert len(acknowledged) >= 400

    store = SQLiteStore(path, StoreLimits())
    await store.open()
    try:
        lost = [name for name in acknowledged if await store.get_response(OURS, name) is None]
        assert lost == []
        lane, _, number = acknowledged[-1].partition("_")
        assert await ids(store, acknowledged[-1]) == [f"{lane}_{n}" for n in range(int(number) + 1)]
        left = await store.interrupted()
        assert [(one.scope.tenant, one.response.id, one.response.status) for one in left] == [
            ("ours", "running", "in_progress"),
            ("ours", "queued", "queued"),
        ]
        assert [one.body for one in left[0].events] == [b"e0e1", b"e2"]
        assert await store.finish_response(OURS, ended("running", "failed"))
        assert [one.response.id for one in await store.interrupted()] == ["queued"]
    finally:
        await store.close()


@pytest.mark.requirement("store:sqlite:interrupted")
async def test_what_this_process_runs_is_not_called_interrupted(store: SQLiteStore) -> None:
    await store.create_response(OURS, begun("a"))
    assert await store.interrupted() == []
    await store.close()
    await store.open()
    assert [one.response.id for one in await store.interrupted()] == ["a"]


@pytest.mark.requirement("store:sqlite:open-errors")
async def test_a_file_that_is_no_database_is_refused_at_start_and_left_alone(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is a letter, not a database\n" * 100)
    store = SQLiteStore(path, StoreLimits())
    with pytest.raises(ConfigurationError, match=r"a\.db cannot be opened: file is not a database"):
        await store.open()
    assert path.read_bytes().startswith(b"this is a letter")
    path.unlink()
    await store.open()
    await store.close()


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


@pytest.mark.requirement("store:sqlite:large")
async def test_large_bodies_are_stored_whole(store: SQLiteStore) -> None:
    picture = bytes(range(256)) * 8192
    await store.create_finished_response(OURS, begun("a", items=[StoredItem("picture", picture)]), ended("a"))
    assert await store.get_items(OURS, ["picture"]) == {"picture": picture}
    assert (await store.chain(OURS, "a"))[0].input_items[0] == picture
    assert await store.delete_response(OURS, "a")
    assert await size(store) == 0


@pytest.mark.requirement("store:sqlite:closed")
async def test_a_store_that_is_closed_says_so_and_can_be_closed_again(path: Path) -> None:
    store = SQLiteStore(path, StoreLimits())
    await store.close()
    await store.open()
    pending = asyncio.create_task(add(store, "a"))
    await asyncio.sleep(0)
    await store.close()
    await pending
    await store.close()
    for call in (store.get_response(OURS, "a"), store.delete_response(OURS, "a"), store.status()):
        with pytest.raises(UnavailableError, match="closed"):
            await call
    await store.open()
    assert await store.get_response(OURS, "a") is not None
    await store.close()


@pytest.mark.requirement("store:lru")
async def test_the_order_of_use_survives_a_restart(path: Path) -> None:
    limits = StoreLimits(max_entries=3)
    store = SQLiteStore(path, limits, Clock())
    await store.open()
    for name in "abc":
        await add(store, name)
    await store.get_response(OURS, "a")
    await store.close()
    await store.open()
    await add(store, "d")
    assert [name for name in "abcd" if await store.get_response(OURS, name)] == ["a", "c", "d"]
    await store.close()


@pytest.mark.requirement("store:lru")
async def test_a_limit_that_was_lowered_is_met_with_the_next_write(store: SQLiteStore, path: Path) -> None:
    for name in "abcdef":
        await add(store, name)
    await store.close()
    smaller = SQLiteStore(path, StoreLimits(max_entries=2), Clock())
    await smaller.open()
    await add(smaller, "g")
    assert [name for name in "abcdefg" if await smaller.get_response(OURS, name)] == ["f", "g"]
    await smaller.close()


@pytest.mark.requirement("store:lru")
async def test_a_write_that_fails_leaves_the_order_of_use_as_it_was(path: Path) -> None:
    store = SQLiteStore(path, StoreLimits(max_entries=2), Clock())
    await store.open()
    await add(store, "a")
    await add(store, "b")
    results = await asyncio.gather(add(store, "c"), add(store, "b"), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), ConflictError]
    assert [name for name in "abc" if await store.get_response(OURS, name)] == ["b", "c"]
    await add(store, "d")
    assert [name for name in "bcd" if await store.get_response(OURS, name)] == ["c", "d"]
    await store.close()


@pytest.mark.requirement("store:tombstone:retained")
async def test_history_that_a_process_retained_when_it_ended_is_removed_by_the_next(store: SQLiteStore) -> None:
    await add(store, "a")
    with store.retain(OURS, "a"):
        await store.delete_response(OURS, "a")
        assert await size(store) > 0
        await store.close()
        await store.open()
    assert await size(store) == 0


@pytest.mark.requirement("store:tenant")
async def test_interrupted_responses_keep_their_tenants(store: SQLiteStore) -> None:
    await store.create_response(OURS, begun("a"))
    await store.create_response(THEIRS, begun("a"))
    await store.close()
    await store.open()
    assert [one.scope.tenant for one in await store.interrupted()] == ["ours", "theirs"]

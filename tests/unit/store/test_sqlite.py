"""What only the store in a file has: durability, group commit, and what is left of an earlier process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from antiphon.errors import ConfigurationError, ConflictError, UnavailableError
from antiphon.store.base import StoredItem, StoreLimits
from antiphon.store.sqlite import SQLiteStore
from support.stores import OURS, THEIRS, Clock, add, batch, begun, ended, ids, size, writing_connection


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
    assert await store.orphans([]) == []


@pytest.mark.requirement("store:sqlite:unflushed")
async def test_what_need_outlive_the_process_only_waits_for_no_disk_and_the_next_write_flushes_it(
    store: SQLiteStore,
) -> None:
    connection = writing_connection(store)
    told: list[tuple[str, bool]] = []
    connection.set_trace_callback(
        lambda said: told.append((said, threading.current_thread() is threading.main_thread()))
    )
    await store.create_response(OURS, begun("a"), flush=False)
    await store.append_events(OURS, "a", batch(0, b"e0"), flush=False)
    assert connection.execute("PRAGMA synchronous").fetchone() == (1,)
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    assert [here for said, here in told if said == "COMMIT"] == [True, True]
    assert await store.get_response(OURS, "a") is not None
    told.clear()
    await store.finish_response(OURS, ended("a", events=[batch(1, b"e1")]))
    connection.set_trace_callback(None)
    assert [here for said, here in told if said == "COMMIT"] == [False]
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (1_000,)


@pytest.mark.requirement("store:sqlite:unflushed")
async def test_one_write_that_is_flushed_flushes_its_whole_group(store: SQLiteStore) -> None:
    threads: list[bool] = []
    connection = writing_connection(store)
    connection.set_trace_callback(
        lambda said: threads.append(threading.current_thread() is threading.main_thread()) if said == "COMMIT" else None
    )
    await asyncio.gather(
        store.create_response(OURS, begun("a"), flush=False),
        store.create_response(OURS, begun("b")),
        store.create_response(OURS, begun("c"), flush=False),
    )
    connection.set_trace_callback(None)
    assert threads == [False]
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


@pytest.mark.requirement("store:sqlite:unflushed")
async def test_a_refusal_of_one_that_is_not_flushed_harms_no_other(store: SQLiteStore) -> None:
    await add(store, "b")
    results = await asyncio.gather(
        *(store.create_response(OURS, begun(name), flush=False) for name in "abc"), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), ConflictError, type(None)]
    assert await store.get_response(OURS, "c") is not None


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
    flush = sys.argv[2] == "flush"
    await store.create_response(OURS, begun("running"), flush=flush)
    await store.append_events(OURS, "running", batch(0, b"e0", b"e1"), flush=flush)
    await store.append_events(OURS, "running", batch(2, b"e2"), flush=flush)
    await store.create_response(OURS, begun("queued", status="queued"), flush=flush)
    if not flush:
        print("begun", flush=True)
        await asyncio.Event().wait()
    await asyncio.gather(*(write(store, lane) for lane in range(8)))

asyncio.run(main())
"""


@pytest.mark.requirement("store:sqlite:kill", "store:sqlite:unflushed")
async def test_a_kill_loses_nothing_that_was_not_flushed_either(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), "process"], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
    store = SQLiteStore(path, StoreLimits())
    await store.open()
    try:
        assert [one.body for one in await store.events(OURS, "running")] == [b"e0e1", b"e2"]
        queued = await store.get_response(OURS, "queued")
        assert queued is not None
        assert queued.status == "queued"
    finally:
        await store.close()


@pytest.mark.requirement("store:sqlite:kill", "store:sqlite:interrupted")
async def test_a_kill_loses_no_acknowledged_write_and_shows_what_was_running(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), "flush"], stdout=subprocess.PIPE, env=environment, text=True
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
        await store.join("next")
        left = await store.orphans(["next"])
        assert [(one.scope.tenant, one.id, one.fence) for one in left] == [
            ("ours", "running", 1),
            ("ours", "queued", 1),
        ]
        claimed = await store.claim(OURS, "running", 1, "next")
        assert claimed is not None
        assert (claimed.response.status, claimed.response.fence) == ("in_progress", 2)
        assert [one.body for one in await store.events(OURS, "running")] == [b"e0e1", b"e2"]
        assert await store.finish_response(OURS, ended("running", "failed", fence=2))
        assert [one.id for one in await store.orphans(["next"])] == ["queued"]
    finally:
        await store.close()


@pytest.mark.requirement("store:sqlite:interrupted")
async def test_what_an_earlier_process_left_running_has_no_owner_after_reopening(store: SQLiteStore) -> None:
    await store.join("first")
    await store.create_response(OURS, begun("a", owner="first", plan=b"the plan"))
    assert await store.orphans(await store.beat("first")) == []
    await store.close()
    await store.open()
    await store.join("second")
    alive = await store.beat("second")
    assert set(alive) == {"second"}
    (left,) = await store.orphans(alive)
    assert (left.scope.tenant, left.id, left.owner, left.fence) == ("ours", "a", "first", 1)
    claimed = await store.claim(OURS, "a", left.fence, "second")
    assert claimed is not None
    assert (claimed.response.fence, claimed.response.owner, claimed.plan) == (2, "second", b"the plan")
    assert await store.orphans(alive) == []


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


@pytest.mark.requirement("store:sqlite:large")
async def test_large_bodies_are_stored_whole(store: SQLiteStore) -> None:
    picture = bytes(range(256)) * 8192
    await store.create_finished_response(OURS, begun("a", items=[StoredItem("picture", picture)]), ended("a"))
    assert await store.get_items(OURS, ["picture"]) == {"picture": picture}
    assert (await store.chain(OURS, "a"))[0].input_items[0] == picture
    assert await store.delete_response(OURS, "a")
    assert await size(store) == 0


@pytest.mark.requirement("store:sqlite:heavy")
@pytest.mark.parametrize("part", ["snapshot", "items", "events", "all together", "none"])
@pytest.mark.parametrize("call", ["begin", "end", "both", "append"])
async def test_a_write_of_large_bodies_does_not_run_on_the_loop(store: SQLiteStore, part: str, call: str) -> None:
    large, some = b"x" * 300_000, b"x" * 100_000
    parts = {"snapshot": b"", "items": b"", "events": b"", "all together": b""} | {part: large}
    snapshot, items, events = (some if part == "all together" else parts[name] for name in list(parts)[:3])
    first = msgspec.structs.replace(begun("a", items=[StoredItem("in", items)]), snapshot=snapshot)
    last = msgspec.structs.replace(
        ended("a", items=[StoredItem("out", items)], events=[batch(0, events)]), snapshot=snapshot
    )
    if call in {"end", "append"}:
        await store.create_response(OURS, begun("a"))
    threads: set[bool] = set()
    connection = writing_connection(store)
    connection.set_trace_callback(lambda _: threads.add(threading.current_thread() is threading.main_thread()))
    if call == "begin":
        await store.create_response(OURS, first)
        inline = part in {"events", "all together", "none"}
    elif call == "end":
        await store.finish_response(OURS, last)
        inline = part == "none"
    elif call == "both":
        await store.create_finished_response(OURS, first, last)
        inline = part == "none"
    else:
        await store.append_events(OURS, "a", batch(0, events))
        inline = part != "events"
    connection.set_trace_callback(None)
    # A commit always runs on the writer's thread.
    assert threads == ({True, False} if inline else {False})


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
        with pytest.raises(UnavailableError, match="starting or stopping"):
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


@pytest.mark.requirement("store:tombstone:retained")
async def test_ids_that_name_nothing_are_not_kept_when_they_are_let_go(store: SQLiteStore) -> None:
    await add(store, "a")
    for name in [f"never{number}" for number in range(50)] + ["a"] * 50:
        with store.retain(OURS, name):
            pass
        await store.chain(OURS, name)
    held = [
        value
        for value in (*vars(store).values(), *vars(store._open().rows).values())
        if isinstance(value, (dict, list))
    ]
    assert [value for value in held if len(value)] == []


@pytest.mark.requirement("store:sqlite:interrupted")
async def test_what_was_left_running_is_listed_without_reading_its_events(store: SQLiteStore) -> None:
    for number in range(40):
        await store.create_response(OURS, begun(f"r{number:02}"))
        await store.append_events(OURS, f"r{number:02}", batch(0, b"e0"))
    await store.close()
    await store.open()
    read: list[str] = []
    store._open().reader.set_trace_callback(read.append)
    left = await store.orphans([])
    assert [one.id for one in left] == [f"r{number:02}" for number in range(40)]
    assert [statement for statement in read if "event_batches" in statement] == []
    for one in left:
        assert await store.finish_response(OURS, ended(one.id, "failed"))
    assert await store.orphans([]) == []


@pytest.mark.requirement("store:tenant")
async def test_what_was_left_running_keeps_its_tenants(store: SQLiteStore) -> None:
    await store.create_response(OURS, begun("a"))
    await store.create_response(THEIRS, begun("a"))
    await store.close()
    await store.open()
    assert [one.scope.tenant for one in await store.orphans([])] == ["ours", "theirs"]

"""Which servers over one PostgreSQL database are alive, and what those that are not have left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from antiphon.store import postgres as postgres_store
from antiphon.store.postgres import PostgresStore
from support.postgres import Cluster, Server
from support.stores import OURS, Clock, batch, begun, ended, look_up

PROGRAM = """
import asyncio, sys
from antiphon.store.postgres import PostgresStore
from antiphon.store.rows import NewResponse, Scope, StoreLimits

async def main():
    store = PostgresStore(sys.argv[1], StoreLimits())
    await store.open()
    await store.join("killed")
    await store.create_response(Scope("ours"), NewResponse("r", None, "queued", 1, b"{}", [], owner="killed"))
    print("ready", flush=True)
    while True:
        await store.beat("killed")
        await asyncio.sleep(0.05)

asyncio.run(main())
"""

SESSIONS = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted"


@pytest.fixture
async def ours(server: Server) -> PostgresStore:
    return await server()


@pytest.fixture
async def other(server: Server) -> PostgresStore:
    return await server()


@contextmanager
def another_process(url: str) -> Iterator[subprocess.Popen[str]]:
    """A server that runs a response, beats, and can be killed."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, url], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def left(store: PostgresStore, me: str) -> list[str]:
    """What no one runs, as a server finds it."""
    return [orphan.id for orphan in await store.orphans(await store.beat(me))]


@pytest.mark.requirement("store:postgresql:owners", "api:postgresql")
async def test_owners_of_all_servers_are_alive_and_their_counters_move(
    ours: PostgresStore, other: PostgresStore
) -> None:
    await ours.join("a")
    await other.join("b")
    await other.create_response(OURS, begun("r", owner="b"))
    first = await ours.beat("a")
    await other.beat("b")
    second = await ours.beat("a")
    assert set(first) == set(second) == {"a", "b"}
    assert [second[name] - first[name] for name in "ab"] == [1, 1]
    assert await left(ours, "a") == []
    # One that stands still keeps its place: whoever sees its counter decides.
    assert (await ours.beat("a"))["b"] == second["b"]


@pytest.mark.requirement("store:postgresql:owners")
async def test_a_killed_process_is_known_to_be_gone_at_once(
    ours: PostgresStore, postgres: Cluster, database: str
) -> None:
    await ours.join("a")
    with another_process(postgres.url(database)) as process:
        assert set(await ours.beat("a")) == {"a", "killed"}
        assert await left(ours, "a") == []
        process.send_signal(signal.SIGSTOP)
        assert set(await ours.beat("a")) == {"a", "killed"}
        process.kill()
        process.wait()
        begun_at = time.monotonic()
        async with asyncio.timeout(20):
            while await left(ours, "a") != ["r"]:
                pass
        assert time.monotonic() - begun_at < 10
    assert set(await ours.beat("a")) == {"a"}
    assert await ours.claim(OURS, "r", 1, "a") is not None


@pytest.mark.requirement("store:postgresql:owners")
async def test_a_new_server_takes_over_from_one_that_was_killed_before_it_started(
    server: Server, postgres: Cluster, database: str
) -> None:
    with another_process(postgres.url(database)):
        pass
    store = await server()
    await store.join("new")
    assert await left(store, "new") == ["r"]


@pytest.mark.requirement("store:postgresql:owners")
async def test_an_owner_whose_connection_was_lost_takes_its_lock_again_and_is_alive(
    ours: PostgresStore, other: PostgresStore, postgres: Cluster, database: str
) -> None:
    await ours.join("a")
    await other.join("b")
    await other.create_response(OURS, begun("r", owner="b"))
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    for _ in range(3):
        # Both have theirs, again where it was lost the round before.
        async with asyncio.timeout(10):
            while int(postgres.execute(locks, database)) < 2:
                await asyncio.sleep(0.01)
        assert int(postgres.execute(SESSIONS, database)) >= 2
        assert set(await ours.beat("a")) == {"a", "b"}
        assert await left(ours, "a") == []
    assert (await look_up(ours, "r")).owner == "b"


@pytest.mark.requirement("store:postgresql:owners")
async def test_one_that_was_taken_for_dead_enters_anew_with_its_next_beat(
    ours: PostgresStore, other: PostgresStore, postgres: Cluster, database: str
) -> None:
    await ours.join("a")
    await other.join("b")
    postgres.execute("DELETE FROM owners WHERE id = 'b'", database)
    assert set(await ours.beat("a")) == {"a"}
    assert (await other.beat("b"))["a"] == 1
    assert set(await ours.beat("a")) == {"a", "b"}


@pytest.mark.requirement("store:postgresql:owners")
async def test_after_a_restart_of_the_database_owners_have_time_to_take_their_locks_again(
    ours: PostgresStore, postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ours.join("a")
    # Of a server that has not come back yet, and had its lock from an earlier run of the database.
    postgres.execute("INSERT INTO owners VALUES ('slow', 7, 1, now() - interval '1 day')", database)
    assert (await ours.beat("a"))["slow"] == 7
    monkeypatch.setattr(postgres_store, "RELOCK_SECONDS", 0.0)
    assert set(await ours.beat("a")) == {"a"}


@pytest.mark.requirement("store:postgresql:owners")
async def test_one_that_entered_after_the_last_look_is_not_taken_for_dead(
    ours: PostgresStore, other: PostgresStore
) -> None:
    await ours.join("a")
    alive = await ours.beat("a")
    await other.join("late")
    await other.create_response(OURS, begun("r", owner="late"))
    assert await ours.orphans(alive) == []
    assert set(await ours.beat("a")) == {"a", "late"}
    # It is known now: who leaves it out has seen that it stands still.
    assert [orphan.id for orphan in await ours.orphans(alive)] == ["r"]
    await other.leave("late")
    assert await left(ours, "a") == ["r"]


@pytest.mark.requirement("store:postgresql:owners")
async def test_an_owner_that_leaves_gives_its_lock_back(ours: PostgresStore, postgres: Cluster, database: str) -> None:
    held = "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database WHERE locktype = 'advisory'"
    held += " AND d.datname = current_database()"
    await ours.join("a")
    await ours.join("b")
    assert postgres.execute(held, database) == "2"
    await ours.leave("a")
    await ours.leave("never")
    assert postgres.execute(held, database) == "1"
    assert set(await ours.beat("b")) == {"b"}


@pytest.mark.requirement("store:postgresql:owners")
async def test_a_lock_that_cannot_be_had_at_once_is_taken_as_soon_as_it_can(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.store.postgres_session._PING_SECONDS", 0.05)
    first, second = await server(), await server()
    await first.join("a")
    # As if an earlier connection of the same owner were not known to be dead yet.
    await second.join("a")
    assert second._open().session._owners == {"a": False}
    await first.close()
    async with asyncio.timeout(10):
        while not second._open().session._owners["a"]:
            await asyncio.sleep(0.01)


@pytest.mark.requirement("store:postgresql:owners")
async def test_a_response_that_is_taken_over_goes_on_from_what_was_durable(
    server: Server, postgres: Cluster, database: str
) -> None:
    store = await server(Clock())
    await store.join("a")
    with another_process(postgres.url(database)) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert await left(store, "a") == ["r"]
    claimed = await store.claim(OURS, "r", 1, "a")
    assert claimed is not None
    assert await store.append_events(OURS, "r", batch(0, b"e0"), fence=2, status="in_progress")
    assert await store.finish_response(OURS, ended("r", fence=2))
    assert await left(store, "a") == []

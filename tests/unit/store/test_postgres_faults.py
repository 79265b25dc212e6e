"""A PostgreSQL that restarts, goes away, or loses connections at the worst moment: nothing is lost or made twice."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from urllib.parse import quote

import pytest
from asyncpg import exceptions as pg

from antiphon.errors import APIError, InternalError, UnavailableError
from antiphon.store import postgres_database
from antiphon.store.base import StoreLimits
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres_database import Database
from antiphon.store.postgres_errors import clean_error
from support.postgres import OWNER, PASSWORD, Cluster, Server
from support.stores import OURS, add, batch, begun, ended, frames, ids, look_up


@pytest.fixture
async def store(server: Server) -> PostgresStore:
    return await server()


# Restarts


@pytest.mark.requirement("store:postgresql:restart", "api:postgresql")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["in order", "at once"])
async def test_a_restart_in_the_middle_of_writing_loses_and_doubles_nothing(
    server: Server, postgres: Cluster, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long a busy machine takes to recover: here, all that was asked for must get through in the end.
    monkeypatch.setattr(postgres_database, "PATIENCE_SECONDS", 60.0)
    ours, other = await server(), await server()
    stopped = asyncio.Event()
    written: dict[str, int] = {}

    async def write(store: PostgresStore, name: str) -> None:
        await store.create_response(OURS, begun(name, owner="me"))
        count = 0
        while not stopped.is_set():
            assert await store.append_events(OURS, name, batch(count, b"%06d" % count, b"."))
            count += 2
        assert await store.finish_response(OURS, ended(name, events=[batch(count, b"end")]))
        written[name] = count

    async def create(store: PostgresStore, name: str) -> None:
        parent = None
        number = 0
        while not stopped.is_set():
            await store.create_finished_response(OURS, begun(f"{name}{number}", parent), ended(f"{name}{number}"))
            parent = f"{name}{number}"
            number += 1
        assert len(await ids(store, f"{name}{number - 1}")) == number

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(write((ours, other)[number % 2], f"w{number}"))
        for number, store in enumerate((ours, other)):
            group.create_task(create(store, f"c{number}_"))
        for _ in range(2):
            await asyncio.sleep(0.2)
            await asyncio.to_thread(postgres.restart, how)
        await asyncio.sleep(0.2)
        stopped.set()
    for name, count in written.items():
        expected = b"".join(b"%06d." % number for number in range(0, count, 2)) + b"end"
        assert await frames(ours, name) == expected
    assert await ours.orphans([]) == []


@pytest.mark.requirement("store:postgresql:restart")
async def test_owners_and_the_doorbell_outlive_a_restart(server: Server, postgres: Cluster) -> None:
    ours, other = await server(), await server()
    rang = asyncio.Event()
    ours.listen(lambda *_: rang.set())
    await ours.join("a")
    await other.join("b")
    await other.create_response(OURS, begun("r", owner="b"))
    await asyncio.to_thread(postgres.restart)
    alive = await ours.beat("a")
    assert set(alive) == {"a", "b"}
    assert await ours.orphans(alive) == []
    async with asyncio.timeout(10):
        while not rang.is_set():
            await other.append_events(OURS, "r", batch(await other.last_sequence(OURS, "r") + 1, b"e"))
            await asyncio.sleep(0.01)
    assert ours.reachable


@pytest.mark.requirement("store:postgresql:away")
async def test_while_the_database_is_away_requests_wait_a_few_seconds_and_are_then_answered_503(
    server: Server, postgres: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    store = await server()
    await store.create_response(OURS, begun("a"))
    assert store.reachable
    try:
        postgres.stop()
        async with asyncio.timeout(10):
            while store.reachable:
                await asyncio.sleep(0.01)
        began_at = time.monotonic()
        calls = [
            store.get_response(OURS, "a"),
            store.create_response(OURS, begun("b")),
            store.append_events(OURS, "a", batch(0, b"e0")),
            store.finish_response(OURS, ended("a")),
            store.beat("me"),
        ]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert time.monotonic() - began_at < 15
    finally:
        postgres.start()
    for error in errors:
        assert isinstance(error, UnavailableError)
        assert (error.http_status, error.retry_after) == (503, 5.0)
        assert error.message == "The store cannot be reached now. Please try again later."
    assert sum("cannot be reached" in record.getMessage() for record in caplog.records) == 1
    assert str(postgres.folder) not in caplog.text
    assert await store.append_events(OURS, "a", batch(0, b"e0"))
    assert (await look_up(store, "a")).status == "in_progress"
    async with asyncio.timeout(20):
        while not store.reachable:
            await asyncio.sleep(0.01)


class Wire:
    """The network to the cluster, which can be made to swallow everything."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.writers: list[asyncio.StreamWriter] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self.writers += [writer, back]
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(source, target))
            self._tasks.add(task)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            await self._open.wait()
            target.write(data)
            await target.drain()
        target.close()

    def swallow(self) -> None:
        self._open.clear()

    def carry(self) -> None:
        self._open.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self.writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self.writers), return_exceptions=True)


@pytest.mark.requirement("store:postgresql:away")
async def test_a_network_that_swallows_everything_is_noticed_and_got_over(
    postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.store.postgres_session._PING_SECONDS", 0.1)
    monkeypatch.setattr("antiphon.store.postgres_session._SILENCE_SECONDS", 0.2)
    wire = Wire(postgres.port)
    listening = await asyncio.start_server(wire.connected, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    address = f"postgresql://{OWNER}:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/{database}"
    store = PostgresStore(address, StoreLimits())
    await store.open()
    await store.create_response(OURS, begun("a"))
    wire.swallow()
    began_at = time.monotonic()
    calls = [store.get_response(OURS, "a"), store.append_events(OURS, "a", batch(0, b"e0"))]
    for error in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(error, UnavailableError)
    assert time.monotonic() - began_at < 20
    assert not store.reachable
    wire.carry()
    async with asyncio.timeout(10):
        while not store.reachable:
            await asyncio.sleep(0.01)
    # What had been swallowed may have got through in the end; a journal looks that up.
    if await store.last_sequence(OURS, "a") < 0:
        assert await store.append_events(OURS, "a", batch(0, b"e0"))
    assert await frames(store, "a") == b"e0"
    await store.close()
    listening.close()
    await wire.close()


# Words


@pytest.mark.requirement("store:postgresql:errors")
async def test_faults_are_told_without_address_statement_or_value(
    store: PostgresStore, postgres: Cluster, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    await add(store, "a")
    postgres.execute("ALTER TABLE responses RENAME COLUMN snapshot TO other", database)
    with pytest.raises(InternalError) as failure:
        await store.get_response(OURS, "a")
    assert failure.value.message == "The store failed."
    with pytest.raises(InternalError):
        await store.create_response(OURS, begun("secret id"))
    assert "secret id" not in caplog.text
    assert "SELECT" not in caplog.text
    assert str(postgres.folder) not in caplog.text


@pytest.mark.requirement("store:postgresql:errors")
@pytest.mark.parametrize(
    ("error", "words", "status"),
    [
        (
            pg.DiskFullError("could not extend file base/1"),
            "The store cannot be used now: the disk of its database is full.",
            503,
        ),
        (pg.OutOfMemoryError("out of memory"), "The store cannot be used now: its database is out of resources.", 503),
        (pg.QueryCanceledError("canceling"), "The store cannot be used now: its database is too busy.", 503),
        (pg.LockNotAvailableError("lock"), "The store cannot be used now: its database is too busy.", 503),
        (pg.ReadOnlySQLTransactionError("x"), "The store cannot be reached now. Please try again later.", 503),
        (ConnectionRefusedError("10.0.0.1"), "The store cannot be reached now. Please try again later.", 503),
        (pg.UndefinedTableError("relation secret"), "The store failed.", 500),
        (ValueError("secret"), "The store failed.", 500),
    ],
)
def test_each_kind_of_fault_has_its_words(error: Exception, words: str, status: int) -> None:
    logging.getLogger("antiphon.store").debug("the log of this test")
    told = clean_error(error)
    assert isinstance(told, APIError)
    assert (told.message, told.http_status) == (words, status)
    assert (told.retry_after is not None) == (status == 503)


@pytest.mark.requirement("store:postgresql:errors")
async def test_a_store_that_is_closed_says_so(server: Server) -> None:
    store = await server()
    database = store._open().database
    await store.close()
    await store.close()
    assert not store.reachable
    with pytest.raises(UnavailableError, match="starting or stopping"):
        await store.get_response(OURS, "a")
    with pytest.raises(UnavailableError, match="starting or stopping"):
        await store.append_events(OURS, "a", batch(0, b"e"))
    with pytest.raises(UnavailableError, match="starting or stopping"):
        await database.run(lambda *_: asyncio.sleep(0))


@pytest.mark.requirement("store:postgresql:pool")
async def test_more_calls_than_connections_wait_their_turn(
    store: PostgresStore, postgres: Cluster, database: str
) -> None:
    await asyncio.gather(*(add(store, f"r{number}") for number in range(60)))
    found = await asyncio.gather(*(store.get_response(OURS, f"r{number}") for number in range(60)))
    assert all(found)
    connections = (
        f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND application_name = 'antiphon'"
    )
    assert int(postgres.execute(connections)) <= postgres_database.CONNECTIONS + 1


@pytest.mark.requirement("store:postgresql:pool")
async def test_a_caller_that_gives_up_leaves_the_connection_in_order(
    store: PostgresStore, postgres: Cluster, database: str
) -> None:
    await store.create_response(OURS, begun("a"))
    lock = asyncio.create_task(
        asyncio.to_thread(postgres.execute, "SELECT pg_sleep(0.3) FROM responses FOR UPDATE", database)
    )
    await asyncio.sleep(0.1)
    waiting = [asyncio.create_task(store.claim(OURS, "a", 1, f"r{number}")) for number in range(3)]
    await asyncio.sleep(0.05)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await lock
    assert (await look_up(store, "a")).id == "a"


@pytest.mark.requirement("store:postgresql:pool")
async def test_who_cannot_get_a_connection_in_time_is_told_so(postgres: Cluster, database: str) -> None:
    pool = Database(postgres.url(database))
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hold(*_: object) -> None:
        entered.set()
        await go_on.wait()

    held = [asyncio.create_task(pool.run(hold)) for _ in range(postgres_database.CONNECTIONS)]
    await entered.wait()
    with pytest.raises(UnavailableError, match="too much to do"):
        await pool.run(hold, patience=0.05)
    go_on.set()
    await asyncio.gather(*held)
    await pool.close()


@pytest.mark.requirement("store:postgresql:durable")
async def test_acknowledgements_are_on_the_disk_even_where_the_database_is_told_otherwise(
    postgres: Cluster, database: str
) -> None:
    setting = "SELECT current_setting('synchronous_commit')"
    for told, used in (("off", "on"), ("remote_apply", "remote_apply"), ("on", "on")):
        postgres.execute(f"ALTER DATABASE {database} SET synchronous_commit = {told}")
        connection = await postgres_database.connect(postgres.url(database))
        assert (await connection.fetch(setting))[0][0] == used
        await connection.close()


@pytest.mark.requirement("store:postgresql:open")
async def test_a_password_reaches_neither_errors_nor_the_log(
    postgres: Cluster, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = PostgresStore(postgres.url(database, password=PASSWORD, tcp=True), StoreLimits())
    await store.open()
    await add(store, "a")
    assert (await store.status()).location == f"postgresql://127.0.0.1:{postgres.port}/{database}"
    await store.close()
    assert PASSWORD not in caplog.text

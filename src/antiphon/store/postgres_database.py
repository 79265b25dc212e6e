"""Connections to PostgreSQL: a pool of them, and patience with a database that restarts.

What is asked for while the database is away is tried again for at most five seconds (faults B2 11). A job that is tried
again is told so: the first attempt may have been committed before its connection was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar, cast

import asyncpg

from antiphon.errors import AntiphonError, UnavailableError
from antiphon.store.postgres_errors import clean_error, is_lost, is_passing
from antiphon.store.postgres_sql import QUERIES
from antiphon.store.refusals import store_closed

__all__ = ["Connection", "Database", "connect", "execute", "fetch"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""How long a request waits for a database that is away."""

CONNECTIONS = 10
"""The most connections of the pool; beside it there is the one that listens and holds locks."""

_CONNECT_SECONDS = 5.0
_COMMAND_SECONDS = 60.0
_CLOSE_SECONDS = 2.0
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.3
_MOST_CLASHES = 20
_STATEMENTS = 256
_SETTINGS = {
    "application_name": "antiphon",
    "default_transaction_isolation": "read committed",
    # Compiling a statement takes longer than any of ours.
    "jit": "off",
    # A plan that was made while the tables were small must not read all of them later. Every statement has its index.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
    # A client that has vanished with its machine holds locks until this has found out.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


class Connection(Protocol):
    """What is used of a connection of asyncpg's, which has no types of its own."""

    async def fetch(self, query: str, *args: object) -> Sequence[Sequence[Any]]:
        """The rows of a statement."""
        ...

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement or, without parameters, a script."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction, which is rolled back where its block raises."""
        ...

    def get_server_pid(self) -> int:
        """The number of the database's process at the other end."""
        ...

    def is_closed(self) -> bool:
        """Whether it can be used no more."""
        ...

    def terminate(self) -> None:
        """Close it without another word."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's own
        """Close it in order."""
        ...

    async def add_listener(self, channel: str, callback: Callable[[object, int, str, str], None]) -> None:
        """Listen to a channel: the callback is given the connection, who rang, the channel and the payload."""
        ...

    def add_termination_listener(self, callback: Callable[[object], None]) -> None:
        """Be told when it ends."""
        ...


_connect = cast("Callable[..., Awaitable[Connection]]", asyncpg.connect)  # pyright: ignore[reportUnknownMemberType]


async def connect(url: str, *, patient: bool = False) -> Connection:
    """A connection; what it acknowledges is on the disk of the database. With `patient`, commands may take any time.

    Raises:
        Exception: as asyncpg does.
    """
    connection = await _connect(
        url,
        timeout=_CONNECT_SECONDS,
        command_timeout=None if patient else _COMMAND_SECONDS,
        statement_cache_size=_STATEMENTS,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
        server_settings=_SETTINGS,
    )
    try:
        # Only where it is off: 'remote_apply' and the like are stricter than 'on'.
        await connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
    except BaseException:
        connection.terminate()
        raise
    return connection


async def fetch(connection: Connection, query: str, **parameters: object) -> Sequence[Sequence[Any]]:
    """The rows of a named statement."""
    statement = QUERIES[query]
    return await connection.fetch(statement.text, *statement.values(parameters))


async def execute(connection: Connection, query: str, **parameters: object) -> int:
    """Run a named statement; how many rows it wrote or gave."""
    statement = QUERIES[query]
    status = await connection.execute(statement.text, *statement.values(parameters))
    count = status.rpartition(" ")[2]
    return int(count) if count.isdigit() else 0


class Database:
    """The pool. `reachable` says whether the last attempt to reach the database got through."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._by_pid: dict[int, Connection] = {}
        self._closed = False
        self.reachable = True

    def is_ours(self, pid: int) -> bool:
        """Whether a process of the database serves, or served a moment ago, a connection of this pool."""
        return pid in self._by_pid

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        self._closed = True
        while self._idle:
            await _close(self._idle.pop())

    def reset(self) -> None:
        """Give all connections up, those in use too: the other end is silent, and what waits for it is tried anew."""
        for connection in self._by_pid.values():
            if not connection.is_closed():
                connection.terminate()

    async def run(self, job: Callable[[Connection, bool], Awaitable[T]], *, patience: float | None = None) -> T:
        """The result of a job; it is given a connection, and whether an earlier attempt may have got through.

        Raises:
            UnavailableError: the database cannot be reached, or has no time.
            APIError: what the job raised.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (PATIENCE_SECONDS if patience is None else patience)
        pause, clashes, again = 0.0, 0, False
        while True:
            if self._closed:
                raise store_closed()
            try:
                connection = await self._take(deadline)
            except Exception as error:  # noqa: BLE001 - every kind of fault is told in its own words
                if is_lost(error):
                    self._note(False, error)
                await self._wait(error, deadline, pause)
            else:
                try:
                    return await self._use(connection, job, again)
                except Exception as error:  # noqa: BLE001 - as above
                    if is_passing(error) and clashes < _MOST_CLASHES:
                        clashes += 1
                        continue
                    await self._wait(error, deadline, pause)
                again = True
            pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)

    async def _wait(self, error: Exception, deadline: float, pause: float) -> None:
        """Wait a little where another attempt may help.

        Raises:
            APIError: none can.
        """
        if isinstance(error, AntiphonError):
            raise error
        if not is_lost(error):
            raise clean_error(error) from error
        if asyncio.get_running_loop().time() + pause >= deadline:
            raise clean_error(error) from error
        await asyncio.sleep(pause)

    async def _take(self, deadline: float) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise UnavailableError("The store has too much to do. Please try again later.", retry_after=2.0) from None
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            async with asyncio.timeout_at(deadline):
                connection = await connect(self._url)
        except BaseException:
            self._slots.release()
            raise
        if len(self._by_pid) > 10 * CONNECTIONS:
            self._by_pid = {pid: one for pid, one in self._by_pid.items() if not one.is_closed()}
        self._by_pid[connection.get_server_pid()] = connection
        self._note(True)
        return connection

    async def _use(self, connection: Connection, job: Callable[[Connection, bool], Awaitable[T]], again: bool) -> T:
        try:
            result = await job(connection, again)
        except Exception as error:
            if is_lost(error):
                connection.terminate()
            else:
                self._give_back(connection)
            raise
        except BaseException:
            # The statement was cut short, and what the connection hears next belongs to it.
            connection.terminate()
            raise
        finally:
            self._slots.release()
        self._give_back(connection)
        return result

    def _give_back(self, connection: Connection) -> None:
        if self._closed or connection.is_closed():
            connection.terminate()
        else:
            self._idle.append(connection)

    def _note(self, reachable: bool, error: Exception | None = None) -> None:
        if reachable == self.reachable:
            return
        self.reachable = reachable
        if reachable:
            _log.warning("the database is back")
        else:
            _log.warning("the database cannot be reached (%s)", type(error).__name__)


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=_CLOSE_SECONDS)
    except Exception as error:  # noqa: BLE001 - it is closed either way
        _log.debug("a connection did not close in order", exc_info=error)

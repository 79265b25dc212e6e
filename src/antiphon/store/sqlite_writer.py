"""Group commit: one transaction for all that waits, committed by a thread of its own.

Jobs that are waiting go into one transaction, so that many callers share one fsync. Small ones run on the event loop's
own thread, and only the COMMIT, which waits for the disk, is handed to the writer thread. A thread that runs Python
beside a busy loop waits milliseconds for the interpreter's lock each time that SQLite has given it up, which is
several times a statement; so the fewer statements run there, the better. Jobs that may take long (large bodies,
removal of many rows) run on the writer thread as a whole. Either way one side at a time owns the connection.

If anything in a transaction fails, it is rolled back and each job gets a transaction of its own: the one at fault harms
only itself, and the usual case pays for no savepoints. A job may therefore run twice, and must have no effect but
through the transaction. A job that finds out before it has written anything that it cannot be done returns its error
instead of raising it, so that a caller who is refused costs the others nothing.

What need outlive the process only is committed without waiting for the disk, on the event loop's thread, where nothing
else is in its transaction (ADR 13). A commit that follows flushes it too, and writes the log back into the file.

Another program's lock is waited for, each job for its own five seconds: a group that could not begin is refused those
jobs whose time is over, and the others wait on with those that came meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from antiphon.errors import APIError, InternalError, UnavailableError
from antiphon.store.refusals import store_closed

__all__ = ["Transactional", "Writer", "clean_error"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
_MOST_JOBS = 128
_BUSY_MILLISECONDS = 5000
_AGAIN_SECONDS = 10.0
_LOG_PAGES = 1_000
"""Pages of the log that is written back, SQLite's own default."""

_due: dict[str, float] = {}

_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_BUSY: "it is locked by another program",
    sqlite3.SQLITE_LOCKED: "it is locked by another program",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CORRUPT: "its file is damaged",
    sqlite3.SQLITE_NOTADB: "its file is damaged",
    sqlite3.SQLITE_IOERR: "its disk reports an error",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened",
}


class Transactional(Protocol):
    """What the writer tells the owner of the rows around each transaction."""

    def settle(self) -> None:
        """Do what is due once for all jobs, before the commit."""
        ...

    def committed(self) -> None:
        """The transaction is durable."""
        ...

    def rolled_back(self) -> None:
        """Nothing of the transaction happened."""
        ...


def clean_error(error: Exception) -> APIError:
    """The error for a client: what kind of fault, and no path, statement or value."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        reason = _REASONS.get(code & 0xFF) if isinstance(code, int) else None
        _tell(error, getattr(error, "sqlite_errorname", "no code"))
        if reason is not None:
            return UnavailableError(f"The store cannot be used now: {reason}.", retry_after=5.0)
    else:
        _log.error("the store failed", exc_info=error)
    return InternalError("The store failed.")


def _tell(error: sqlite3.Error, name: str) -> None:
    """Log an error of SQLite; one that lasts meets every write, and is told once in a while."""
    now = time.monotonic()
    if now >= _due.get(name, now):
        _due[name] = now + _AGAIN_SECONDS
        _log.error("the store failed: %s (%s)", error, name)


def _concerns_all(error: Exception) -> bool:
    """Whether every job would fail the same way; with a full disk a smaller one may still fit."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and (code & 0xFF) in _REASONS and (code & 0xFF) != sqlite3.SQLITE_FULL


def _locked(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and (code & 0xFF) == sqlite3.SQLITE_BUSY


class _Waiting:
    """A job, and the caller who awaits its outcome; `until` is how long it waits for a lock, on the monotonic clock."""

    __slots__ = ("again", "error", "flush", "future", "heavy", "job", "result", "until")

    def __init__(self, job: Callable[[], Any], future: asyncio.Future[Any], heavy: bool, flush: bool) -> None:
        self.job = job
        self.heavy = heavy
        self.flush = flush
        self.future = future
        self.until = time.monotonic() + _BUSY_MILLISECONDS / 1000
        self.result: Any = None
        self.error: APIError | None = None
        self.again = False


class Writer:
    """Runs jobs in transactions of one connection; made and used on the event loop's thread."""

    def __init__(self, connection: sqlite3.Connection, rows: Transactional) -> None:
        self._connection = connection
        self._rows = rows
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._busy = False
        self._closed = False
        self._flushes = True
        self._idle = asyncio.Event()
        self._idle.set()
        self._handed: SimpleQueue[tuple[list[_Waiting], bool] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="antiphon-store-writer", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], T | APIError], *, heavy: bool = False, flush: bool = True) -> asyncio.Future[T]:
        """The result of a job, when it is durable; `heavy` keeps it off the event loop's thread.

        Without `flush` it is durable as long as the machine has power, and then with the next job that is flushed.

        Raises:
            UnavailableError: the disk is full, read-only or damaged, or the store is closed; nothing was written.
            APIError: what the job raised or returned.
        """
        if self._closed:
            raise store_closed()
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Waiting(job, future, heavy, flush))
        if not self._busy:
            self._busy = True
            self._idle.clear()
            # Not at once, so that callers of the same turn of the loop share the transaction.
            self._loop.call_soon(self._begin)
        return future

    async def close(self) -> None:
        """Finish what waits, and end the thread."""
        if self._closed:
            return
        self._closed = True
        await self._idle.wait()
        self._handed.put(None)
        await asyncio.to_thread(self._thread.join)

    # On the event loop's thread

    def _begin(self) -> None:
        group: list[_Waiting] = []
        heavy = flush = False
        while self._waiting and len(group) < _MOST_JOBS:
            waiting = self._waiting.popleft()
            waiting.again = False
            heavy = heavy or waiting.heavy
            flush = flush or waiting.flush
            group.append(waiting)
        begun = False
        if not heavy:
            try:
                self._run_jobs(group, flush=flush)
                if not flush:
                    self._commit()
                begun = True
            except Exception as error:  # noqa: BLE001 - the thread tries again, one by one, and reports
                _log.debug("a transaction is tried again", exc_info=error)
        if begun and not flush:
            self._end(group)
        else:
            self._handed.put((group, begun))

    def _end(self, group: list[_Waiting]) -> None:
        self._waiting.extendleft(reversed([waiting for waiting in group if waiting.again]))
        for waiting in group:
            if waiting.again or waiting.future.done():
                continue
            if waiting.error is not None:
                waiting.future.set_exception(waiting.error)
            elif isinstance(waiting.result, APIError):
                waiting.future.set_exception(waiting.result)
            else:
                waiting.future.set_result(waiting.result)
        if self._waiting:
            # Callers that the results wake may have more to write: let them join.
            self._loop.call_soon(self._begin)
        else:
            self._busy = False
            self._idle.set()

    # On the writer thread

    def _run(self) -> None:
        while (handed := self._handed.get()) is not None:
            group, begun = handed
            self._settle(group, begun=begun)
            try:
                self._loop.call_soon_threadsafe(self._end, group)
            except RuntimeError:
                # The loop has closed: no one is left to tell, and what is durable stays so.
                return

    def _settle(self, group: list[_Waiting], *, begun: bool = False) -> None:
        try:
            if not begun:
                with _patience(self._connection, min(waiting.until for waiting in group)):
                    self._run_jobs(group)
            self._commit()
        except Exception as error:  # noqa: BLE001 - whatever a job raises goes to its caller
            if _locked(error):
                self._refuse_late(group, error)
                return
            if len(group) > 1 and not _concerns_all(error):
                for waiting in group:
                    self._settle([waiting])
                return
            clean = clean_error(error)
            for waiting in group:
                waiting.error = copy(clean)

    def _refuse_late(self, group: list[_Waiting], error: Exception) -> None:
        """After a lock that did not go: jobs that have waited long enough are refused, the others wait on."""
        now = time.monotonic()
        late = [waiting for waiting in group if waiting.until <= now]
        clean = clean_error(error) if late else None
        for waiting in group:
            waiting.again = waiting.until > now
            waiting.error = None if waiting.again else copy(clean)

    # On the thread that owns the connection

    def _run_jobs(self, group: list[_Waiting], *, flush: bool = True) -> None:
        try:
            if self._connection.in_transaction:
                # The disk did not even let the last one be rolled back.
                self._connection.rollback()
            if flush is not self._flushes:
                self._set_flush(flush)
            self._connection.execute("BEGIN IMMEDIATE")
            for waiting in group:
                waiting.result = waiting.job()
            self._rows.settle()
        except BaseException:
            self._roll_back()
            raise

    def _set_flush(self, flush: bool) -> None:
        """Whether the next commits wait for the disk, and write the log back where it has become long."""
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES if flush else 0}").fetchall()
        self._flushes = flush

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self._rows.committed()

    def _roll_back(self) -> None:
        try:
            # SQLite ends the transaction by itself after some faults, such as a full disk.
            if self._connection.in_transaction:
                self._connection.rollback()
        finally:
            self._rows.rolled_back()


@contextmanager
def _patience(connection: sqlite3.Connection, until: float) -> Generator[None, None, None]:
    """Wait for another program's lock until that time, which the event loop's thread must not."""
    milliseconds = max(1, math.ceil(1000 * (until - time.monotonic())))
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        yield
    finally:
        connection.execute("PRAGMA busy_timeout = 0")

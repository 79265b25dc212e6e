"""One thread that writes, with group commit.

Whatever waits when the thread is free goes into one transaction, so that many callers share one fsync. If anything in
it fails, it is rolled back and each job gets a transaction of its own: the one at fault harms only itself, and the
usual case pays for no savepoints. A job may therefore run twice, and must have no effect but through the transaction.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from antiphon.errors import APIError, InternalError, UnavailableError

__all__ = ["Transactional", "Writer", "clean_error"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
_MOST_JOBS = 512

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
    """What the writer tells the owner of the rows around each transaction; all calls are on the writer's thread."""

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
        _log.error("the store failed: %s (%s)", error, getattr(error, "sqlite_errorname", "no code"))
        if reason is not None:
            return UnavailableError(f"The store cannot be used now: {reason}.", retry_after=5.0)
    else:
        _log.error("the store failed", exc_info=error)
    return InternalError("The store failed.")


def _concerns_all(error: Exception) -> bool:
    """Whether every job would fail the same way; with a full disk a smaller one may still fit."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and (code & 0xFF) in _REASONS and (code & 0xFF) != sqlite3.SQLITE_FULL


class _Waiting:
    """A job, and the caller who awaits its outcome."""

    __slots__ = ("error", "future", "job", "result")

    def __init__(self, job: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.job = job
        self.future = future
        self.result: Any = None
        self.error: APIError | None = None


class Writer:
    """Runs jobs in transactions of one connection, on a thread of its own."""

    def __init__(self, connection: sqlite3.Connection, rows: Transactional) -> None:
        self._connection = connection
        self._rows = rows
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="antiphon-store-writer", daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[], T]) -> T:
        """The result of a job, when it is durable.

        Raises:
            UnavailableError: the disk is full, read-only or damaged, or the store is closed; nothing was written.
            APIError: what the job raised.
        """
        if self._closed:
            raise UnavailableError("The store is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Waiting(job, future))
        return await future

    async def close(self) -> None:
        """Finish what waits, and end the thread."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        last = False
        while not last:
            group, last = self._take()
            if not group:
                continue
            self._settle_group(group)
            try:
                self._loop.call_soon_threadsafe(_deliver, group)
            except RuntimeError:
                # The loop has closed: no one is left to tell, and what is durable stays so.
                return

    def _take(self) -> tuple[list[_Waiting], bool]:
        """All that waits, at least one; and whether nothing comes after it."""
        waiting = self._queue.get()
        group: list[_Waiting] = []
        while waiting is not None:
            group.append(waiting)
            if len(group) == _MOST_JOBS:
                return group, False
            try:
                waiting = self._queue.get_nowait()
            except Empty:
                return group, False
        return group, True

    def _settle_group(self, group: list[_Waiting]) -> None:
        try:
            self._transact(group)
        except Exception as error:  # noqa: BLE001 - whatever a job raises goes to its caller
            if len(group) > 1 and not _concerns_all(error):
                for waiting in group:
                    self._settle_group([waiting])
                return
            clean = clean_error(error)
            for waiting in group:
                waiting.error = clean

    def _transact(self, group: list[_Waiting]) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for waiting in group:
                waiting.result = waiting.job()
            self._rows.settle()
            connection.execute("COMMIT")
        except BaseException:
            # SQLite ends the transaction by itself after some faults, such as a full disk.
            if connection.in_transaction:
                connection.rollback()
            self._rows.rolled_back()
            raise
        self._rows.committed()


def _deliver(group: list[_Waiting]) -> None:
    for waiting in group:
        if waiting.future.done():
            continue
        if waiting.error is not None:
            waiting.future.set_exception(waiting.error)
        else:
            waiting.future.set_result(waiting.result)

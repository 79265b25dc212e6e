"""A few threads that read, each with a connection of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from antiphon.errors import APIError, UnavailableError
from antiphon.store.sqlite_writer import clean_error

__all__ = ["Readers"]

T = TypeVar("T")
_Query = tuple[Callable[[sqlite3.Connection], Any], "asyncio.Future[Any]"]


class Readers:
    """Runs queries on a pool of threads; a query is one statement, so no read transaction outlives it."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], threads: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Query | None] = SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(connect(),), name=f"antiphon-store-reader-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a query; it sees all that was durable when it was asked.

        Raises:
            UnavailableError: the file cannot be read now, or the store is closed.
        """
        if self._closed:
            raise UnavailableError("The store is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((query, future))
        return await future

    async def close(self) -> None:
        """Finish what waits, and end the threads."""
        if self._closed:
            return
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _run(self, connection: sqlite3.Connection) -> None:
        try:
            while (waiting := self._queue.get()) is not None:
                query, future = waiting
                result, error = None, None
                try:
                    result = query(connection)
                except Exception as failure:  # noqa: BLE001 - whatever it is goes to the caller
                    error = clean_error(failure)
                try:
                    self._loop.call_soon_threadsafe(_deliver, future, result, error)
                except RuntimeError:
                    return
        finally:
            connection.close()


def _deliver(future: asyncio.Future[Any], result: object, error: APIError | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)

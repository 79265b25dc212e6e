"""The SQLite store's open file: its two connections and its writer, for what the parts of the store do with them.

Reads run on the event loop's thread: a look-up by key costs a fifth of a hand-over to another thread, and a thread that
reads beside a busy loop waits milliseconds for the interpreter's lock at every row. Long chains and logs are read in
steps that let other tasks run between them. A read is one statement, so none is open across an await.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from antiphon.errors import APIError, ConfigurationError
from antiphon.store.queries import QUERIES
from antiphon.store.refusals import store_closed
from antiphon.store.rows import StoreLimits
from antiphon.store.sqlite_file import FileLock, connect, migrate, prepare_file, refuse_links
from antiphon.store.sqlite_rows import Rows
from antiphon.store.sqlite_writer import Writer, clean_error

__all__ = ["Opened", "SQLiteCore"]

T = TypeVar("T")
_ADVICE = "Check the path, its permissions and the free space, or choose another file with --store PATH."
_SWITCH_SECONDS = 50e-6


class Opened:
    """What exists while the store is open: the writer with its connection and rows, and the reader."""

    def __init__(self, connection: sqlite3.Connection, rows: Rows, reader: sqlite3.Connection) -> None:
        self.connection = connection
        self.rows = rows
        self.writer = Writer(connection, rows)
        self.reader = reader

    async def close(self) -> None:
        """Finish what is under way."""
        await self.writer.close()
        self.reader.close()
        await asyncio.to_thread(self.connection.close)


class SQLiteCore:
    """Opens and closes the file, and runs statements.

    `clock` gives the time in seconds since the epoch. With `beside`, the file may be in use by a server at the same
    time, and only its keys may be touched: whoever counts responses must be alone.
    """

    def __init__(
        self, path: Path, limits: StoreLimits, clock: Callable[[], float] = time.time, *, beside: bool = False
    ) -> None:
        # One file is one name here, whichever link leads to it: the lock and the log lie beside that name.
        self.path = Path(os.path.realpath(path))
        self.limits = limits
        self._clock = clock
        self._beside = beside
        self._lock = FileLock(self.path)
        self._opened: Opened | None = None

    async def open(self) -> None:
        """Open the file, creating or migrating it as needed.

        Raises:
            ConfigurationError: it cannot be used; the message names the file and says why and what to do.
        """
        # The thread that commits must get the interpreter's lock back from a busy event loop. With the default of 5 ms
        # it can wait seconds, since a loop that lets go for an instant starts the interval anew (measured: 4.5 s
        # against 8 ms a commit).
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        self._opened = opened = Opened(*await asyncio.to_thread(self._open_file))
        if self._beside:
            return
        try:
            await opened.writer.run(opened.rows.removal.remove_all_unneeded, heavy=True)
        except APIError as error:
            await self.close()
            raise ConfigurationError(f"The store {self.path} cannot be used. {error.message} {_ADVICE}") from None

    async def close(self) -> None:
        """Finish what is under way, close the file and give the lock back."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        try:
            ledger = opened.rows.ledger
            if ledger.uses.bounded or ledger.conversation_uses.bounded:
                await opened.writer.run(ledger.write_uses, heavy=True)
        except APIError:
            # The order of use is a help, not a promise: a full disk must not keep the server from stopping.
            pass
        finally:
            await opened.close()
            self._lock.release()

    def _open(self) -> Opened:
        if self._opened is None:
            raise store_closed()
        return self._opened

    async def _write(self, job: Callable[[], T | APIError], *, heavy: bool = False, flush: bool = True) -> T:
        return await self._open().writer.run(job, heavy=heavy, flush=flush)

    def _read(self, query: str, parameters: dict[str, object]) -> list[Any]:
        try:
            return self._open().reader.execute(QUERIES[query], parameters).fetchall()
        except sqlite3.Error as error:
            raise clean_error(error) from error

    def _open_file(self) -> tuple[sqlite3.Connection, Rows, sqlite3.Connection]:
        try:
            prepare_file(self.path)
            with ExitStack() as undo:
                if not self._beside:
                    self._lock.acquire()
                    undo.callback(self._lock.release)
                refuse_links(self.path)
                connection = connect(self.path)
                undo.callback(connection.close)
                migrate(connection)
                connection.execute("PRAGMA busy_timeout = 0")
                rows = Rows(connection, self.limits, self._clock)
                reader = connect(self.path, read_only=True, wait=False)
                undo.pop_all()
                return connection, rows, reader
        except OSError as error:
            raise ConfigurationError(f"The store {self.path} cannot be opened: {error.strerror}. {_ADVICE}") from None
        except sqlite3.Error as error:
            raise ConfigurationError(f"The store {self.path} cannot be opened: {error}. {_ADVICE}") from None

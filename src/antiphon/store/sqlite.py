"""The store in one SQLite file: the default.

WAL with `synchronous=FULL` and group commit. A method that writes returns when the write is on disk, and what is on
disk is seen by every read that begins after.

Reads run on the event loop's thread: a look-up by key costs a fifth of a hand-over to another thread, and a thread that
reads beside a busy loop waits milliseconds for the interpreter's lock at every row. Long chains and logs are read in
steps that let other tasks run between them. A read is one statement, so none is open across an await.

The TTL counts by the wall clock, since it outlives the process: a clock that is set forward makes responses expire
early, and one that is set back makes them stay longer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from antiphon.errors import APIError, ConfigurationError, UnavailableError
from antiphon.store.base import (
    ChainTurn,
    EventBatch,
    FinishedResponse,
    InterruptedResponse,
    NewResponse,
    Scope,
    Store,
    StoredItem,
    StoredResponse,
    StoreLimits,
    StoreStatus,
)
from antiphon.store.queries import QUERIES
from antiphon.store.sqlite_file import FileLock, connect, migrate, prepare_file, refuse_links
from antiphon.store.sqlite_rows import IN, OUT, Key, Rows, unpack_offsets
from antiphon.store.sqlite_writer import Writer, clean_error

__all__ = ["SQLiteStore"]

T = TypeVar("T")
_ADVICE = "Check the path, its permissions and the free space, or choose another file with --store PATH."
_SWEEP_STEP = 200
_SWITCH_SECONDS = 50e-6
_TURNS_A_READ = 32
_BATCHES_A_READ = 32
_LARGE = 256 * 1024
"""Bytes of a write, of all its bodies together, from which on it is kept off the event loop's thread."""


class _Opened:
    """What exists while the store is open."""

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


class SQLiteStore(Store):
    """Keeps responses in a SQLite file; one server per file.

    `clock` gives the time in seconds since the epoch.
    """

    def __init__(self, path: Path, limits: StoreLimits, clock: Callable[[], float] = time.time) -> None:
        # One file is one name here, whichever link leads to it: the lock and the log lie beside that name.
        self.path = Path(os.path.realpath(path))
        self.limits = limits
        self._clock = clock
        self._lock = FileLock(self.path)
        self._opened: _Opened | None = None
        self._left_running: dict[Key, None] = {}

    async def open(self) -> None:
        """Open the file, creating or migrating it as needed.

        Raises:
            ConfigurationError: it cannot be used; the message names the file and says why and what to do.
        """
        # The thread that commits must get the interpreter's lock back from a busy event loop. With the default of 5 ms
        # it can wait seconds, since a loop that lets go for an instant starts the interval anew (measured: 4.5 s
        # against 8 ms a commit).
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        self._opened = opened = _Opened(*await asyncio.to_thread(self._open_file))
        try:
            await opened.writer.run(opened.rows.remove_all_unneeded, heavy=True)
        except APIError as error:
            await self.close()
            raise ConfigurationError(f"The store {self.path} cannot be used. {error.message} {_ADVICE}") from None

    async def close(self) -> None:
        """Finish what is under way, close the file and give the lock back."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        try:
            if opened.rows.bounded:
                await opened.writer.run(opened.rows.write_uses, heavy=True)
        except APIError:
            # The order of use is a help, not a promise: a full disk must not keep the server from stopping.
            pass
        finally:
            await opened.close()
            self._lock.release()

    async def status(self) -> StoreStatus:
        """Where it lies and what it holds; what has expired counts until it is swept."""
        responses, items, size = self._open().rows.totals
        return StoreStatus(str(self.path), True, responses, items, size)

    async def create_response(self, scope: Scope, response: NewResponse) -> None:
        """Begin a response.

        Raises:
            ConflictError: there is one by that id.
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        heavy = _size(response.input_items) + len(response.snapshot) > _LARGE
        await self._write(lambda: rows.create(scope.tenant, response), heavy=heavy)

    async def create_finished_response(self, scope: Scope, response: NewResponse, finished: FinishedResponse) -> None:
        """Begin and end a response in one transaction.

        Raises:
            ConflictError: there is one by that id.
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        heavy = _size(response.input_items) + _end_size(finished) > _LARGE
        await self._write(lambda: rows.create(scope.tenant, response, finished), heavy=heavy)

    async def append_events(self, scope: Scope, response_id: str, batch: EventBatch) -> None:
        """Append a batch to a running response.

        Raises:
            ConflictError: a batch that begins with that event is there.
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        heavy = len(batch.body) > _LARGE
        await self._write(lambda: rows.append(scope.tenant, response_id, batch), heavy=heavy)

    async def finish_response(self, scope: Scope, finished: FinishedResponse) -> bool:
        """End a response; False where it has ended already or is gone.

        Raises:
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        heavy = _end_size(finished) > _LARGE
        return await self._write(lambda: rows.finish(scope.tenant, finished), heavy=heavy)

    async def get_response(self, scope: Scope, response_id: str) -> StoredResponse | None:
        """A response by id; counts as a use of it."""
        parameters: dict[str, object] = {"tenant": scope.tenant, "id": response_id, "now": self._clock()}
        found = self._read("get_response", parameters)
        if not found:
            return None
        self._open().rows.use((scope.tenant, response_id))
        return StoredResponse(response_id, *found[0])

    async def delete_response(self, scope: Scope, response_id: str) -> bool:
        """Make a response gone; False where there is none by that id.

        Raises:
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        return await self._write(lambda: rows.delete((scope.tenant, response_id)), heavy=True)

    async def chain(self, scope: Scope, response_id: str) -> list[ChainTurn]:
        """The turns from the oldest ancestor to this response."""
        turns: list[ChainTurn] = []
        inputs: list[bytes] = []
        outputs: list[bytes] = []
        for _, _, turn_id, parent_id, role, body, status in await self._walk("chain", scope, response_id):
            if not turns or turns[-1].id != turn_id:
                inputs, outputs = [], []
                turns.append(ChainTurn(turn_id, parent_id, status, inputs, outputs))
            if role is not None:
                (outputs if role == OUT else inputs).append(body)
        return turns

    async def input_item_ids(self, scope: Scope, response_id: str) -> list[str]:
        """The ids of the items that a response was made from, oldest first, each where it comes first."""
        rows = await self._walk("chain_item_ids", scope, response_id)
        found: dict[str, None] = {}
        for _, _, turn_id, _, role, item_id in rows:
            if role == IN or (role == OUT and turn_id != response_id):
                found[item_id] = None
        return list(found)

    async def events(self, scope: Scope, response_id: str, after: int = -1) -> list[EventBatch]:
        """The batches of a response that hold events after that number."""
        parameters: dict[str, object] = {"tenant": scope.tenant, "id": response_id, "now": self._clock()}
        parameters.update(after=after, most=_BATCHES_A_READ)
        batches: list[EventBatch] = []
        while True:
            found = self._read("events", parameters)
            batches.extend(EventBatch(first, body, unpack_offsets(offsets)) for first, body, offsets in found)
            if len(found) < _BATCHES_A_READ:
                return batches
            parameters["after"] = batches[-1].last_sequence
            await asyncio.sleep(0)

    async def get_items(self, scope: Scope, item_ids: Sequence[str]) -> dict[str, bytes]:
        """The JSON of those items that are kept, by id."""
        if not item_ids:
            return {}
        return dict(self._read("get_items", {"tenant": scope.tenant, "ids": json.dumps(list(item_ids))}))

    async def each_interrupted(self) -> AsyncGenerator[InterruptedResponse]:
        """Of every tenant, the responses that an earlier process left queued or in progress and that still are."""
        left = self._left_running
        for key in list(left):
            scope = Scope(key[0])
            response = await self.get_response(scope, key[1])
            if response is None or response.status not in {"queued", "in_progress"}:
                left.pop(key, None)
                await asyncio.sleep(0)
                continue
            yield InterruptedResponse(scope, response, await self.events(scope, key[1]))

    async def sweep(self, now: float) -> int:
        """Make gone what has expired by `now`, and remove what nothing needs; the number of rows removed.

        Raises:
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        removed = await self._write(rows.remove_held_back, heavy=True) if rows.held_back else 0
        if rows.bounded:
            await self._write(rows.write_uses, heavy=True)
        # In steps, so that requests need not wait for all of it.
        while True:
            expired, gone = await self._write(lambda: rows.expire(now, _SWEEP_STEP), heavy=True)
            removed += gone
            if expired < _SWEEP_STEP:
                return removed

    @contextmanager
    def retain(self, scope: Scope, response_id: str) -> Generator[None, None, None]:
        """Keep the turns up to a response while one that descends from it is made but not stored yet."""
        key = (scope.tenant, response_id)
        retained = self._open().rows.retained
        retained[key] = retained.get(key, 0) + 1
        try:
            yield
        finally:
            if retained[key] > 1:
                retained[key] -= 1
            else:
                del retained[key]

    def _open(self) -> _Opened:
        if self._opened is None:
            raise UnavailableError("The store is closed.")
        return self._opened

    async def _write(self, job: Callable[[], T], *, heavy: bool = False) -> T:
        return await self._open().writer.run(job, heavy=heavy)

    async def _walk(self, query: str, scope: Scope, response_id: str) -> list[Any]:
        """The rows of a query that reads a chain from its end, oldest first, read in steps.

        The first columns are the depth of the row's turn in its step, whether that turn is live, its id and parent's.
        """
        parameters: dict[str, object] = {"tenant": scope.tenant, "id": response_id, "now": self._clock()}
        parameters.update(most=_TURNS_A_READ)
        steps = [self._read(query, parameters)]
        # The last one is the response itself. One that has expired is as good as gone, unless something needs it.
        if not steps[0] or not (steps[0][-1][1] or self._read("is_needed", parameters)):
            return []
        with self.retain(scope, response_id):
            while steps[-1]:
                depth, _, _, parent_id, *_ = steps[-1][0]
                if depth < _TURNS_A_READ - 1 or parent_id is None:
                    break
                await asyncio.sleep(0)
                steps.append(self._read(query, {**parameters, "id": parent_id}))
        return list(itertools.chain.from_iterable(reversed(steps)))

    def _read(self, query: str, parameters: dict[str, object]) -> list[Any]:
        try:
            return self._open().reader.execute(QUERIES[query], parameters).fetchall()
        except sqlite3.Error as error:
            raise clean_error(error) from error

    def _open_file(self) -> tuple[sqlite3.Connection, Rows, sqlite3.Connection]:
        try:
            prepare_file(self.path)
            with ExitStack() as undo:
                self._lock.acquire()
                undo.callback(self._lock.release)
                refuse_links(self.path)
                connection = connect(self.path)
                undo.callback(connection.close)
                migrate(connection)
                connection.execute("PRAGMA busy_timeout = 0")
                self._left_running = dict.fromkeys(connection.execute(QUERIES["running"]))
                rows = Rows(connection, self.limits, self._clock)
                reader = connect(self.path, read_only=True, wait=False)
                undo.pop_all()
                return connection, rows, reader
        except OSError as error:
            raise ConfigurationError(f"The store {self.path} cannot be opened: {error.strerror}. {_ADVICE}") from None
        except sqlite3.Error as error:
            raise ConfigurationError(f"The store {self.path} cannot be opened: {error}. {_ADVICE}") from None


def _size(rows: Sequence[StoredItem | EventBatch]) -> int:
    return sum([len(row.body) for row in rows])


def _end_size(finished: FinishedResponse) -> int:
    return len(finished.snapshot) + _size(finished.output_items) + _size(finished.events)

"""The store in one SQLite file: the default.

WAL with `synchronous=FULL` and group commit. A method that writes returns when the write is on disk, unless it need
outlive the process only (ADR 13), and it is seen by every read that begins after. Reads run on the event loop's thread
(`sqlite_core`), and so do small writes up to their commit (`sqlite_writer`).

What is kept for a time counts by the wall clock, since it outlives the process: responses, event logs, conversations,
idempotency records, and the next attempts at webhooks. A clock that is set forward makes them due early, and one that
is set back makes them stay longer. Who is alive is counted in memory: one server has the file.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from antiphon.store.base import Store
from antiphon.store.rows import (
    ChainTurn,
    ClaimedResponse,
    EventBatch,
    FinishedResponse,
    NewResponse,
    RunningResponse,
    Scope,
    StoredItem,
    StoredResponse,
    StoreStatus,
)
from antiphon.store.sqlite_conversations import LARGE, SQLiteConversations
from antiphon.store.sqlite_ledger import unpack_offsets
from antiphon.store.sqlite_registers import SQLiteRegisters
from antiphon.store.sqlite_rows import FORMAT, IN, OUT, stored_response
from antiphon.store.sqlite_toolruns import SQLiteToolRuns

__all__ = ["SQLiteStore"]

_SWEEP_STEP = 20
"""Rows that a sweep removes in one transaction, which a write may have to wait for; each may have a long log."""

_TURNS_A_READ = 32
_BATCHES_A_READ = 32
_LONG_LOG = 2000


class SQLiteStore(SQLiteToolRuns, SQLiteConversations, SQLiteRegisters, Store):
    """Keeps everything in a SQLite file; one server per file."""

    _owners: dict[str, int]

    async def open(self) -> None:
        """Open the file, creating or migrating it as needed.

        Raises:
            ConfigurationError: it cannot be used; the message names the file and says why and what to do.
        """
        self._owners = {}
        await super().open()
        try:
            await self.refuse_sealed()
        except BaseException:
            await self.close()
            raise

    async def status(self) -> StoreStatus:
        """Where it lies and what it holds; what has expired counts until it is swept."""
        totals = self._open().rows.ledger.totals
        files = self._read("count_files", {})[0][0]
        corpora = self._read("count_all_vector_stores", {})[0][0]
        counts = (totals.responses, totals.items, totals.bytes, totals.conversations, files, corpora)
        return StoreStatus(str(self.path), True, *counts)

    async def create_response(self, scope: Scope, response: NewResponse, *, flush: bool = True) -> None:
        """Begin a response.

        Raises:
            ConflictError: there is one by that id, its conversation is locked, or its idempotency key is in use.
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        heavy = _begin_size(response) > LARGE
        await self._write(lambda: rows.create(scope.tenant, response), heavy=heavy, flush=flush)

    async def create_finished_response(self, scope: Scope, response: NewResponse, finished: FinishedResponse) -> None:
        """Begin and end a response in one transaction.

        Raises:
            ConflictError: as `create_response`.
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        heavy = _begin_size(response) - len(response.snapshot) + _end_size(finished) > LARGE
        await self._write(lambda: rows.create(scope.tenant, response, finished), heavy=heavy)

    async def append_events(
        self,
        scope: Scope,
        response_id: str,
        batch: EventBatch,
        *,
        fence: int = 1,
        status: str | None = None,
        flush: bool = True,
    ) -> bool:
        """Append a batch to a running response, and set its status where one is given.

        Raises:
            ConflictError: the batch does not come right after the events that are there.
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        heavy = len(batch.body) + len(batch.sampled) > LARGE
        return await self._write(
            lambda: rows.append(scope.tenant, response_id, batch, fence, status), heavy=heavy, flush=flush
        )

    async def finish_response(self, scope: Scope, finished: FinishedResponse) -> bool:
        """End a response; False where it has ended already, is gone, or has another fence.

        Raises:
            ConflictError: the events do not come right after those that are there.
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        # A long log has many samples to drop.
        heavy = _end_size(finished) > LARGE or _events_before(finished) > _LONG_LOG
        return await self._write(lambda: rows.finish(scope.tenant, finished), heavy=heavy)

    async def get_response(self, scope: Scope, response_id: str) -> StoredResponse | None:
        """A response by id; counts as a use of it."""
        parameters = self._of_response(scope, response_id)
        found = self._read("get_response", parameters)
        if not found:
            return None
        self._open().rows.ledger.uses.use((scope.tenant, response_id))
        return stored_response(response_id, found[0])

    async def delete_response(self, scope: Scope, response_id: str) -> bool:
        """Make a response gone; False where there is none by that id.

        Raises:
            InvalidRequestError: `response_in_progress`.
            UnavailableError: it cannot be written now.
        """
        removal = self._open().rows.removal
        return await self._write(lambda: removal.delete((scope.tenant, response_id)), heavy=True)

    async def delete_chain(self, scope: Scope, response_id: str) -> list[str]:
        """Make gone a response, its ancestors and all that descend from any of them; those that were not, oldest first.

        Raises:
            InvalidRequestError: `response_in_progress`; nothing is deleted.
            UnavailableError: it cannot be written now.
        """
        removal = self._open().rows.removal
        return await self._write(lambda: removal.delete_chain((scope.tenant, response_id)), heavy=True)

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

    async def events(
        self, scope: Scope, response_id: str, after: int = -1, most: int | None = None
    ) -> list[EventBatch]:
        """The batches of a response that hold events after that number."""
        parameters = self._of_response(scope, response_id)
        batches: list[EventBatch] = []
        while True:
            room = _BATCHES_A_READ if most is None else min(_BATCHES_A_READ, most - len(batches))
            found = self._read("events", {**parameters, "after": after, "most": room})
            batches.extend(
                EventBatch(first, body, unpack_offsets(offsets), drawn) for first, body, offsets, drawn in found
            )
            if len(found) < _BATCHES_A_READ or len(batches) == most:
                return batches
            after = batches[-1].last_sequence
            await asyncio.sleep(0)

    async def last_sequence(self, scope: Scope, response_id: str) -> int:
        """The number of the last stored event of a response; -1 where there is none."""
        found = self._read("last_sequence", self._of_response(scope, response_id))
        return found[0][0] if found else -1

    async def get_items(self, scope: Scope, item_ids: Sequence[str]) -> dict[str, bytes]:
        """The JSON of those items that are kept, by id."""
        if not item_ids:
            return {}
        return dict(self._read("get_items", {"tenant": scope.tenant, "ids": json.dumps(list(item_ids))}))

    async def sweep(self, now: float) -> int:
        """Make gone what has expired by `now`, and remove what nothing needs; the number of rows removed.

        Raises:
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        removed = await self._write(rows.removal.remove_held_back, heavy=True) if rows.removal.held_back else 0
        if rows.ledger.uses.bounded or rows.ledger.conversation_uses.bounded:
            await self._write(rows.ledger.write_uses, heavy=True)
        # In steps, so that requests need not wait for all of it.
        for step in self._sweeps(now):
            while True:
                began = time.monotonic()
                found, gone = await self._write(step, heavy=True)
                removed += gone
                if found < _SWEEP_STEP:
                    break
                # For as long as the step took: what came meanwhile is not to share a transaction with the next one.
                await asyncio.sleep(time.monotonic() - began)
        removed += await self._remove_files("find_due_file", now=now)
        return removed + await self._expire_corpora(now)

    def _sweeps(self, now: float) -> list[Callable[[], tuple[int, int]]]:
        """Steps that each remove some of one kind: how many were found, and how many rows that removed."""
        rows, limits = self._open().rows, self.limits
        steps = [lambda: rows.removal.expire(now, _SWEEP_STEP), lambda: self._expire_records(now, _SWEEP_STEP)]
        if limits.event_ttl_seconds is not None:
            ended_before = now - limits.event_ttl_seconds
            steps.append(lambda: rows.removal.expire_logs(ended_before, _SWEEP_STEP))
        if limits.conversation_ttl_seconds is not None:
            steps.append(lambda: rows.conversations.expire(now, _SWEEP_STEP))
        return steps

    # Who is alive: one process has the file, so that nothing of it need be written

    async def join(self, owner: str) -> None:
        """Enter a process as the only owner: whatever ran responses of this file before is gone."""
        self._open()
        self._owners = {owner: 0}

    async def beat(self, owner: str) -> dict[str, int]:
        """Raise an owner's counter; the counters of all owners that are not known to be gone."""
        self._open()
        if owner in self._owners:
            self._owners[owner] += 1
        return dict(self._owners)

    async def leave(self, owner: str) -> None:
        """Take an owner out; what it ran waits for another one."""
        self._open()
        self._owners.pop(owner, None)

    async def orphans(self, owners: Collection[str]) -> list[RunningResponse]:
        """Of every tenant, the running responses of known formats that none of these owners runs, oldest first."""
        found = self._read("orphans", {"owners": json.dumps(list(owners)), "format": FORMAT})
        return [RunningResponse(Scope(tenant), name, owner, fence) for tenant, name, owner, fence in found]

    async def claim(self, scope: Scope, response_id: str, fence: int, owner: str) -> ClaimedResponse | None:
        """Take a running response over: its fence is raised by one.

        Raises:
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows
        return await self._write(lambda: rows.claim((scope.tenant, response_id), fence, owner))

    @contextmanager
    def retain(self, scope: Scope, response_id: str) -> Generator[None, None, None]:
        """Keep the turns up to a response while one that descends from it is made but not stored yet."""
        key = (scope.tenant, response_id)
        retained = self._open().rows.removal.retained
        retained[key] = retained.get(key, 0) + 1
        try:
            yield
        finally:
            if retained[key] > 1:
                retained[key] -= 1
            else:
                del retained[key]

    def _of_response(self, scope: Scope, response_id: str) -> dict[str, object]:
        return {"tenant": scope.tenant, "id": response_id, "now": self._clock()}

    async def _walk(self, query: str, scope: Scope, response_id: str) -> list[Any]:
        """The rows of a query that reads a chain from its end, oldest first, read in steps.

        The first columns are the depth of the row's turn in its step, whether that turn is live, its id and parent's.
        """
        parameters = self._of_response(scope, response_id)
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


def _size(rows: Sequence[StoredItem | EventBatch]) -> int:
    return sum([len(row.body) for row in rows])


def _begin_size(response: NewResponse) -> int:
    return len(response.snapshot) + len(response.plan) + _size(response.input_items) + _size(response.events)


def _events_before(finished: FinishedResponse) -> int:
    return finished.events[0].first_sequence if finished.events else 0


def _end_size(finished: FinishedResponse) -> int:
    return len(finished.snapshot) + _size(finished.output_items) + _size(finished.events)

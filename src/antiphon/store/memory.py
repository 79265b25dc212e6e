"""The store in memory: everything is lost when the process ends.

Every order that a call needs is kept as a linked list, so that no call walks over all rows: the order of use (for
`max_entries` and `max_bytes`), the orders in which responses and event logs expire (one list for each length of life,
since rows of one length expire in the order in which they enter), the running responses and the parents.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from antiphon.store.base import Store
from antiphon.store.memory_conversations import MemoryConversations
from antiphon.store.memory_corpora import MemoryCorpora
from antiphon.store.memory_registers import MemoryRegisters
from antiphon.store.memory_rows import Item, Items, Key, ResponseRow, check_order
from antiphon.store.memory_toolruns import MemoryToolRuns
from antiphon.store.refusals import conversation_locked, response_exists, response_in_progress
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
    StoreLimits,
    StoreStatus,
)

__all__ = ["MemoryStore"]


class MemoryStore(MemoryToolRuns, MemoryConversations, MemoryRegisters, MemoryCorpora, Store):
    """Keeps everything in memory within limits (M41).

    `clock` gives seconds that never go back; ages count by it, so that a wall clock that is set does no harm.
    `wall_clock` gives the time in seconds since the epoch, by which idempotency records and files say when they expire.
    """

    def __init__(
        self,
        limits: StoreLimits,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        items = Items()
        MemoryConversations.__init__(self, limits, clock, items)
        MemoryRegisters.__init__(self, wall_clock)
        MemoryCorpora.__init__(self, wall_clock)
        self._rows: dict[Key, ResponseRow] = {}
        self._by_use: OrderedDict[Key, ResponseRow] = OrderedDict()
        self._by_age: dict[float, OrderedDict[Key, ResponseRow]] = {}
        self._logs_by_end: OrderedDict[Key, ResponseRow] = OrderedDict()
        self._running: dict[Key, ResponseRow] = {}
        self._locked: dict[Key, ResponseRow] = {}
        self._owners: dict[str, int] = {}
        self._live = 0
        self._own_bytes = 0
        self._removed = 0

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Forget everything."""
        for table in (self._rows, self._by_use, self._by_age, self._logs_by_end, self._running, self._locked):
            table.clear()
        self._owners.clear()
        self._forget_conversations()
        self._forget_registers()
        self._forget_corpora()
        self._files.clear()
        self._items.clear()
        self._live = self._own_bytes = 0

    async def status(self) -> StoreStatus:
        """What it holds; bytes are those of objects, items and events."""
        self._expire()
        self._expire_conversations()
        size = self._own_bytes + self._items.size
        conversations, files = len(self._conversations), len(self._files)
        return StoreStatus(
            "memory", False, self._live, len(self._items), size, conversations, files, len(self._corpora)
        )

    # Responses

    async def create_response(self, scope: Scope, response: NewResponse, *, flush: bool = True) -> None:
        """Begin a response.

        Raises:
            ConflictError: there is one by that id, its conversation is locked, or its idempotency key is in use.
        """
        self._create(scope.tenant, response)
        self._enforce_limits()

    async def create_finished_response(self, scope: Scope, response: NewResponse, finished: FinishedResponse) -> None:
        """Begin and end a response.

        Raises:
            ConflictError: as `create_response`.
        """
        check_order(-1, [*response.events, *finished.events])
        self._finish(self._create(scope.tenant, response), finished)
        self._enforce_limits()

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
        """
        row = self._owned_row(scope, response_id, fence)
        if row is None:
            return False
        check_order(row.last_sequence, [batch])
        self._append(row, batch)
        row.status = status or row.status
        self._enforce_limits()
        return True

    async def finish_response(self, scope: Scope, finished: FinishedResponse) -> bool:
        """End a response; False where it has ended already, is gone, or has another fence.

        Raises:
            ConflictError: the events do not come right after those that are there.
        """
        row = self._owned_row(scope, finished.id, finished.fence)
        if row is None:
            return False
        check_order(row.last_sequence, finished.events)
        self._finish(row, finished)
        self._enforce_limits()
        return True

    async def get_response(self, scope: Scope, response_id: str) -> StoredResponse | None:
        """A response by id; counts as a use of it."""
        row = self._live_row(scope, response_id)
        if row is None:
            return None
        self._use(row)
        return row.stored()

    async def delete_response(self, scope: Scope, response_id: str) -> bool:
        """Make a response gone; False where there is none by that id.

        Raises:
            InvalidRequestError: `response_in_progress`.
        """
        row = self._live_row(scope, response_id)
        if row is None:
            return False
        if row.running:
            raise response_in_progress()
        self._set_gone(row)
        return True

    async def delete_chain(self, scope: Scope, response_id: str) -> list[str]:
        """Make gone a response, its ancestors and all that descend from any of them; those that were not, oldest first.

        Raises:
            InvalidRequestError: `response_in_progress`; nothing is deleted.
        """
        found = self._live_row(scope, response_id)
        if found is None:
            return []
        family = [self._walk(scope, response_id)[0]]
        # The list grows while it is read: children come after their parent.
        for row in family:
            family.extend(row.children.values())
        live = [row for row in family if not row.gone]
        if any(row.running for row in live):
            raise response_in_progress()
        for row in live:
            self._set_gone(row)
        return [row.key[1] for row in live]

    async def chain(self, scope: Scope, response_id: str) -> list[ChainTurn]:
        """The turns from the oldest ancestor to this response."""
        return [
            ChainTurn(
                row.key[1],
                row.parent_id,
                row.status,
                [item.body for item in row.input_items],
                [item.body for item in row.output_items],
            )
            for row in self._walk(scope, response_id)
        ]

    async def input_item_ids(self, scope: Scope, response_id: str) -> list[str]:
        """The ids of the items that a response was made from, oldest first, each where it comes first."""
        found: dict[str, None] = {}
        for row in self._walk(scope, response_id):
            items = row.input_items if row.key[1] == response_id else row.items()
            found.update((item.key[1], None) for item in items)
        return list(found)

    async def events(
        self, scope: Scope, response_id: str, after: int = -1, most: int | None = None
    ) -> list[EventBatch]:
        """The batches of a response that hold events after that number."""
        row = self._live_row(scope, response_id)
        if row is None:
            return []
        first = bisect_right(row.batches, after, key=lambda batch: batch.last_sequence)
        return row.batches[first : None if most is None else first + most]

    async def last_sequence(self, scope: Scope, response_id: str) -> int:
        """The number of the last stored event of a response; -1 where there is none."""
        row = self._live_row(scope, response_id)
        return -1 if row is None else row.last_sequence

    async def get_items(self, scope: Scope, item_ids: Sequence[str]) -> dict[str, bytes]:
        """The JSON of those items that are kept, by id."""
        self._expire()
        self._expire_conversations()
        return self._items.bodies(scope.tenant, item_ids)

    @contextmanager
    def retain(self, scope: Scope, response_id: str) -> Generator[None, None, None]:
        """Keep the turns up to a response while one that descends from it is made but not stored yet."""
        self._expire()
        row = self._rows.get((scope.tenant, response_id))
        if row is None:
            yield
            return
        row.retained += 1
        try:
            yield
        finally:
            row.retained -= 1
            self._remove_unneeded(row)

    # The server itself

    async def sweep(self, now: float) -> int:
        """Remove what has expired by the store's own clocks, whatever `now` says; the number of rows removed."""
        before = self._removed
        self._expire()
        self._expire_logs()
        beside = self._expire_conversations() + self._expire_records()
        beside += self._expire_files() + self._expire_corpora()
        return self._removed - before + beside

    async def join(self, owner: str) -> None:
        """Enter a process as the only owner: whatever wrote here before is gone."""
        self._owners = {owner: 0}

    async def beat(self, owner: str) -> dict[str, int]:
        """Raise an owner's counter; the counters of all owners that are not known to be gone."""
        if owner in self._owners:
            self._owners[owner] += 1
        return dict(self._owners)

    async def leave(self, owner: str) -> None:
        """Take an owner out; what it ran waits for another one."""
        self._owners.pop(owner, None)

    async def orphans(self, owners: Collection[str]) -> list[RunningResponse]:
        """Of every tenant, the running responses that none of these owners runs, oldest first."""
        return [
            RunningResponse(Scope(row.key[0]), row.key[1], row.owner, row.fence)
            for row in self._running.values()
            if row.owner not in owners
        ]

    async def claim(self, scope: Scope, response_id: str, fence: int, owner: str) -> ClaimedResponse | None:
        """Take a running response over: its fence is raised by one."""
        row = self._owned_row(scope, response_id, fence)
        if row is None:
            return None
        row.fence += 1
        row.owner = owner
        return ClaimedResponse(row.stored(), row.plan)

    async def delete_tenant(self, tenant: str) -> None:
        """Remove a tenant's key and all its rows, running responses and API keys included."""
        self._delete_conversations_of(tenant)
        self._delete_registers_of(tenant)
        self._delete_corpora_of(tenant)
        self._delete_files_of(tenant)
        for row in [row for key, row in self._rows.items() if key[0] == tenant]:
            self._end(row)
            row.retained = 0
            if row.gone:
                self._remove_unneeded(row)
            else:
                self._set_gone(row)

    # Rows

    def _walk(self, scope: Scope, response_id: str) -> list[ResponseRow]:
        """The rows from the oldest ancestor to this response, gone or not."""
        self._expire()
        row = self._rows.get((scope.tenant, response_id))
        rows: list[ResponseRow] = []
        while row is not None:
            rows.append(row)
            row = row.parent
        rows.reverse()
        return rows

    def _live_row(self, scope: Scope, response_id: str) -> ResponseRow | None:
        self._expire()
        row = self._rows.get((scope.tenant, response_id))
        return None if row is None or row.gone else row

    def _owned_row(self, scope: Scope, response_id: str, fence: int) -> ResponseRow | None:
        """A running response that whoever has that fence may write to."""
        row = self._live_row(scope, response_id)
        return None if row is None or not row.running or row.fence != fence else row

    def _use(self, row: ResponseRow) -> None:
        if row.key in self._by_use:
            self._by_use.move_to_end(row.key)

    def _check_new(self, key: Key, response: NewResponse) -> None:
        if key in self._rows:
            raise response_exists()
        check_order(-1, response.events)
        # Before the lock: who sends a request again must learn that, not that the first one is under way.
        if response.idempotency is not None:
            self._check_record(key[0], response.idempotency)
        if response.conversation_id is not None and (key[0], response.conversation_id) in self._locked:
            raise conversation_locked()

    def _create(self, tenant: str, response: NewResponse) -> ResponseRow:
        self._expire()
        key = (tenant, response.id)
        self._check_new(key, response)
        parent = self._rows.get((tenant, response.parent_id)) if response.parent_id else None
        row = ResponseRow(key, parent, response, self.limits.ttl_seconds)
        if parent is not None:
            parent.children[key] = row
            self._use(parent)
        self._rows[key] = self._running[key] = row
        if row.conversation_id is not None:
            self._locked[tenant, row.conversation_id] = row
        if not row.temporary:
            self._start_life(row)
        if response.idempotency is not None:
            self._add_record(tenant, response.idempotency)
        self._live += 1
        self._own_bytes += len(response.snapshot)
        for batch in response.events:
            self._append(row, batch)
        self._refer(row, row.input_items, response.input_items)
        return row

    def _finish(self, row: ResponseRow, finished: FinishedResponse) -> None:
        for batch in finished.events:
            self._append(row, batch)
        self._own_bytes += len(finished.snapshot) - len(row.snapshot)
        row.status = finished.status
        row.snapshot = finished.snapshot
        row.plan = b""
        row.tool_runs.clear()
        row.batches = [replace(batch, sampled=b"") if batch.sampled else batch for batch in row.batches]
        row.ended_at = self._clock()
        self._end(row)
        self._refer(row, row.output_items, finished.output_items)
        if finished.to_conversation and row.conversation_id is not None:
            items = [StoredItem(item.key[1], item.body) for item in row.items()]
            self._add_to_conversation((row.key[0], row.conversation_id), items)
        self._add_deliveries(row.key[0], finished.deliveries)
        self._by_use[row.key] = row
        if self.limits.event_ttl_seconds is not None and row.batches:
            self._logs_by_end[row.key] = row
        if row.temporary:
            self._start_life(row)
        if row.expires_at <= row.ended_at:
            self._set_gone(row)

    def _end(self, row: ResponseRow) -> None:
        """Take a response out of those that run."""
        if self._running.pop(row.key, None) is not None and row.conversation_id is not None:
            del self._locked[row.key[0], row.conversation_id]

    def _append(self, row: ResponseRow, batch: EventBatch) -> None:
        row.batches.append(batch)
        self._own_bytes += len(batch.body)

    def _refer(self, row: ResponseRow, into: list[Item], items: Sequence[StoredItem]) -> None:
        into.extend(self._items.refer(row.key[0], stored) for stored in items)

    def _start_life(self, row: ResponseRow) -> None:
        if row.lives_seconds is not None:
            row.expires_at = self._clock() + row.lives_seconds
            self._by_age.setdefault(row.lives_seconds, OrderedDict())[row.key] = row

    def _end_life(self, row: ResponseRow) -> None:
        if row.lives_seconds is not None and row.lives_seconds in self._by_age:
            self._by_age[row.lives_seconds].pop(row.key, None)
            if not self._by_age[row.lives_seconds]:
                del self._by_age[row.lives_seconds]

    def _expire(self) -> None:
        """Make gone what has expired; each list stands in the order of its end, so only those are looked at."""
        if not self._by_age:
            return
        now = self._clock()
        for rows in list(self._by_age.values()):
            while rows:
                row = next(iter(rows.values()))
                if row.expires_at > now:
                    break
                self._end_life(row)
                # One that still runs is left alone here; `_finish` looks at its time again.
                if not row.running:
                    self._set_gone(row)

    def _expire_logs(self) -> None:
        """Remove the events of responses that ended long enough ago."""
        ttl = self.limits.event_ttl_seconds
        while ttl is not None and self._logs_by_end:
            key, row = next(iter(self._logs_by_end.items()))
            if row.ended_at + ttl > self._clock():
                return
            del self._logs_by_end[key]
            self._own_bytes -= sum(len(batch.body) for batch in row.batches)
            row.batches = []
            row.events_expired = True

    def _enforce_limits(self) -> None:
        most_entries, most_bytes = self.limits.max_entries, self.limits.max_bytes
        while self._by_use and (
            (most_entries is not None and self._live > most_entries)
            or (most_bytes is not None and self._own_bytes + self._items.of_responses > most_bytes)
        ):
            self._set_gone(next(iter(self._by_use.values())))

    def _set_gone(self, row: ResponseRow) -> None:
        row.gone = True
        self._by_use.pop(row.key, None)
        self._logs_by_end.pop(row.key, None)
        self._end_life(row)
        self._live -= 1
        self._own_bytes -= row.own_size
        row.snapshot = b""
        row.batches = []
        row.tool_runs.clear()
        self._remove_unneeded(row)

    def _remove_unneeded(self, row: ResponseRow) -> None:
        """Remove a gone row that nothing needs, and then those of its ancestors that were kept for it alone."""
        current: ResponseRow | None = row
        # One that was retained may have been removed meanwhile, with all of its tenant's.
        while current is not None and self._rows.get(current.key) is current:
            if not current.gone or current.children or current.retained:
                return
            for item in current.items():
                self._items.unrefer(item)
            del self._rows[current.key]
            self._removed += 1
            if current.parent is not None:
                del current.parent.children[current.key]
            current = current.parent

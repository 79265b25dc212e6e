"""The store in memory: everything is lost when the process ends.

Three orders are kept as linked lists, so that no call walks over all rows: the order of use (for `max_entries` and
`max_bytes`), the order of creation (for the TTL, which is the same for every row) and the parents.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager

from antiphon.errors import ConflictError
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

__all__ = ["MemoryStore"]

Key = tuple[str, str]
_RUNNING = frozenset({"queued", "in_progress"})


class _Item:
    """An item and how many times kept responses refer to it."""

    __slots__ = ("body", "key", "references")

    def __init__(self, key: Key, body: bytes) -> None:
        self.key = key
        self.body = body
        self.references = 0


class _Row:
    """A response; when it is gone, only what its descendants need is left in it."""

    __slots__ = (
        "batches",
        "children",
        "created_at",
        "expires_at",
        "gone",
        "input_items",
        "key",
        "output_items",
        "parent",
        "parent_id",
        "retained",
        "snapshot",
        "status",
    )

    def __init__(self, key: Key, parent: _Row | None, response: NewResponse, expires_at: float) -> None:
        self.key = key
        self.parent = parent
        self.parent_id = response.parent_id
        self.status = response.status
        self.created_at = response.created_at
        self.snapshot = response.snapshot
        self.expires_at = expires_at
        self.input_items: list[_Item] = []
        self.output_items: list[_Item] = []
        self.batches: list[EventBatch] = []
        self.children = 0
        self.retained = 0
        self.gone = False


def _check_order(batches: Sequence[EventBatch], more: Sequence[EventBatch]) -> None:
    last = batches[-1].first_sequence if batches else -1
    for batch in more:
        if batch.first_sequence <= last:
            raise ConflictError("This response has these events already.")
        last = batch.first_sequence


class MemoryStore(Store):
    """Keeps responses in memory within limits (M41).

    `clock` gives seconds that never go back; the TTL counts by it, so that a wall clock that is set does no harm.
    """

    def __init__(self, limits: StoreLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._rows: dict[Key, _Row] = {}
        self._items: dict[Key, _Item] = {}
        self._by_use: OrderedDict[Key, _Row] = OrderedDict()
        self._by_age: OrderedDict[Key, _Row] = OrderedDict()
        self._live = 0
        self._bytes = 0
        self._removed = 0

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self._items.clear()
        self._by_use.clear()
        self._by_age.clear()
        self._live = self._bytes = 0

    async def status(self) -> StoreStatus:
        """What it holds; bytes are those of objects, items and events."""
        self._expire()
        return StoreStatus("memory", False, self._live, len(self._items), self._bytes)

    async def create_response(self, scope: Scope, response: NewResponse) -> None:
        """Begin a response.

        Raises:
            ConflictError: there is one by that id.
        """
        self._create(scope, response)
        self._enforce_limits()

    async def create_finished_response(self, scope: Scope, response: NewResponse, finished: FinishedResponse) -> None:
        """Begin and end a response.

        Raises:
            ConflictError: there is one by that id.
        """
        _check_order([], finished.events)
        self._finish(self._create(scope, response), finished)
        self._enforce_limits()

    async def append_events(self, scope: Scope, response_id: str, batch: EventBatch) -> None:
        """Append a batch to a running response.

        Raises:
            ConflictError: the batch does not come after those that are there.
        """
        row = self._live_row(scope, response_id)
        if row is not None and row.status in _RUNNING:
            _check_order(row.batches, [batch])
            self._append(row, batch)
            self._enforce_limits()

    async def finish_response(self, scope: Scope, finished: FinishedResponse) -> bool:
        """End a response; False where it has ended already or is gone."""
        row = self._live_row(scope, finished.id)
        if row is None or row.status not in _RUNNING:
            return False
        _check_order(row.batches, finished.events)
        self._finish(row, finished)
        self._enforce_limits()
        return True

    async def get_response(self, scope: Scope, response_id: str) -> StoredResponse | None:
        """A response by id; counts as a use of it."""
        row = self._live_row(scope, response_id)
        if row is None:
            return None
        self._use(row)
        return StoredResponse(response_id, row.parent_id, row.status, row.created_at, row.snapshot)

    async def delete_response(self, scope: Scope, response_id: str) -> bool:
        """Make a response gone; False where there is none by that id."""
        row = self._live_row(scope, response_id)
        if row is None:
            return False
        self._set_gone(row)
        return True

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
            items = row.input_items if row.key[1] == response_id else (*row.input_items, *row.output_items)
            found.update((item.key[1], None) for item in items)
        return list(found)

    async def events(self, scope: Scope, response_id: str, after: int = -1) -> list[EventBatch]:
        """The batches of a response that hold events after that number."""
        row = self._live_row(scope, response_id)
        if row is None:
            return []
        return row.batches[bisect_right(row.batches, after, key=lambda batch: batch.last_sequence) :]

    async def get_items(self, scope: Scope, item_ids: Sequence[str]) -> dict[str, bytes]:
        """The JSON of those items that are kept, by id."""
        self._expire()
        found: dict[str, bytes] = {}
        for item_id in item_ids:
            item = self._items.get((scope.tenant, item_id))
            if item is not None:
                found[item_id] = item.body
        return found

    async def each_interrupted(self) -> AsyncGenerator[InterruptedResponse]:
        """None: nothing outlives the process."""
        for left in ():
            yield left

    async def sweep(self, now: float) -> int:
        """Make gone what has expired by the store's own clock, whatever `now` says; the number of rows removed."""
        before = self._removed
        self._expire()
        return self._removed - before

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

    def _walk(self, scope: Scope, response_id: str) -> list[_Row]:
        """The rows from the oldest ancestor to this response, gone or not."""
        self._expire()
        row = self._rows.get((scope.tenant, response_id))
        rows: list[_Row] = []
        while row is not None:
            rows.append(row)
            row = row.parent
        rows.reverse()
        return rows

    def _live_row(self, scope: Scope, response_id: str) -> _Row | None:
        self._expire()
        row = self._rows.get((scope.tenant, response_id))
        return None if row is None or row.gone else row

    def _use(self, row: _Row) -> None:
        if row.key in self._by_use:
            self._by_use.move_to_end(row.key)

    def _create(self, scope: Scope, response: NewResponse) -> _Row:
        self._expire()
        key = (scope.tenant, response.id)
        if key in self._rows:
            raise ConflictError("There is a response by this id already.")
        parent = self._rows.get((scope.tenant, response.parent_id)) if response.parent_id else None
        ttl = self.limits.ttl_seconds
        row = _Row(key, parent, response, float("inf") if ttl is None else self._clock() + ttl)
        if parent is not None:
            parent.children += 1
            self._use(parent)
        self._rows[key] = row
        if ttl is not None:
            self._by_age[key] = row
        self._live += 1
        self._bytes += len(response.snapshot)
        self._refer(scope, row.input_items, response.input_items)
        return row

    def _finish(self, row: _Row, finished: FinishedResponse) -> None:
        for batch in finished.events:
            self._append(row, batch)
        self._bytes += len(finished.snapshot) - len(row.snapshot)
        row.status = finished.status
        row.snapshot = finished.snapshot
        self._refer(Scope(row.key[0]), row.output_items, finished.output_items)
        self._by_use[row.key] = row
        if row.expires_at <= self._clock():
            self._set_gone(row)

    def _append(self, row: _Row, batch: EventBatch) -> None:
        row.batches.append(batch)
        self._bytes += len(batch.body)

    def _refer(self, scope: Scope, into: list[_Item], items: Sequence[StoredItem]) -> None:
        for stored in items:
            key = (scope.tenant, stored.id)
            item = self._items.get(key)
            if item is None:
                item = self._items[key] = _Item(key, stored.body)
                self._bytes += len(stored.body)
            item.references += 1
            into.append(item)

    def _expire(self) -> None:
        """Make gone what has expired; the rows stand in the order of their end, so only those are looked at."""
        if not self._by_age:
            return
        now = self._clock()
        while self._by_age:
            key = next(iter(self._by_age))
            row = self._by_age[key]
            if row.expires_at > now:
                return
            del self._by_age[key]
            # One that still runs is left alone here; `_finish` looks at its time again.
            if row.status not in _RUNNING:
                self._set_gone(row)

    def _enforce_limits(self) -> None:
        most_entries, most_bytes = self.limits.max_entries, self.limits.max_bytes
        while self._by_use and (
            (most_entries is not None and self._live > most_entries)
            or (most_bytes is not None and self._bytes > most_bytes)
        ):
            self._set_gone(next(iter(self._by_use.values())))

    def _set_gone(self, row: _Row) -> None:
        row.gone = True
        self._by_use.pop(row.key, None)
        self._by_age.pop(row.key, None)
        self._live -= 1
        self._bytes -= len(row.snapshot) + sum(len(batch.body) for batch in row.batches)
        row.snapshot = b""
        row.batches = []
        self._remove_unneeded(row)

    def _remove_unneeded(self, row: _Row) -> None:
        """Remove a gone row that nothing needs, and then those of its ancestors that were kept for it alone."""
        current: _Row | None = row
        while current is not None and current.gone and not current.children and not current.retained:
            for item in (*current.input_items, *current.output_items):
                item.references -= 1
                if not item.references:
                    del self._items[item.key]
                    self._bytes -= len(item.body)
            del self._rows[current.key]
            self._removed += 1
            parent = current.parent
            if parent is not None:
                parent.children -= 1
            current = parent

"""What the writer of the SQLite store does to rows. Everything here runs inside a transaction, one thread at a time.

Totals are kept in a row of their own and in memory; the order of use is kept in memory, and only where a limit needs
it. Both follow a commit: a transaction that is rolled back leaves them as they were.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence

from antiphon.errors import ConflictError
from antiphon.store.base import EventBatch, FinishedResponse, NewResponse, StoredItem, StoreLimits
from antiphon.store.queries import QUERIES

__all__ = ["IN", "OUT", "Key", "Rows", "pack_offsets", "unpack_offsets"]

Key = tuple[str, str]

_INSERT_RESPONSE = QUERIES["insert_response"]
_INSERT_ITEM = QUERIES["insert_item"]
_FIND_ITEM = QUERIES["find_item"]
_INSERT_RESPONSE_ITEM = QUERIES["insert_response_item"]
_INSERT_BATCH = QUERIES["insert_batch"]
_APPEND_BATCH = QUERIES["append_batch"]
_FIND_RUNNING = QUERIES["find_running"]
_FINISH_RESPONSE = QUERIES["finish_response"]
_FIND_RESPONSE = QUERIES["find_response"]
_ADD_TO_TOTALS = QUERIES["add_to_totals"]

IN, OUT = 0, 1
"""The roles of a response's items."""


def pack_offsets(offsets: Sequence[int]) -> bytes:
    """Offsets as little-endian 32-bit numbers."""
    numbers = array("I", offsets)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def unpack_offsets(data: bytes) -> list[int]:
    """The offsets that `pack_offsets` made bytes of."""
    numbers = array("I", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


class Rows:
    """The rows of one database, as its only writer sees them."""

    def __init__(self, connection: sqlite3.Connection, limits: StoreLimits, clock: Callable[[], float]) -> None:
        self._execute = connection.execute
        self._limits = limits
        self._clock = clock
        self.bounded = limits.max_entries is not None or limits.max_bytes is not None
        self.retained: dict[Key, int] = {}
        self.held_back: dict[Key, None] = {}
        """Gone rows that nothing but `retained` keeps; no key gets in that names no row."""
        self._totals: tuple[int, int, int] = self._execute(QUERIES["totals"]).fetchone()
        self._by_use: OrderedDict[Key, None] = OrderedDict()
        self._last_use = 0.0
        if self.bounded:
            for tenant, response_id, used_at in self._execute(QUERIES["order_of_use"]):
                self._by_use[tenant, response_id] = None
                self._last_use = used_at
        self._used: dict[Key, float] = {}
        self._written: dict[Key, float] = {}
        self._let_go: list[Key] = []
        self._responses = self._items = self._bytes = 0
        self._joined: list[Key] = []
        self._left: list[Key] = []

    @property
    def totals(self) -> tuple[int, int, int]:
        """Responses that are not gone, items, and bytes, as of the last commit."""
        return self._totals

    # Around a transaction

    def settle(self) -> None:
        """Evict what the limits do not allow, and note the totals."""
        if self.bounded:
            self._enforce_limits()
        if self._responses or self._items or self._bytes:
            self._execute(_ADD_TO_TOTALS, (self._responses, self._items, self._bytes))

    def committed(self) -> None:
        """Take the new totals over."""
        responses, items, size = self._totals
        self._totals = (responses + self._responses, items + self._items, size + self._bytes)
        self._forget_transaction()

    def rolled_back(self) -> None:
        """Undo what the transaction did to the order of use; what it did not write or remove is due again."""
        for key, when in self._written.items():
            self._used.setdefault(key, when)
        self.held_back.update(dict.fromkeys(self._let_go))
        for key in self._joined:
            self._by_use.pop(key, None)
        for key in reversed(self._left):
            if key not in self._joined:
                self._by_use[key] = None
                self._by_use.move_to_end(key, last=False)
        self._forget_transaction()

    def _forget_transaction(self) -> None:
        self._responses = self._items = self._bytes = 0
        self._joined.clear()
        self._left.clear()
        self._let_go.clear()
        self._written.clear()

    # The order of use

    def use(self, key: Key) -> None:
        """Note a use, also while a transaction runs elsewhere; it reaches the file with the next sweep."""
        if self.bounded and key in self._by_use:
            try:
                self._by_use.move_to_end(key)
            except KeyError:
                # The writer evicted it between the two steps.
                return
            self._used[key] = self._tick()

    def _tick(self) -> float:
        """The time, but always later than the last one, so that uses keep their order."""
        self._last_use = max(self._clock(), self._last_use + 1e-6)
        return self._last_use

    def write_uses(self) -> None:
        """Write the uses that were noted, so that a restart keeps their order."""
        used, self._used = self._used, {}
        self._written.update(used)
        for key, when in used.items():
            self._execute(QUERIES["set_used"], (when, *key))

    def _enforce_limits(self) -> None:
        most_entries, most_bytes = self._limits.max_entries, self._limits.max_bytes
        while self._by_use and (
            (most_entries is not None and self._totals[0] + self._responses > most_entries)
            or (most_bytes is not None and self._totals[2] + self._bytes > most_bytes)
        ):
            key, _ = self._by_use.popitem(last=False)
            self._left.append(key)
            found = self._execute(_FIND_RESPONSE, key).fetchone()
            self.set_gone(key, found[0])

    # Jobs

    def create(self, tenant: str, response: NewResponse, finished: FinishedResponse | None = None) -> None:
        """Add a response, running or finished at once."""
        final = response if finished is None else finished
        if response.parent_id is not None:
            self.use((tenant, response.parent_id))
        ttl = self._limits.ttl_seconds
        try:
            number = self._execute(
                _INSERT_RESPONSE,
                (
                    tenant,
                    response.parent_id,
                    tenant,
                    response.id,
                    response.parent_id,
                    final.status,
                    response.created_at,
                    None if finished is None else finished.completed_at,
                    None if ttl is None else self._clock() + ttl,
                    self._tick(),
                    final.snapshot,
                ),
            ).lastrowid
        except sqlite3.IntegrityError:
            raise ConflictError("There is a response by this id already.") from None
        assert number is not None  # noqa: S101 - an INSERT that did not raise has added a row
        self._responses += 1
        self._bytes += len(final.snapshot)
        self._add_items(tenant, number, IN, response.input_items)
        if finished is not None:
            self._add_end((tenant, response.id), number, finished)

    def append(self, tenant: str, response_id: str, batch: EventBatch) -> None:
        """Add a batch to a response that still runs."""
        try:
            added = self._execute(
                _APPEND_BATCH,
                (
                    batch.first_sequence,
                    batch.last_sequence,
                    pack_offsets(batch.offsets),
                    batch.body,
                    tenant,
                    response_id,
                ),
            ).rowcount
        except sqlite3.IntegrityError:
            raise ConflictError("This response has these events already.") from None
        if added:
            self._bytes += len(batch.body)

    def finish(self, tenant: str, finished: FinishedResponse) -> bool:
        """End a response that still runs."""
        found = self._execute(_FIND_RUNNING, (tenant, finished.id)).fetchone()
        if found is None:
            return False
        number, size, expires_at = found
        self._execute(
            _FINISH_RESPONSE, (finished.status, finished.completed_at, self._tick(), finished.snapshot, number)
        )
        self._bytes += len(finished.snapshot) - size
        self._add_end((tenant, finished.id), number, finished)
        if expires_at is not None and expires_at <= self._clock():
            self.set_gone((tenant, finished.id), number)
        return True

    def delete(self, key: Key) -> bool:
        """Make a live response gone."""
        found = self._execute(QUERIES["find_live"], {"tenant": key[0], "id": key[1], "now": self._clock()}).fetchone()
        if found is None:
            return False
        self.set_gone(key, found[0])
        return True

    def expire(self, now: float, most: int) -> tuple[int, int]:
        """Make gone at most so many responses whose time is up: how many, and how many rows were removed."""
        expired = self._execute(QUERIES["find_expired"], (now, most)).fetchall()
        return len(expired), sum(self.set_gone((tenant, name), number) for number, tenant, name in expired)

    def remove_all_unneeded(self) -> int:
        """Remove gone rows that an earlier process had retained; the number of rows removed."""
        unneeded = self._execute(QUERIES["find_unneeded"]).fetchall()
        return sum(self._remove_unneeded(number) for (number,) in unneeded)

    def remove_held_back(self) -> int:
        """Remove the gone rows that were retained and are not any more; the number of rows removed."""
        removed = 0
        for key in [key for key in self.held_back if key not in self.retained]:
            # First, since it may be retained again by now, and is then noted anew.
            del self.held_back[key]
            self._let_go.append(key)
            found = self._execute(_FIND_RESPONSE, key).fetchone()
            if found is not None:
                removed += self._remove_unneeded(found[0])
        return removed

    def set_gone(self, key: Key, number: int) -> int:
        """Make a response gone; the number of rows that this removed."""
        if key in self._by_use:
            self._by_use.pop(key)
            self._left.append(key)
        self._responses -= 1
        self._bytes -= self._execute(QUERIES["own_size"], (number,)).fetchone()[0]
        self._execute(QUERIES["delete_batches"], (number,))
        self._execute(QUERIES["set_gone"], (number,))
        return self._remove_unneeded(number)

    # Parts of jobs

    def _add_items(self, tenant: str, number: int, role: int, items: Sequence[StoredItem]) -> None:
        execute = self._execute
        for position, item in enumerate(items):
            cursor = execute(_INSERT_ITEM, (tenant, item.id, item.body))
            if cursor.rowcount:
                item_number = cursor.lastrowid
                self._items += 1
                self._bytes += len(item.body)
            else:
                item_number = execute(_FIND_ITEM, (tenant, item.id)).fetchone()[0]
            execute(_INSERT_RESPONSE_ITEM, (number, role, position, item_number))

    def _add_end(self, key: Key, number: int, finished: FinishedResponse) -> None:
        try:
            for batch in finished.events:
                self._execute(
                    _INSERT_BATCH,
                    (number, batch.first_sequence, batch.last_sequence, pack_offsets(batch.offsets), batch.body),
                )
                self._bytes += len(batch.body)
        except sqlite3.IntegrityError:
            raise ConflictError("This response has these events already.") from None
        self._add_items(key[0], number, OUT, finished.output_items)
        if self.bounded:
            self._by_use[key] = None
            self._joined.append(key)

    def _remove_unneeded(self, number: int | None) -> int:
        """Remove a gone row that nothing needs, and then those of its ancestors that were kept for it alone."""
        removed = 0
        while number is not None:
            row = self._execute(QUERIES["removable"], (number,)).fetchone()
            if row is None:
                break
            if (row[0], row[1]) in self.retained:
                self.held_back[row[0], row[1]] = None
                break
            items = self._execute(QUERIES["items_of"], (number,)).fetchall()
            self._execute(QUERIES["delete_response_items"], (number,))
            for item in items:
                size = self._execute(QUERIES["item_size"], item).fetchone()
                if size is not None:
                    self._execute(QUERIES["delete_item"], item)
                    self._items -= 1
                    self._bytes -= size[0]
            self._execute(QUERIES["delete_response"], (number,))
            removed += 1
            number = row[2]
        return removed

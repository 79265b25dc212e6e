"""What all jobs of the SQLite writer share: totals, the orders of use, and items.

Totals are kept in a row of their own and in memory; an order of use is kept in memory, and only where a limit needs it.
Both follow a commit: a transaction that is rolled back leaves them as they were.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from antiphon.store.queries import QUERIES
from antiphon.store.rows import StoredItem, StoreLimits

__all__ = ["Key", "Ledger", "Totals", "UseOrder", "pack_offsets", "unpack_offsets"]

Key = tuple[str, str]
"""A tenant and an id."""

_INSERT_ITEM = QUERIES["insert_item"]
_FIND_ITEM = QUERIES["find_item"]
_INSERT_RESPONSE_ITEM = QUERIES["insert_response_item"]


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


class Totals(Struct, frozen=True):
    """How much there is: responses that are not gone, items, and bytes of bodies and events.

    `conversation_bytes` counts an item in every conversation that has it; `loose_bytes` those that no response has.
    """

    responses: int = 0
    items: int = 0
    bytes: int = 0
    conversations: int = 0
    conversation_bytes: int = 0
    loose_bytes: int = 0


class UseOrder:
    """The order in which rows were used, least recently first; `bounded` says that a limit needs it at all."""

    def __init__(self, clock: Callable[[], float], rows: Iterable[tuple[str, str, float]] | None) -> None:
        self.bounded = rows is not None
        self._clock = clock
        self._order: OrderedDict[Key, None] = OrderedDict()
        self._last = 0.0
        for tenant, row_id, used_at in rows or ():
            self._order[tenant, row_id] = None
            self._last = used_at
        self._used: dict[Key, float] = {}
        self._written: dict[Key, float] = {}
        self._joined: list[Key] = []
        self._left: list[Key] = []

    def __len__(self) -> int:
        return len(self._order)

    def tick(self) -> float:
        """The time, but always later than the last one, so that uses keep their order."""
        self._last = max(self._clock(), self._last + 1e-6)
        return self._last

    def use(self, key: Key) -> None:
        """Note a use, also while a transaction runs elsewhere; it reaches the file with the next sweep."""
        if self.bounded and key in self._order:
            try:
                self._order.move_to_end(key)
            except KeyError:
                # The writer evicted it between the two steps.
                return
            self._used[key] = self.tick()

    def take_used(self) -> dict[Key, float]:
        """The uses that are to be written now."""
        used, self._used = self._used, {}
        self._written.update(used)
        return used

    def join(self, key: Key) -> None:
        """Put a row in, as the one used last."""
        if self.bounded:
            self._order[key] = None
            self._joined.append(key)

    def leave(self, key: Key) -> None:
        """Take a row out, if it is in."""
        if key in self._order:
            self._order.pop(key)
            self._left.append(key)

    def take_oldest(self) -> Key:
        """Take the least recently used row out."""
        key, _ = self._order.popitem(last=False)
        self._left.append(key)
        return key

    def committed(self) -> None:
        """What the transaction did stands."""
        self._joined.clear()
        self._left.clear()
        self._written.clear()

    def rolled_back(self) -> None:
        """Undo what the transaction did; what it did not write is due again."""
        for key, when in self._written.items():
            self._used.setdefault(key, when)
        for key in self._joined:
            self._order.pop(key, None)
        for key in reversed(self._left):
            if key not in self._joined:
                self._order[key] = None
                self._order.move_to_end(key, last=False)
        self.committed()


class Ledger:
    """The connection, the limits, and what the open transaction has changed; no job keeps count but here."""

    def __init__(self, connection: sqlite3.Connection, limits: StoreLimits, clock: Callable[[], float]) -> None:
        self.execute = connection.execute
        self.limits = limits
        self.clock = clock
        self.totals = Totals(*self.execute(QUERIES["totals"]).fetchone())
        """As of the last commit."""
        bounded = limits.max_entries is not None or limits.max_bytes is not None
        self.uses = UseOrder(clock, self.execute(QUERIES["order_of_use"]) if bounded else None)
        bounded = limits.max_conversations is not None or limits.max_conversation_bytes is not None
        self.conversation_uses = UseOrder(clock, self.execute(QUERIES["conversations_by_use"]) if bounded else None)
        self.responses = self.items = self.bytes = 0
        self.conversations = self.conversation_bytes = self.loose_bytes = 0

    def settle(self) -> None:
        """Note the totals."""
        if self.responses or self.items or self.bytes:
            self.execute(QUERIES["add_to_totals"], (self.responses, self.items, self.bytes))
        if self.conversations or self.conversation_bytes or self.loose_bytes:
            changes = (self.conversations, self.conversation_bytes, self.loose_bytes)
            self.execute(QUERIES["add_to_conversation_totals"], changes)

    def committed(self) -> None:
        """Take the new totals over."""
        totals = self.totals
        self.totals = Totals(
            totals.responses + self.responses,
            totals.items + self.items,
            totals.bytes + self.bytes,
            totals.conversations + self.conversations,
            totals.conversation_bytes + self.conversation_bytes,
            totals.loose_bytes + self.loose_bytes,
        )
        self.uses.committed()
        self.conversation_uses.committed()
        self._forget_changes()

    def rolled_back(self) -> None:
        """Nothing of the transaction happened."""
        self.uses.rolled_back()
        self.conversation_uses.rolled_back()
        self._forget_changes()

    def _forget_changes(self) -> None:
        self.responses = self.items = self.bytes = 0
        self.conversations = self.conversation_bytes = self.loose_bytes = 0

    def write_uses(self) -> None:
        """Write the uses that were noted, so that a restart keeps their order."""
        for order, query in ((self.uses, "set_used"), (self.conversation_uses, "set_conversation_used")):
            for key, when in order.take_used().items():
                self.execute(QUERIES[query], (when, *key))

    def add_items(self, tenant: str, response: int, role: int, items: Sequence[StoredItem]) -> None:
        """Add items to a response, by its number; the body that came first stays."""
        execute = self.execute
        for position, item in enumerate(items):
            cursor = execute(_INSERT_ITEM, (tenant, item.id, item.body))
            if cursor.rowcount:
                number = cursor.lastrowid
                self.items += 1
                self.bytes += len(item.body)
            else:
                number, size, in_response = execute(_FIND_ITEM, (tenant, item.id)).fetchone()
                if not in_response:
                    self.loose_bytes -= size
            execute(_INSERT_RESPONSE_ITEM, (response, role, position, number))

    def add_loose_item(self, tenant: str, item: StoredItem) -> tuple[int, int]:
        """Add an item for a conversation, unless the tenant has one by that id: its number and its bytes."""
        cursor = self.execute(_INSERT_ITEM, (tenant, item.id, item.body))
        if cursor.rowcount:
            size = len(item.body)
            self.items += 1
            self.bytes += size
            self.loose_bytes += size
            assert cursor.lastrowid is not None  # noqa: S101 - the INSERT has added a row
            return cursor.lastrowid, size
        number, size, _ = self.execute(_FIND_ITEM, (tenant, item.id)).fetchone()
        return number, size

    def drop_items(self, numbers: Iterable[tuple[int]], *, loose: bool) -> None:
        """After references to items were removed: remove those that nothing has.

        `loose` says that the references were those of a conversation.
        """
        for number in numbers:
            size, in_response, in_conversation = self.execute(QUERIES["item_left"], number).fetchone()
            if in_response:
                continue
            if in_conversation:
                if not loose:
                    self.loose_bytes += size
                continue
            self.execute(QUERIES["delete_item"], number)
            self.items -= 1
            self.bytes -= size
            if loose:
                self.loose_bytes -= size

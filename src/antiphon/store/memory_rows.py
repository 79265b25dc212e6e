"""What the memory store holds: items that responses and conversations share, and the rows of responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphon.store.refusals import events_out_of_order
from antiphon.store.rows import EventBatch, NewResponse, StoredItem, StoredResponse
from antiphon.store.toolruns import ToolRun

__all__ = ["RUNNING", "Item", "Items", "Key", "ResponseRow", "check_order"]

Key = tuple[str, str]
"""A tenant and an id."""

RUNNING = frozenset({"queued", "in_progress"})
"""The states of a response that has not ended."""


class Item:
    """An item, and how many times kept responses and conversations refer to it."""

    __slots__ = ("body", "conversations", "key", "responses")

    def __init__(self, key: Key, body: bytes) -> None:
        self.key = key
        self.body = body
        self.responses = 0
        self.conversations = 0


class Items:
    """All items. `size` is the bytes of all of them, `of_responses` the bytes of those that responses refer to."""

    def __init__(self) -> None:
        self._items: dict[Key, Item] = {}
        self.size = 0
        self.of_responses = 0

    def __len__(self) -> int:
        return len(self._items)

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self.size = self.of_responses = 0

    def bodies(self, tenant: str, item_ids: Iterable[str]) -> dict[str, bytes]:
        """The JSON of those that are there, by id."""
        found = ((item_id, self._items.get((tenant, item_id))) for item_id in item_ids)
        return {item_id: item.body for item_id, item in found if item is not None}

    def refer(self, tenant: str, stored: StoredItem) -> Item:
        """Count a response that refers to an item; the body that came first stays."""
        item = self._find_or_add(tenant, stored)
        if not item.responses:
            self.of_responses += len(item.body)
        item.responses += 1
        return item

    def unrefer(self, item: Item) -> None:
        """Undo `refer`; the item goes with the last one that needs it."""
        item.responses -= 1
        if not item.responses:
            self.of_responses -= len(item.body)
        self._remove_unneeded(item)

    def hold(self, tenant: str, stored: StoredItem) -> Item:
        """Count a conversation that has an item; the body that came first stays."""
        item = self._find_or_add(tenant, stored)
        item.conversations += 1
        return item

    def let_go(self, item: Item) -> None:
        """Undo `hold`; the item goes with the last one that needs it."""
        item.conversations -= 1
        self._remove_unneeded(item)

    def _find_or_add(self, tenant: str, stored: StoredItem) -> Item:
        key = (tenant, stored.id)
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = Item(key, stored.body)
            self.size += len(stored.body)
        return item

    def _remove_unneeded(self, item: Item) -> None:
        if not item.responses and not item.conversations and self._items.get(item.key) is item:
            del self._items[item.key]
            self.size -= len(item.body)


class ResponseRow:
    """A response; when it is gone, only what its descendants need is left in it.

    `lives_seconds` is the time that it is kept, from its creation or, where it is temporary, from its end.
    """

    __slots__ = (
        "batches",
        "children",
        "conversation_id",
        "created_at",
        "ended_at",
        "events_expired",
        "expires_at",
        "fence",
        "gone",
        "input_items",
        "key",
        "lives_seconds",
        "output_items",
        "owner",
        "parent",
        "parent_id",
        "plan",
        "retained",
        "snapshot",
        "status",
        "temporary",
        "tool_runs",
    )

    def __init__(self, key: Key, parent: ResponseRow | None, response: NewResponse, ttl_seconds: float | None) -> None:
        self.key = key
        self.parent = parent
        self.parent_id = response.parent_id
        self.status = response.status
        self.created_at = response.created_at
        self.snapshot = response.snapshot
        self.conversation_id = response.conversation_id
        self.owner = response.owner
        self.plan = response.plan
        self.fence = 1
        self.temporary = response.keep_seconds is not None
        self.lives_seconds = response.keep_seconds if self.temporary else ttl_seconds
        self.expires_at = float("inf")
        self.ended_at = float("inf")
        self.events_expired = False
        self.input_items: list[Item] = []
        self.output_items: list[Item] = []
        self.batches: list[EventBatch] = []
        self.tool_runs: dict[int, ToolRun] = {}
        self.children: dict[Key, ResponseRow] = {}
        self.retained = 0
        self.gone = False

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.status in RUNNING

    @property
    def last_sequence(self) -> int:
        """The number of its last event; -1 where there is none."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def own_size(self) -> int:
        """The bytes of its object and its events."""
        return len(self.snapshot) + sum(len(batch.body) for batch in self.batches)

    def stored(self) -> StoredResponse:
        """The row as callers see it."""
        return StoredResponse(
            id=self.key[1],
            parent_id=self.parent_id,
            status=self.status,
            created_at=self.created_at,
            snapshot=self.snapshot,
            conversation_id=self.conversation_id,
            owner=self.owner,
            fence=self.fence,
            temporary=self.temporary,
            events_expired=self.events_expired,
        )

    def items(self) -> list[Item]:
        """Its own input items, then its output items."""
        return [*self.input_items, *self.output_items]


def check_order(last: int, batches: Sequence[EventBatch]) -> None:
    """See that batches follow the event of that number, and each other, without a gap.

    Raises:
        ConflictError: they do not.
    """
    for batch in batches:
        if batch.first_sequence != last + 1:
            raise events_out_of_order()
        last = batch.last_sequence

"""Conversations of the memory store, in the order of their use and in that of their last addition."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from antiphon.store.conversations import ConversationStore
from antiphon.store.memory_rows import Item, Items, Key
from antiphon.store.refusals import conversation_exists
from antiphon.store.rows import NewConversation, Scope, StoredConversation, StoredItem, StoreLimits

__all__ = ["MemoryConversations"]


class _Conversation:
    """A conversation; `items` stand in their order, `size` is the bytes of their bodies."""

    __slots__ = ("created_at", "expires_at", "items", "key", "metadata", "size")

    def __init__(self, key: Key, conversation: NewConversation) -> None:
        self.key = key
        self.created_at = conversation.created_at
        self.metadata = conversation.metadata
        self.items: dict[str, Item] = {}
        self.size = 0
        self.expires_at = float("inf")

    def stored(self) -> StoredConversation:
        return StoredConversation(self.key[1], self.created_at, self.metadata)


class MemoryConversations(ConversationStore):
    """Keeps conversations within limits of their own (M41); an item in two of them counts in both."""

    def __init__(self, limits: StoreLimits, clock: Callable[[], float], items: Items) -> None:
        self.limits = limits
        self._clock = clock
        self._items = items
        self._conversations: OrderedDict[Key, _Conversation] = OrderedDict()
        self._by_addition: OrderedDict[Key, _Conversation] = OrderedDict()
        self._conversation_bytes = 0

    async def create_conversation(self, scope: Scope, conversation: NewConversation) -> None:
        """Begin a conversation.

        Raises:
            ConflictError: there is one by that id.
        """
        self._expire_conversations()
        key = (scope.tenant, conversation.id)
        if key in self._conversations:
            raise conversation_exists()
        row = self._conversations[key] = _Conversation(key, conversation)
        self._set_expiry(row)
        self._add(row, conversation.items)
        self._limit_conversations()

    async def get_conversation(self, scope: Scope, conversation_id: str) -> StoredConversation | None:
        """A conversation by id; counts as a use of it."""
        row = self._used_conversation((scope.tenant, conversation_id))
        return None if row is None else row.stored()

    async def update_conversation(
        self, scope: Scope, conversation_id: str, metadata: bytes
    ) -> StoredConversation | None:
        """Replace a conversation's metadata, which is a use of it; None where there is none by that id."""
        row = self._used_conversation((scope.tenant, conversation_id))
        if row is None:
            return None
        row.metadata = metadata
        return row.stored()

    async def delete_conversation(self, scope: Scope, conversation_id: str) -> bool:
        """Remove a conversation, and those of its items that no response has; False where there is none by that id."""
        self._expire_conversations()
        row = self._conversations.get((scope.tenant, conversation_id))
        if row is None:
            return False
        self._remove_conversation(row)
        return True

    async def add_conversation_items(self, scope: Scope, conversation_id: str, items: Sequence[StoredItem]) -> bool:
        """Append items, which is a use of the conversation; False where there is none by that id."""
        return self._add_to_conversation((scope.tenant, conversation_id), items)

    async def conversation_item_ids(self, scope: Scope, conversation_id: str) -> list[str] | None:
        """The ids of a conversation's items, oldest first; None where there is no conversation by that id."""
        self._expire_conversations()
        row = self._conversations.get((scope.tenant, conversation_id))
        return None if row is None else list(row.items)

    async def delete_conversation_item(self, scope: Scope, conversation_id: str, item_id: str) -> bool:
        """Take an item out of a conversation; False where it has none by that id."""
        self._expire_conversations()
        row = self._conversations.get((scope.tenant, conversation_id))
        item = None if row is None else row.items.pop(item_id, None)
        if row is None or item is None:
            return False
        row.size -= len(item.body)
        self._conversation_bytes -= len(item.body)
        self._items.let_go(item)
        return True

    def _add_to_conversation(self, key: Key, items: Iterable[StoredItem]) -> bool:
        row = self._used_conversation(key)
        if row is None:
            return False
        if self._add(row, items):
            self._set_expiry(row)
            self._limit_conversations()
        return True

    def _add(self, row: _Conversation, items: Iterable[StoredItem]) -> bool:
        """Append those that the conversation does not have; whether there were any."""
        added = False
        for stored in items:
            if stored.id not in row.items:
                item = row.items[stored.id] = self._items.hold(row.key[0], stored)
                row.size += len(item.body)
                self._conversation_bytes += len(item.body)
                added = True
        return added

    def _set_expiry(self, row: _Conversation) -> None:
        ttl = self.limits.conversation_ttl_seconds
        if ttl is not None:
            row.expires_at = self._clock() + ttl
            self._by_addition[row.key] = row
            self._by_addition.move_to_end(row.key)

    def _used_conversation(self, key: Key) -> _Conversation | None:
        self._expire_conversations()
        row = self._conversations.get(key)
        if row is not None:
            self._conversations.move_to_end(key)
        return row

    def _expire_conversations(self) -> int:
        """Remove those whose time is up; the number removed."""
        removed = 0
        while self._by_addition:
            row = next(iter(self._by_addition.values()))
            if row.expires_at > self._clock():
                break
            self._remove_conversation(row)
            removed += 1
        return removed

    def _limit_conversations(self) -> None:
        most, most_bytes = self.limits.max_conversations, self.limits.max_conversation_bytes
        while self._conversations and (
            (most is not None and len(self._conversations) > most)
            or (most_bytes is not None and self._conversation_bytes > most_bytes)
        ):
            self._remove_conversation(next(iter(self._conversations.values())))

    def _remove_conversation(self, row: _Conversation) -> None:
        del self._conversations[row.key]
        self._by_addition.pop(row.key, None)
        self._conversation_bytes -= row.size
        for item in row.items.values():
            self._items.let_go(item)

    def _delete_conversations_of(self, tenant: str) -> None:
        for row in [row for key, row in self._conversations.items() if key[0] == tenant]:
            self._remove_conversation(row)

    def _forget_conversations(self) -> None:
        self._conversations.clear()
        self._by_addition.clear()
        self._conversation_bytes = 0

"""The part of the SQLite store that keeps conversations."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.store.conversations import ConversationStore
from antiphon.store.rows import NewConversation, Scope, StoredConversation, StoredItem
from antiphon.store.sqlite_core import SQLiteCore

__all__ = ["LARGE", "SQLiteConversations"]

LARGE = 256 * 1024
"""Bytes of a write, of all its bodies together, from which on it is kept off the event loop's thread."""

_MANY = 100
"""Items of a write from which on it is kept off the event loop's thread."""


class SQLiteConversations(SQLiteCore, ConversationStore):
    """Keeps conversations in the store's file."""

    async def create_conversation(self, scope: Scope, conversation: NewConversation) -> None:
        """Begin a conversation.

        Raises:
            ConflictError: there is one by that id.
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows.conversations
        await self._write(lambda: rows.create(scope.tenant, conversation), heavy=_is_heavy(conversation.items))

    async def get_conversation(self, scope: Scope, conversation_id: str) -> StoredConversation | None:
        """A conversation by id; counts as a use of it."""
        found = self._read("get_conversation", self._of_conversation(scope, conversation_id))
        if not found:
            return None
        self._open().rows.ledger.conversation_uses.use((scope.tenant, conversation_id))
        return StoredConversation(conversation_id, *found[0])

    async def update_conversation(
        self, scope: Scope, conversation_id: str, metadata: bytes
    ) -> StoredConversation | None:
        """Replace a conversation's metadata, which is a use of it; None where there is none by that id.

        Raises:
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows.conversations
        return await self._write(lambda: rows.update((scope.tenant, conversation_id), metadata))

    async def delete_conversation(self, scope: Scope, conversation_id: str) -> bool:
        """Remove a conversation, and those of its items that no response has; False where there is none by that id.

        Raises:
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows.conversations
        return await self._write(lambda: rows.delete((scope.tenant, conversation_id)), heavy=True)

    async def add_conversation_items(self, scope: Scope, conversation_id: str, items: Sequence[StoredItem]) -> bool:
        """Append items, which is a use of the conversation; False where there is none by that id.

        Raises:
            UnavailableError: they cannot be written now.
        """
        rows = self._open().rows.conversations
        return await self._write(lambda: rows.add((scope.tenant, conversation_id), items), heavy=_is_heavy(items))

    async def conversation_item_ids(self, scope: Scope, conversation_id: str) -> list[str] | None:
        """The ids of a conversation's items, oldest first; None where there is no conversation by that id."""
        found = self._read("conversation_item_ids", self._of_conversation(scope, conversation_id))
        return [item_id for (item_id,) in found if item_id is not None] if found else None

    async def delete_conversation_item(self, scope: Scope, conversation_id: str, item_id: str) -> bool:
        """Take an item out of a conversation; False where it has none by that id.

        Raises:
            UnavailableError: it cannot be written now.
        """
        rows = self._open().rows.conversations
        return await self._write(lambda: rows.delete_item((scope.tenant, conversation_id), item_id))

    def _of_conversation(self, scope: Scope, conversation_id: str) -> dict[str, object]:
        oldest = self._open().rows.conversations.oldest(self._clock())
        return {"tenant": scope.tenant, "id": conversation_id, "oldest": oldest}


def _is_heavy(items: Sequence[StoredItem]) -> bool:
    return len(items) > _MANY or sum(len(item.body) for item in items) > LARGE

"""Conversations in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.store.conversations import ConversationStore
from antiphon.store.postgres_core import FORMAT, refuse_unstorable, storable
from antiphon.store.postgres_database import Connection, execute, fetch
from antiphon.store.postgres_errors import violated
from antiphon.store.postgres_limits import PostgresLimits
from antiphon.store.refusals import conversation_exists
from antiphon.store.rows import NewConversation, Scope, StoredConversation, StoredItem

__all__ = ["PostgresConversations"]


class PostgresConversations(PostgresLimits, ConversationStore):
    """Keeps conversations within limits of their own (M41); an item in two of them counts in both."""

    async def create_conversation(self, scope: Scope, conversation: NewConversation) -> None:
        """Begin a conversation.

        Raises:
            ConflictError: there is one by that id.
            UnavailableError: it cannot be written now.
        """
        refuse_unstorable(conversation.items)
        names: dict[str, object] = {"tenant": scope.tenant, "id": conversation.id}
        parameters: dict[str, object] = {
            **names,
            **_items(conversation.items),
            "created_at": conversation.created_at,
            "metadata": conversation.metadata,
            "now": self._clock(),
            "used_at": self._tick(),
        }

        async def job(connection: Connection, again: bool) -> None:
            try:
                await execute(connection, "create_conversation", **parameters)
            except Exception as error:
                if violated(error) != "conversations_by_id":
                    raise
                found = await fetch(connection, "get_conversation", **names, oldest=self._oldest)
                if not found and await self._delete_expired(connection, names):
                    await execute(connection, "create_conversation", **parameters)
                elif not again or not found or tuple(found[0]) != _stored(conversation):
                    raise conversation_exists() from None

        await self._run(job)
        await self._enforce_conversation_limits(entries=1, size=_size(conversation.items))

    async def get_conversation(self, scope: Scope, conversation_id: str) -> StoredConversation | None:
        """A conversation by id; counts as a use of it."""
        if not storable(conversation_id):
            return None
        rows = await self._fetch("get_conversation", tenant=scope.tenant, id=conversation_id, oldest=self._oldest)
        if not rows:
            return None
        await self._use_conversation((scope.tenant, conversation_id))
        return StoredConversation(*rows[0])

    async def update_conversation(
        self, scope: Scope, conversation_id: str, metadata: bytes
    ) -> StoredConversation | None:
        """Replace a conversation's metadata, which is a use of it; None where there is none by that id."""
        if not storable(conversation_id):
            return None
        rows = await self._fetch(
            "update_conversation",
            tenant=scope.tenant,
            id=conversation_id,
            metadata=metadata,
            used_at=self._tick(),
            oldest=self._oldest,
        )
        return StoredConversation(*rows[0]) if rows else None

    async def delete_conversation(self, scope: Scope, conversation_id: str) -> bool:
        """Remove a conversation, and those of its items that no response has; False where there is none by that id."""
        if not storable(conversation_id):
            return False
        names: dict[str, object] = {"tenant": scope.tenant, "id": conversation_id}

        async def delete(connection: Connection) -> bool:
            found = await fetch(connection, "lock_conversation", **names, oldest=self._oldest)
            await self._remove_conversations(connection, [number for number, _ in found])
            return any(not expired for _, expired in found)

        return await self._delete_found(delete)

    async def add_conversation_items(self, scope: Scope, conversation_id: str, items: Sequence[StoredItem]) -> bool:
        """Append items, which is a use of the conversation; False where there is none by that id."""
        if not storable(conversation_id):
            return False
        refuse_unstorable(items)
        rows = await self._fetch(
            "add_conversation_items",
            tenant=scope.tenant,
            id=conversation_id,
            now=self._clock(),
            used_at=self._tick(),
            oldest=self._oldest,
            **_items(items),
        )
        if rows:
            await self._enforce_conversation_limits(size=_size(items))
        return bool(rows)

    async def conversation_item_ids(self, scope: Scope, conversation_id: str) -> list[str] | None:
        """The ids of a conversation's items, oldest first; None where there is no conversation by that id."""
        if not storable(conversation_id):
            return None
        rows = await self._fetch("conversation_item_ids", tenant=scope.tenant, id=conversation_id, oldest=self._oldest)
        return [row[0] for row in rows if row[0] is not None] if rows else None

    async def delete_conversation_item(self, scope: Scope, conversation_id: str, item_id: str) -> bool:
        """Take an item out of a conversation; False where it has none by that id."""
        if not storable(conversation_id, item_id):
            return False

        async def delete(connection: Connection) -> bool:
            items = await fetch(
                connection,
                "delete_conversation_item",
                tenant=scope.tenant,
                id=conversation_id,
                item_id=item_id,
                oldest=self._oldest,
            )
            await self._remove_items(connection, [row[0] for row in items])
            return bool(items)

        return await self._delete_found(delete)

    async def _delete_expired(self, connection: Connection, names: dict[str, object]) -> bool:
        """Remove a conversation if it has expired; whether it had."""
        async with connection.transaction():
            found = await fetch(connection, "lock_conversation", **names, oldest=self._oldest)
            expired = [number for number, expired in found if expired]
            await self._remove_conversations(connection, expired)
        return bool(expired)


def _items(items: Sequence[StoredItem]) -> dict[str, object]:
    return {"format": FORMAT, "item_ids": [item.id for item in items], "item_bodies": [item.body for item in items]}


def _size(items: Sequence[StoredItem]) -> int:
    return sum([len(item.body) for item in items])


def _stored(conversation: NewConversation) -> tuple[str, int, bytes]:
    return conversation.id, conversation.created_at, conversation.metadata

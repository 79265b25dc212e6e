"""What the writer of the SQLite store does to conversations. Everything here runs inside a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from antiphon.errors import APIError
from antiphon.store.queries import QUERIES
from antiphon.store.refusals import conversation_exists
from antiphon.store.rows import NewConversation, StoredConversation, StoredItem
from antiphon.store.sqlite_ledger import Key, Ledger

__all__ = ["ConversationRows"]


class ConversationRows:
    """The conversations of one database, as its only writer sees them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._execute = ledger.execute
        self._ttl = ledger.limits.conversation_ttl_seconds

    def oldest(self, now: float) -> float:
        """A conversation whose last addition is not after this time has expired."""
        return float("-inf") if self._ttl is None else now - self._ttl

    def create(self, tenant: str, conversation: NewConversation) -> APIError | None:
        """Add a conversation."""
        key = (tenant, conversation.id)
        if self._ttl is not None:
            self._remove_expired(key)
        now = self._ledger.clock()
        values = (*key, conversation.created_at, now, self._ledger.conversation_uses.tick(), conversation.metadata)
        try:
            number = self._execute(QUERIES["insert_conversation"], values).lastrowid
        except sqlite3.IntegrityError:
            return conversation_exists()
        assert number is not None  # noqa: S101 - an INSERT that did not raise has added a row
        self._ledger.conversations += 1
        self._ledger.conversation_uses.join(key)
        self._add(tenant, number, 0, conversation.items)
        return None

    def update(self, key: Key, metadata: bytes) -> StoredConversation | None:
        """Replace the metadata of a conversation, which is a use of it."""
        found = self._find(key)
        if found is None:
            return None
        self._ledger.conversation_uses.use(key)
        self._execute(QUERIES["set_metadata"], (metadata, self._ledger.conversation_uses.tick(), found[0]))
        values = {"tenant": key[0], "id": key[1], "oldest": float("-inf")}
        return StoredConversation(key[1], *self._execute(QUERIES["get_conversation"], values).fetchone())

    def delete(self, key: Key) -> bool:
        """Remove a conversation."""
        found = self._find(key)
        if found is None:
            return False
        self._remove(key, found[0])
        return True

    def add(self, key: Key, items: Sequence[StoredItem]) -> bool:
        """Append items to a conversation, which is a use of it."""
        found = self._find(key)
        if found is None:
            return False
        self._ledger.conversation_uses.use(key)
        self._add(key[0], *found, items)
        return True

    def add_items_of_response(self, key: Key, response: int) -> None:
        """Append the items of a response, by its number, to a conversation if that is there."""
        found = self._find(key)
        if found is None:
            return
        number, last = found
        self._ledger.conversation_uses.use(key)
        self._execute(QUERIES["insert_items_of_response"], (number, last, response))
        count, size = self._execute(QUERIES["size_added"], (number, last)).fetchone()
        if count:
            self._note_addition(number, size)

    def delete_item(self, key: Key, item_id: str) -> bool:
        """Take an item out of a conversation."""
        found = self._find(key)
        if found is None:
            return False
        number, _ = found
        item = self._execute(QUERIES["find_conversation_item"], (number, key[0], item_id)).fetchone()
        if item is None:
            return False
        position, item_number, size = item
        self._execute(QUERIES["delete_conversation_item"], (number, position))
        self._execute(QUERIES["shrink_conversation"], (size, number))
        self._ledger.conversation_bytes -= size
        self._ledger.drop_items([(item_number,)], loose=True)
        return True

    def expire(self, now: float, most: int) -> tuple[int, int]:
        """Remove at most so many conversations whose time is up: how many, and as many rows."""
        expired = self._execute(QUERIES["find_expired_conversations"], (self.oldest(now), most)).fetchall()
        for number, tenant, name in expired:
            self._remove((tenant, name), number)
        return len(expired), len(expired)

    def remove_of_tenant(self, tenant: str, most: int) -> int:
        """Remove at most so many conversations of a tenant; how many they were."""
        found = self._execute(QUERIES["conversations_of_tenant"], (tenant, most)).fetchall()
        for number, _, name in found:
            self._remove((tenant, name), number)
        return len(found)

    def enforce_limits(self) -> None:
        """Remove what the limits do not allow, least recently used first."""
        ledger = self._ledger
        most, most_bytes = ledger.limits.max_conversations, ledger.limits.max_conversation_bytes
        while len(ledger.conversation_uses) and (
            (most is not None and ledger.totals.conversations + ledger.conversations > most)
            or (most_bytes is not None and ledger.totals.conversation_bytes + ledger.conversation_bytes > most_bytes)
        ):
            key = ledger.conversation_uses.take_oldest()
            number, _ = self._execute(QUERIES["find_conversation"], (*key, float("-inf"))).fetchone()
            self._remove(key, number)

    def _find(self, key: Key) -> tuple[int, int] | None:
        """The number of a conversation and the place of its last item."""
        return self._execute(QUERIES["find_conversation"], (*key, self.oldest(self._ledger.clock()))).fetchone()

    def _add(self, tenant: str, number: int, last: int, items: Sequence[StoredItem]) -> None:
        added = size = 0
        for item in items:
            item_number, item_size = self._ledger.add_loose_item(tenant, item)
            values = (number, last + added + 1, item_number)
            if self._execute(QUERIES["insert_conversation_item"], values).rowcount:
                added += 1
                size += item_size
        if added:
            self._note_addition(number, size)

    def _note_addition(self, number: int, size: int) -> None:
        values = (self._ledger.clock(), self._ledger.conversation_uses.tick(), size, number)
        self._execute(QUERIES["note_addition"], values)
        self._ledger.conversation_bytes += size

    def _remove_expired(self, key: Key) -> None:
        found = self._execute(QUERIES["find_conversation"], (*key, float("-inf"))).fetchone()
        if found is not None and self._find(key) is None:
            self._remove(key, found[0])

    def _remove(self, key: Key, number: int) -> None:
        self._ledger.conversation_uses.leave(key)
        self._ledger.conversations -= 1
        self._ledger.conversation_bytes -= self._execute(QUERIES["conversation_size"], (number,)).fetchone()[0]
        items = self._execute(QUERIES["items_of_conversation"], (number,)).fetchall()
        self._execute(QUERIES["delete_conversation_items"], (number,))
        self._ledger.drop_items(items, loose=True)
        self._execute(QUERIES["delete_conversation"], (number,))

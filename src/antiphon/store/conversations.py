"""The part of a store's interface that keeps conversations (responses-api 1.2).

Items are those of `items`, shared with responses: an item stays as long as a conversation or a kept response has it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from antiphon.store.rows import NewConversation, Scope, StoredConversation, StoredItem

__all__ = ["ConversationStore"]


class ConversationStore(ABC):
    """Conversations and the order of their items."""

    @abstractmethod
    async def create_conversation(self, scope: Scope, conversation: NewConversation) -> None:
        """Begin a conversation.

        Raises:
            ConflictError: there is one by that id.
        """

    @abstractmethod
    async def get_conversation(self, scope: Scope, conversation_id: str) -> StoredConversation | None:
        """A conversation by id; counts as a use of it."""

    @abstractmethod
    async def update_conversation(
        self, scope: Scope, conversation_id: str, metadata: bytes
    ) -> StoredConversation | None:
        """Replace a conversation's metadata; None where there is none by that id."""

    @abstractmethod
    async def delete_conversation(self, scope: Scope, conversation_id: str) -> bool:
        """Remove a conversation, and those of its items that no response has; False where there is none by that id."""

    @abstractmethod
    async def add_conversation_items(self, scope: Scope, conversation_id: str, items: Sequence[StoredItem]) -> bool:
        """Append items, in order; False where there is no conversation by that id.

        An item that the conversation has already stays where it is.
        """

    @abstractmethod
    async def conversation_item_ids(self, scope: Scope, conversation_id: str) -> list[str] | None:
        """The ids of a conversation's items, oldest first; None where there is no conversation by that id."""

    @abstractmethod
    async def delete_conversation_item(self, scope: Scope, conversation_id: str, item_id: str) -> bool:
        """Take an item out of a conversation; False where it has none by that id."""

"""Conversations on the wire: the object, and the bodies of its routes (responses-api 1.2).

Unknown fields are ignored and an explicit null is the same as an absent field, as in requests.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.bounds import check_metadata
from antiphon.protocol.context import TRIGGER
from antiphon.protocol.items import Item, RawItem, decode_item
from antiphon.protocol.json import decode_body

__all__ = [
    "MAX_ADDED_ITEMS",
    "ConversationObject",
    "CreateConversation",
    "DeletedConversation",
    "decode_create_conversation",
    "decode_new_items",
    "decode_new_metadata",
]

MAX_ADDED_ITEMS = 20
"""The most items that one request may add to a conversation."""


class ConversationObject(Struct):
    """A conversation; its items are listed by a route of their own."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: str = "conversation"


class DeletedConversation(Struct):
    """What the deletion of a conversation answers."""

    id: str
    object: str = "conversation.deleted"
    deleted: bool = True


class CreateConversation(Struct):
    """The body of `POST /conversations`, checked."""

    items: list[Item]
    metadata: dict[str, str]


class _Create(Struct):
    items: list[Raw] | None = None
    metadata: dict[str, str | None] | None = None


class _Add(Struct):
    items: list[Raw]


class _Update(Struct):
    metadata: dict[str, str | None] | None


_create = msgspec.json.Decoder(_Create)
_add = msgspec.json.Decoder(_Add)
_update = msgspec.json.Decoder(_Update)


def decode_create_conversation(data: bytes) -> CreateConversation:
    """The body of `POST /conversations`; it may be empty.

    Raises:
        InvalidRequestError: it is malformed, has too many items, or metadata beyond the limits.
    """
    body = decode_body(_create, data) if data.strip() else _Create()
    return CreateConversation(_items(body.items or []), check_metadata(body.metadata))


def decode_new_items(data: bytes) -> list[Item]:
    """The items of `POST /conversations/{id}/items`.

    Raises:
        InvalidRequestError: the body is malformed or has too many items.
    """
    return _items(decode_body(_add, data).items)


def decode_new_metadata(data: bytes) -> dict[str, str]:
    """The metadata of `POST /conversations/{id}`, which must be there; null is none.

    Raises:
        InvalidRequestError: the body is malformed, or the metadata is beyond the limits.
    """
    return check_metadata(decode_body(_update, data).metadata)


def _items(raws: list[Raw]) -> list[Item]:
    if len(raws) > MAX_ADDED_ITEMS:
        raise InvalidRequestError(
            f"Invalid 'items': array too long. Expected an array with maximum length {MAX_ADDED_ITEMS}, "
            f"but got an array with length {len(raws)} instead.",
            param="items",
            code="array_above_max_length",
        )
    items = [decode_item(raw, f"items[{index}]") for index, raw in enumerate(raws)]
    for index, item in enumerate(items):
        if isinstance(item, RawItem) and item.type == TRIGGER:
            raise InvalidRequestError(
                "A compaction is asked for by a request; its trigger is no item of a conversation.",
                param=f"items[{index}]",
                code="invalid_value",
            )
    return items

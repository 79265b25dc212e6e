"""Items to what a prompt is made from: blobs that clients kept for us are opened.

What came stays as it came in the store; only the prompt sees what is inside. Blobs that are not ours are no error: a
reasoning item is then without its thinking, and a compaction item stands for nothing, so that what is before it stays
(client-contract 3.1, issue 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from antiphon.errors import InvalidRequestError
from antiphon.prompt.compaction import decode_context
from antiphon.prompt.messages import PromptItem
from antiphon.protocol.context import COMPACTION_TYPES
from antiphon.protocol.items import Item, RawItem, Reasoning
from antiphon.protocol.parts import ReasoningText
from antiphon.runtime.codec import Codec
from antiphon.store.base import Scope

__all__ = ["COMPACTION", "REASONING", "is_compaction", "unseal", "unseal_known"]

REASONING = "reasoning"
"""The kind of blobs that hold the text of a reasoning item, as UTF-8."""

COMPACTION = "compaction"
"""The kind of blobs that hold a compacted context, as `prompt.compaction` encodes it."""

MAX_OPENED = 64 * 1024 * 1024
"""Bytes that the blobs of one call may open to, together; a blob that is sent again counts once."""

Blob = tuple[str, str]


def is_compaction(item: object) -> bool:
    """Whether an item holds a compacted context, ours or another server's."""
    return isinstance(item, RawItem) and item.type in COMPACTION_TYPES


async def unseal(codec: Codec, scope: Scope, items: Sequence[Item]) -> list[PromptItem]:
    """The items with what their blobs hold, in the same order.

    Raises:
        InvalidRequestError: the blobs open to more than `MAX_OPENED` bytes.
        UnavailableError: the store cannot be asked for a key.
    """
    opened: dict[Blob, bytes | None] = {}
    size = 0
    for item in items:
        blob = _blob_of(item)
        if blob is None or blob in opened:
            continue
        payload = await codec.open(scope, *blob)
        opened[blob] = payload
        size += len(payload or b"")
        if size > MAX_OPENED:
            raise InvalidRequestError(
                f"The encrypted items stand for more than {MAX_OPENED} bytes.", param="input", code="request_too_large"
            )
    return _with_opened(items, opened) if opened else list(items)


def unseal_known(codec: Codec, scope: Scope, items: Sequence[Item]) -> list[PromptItem]:
    """The same for what this process sealed."""
    blobs = {blob for item in items if (blob := _blob_of(item)) is not None}
    opened = {blob: codec.open_known(scope, *blob) for blob in blobs}
    return _with_opened(items, opened) if opened else list(items)


def _blob_of(item: Item) -> Blob | None:
    """The kind and the text of an item's blob, where the prompt needs it."""
    if isinstance(item, Reasoning):
        sealed = item.encrypted_content
        told = item.content and any(part.text for part in item.content)
        return (REASONING, sealed) if isinstance(sealed, str) and not told else None
    if isinstance(item, RawItem) and item.type in COMPACTION_TYPES:
        sealed = item.body.get("encrypted_content")
        return (COMPACTION, sealed) if isinstance(sealed, str) else None
    return None


def _with_opened(items: Iterable[Item], opened: dict[Blob, bytes | None]) -> list[PromptItem]:
    found: list[PromptItem] = []
    for item in items:
        blob = _blob_of(item)
        payload = None if blob is None else opened[blob]
        if payload is None:
            if not is_compaction(item):
                found.append(item)
        elif isinstance(item, Reasoning):
            text = payload.decode(errors="replace")
            found.append(msgspec.structs.replace(item, content=[ReasoningText(text=text)]))
        else:
            context = decode_context(payload)
            if context is not None:
                found.append(context)
    return found

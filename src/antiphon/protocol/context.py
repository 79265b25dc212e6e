"""What a request says of its own context: `context_management`, and the item that asks for a compaction.

Rules: responses-api 2 (`context_management`, at least one entry, a threshold of 1,000 tokens or more) and 3
(`compaction_trigger`, the last input item); B14 for the object with `edits`, of which `prune_context` is known.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.bounds import Count
from antiphon.protocol.items import Item, RawItem
from antiphon.protocol.json import quoted

__all__ = [
    "COMPACTION_TYPES",
    "TRIGGER",
    "ContextManagement",
    "check_context_management",
    "compactions",
    "prunes",
    "take_trigger",
]

TRIGGER = "compaction_trigger"
"""The input item that asks for a compaction instead of an answer."""

COMPACTION_TYPES = frozenset({"compaction", "compaction_summary", "context_compaction"})
"""The item types that hold a compacted context; the later ones are spellings of clients before the first was fixed."""

MIN_THRESHOLD = 1_000
COMPACTION = "compaction"
PRUNE = "prune_context"


class ContextManagement(Struct):
    """An entry of `context_management`; a compaction without a threshold, in tokens, is when the server chooses."""

    type: str
    compact_threshold: Count | None = None


def check_context_management(entries: list[ContextManagement] | dict[str, Any] | None) -> list[ContextManagement]:
    """The entries of a request; of an object in their place only the edits that are known have an effect.

    Raises:
        InvalidRequestError: an empty list, an unknown type, or a threshold that is too small.
    """
    if entries is None:
        return []
    if isinstance(entries, dict):
        return _edits(entries)
    if not entries:
        raise InvalidRequestError(
            "Invalid 'context_management': at least one entry is expected.",
            param="context_management",
            code="array_below_min_length",
        )
    for index, entry in enumerate(entries):
        place = f"context_management[{index}]"
        if entry.type != COMPACTION:
            raise InvalidRequestError(
                f"Invalid value: '{quoted(entry.type)}'. Supported values are: 'compaction'.",
                param=f"{place}.type",
                code="invalid_value",
            )
        threshold = entry.compact_threshold
        if threshold is not None and threshold < MIN_THRESHOLD:
            raise InvalidRequestError(
                f"Invalid '{place}.compact_threshold': integer below minimum value. "
                f"Expected a value >= {MIN_THRESHOLD}, but got {threshold} instead.",
                param=f"{place}.compact_threshold",
                code="integer_below_min_value",
            )
    return entries


def compactions(entries: list[ContextManagement]) -> list[ContextManagement]:
    """The entries that ask for a compaction."""
    return [entry for entry in entries if entry.type == COMPACTION]


def prunes(entries: list[ContextManagement]) -> bool:
    """Whether the model may take results of tools out of what it sees (B14)."""
    return any(entry.type == PRUNE for entry in entries)


def _edits(given: dict[str, Any]) -> list[ContextManagement]:
    edits: Any = given.get("edits")
    for edit in cast("list[Any]", edits) if isinstance(edits, list) else []:
        if isinstance(edit, dict) and cast("dict[str, Any]", edit).get("type") == PRUNE:
            return [ContextManagement(PRUNE)]
    return []


def take_trigger(items: list[Item]) -> bool:
    """Take a compaction trigger off the end of the input, where it is no item to keep; whether there was one.

    Raises:
        InvalidRequestError: there is one that is not the last item.
    """
    for index, item in enumerate(items):
        if isinstance(item, RawItem) and item.type == TRIGGER:
            if index < len(items) - 1:
                raise InvalidRequestError(
                    f"Invalid 'input[{index}]': a '{TRIGGER}' item must be the last item of the input.",
                    param=f"input[{index}]",
                    code="invalid_value",
                )
            items.pop()
            return True
    return False

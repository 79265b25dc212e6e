"""What a request says of its own context: `context_management`, and the item that asks for a compaction.

Rules: responses-api 2 (`context_management`, at least one entry, a threshold of 1,000 tokens or more) and 3
(`compaction_trigger`, the last input item).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.bounds import Count
from antiphon.protocol.items import Item, RawItem
from antiphon.protocol.json import quoted

__all__ = ["COMPACTION_TYPES", "TRIGGER", "ContextManagement", "check_context_management", "take_trigger"]

TRIGGER = "compaction_trigger"
"""The input item that asks for a compaction instead of an answer."""

COMPACTION_TYPES = frozenset({"compaction", "compaction_summary", "context_compaction"})
"""The item types that hold a compacted context; the later ones are spellings of clients before the first was fixed."""

MIN_THRESHOLD = 1_000


class ContextManagement(Struct):
    """An entry of `context_management`; without a threshold, in tokens, the server chooses one."""

    type: str
    compact_threshold: Count | None = None


def check_context_management(entries: list[ContextManagement] | dict[str, Any] | None) -> list[ContextManagement]:
    """The entries of a request; an object in their place is another vendor's and has no effect.

    Raises:
        InvalidRequestError: an empty list, an unknown type, or a threshold that is too small.
    """
    if entries is None or isinstance(entries, dict):
        return []
    if not entries:
        raise InvalidRequestError(
            "Invalid 'context_management': at least one entry is expected.",
            param="context_management",
            code="array_below_min_length",
        )
    for index, entry in enumerate(entries):
        place = f"context_management[{index}]"
        if entry.type != "compaction":
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

"""What a response says was edited of its context: results that the model pruned, and results that were truncated (B14).

Only what a model sees is edited; what is stored stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.prompt.assembly import untouched
from antiphon.prompt.messages import Conversation
from antiphon.prompt.pruning import applied_edits, cleared
from antiphon.protocol.hosted import CALL_TYPES, PRUNE_CONTEXT
from antiphon.protocol.items import Item, RawItem
from antiphon.runtime.history import convert

__all__ = ["applied"]

_PRUNES = CALL_TYPES[PRUNE_CONTEXT]


def applied(
    parts: Sequence[Conversation], items: Sequence[Item], truncated: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any] | None:
    """The `context_management` of a response with these items in full, after these parts of a history.

    `truncated` are the results that its last turn was told shorter. None where nothing was edited.
    """
    if not truncated and not any(isinstance(item, RawItem) and item.type == _PRUNES for item in items):
        return None
    before = cleared(untouched(parts))
    now = untouched([*parts, convert(items, parts[-1])] if parts else [convert(items, Conversation())])
    return applied_edits(now, before, truncated)

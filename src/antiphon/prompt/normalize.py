"""Re-arrangements of a conversation for strict chat templates. Pure.

Some templates refuse two messages of one role in a row, a system message that is not the first, or any system message
at all. The ladder goes from the conversation as it is to one that every such template takes; the engine tries the
rungs in order and stops at the first that renders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.prompt.prompt import ChatMessage

__all__ = ["arrangements", "fold_system", "lead_with_system", "merge_same_role"]

_GAP = "\n\n"


def arrangements(messages: Sequence[ChatMessage]) -> Iterator[list[ChatMessage]]:
    """The conversation as it is, then each re-arrangement that differs from those before it, gentlest first."""
    given = list(messages)
    merged = merge_same_role(given)
    tried: list[list[ChatMessage]] = []
    for rung in (given, merged, merge_same_role(lead_with_system(given)), merge_same_role(fold_system(given))):
        if rung not in tried:
            tried.append(rung)
            yield rung


def merge_same_role(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Consecutive messages of one role as one. Tool outputs stay apart: each belongs to a call of its own."""
    merged: list[ChatMessage] = []
    for message in messages:
        if merged and merged[-1].role == message.role != "tool":
            merged[-1] = _join(merged[-1], message)
        else:
            merged.append(message)
    return merged


def lead_with_system(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The system messages before all others."""
    return [m for m in messages if m.role == "system"] + [m for m in messages if m.role != "system"]


def fold_system(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The text of all system messages at the head of the first user message, which is made where there is none."""
    system = [m for m in messages if m.role == "system"]
    rest = [m for m in messages if m.role != "system"]
    if not system:
        return rest
    head = ChatMessage(role="user", content=_GAP.join(text for m in system if (text := m.text())))
    for place, message in enumerate(rest):
        if message.role == "user":
            rest[place] = _join(head, message)
            return rest
    return [head, *rest]


def _join(first: ChatMessage, second: ChatMessage) -> ChatMessage:
    return msgspec.structs.replace(
        first,
        content=_join_content(first.content, second.content),
        reasoning="\n".join(text for text in (first.reasoning, second.reasoning) if text),
        tool_calls=(*first.tool_calls, *second.tool_calls),
    )


def _join_content(
    first: str | Sequence[Mapping[str, Any]], second: str | Sequence[Mapping[str, Any]]
) -> str | list[Mapping[str, Any]]:
    if isinstance(first, str) and isinstance(second, str):
        return _GAP.join(text for text in (first, second) if text)
    return [*_parts(first), *_parts(second)]


def _parts(content: str | Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)

"""Re-arrangements of a conversation, and of tools, for strict chat templates. Pure.

Some templates refuse two messages of one role in a row, a system message that is not the first, or any system message
at all. The ladder goes from the conversation as it is to one that every such template takes; the engine tries the
rungs in order and stops at the first that renders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, groupby, takewhile
from typing import Any, cast

import msgspec

from antiphon.prompt.prompt import ChatMessage

__all__ = ["arrangements", "fold_system", "lead_with_system", "merge_same_role", "tool_forms"]

_GAP = "\n\n"


def arrangements(messages: Sequence[ChatMessage]) -> Iterator[Sequence[ChatMessage]]:
    """The conversation as it is, then each re-arrangement that differs from those before it, gentlest first.

    Each is made when it is asked for: most templates take the first.
    """
    yield messages
    given = list(messages)
    tried = [given]
    for arrange in (list[ChatMessage], lead_with_system, fold_system):
        rung = merge_same_role(arrange(given))
        if rung not in tried:
            tried.append(rung)
            yield rung


def tool_forms(tools: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The tools as they are, then for templates that cannot read it without lists of types, where there are any."""
    yield list(tools)
    plain = [_with_single_types(tool) for tool in tools]
    if plain != tools:
        yield plain


def _with_single_types(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_single_types(part) for part in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    members = {key: _with_single_types(value) for key, value in cast("dict[str, Any]", node).items()}
    kinds = members.get("type")
    if isinstance(kinds, list) and "anyOf" not in members:
        del members["type"]
        members["anyOf"] = [{"type": kind} for kind in cast("list[Any]", kinds)]
    return members


def merge_same_role(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Consecutive messages of one role as one. Tool outputs stay apart: each belongs to a call of its own."""
    merged: list[ChatMessage] = []
    for role, group in groupby(messages, key=lambda message: message.role):
        run = list(group)
        if role == "tool" or len(run) == 1:
            merged += run
        else:
            merged.append(_joined(run))
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
            rest[place] = _joined([head, message])
            return rest
    return [head, *rest]


def _joined(run: Sequence[ChatMessage]) -> ChatMessage:
    # The whole run at once: message by message, the text that grows would be copied for each.
    return msgspec.structs.replace(
        run[0],
        content=_joined_content([message.content for message in run]),
        reasoning="\n".join(message.reasoning for message in run if message.reasoning),
        tool_calls=tuple(call for message in run for call in message.tool_calls),
    )


def _joined_content(contents: Sequence[str | Sequence[Mapping[str, Any]]]) -> str | list[Mapping[str, Any]]:
    """One text, or parts where any content has parts; texts before the first parts are one part."""
    texts = [content for content in takewhile(lambda content: isinstance(content, str), contents) if content]
    opening = _GAP.join(cast("list[str]", texts))
    rest = list(dropwhile(lambda content: isinstance(content, str), contents))
    if not rest:
        return opening
    return [part for content in (opening, *rest) for part in _parts(content)]


def _parts(content: str | Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)

"""From the parts of a history to the messages that a model is told in a turn. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from antiphon.prompt.growing import Chained
from antiphon.prompt.messages import EMPTY, Conversation
from antiphon.prompt.openturn import closed
from antiphon.prompt.prompt import ChatMessage, ToolCall
from antiphon.prompt.pruning import pruned
from antiphon.prompt.toolbox import origin_key
from antiphon.protocol.json import encode

__all__ = ["assemble", "renamed", "untouched"]

_IMAGES = frozenset({"image"})


def assemble(
    parts: Iterable[Conversation], instructions: str | None, *, hosted: bool = False, prunable: bool = False
) -> Sequence[ChatMessage]:
    """The messages of a whole history: instructions and all system text first, then the turns.

    Turns of nothing but what an upstream ran are for engines that take these items, which `hosted` says. Results of
    tools that were pruned are told as such; where more can be, which `prunable` says, all are told with their ids.
    """
    given = list(parts)
    told = untouched(given, instructions, hosted=hosted)
    return pruned(told, ids=prunable) if prunable or any(part.prunes for part in given) else told


def untouched(
    parts: Iterable[Conversation], instructions: str | None = None, *, hosted: bool = False
) -> Sequence[ChatMessage]:
    """The same with nothing pruned."""
    system: list[str] = [instructions] if instructions else []
    messages: list[Sequence[ChatMessage]] = []
    last = EMPTY
    for part in parts:
        system.extend(part.system)
        told = [*map(_told_output, part.messages)] if part.media - _IMAGES else part.messages
        if hosted and part.media:
            told = [message for message in told if message.role != "user" or not message.items]
        if part.hosted and not hosted:
            told = [message for message in told if message.said]
        elif part.hosted:
            told = _as_items(told)
        messages.append(told)
        last = part
    if last.open_turn.begun or (hosted and last.open_turn.hosted):
        end = tuple(closed(last.open_turn))
        messages.append(_as_items(end) if hosted and last.open_turn.hosted else end)
    if system:
        messages.insert(0, (ChatMessage("system", "\n\n".join(system)),))
    return Chained(messages)


def _as_items(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The messages for an upstream that takes items of hosted tools: what it is sent so is not told again as calls."""
    told: list[ChatMessage] = []
    gone: set[str] = set()
    for message in messages:
        sent = {call.id for call in message.tool_calls if call.elsewhere}
        gone |= sent
        if sent:
            calls = tuple(call for call in message.tool_calls if not call.elsewhere)
            told.append(replace(message, tool_calls=calls))
        elif message.role != "tool" or message.tool_call_id not in gone:
            told.append(message)
    return told


def renamed(messages: Sequence[ChatMessage], renames: Mapping[str, str]) -> Sequence[ChatMessage]:
    """The messages with other names for past calls where those that were made for them are taken."""
    if not renames:
        return messages
    return [
        replace(message, tool_calls=tuple(_renamed(call, renames) for call in message.tool_calls))
        if message.tool_calls
        else message
        for message in messages
    ]


def _renamed(call: ToolCall, renames: Mapping[str, str]) -> ToolCall:
    return replace(call, name=renames.get(origin_key(call.origin, call.name), call.name)) if call.made else call


def _told_output(message: ChatMessage) -> ChatMessage:
    """The message, with what a tool gave as JSON where it is neither text nor was read as text (M17)."""
    if message.role != "tool" or isinstance(message.content, str):
        return message
    lines: list[str] = []
    for part in message.content:
        kind = part["type"]
        body = {"type": "input_file", **part["file"]} if kind == "file" else part
        lines.append(part["text"] if kind == "text" else encode(body).decode())
    return replace(message, content="\n".join(lines))

"""Past calls and their outputs in the shapes that chat templates ask for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from antiphon.prompt.prompt import ChatMessage, ToolCall

__all__ = ["calls_as_text", "in_call_order", "one_call_each", "with_ids", "with_names", "with_system_text"]


def with_names(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages, with the name of its tool on every output whose call is there."""
    names: dict[str, str] = {}
    result: list[ChatMessage] = []
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        name = names.get(message.tool_call_id, "") if message.role == "tool" else ""
        result.append(msgspec.structs.replace(message, name=name) if name else message)
    return result


def with_ids(messages: Sequence[ChatMessage], new_id: Callable[[ToolCall, int], str]) -> list[ChatMessage]:
    """The messages with other ids of calls, and the same on their outputs.

    `new_id` gets the call, or one without a name where an output has none, and its place in its message.
    """
    ids: dict[str, str] = {}
    result: list[ChatMessage] = []
    for message in messages:
        if message.tool_calls:
            calls = [
                msgspec.structs.replace(call, id=new_id(call, place)) for place, call in enumerate(message.tool_calls)
            ]
            ids.update((old.id, new.id) for old, new in zip(message.tool_calls, calls, strict=True))
            message = msgspec.structs.replace(message, tool_calls=calls)
        elif message.role == "tool":
            old = message.tool_call_id
            found = ids[old] if old in ids else new_id(ToolCall(old, "", ""), 0)
            message = msgspec.structs.replace(message, tool_call_id=found)
        result.append(message)
    return result


def in_call_order(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages, with outputs that follow calls in the order of those; outputs of other calls come behind them."""
    result: list[ChatMessage] = []
    places: dict[str, int] = {}
    waiting: list[ChatMessage] = []

    def flush() -> None:
        waiting.sort(key=lambda output: places.get(output.tool_call_id, len(places)))
        result.extend(waiting)
        waiting.clear()

    for message in messages:
        if message.role == "tool":
            waiting.append(message)
            continue
        flush()
        places = {call.id: place for place, call in enumerate(message.tool_calls)}
        result.append(message)
    flush()
    return result


def one_call_each(messages: Sequence[ChatMessage], *, text_apart: bool) -> list[ChatMessage]:
    """The messages with one call in each, its output behind it, for templates that take no more than one.

    `text_apart` gives the text beside calls a message of its own, for templates that leave it out there.
    """
    result: list[ChatMessage] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if not message.tool_calls:
            result.append(message)
            continue
        end = place
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        result += _apart(message, messages[place:end], text_apart=text_apart)
        place = end
    return result


def _apart(message: ChatMessage, outputs: Sequence[ChatMessage], *, text_apart: bool) -> Iterable[ChatMessage]:
    first = message
    if text_apart and message.content:
        yield msgspec.structs.replace(message, tool_calls=())
        first = msgspec.structs.replace(message, content="", reasoning="")
    left = list(outputs)
    for call in message.tool_calls:
        yield msgspec.structs.replace(first, tool_calls=(call,))
        first = msgspec.structs.replace(first, content="", reasoning="")
        own = [output for output in left if output.tool_call_id == call.id]
        left = [output for output in left if output.tool_call_id != call.id]
        yield from own
    yield from left


def calls_as_text(
    messages: Sequence[ChatMessage], written: Callable[[Sequence[ToolCall]], str], between: str = ""
) -> list[ChatMessage]:
    """The messages with calls as text behind their content, for templates that show no calls.

    `written` is the text of the calls of one message; `between` parts it from the text before it.
    """
    result: list[ChatMessage] = []
    for message in messages:
        if message.tool_calls:
            text = message.text()
            content = f"{text}{between}{written(message.tool_calls)}" if text else written(message.tool_calls)
            message = msgspec.structs.replace(message, content=content, tool_calls=())
        result.append(message)
    return result


def with_system_text(messages: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    """The messages with this text at the end of the first system message, which is made where there is none."""
    if not messages or messages[0].role != "system":
        return [ChatMessage(role="system", content=text), *messages]
    first = messages[0]
    if isinstance(first.content, str):
        content = f"{first.content}\n\n{text}" if first.content else text
    else:
        content = [*first.content, {"type": "text", "text": text}]
    return [msgspec.structs.replace(first, content=content), *messages[1:]]

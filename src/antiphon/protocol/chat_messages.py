"""Chat messages as items: roles, parts in the chat spelling, thinking, calls and what they gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.depth import check_value
from antiphon.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    normalize_item,
)
from antiphon.protocol.json import decode_part, encode, quoted
from antiphon.protocol.parts import ContentPart, InputFile, InputText, OutputText, ReasoningText, Refusal

__all__ = ["message_items"]

_FUNCTION_CALL = "function_call"
"""The call id of a call in the old form, which has none."""


class _File(Struct):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class _FilePart(Struct, tag="file"):
    file: _File


class _Function(Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Custom(Struct):
    name: str
    input: str = ""


class _Call(Struct):
    id: str | None = None
    type: str | None = None
    function: _Function | None = None
    custom: _Custom | None = None


class _Message(Struct):
    role: str
    content: str | list[ContentPart | _FilePart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    function_call: _Function | None = None


_message = msgspec.json.Decoder(_Message)


def message_items(raw: Raw, path: str, called: dict[str, str]) -> list[Item]:
    """The items of one chat message, which is at that path of the request.

    `called` keeps the kinds of the calls so far, by their ids: function or custom. It is read and added to.

    Raises:
        InvalidRequestError: a field is missing, of a wrong type or nested too deeply, or the role is unknown.
    """
    message = decode_part(_message, raw, path)
    role = message.role
    if role == "assistant":
        items = _assistant(message, path, called)
    elif role in ("tool", "function"):
        items: list[Item] = [_output(message, path, called)]
    elif role in ("system", "developer", "user"):
        items = [Message(role=role, content=_parts(message.content))]
    else:
        raise InvalidRequestError(
            f"Invalid value: '{quoted(role)}'. Supported values are: 'system', 'developer', 'user', 'assistant', "
            "and 'tool'.",
            param=f"{path}.role",
            code="invalid_value",
        )
    for item in items:
        normalize_item(item, path)
    return items


def _assistant(message: _Message, path: str, called: dict[str, str]) -> list[Item]:
    """Thinking, then text, then calls: the order in which a model writes them."""
    items: list[Item] = []
    reasoning: Any = message.reasoning
    thinking = message.reasoning_content or (reasoning if isinstance(reasoning, str) else "")
    if thinking:
        items.append(Reasoning(content=[ReasoningText(text=thinking)]))
    parts: list[ContentPart] = []
    if isinstance(message.content, str):
        parts = [OutputText(text=message.content)] if message.content else []
    elif message.content:
        parts = _parts(message.content)
    if message.refusal:
        parts.append(Refusal(refusal=message.refusal))
    if parts:
        items.append(Message(role="assistant", content=parts))
    for index, call in enumerate(message.tool_calls or ()):
        items.append(_call(call, f"{path}.tool_calls[{index}]", called))
    if message.function_call is not None:
        items.append(_call(_Call(id=_FUNCTION_CALL, function=message.function_call), f"{path}.function_call", called))
    return items


def _call(call: _Call, path: str, called: dict[str, str]) -> Item:
    kind = call.type or ("custom" if call.custom is not None else "function")
    if call.id is None:
        raise _missing(f"{path}.id")
    if kind == "custom" and call.custom is not None:
        called[call.id] = kind
        return CustomToolCall(call_id=call.id, name=call.custom.name, input=call.custom.input)
    if kind != "function" or call.function is None:
        raise _missing(f"{path}.{quoted(kind)}")
    called[call.id] = kind
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        check_value(arguments, f"{path}.function.arguments")
        arguments = encode(arguments or {}).decode()
    return FunctionCall(call_id=call.id, name=call.function.name, arguments=arguments)


def _output(message: _Message, path: str, called: dict[str, str]) -> Item:
    call_id = message.tool_call_id
    if call_id is None:
        if message.role == "tool":
            raise _missing(f"{path}.tool_call_id")
        call_id = _FUNCTION_CALL
    content = message.content
    output: Any = content if isinstance(content, str) else _parts(content) if content else ""
    if called.get(call_id) == "custom":
        return CustomToolCallOutput(call_id=call_id, output=output)
    return FunctionCallOutput(call_id=call_id, output=output)


def _parts(content: str | Sequence[ContentPart | _FilePart] | None) -> list[ContentPart]:
    if isinstance(content, str):
        return [InputText(text=content)]
    return [_file(part.file) if isinstance(part, _FilePart) else part for part in content or ()]


def _file(file: _File) -> InputFile:
    return InputFile(file_data=file.file_data, file_id=file.file_id, filename=file.filename)


def _missing(path: str) -> InvalidRequestError:
    return InvalidRequestError(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")

"""Forced calls of upstreams that enforce a schema but no call: the answer is an object that says which call. Pure.

The tools are told in words, the schema of the answer allows calls of them only, and the answer is read as one call.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from antiphon.engines.upstream.calls import Call
from antiphon.engines.upstream.wire import FunctionPiece
from antiphon.machine.deltas import Delta
from antiphon.prompt.dialects.base import callable_tools, described_tools, tool_schema
from antiphon.prompt.instructions import choice_instruction
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice
from antiphon.protocol.request import TextFormat

__all__ = ["asked_as_form", "read_form"]

_MANUAL: Final = 'To call one of them, answer with one JSON object: {"name": "<its name>", "arguments": {...}}'
_GAP: Final = "\n\n"
_DEFS: Final = "#/$defs/"


class _Form(Struct):
    name: str
    arguments: Raw = Raw(b"{}")


_form = msgspec.json.Decoder(_Form)


def asked_as_form(prompt: Prompt) -> Prompt:
    """The same prompt with a forced call as a format: no tools, but words about them and a schema for their calls.

    Raises:
        InvalidRequestError: the parameters of a tool are too large (M12), or are not an object.
    """
    names = callable_tools(prompt)
    tools = [tool for tool in prompt.tools if tool.name in names]
    calls: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for number, tool in enumerate(tools):
        schema = _moved(tool_schema(tool), f"{number}_")
        definitions.update({f"{number}_{name}": node for name, node in schema.pop("$defs", {}).items()})
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": schema},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    if definitions:
        schema = {**schema, "$defs": definitions}
    limited = msgspec.structs.replace(prompt, tools=tools)
    words = _GAP.join((described_tools(limited, _MANUAL), choice_instruction(prompt)))
    return msgspec.structs.replace(
        prompt,
        messages=_led_by(prompt, words),
        tools=(),
        choice=ResolvedChoice("none", ()),
        format=TextFormat("json_schema", name="call", schema=schema),
    )


def read_form(text: str, tools: dict[str, bool], *, cut: bool) -> list[Delta] | None:
    """The call that an answer says; None where it says none.

    Raises:
        EngineError: it is a call of a custom tool whose input cannot be read.
    """
    try:
        form = _form.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    call = Call(tools, "")
    call.add(FunctionPiece(form.name, bytes(form.arguments).decode()))
    return [*call.take(), *call.close(cut=cut)]


def _led_by(prompt: Prompt, words: str) -> list[ChatMessage]:
    messages = list(prompt.messages)
    first = messages[0] if messages else None
    if first is None or first.role != "system" or not isinstance(first.content, str):
        return [ChatMessage("system", words), *messages]
    return [msgspec.structs.replace(first, content=f"{first.content}{_GAP}{words}"), *messages[1:]]


def _moved(node: Any, prefix: str) -> Any:
    """The schema with references to its definitions as they are named beside those of other tools."""
    if isinstance(node, list):
        return [_moved(part, prefix) for part in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    moved: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", node).items():
        if key == "$ref" and isinstance(value, str) and value.startswith(_DEFS):
            moved[key] = f"{_DEFS}{prefix}{value.removeprefix(_DEFS)}"
        else:
            moved[key] = value if key in ("enum", "const") else _moved(value, prefix)
    return moved

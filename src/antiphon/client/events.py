"""What the events of a stream are about, as data: which item, which of its texts, in which field (responses-api 5).

Names of other dialects and of older servers stand beside OpenAI's own.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from antiphon.client.loose import as_place, close_brackets, dumps, loads

__all__ = ["DELTAS", "TEXTS_DONE", "Place", "read_event", "text_index", "text_of", "tool_event"]


class Place(Struct, frozen=True):
    """Where the text of an event belongs: the type of item, the text of it, the fields of its index and of the text."""

    kind: str
    text: str
    index: str = ""
    field: str = "delta"


_SPOKEN = ("message", "text", "content_index")
_REFUSED = ("message", "refusal", "content_index")
_THOUGHT = ("reasoning", "content", "content_index")
_SUMMED = ("reasoning", "summary", "summary_index")
_ARGUMENTS = ("function_call", "arguments", "")
_INPUT = ("custom_tool_call", "input", "")
_MCP = ("mcp_call", "arguments", "")
_CODE = ("code_interpreter_call", "code", "")
_DIFF = ("apply_patch_call", "diff", "")
_COMMAND = ("shell_call", "command", "command_index")

DELTAS: dict[str, Place] = {
    name: Place(*place)
    for name, place in (
        ("response.output_text.delta", _SPOKEN),
        ("response.refusal.delta", _REFUSED),
        ("response.reasoning_text.delta", _THOUGHT),
        ("response.reasoning.delta", _THOUGHT),
        ("response.reasoning_summary_text.delta", _SUMMED),
        ("response.reasoning_summary.delta", _SUMMED),
        ("response.function_call_arguments.delta", _ARGUMENTS),
        ("response.function_call.delta", _ARGUMENTS),
        ("response.function_call.name.delta", ("function_call", "name", "")),
        ("response.custom_tool_call_input.delta", _INPUT),
        ("response.mcp_call_arguments.delta", _MCP),
        ("response.mcp_call.arguments_delta", _MCP),
        ("response.code_interpreter_call_code.delta", _CODE),
        ("response.code_interpreter_call.code.delta", _CODE),
        ("response.apply_patch_call_operation_diff.delta", _DIFF),
        ("response.shell_call_command.delta", _COMMAND),
    )
}
"""The events that bring a piece of a text."""

TEXTS_DONE: dict[str, Place] = {
    name: Place(*place, field)
    for name, place, field in (
        ("response.output_text.done", _SPOKEN, "text"),
        ("response.refusal.done", _REFUSED, "refusal"),
        ("response.reasoning_text.done", _THOUGHT, "text"),
        ("response.reasoning.done", _THOUGHT, "text"),
        ("response.reasoning_summary_text.done", _SUMMED, "text"),
        ("response.reasoning_summary.done", _SUMMED, "text"),
        ("response.function_call_arguments.done", _ARGUMENTS, "arguments"),
        ("response.function_call.done", _ARGUMENTS, "arguments"),
        ("response.custom_tool_call_input.done", _INPUT, "input"),
        ("response.mcp_call_arguments.done", _MCP, "arguments"),
        ("response.mcp_call.arguments_done", _MCP, "arguments"),
        ("response.code_interpreter_call_code.done", _CODE, "code"),
        ("response.code_interpreter_call.code.done", _CODE, "code"),
        ("response.apply_patch_call_operation_diff.done", _DIFF, "diff"),
        ("response.shell_call_command.done", _COMMAND, "command"),
    )
}
"""The events that bring the whole of a text."""


def read_event(data: str | bytes) -> dict[str, Any] | None:
    """The event in the data of a frame, also where its last brackets are missing; None where it cannot be read."""
    try:
        value = loads(data)
    except ValueError:
        try:
            text = data.decode() if isinstance(data, bytes) else data
            value = loads(close_brackets(text))
        except ValueError:
            return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def text_index(event: dict[str, Any], place: Place) -> int:
    """Which of the item's texts of that kind the event is about; 0 where it does not say."""
    return as_place(event.get(place.index)) if place.index else 0


def text_of(event: dict[str, Any], place: Place) -> str:
    """The text that the event brings; arguments that are JSON instead of text are written as such."""
    value = event.get(place.field)
    if isinstance(value, str):
        return value
    return dumps(value) if isinstance(value, dict | list) else ""


def tool_event(name: str) -> str | None:
    """The type of the items whose calls an event like `response.web_search_call.searching` is about (S15)."""
    parts = name.split(".")
    if len(parts) == 3 and parts[0] == "response" and parts[1].endswith("_call"):
        return parts[1]
    return None

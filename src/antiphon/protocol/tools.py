"""Tools and tool choices (responses-api 4).

Function and custom tools are structs; any other type is kept whole as a dict, stored and echoed without loss. The tools
inside a namespace are checked where they come in, and read by whoever needs them.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.errors import InvalidRequestError
from antiphon.protocol.depth import check_value, too_deep
from antiphon.protocol.json import encode, field_error, quoted

__all__ = [
    "MAX_TOOLS",
    "AllowedTools",
    "CustomTool",
    "FunctionChoice",
    "FunctionTool",
    "NamedToolChoice",
    "Tool",
    "ToolChoice",
    "decode_tool",
    "decode_tool_choice",
    "decode_tools",
    "inner_tools",
]

MAX_TOOL_NAME = 128
MAX_TOOLS = 1_024
"""The most tools of a request, of an item or of a namespace."""


class FunctionTool(Struct, tag="function"):
    """A function of the client's; `parameters` is its JSON Schema."""

    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None
    defer_loading: bool | None | UnsetType = UNSET
    allowed_callers: list[str] | None | UnsetType = UNSET
    output_schema: dict[str, Any] | None | UnsetType = UNSET
    async_: bool | None | UnsetType = msgspec.field(default=UNSET, name="async")


class CustomTool(Struct, tag="custom"):
    """A tool of the client's that takes free text, or text of a grammar."""

    name: str
    description: str | None = None
    format: dict[str, Any] | None | UnsetType = UNSET
    defer_loading: bool | None | UnsetType = UNSET
    async_: bool | None | UnsetType = msgspec.field(default=UNSET, name="async")


Tool = FunctionTool | CustomTool | dict[str, Any]
"""A tool of a request; a dict is a type that this server does not run."""


class FunctionChoice(Struct, tag="function"):
    """The choice of one function; of a namespace where one is named."""

    name: str
    namespace: str | None | UnsetType = UNSET


class AllowedTools(Struct, tag="allowed_tools"):
    """A limit on the tools that may be called; `mode` is auto or required."""

    mode: str
    tools: list[dict[str, Any]]


class NamedToolChoice(Struct):
    """Any other choice object: custom, mcp, or the type of a hosted tool; `body` is the whole of it."""

    type: str
    name: str | None
    body: dict[str, Any]


ToolChoice = str | FunctionChoice | AllowedTools | NamedToolChoice
"""none, auto, required, or an object."""

_MODES = ("none", "auto", "required")


class _Head(Struct):
    type: str


_head = msgspec.json.Decoder(_Head)
_function = msgspec.json.Decoder(FunctionTool)
_custom = msgspec.json.Decoder(CustomTool)
_raw = msgspec.json.Decoder(dict[str, Any])


class _NestedFunction(Struct):
    name: str


class _FunctionChoiceObject(Struct):
    name: str | None = None
    function: _NestedFunction | None = None
    namespace: str | None | UnsetType = UNSET


_allowed = msgspec.json.Decoder(AllowedTools)
_function_choice = msgspec.json.Decoder(_FunctionChoiceObject)


def decode_tool(raw: Raw, path: str) -> Tool:
    """One tool of a request.

    Raises:
        InvalidRequestError: the type is missing, or a field has a wrong type or an empty or over-long name.
    """
    try:
        kind = _head.decode(raw).type
        tool: Tool
        if kind == "function":
            tool = _function.decode(raw)
        elif kind == "custom":
            tool = _custom.decode(raw)
        else:
            body = _raw.decode(raw)
            check_value(body, path)
            if kind == "namespace":
                _check_name(body.get("name"), path)
                inner_tools(body, path)
            return body
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
    except RecursionError:
        raise too_deep(path) from None
    if isinstance(tool, FunctionTool):
        check_value(tool.parameters, f"{path}.parameters")
        check_value(tool.output_schema, f"{path}.output_schema")
    else:
        check_value(tool.format, f"{path}.format")
    _check_name(tool.name, path)
    return tool


def decode_tools(values: Any, path: str) -> list[Tool]:
    """The tools of a value that an item or a namespace holds; at most as many as a request may have.

    Raises:
        InvalidRequestError: it is no list of tools, there are too many, or one is malformed.
    """
    if not isinstance(values, list):
        raise InvalidRequestError(f"Invalid '{path}': an array of tools is expected.", param=path, code="invalid_value")
    given = cast("list[Any]", values)
    if len(given) > MAX_TOOLS:
        raise InvalidRequestError(
            f"Invalid '{path}': at most {MAX_TOOLS} tools are expected, but got {len(given)}.",
            param=path,
            code="array_above_max_length",
        )
    return [decode_tool(Raw(encode(value)), f"{path}[{index}]") for index, value in enumerate(given)]


def inner_tools(namespace: dict[str, Any], path: str = "tools") -> list[FunctionTool | CustomTool]:
    """The function and custom tools of a namespace; those of other types are left out.

    Raises:
        InvalidRequestError: `tools` is no list of tools, or one is malformed.
    """
    tools = decode_tools(namespace.get("tools") or [], f"{path}.tools")
    return [tool for tool in tools if not isinstance(tool, dict)]


def _check_name(name: Any, path: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_TOOL_NAME:
        raise InvalidRequestError(
            f"Invalid '{path}.name': a name of 1 to {MAX_TOOL_NAME} characters is expected.",
            param=f"{path}.name",
            code="invalid_value",
        )


def decode_tool_choice(raw: Raw) -> ToolChoice:
    """The tool choice of a request; absent means `auto`. The nested chat form of a function is taken as the flat one.

    Raises:
        InvalidRequestError: an unknown mode, or an object of the wrong shape.
    """
    data = bytes(raw)
    if data == b"null":
        return "auto"
    path = "tool_choice"
    try:
        if data.startswith(b'"'):
            mode = msgspec.json.decode(raw, type=str)
            if mode not in _MODES:
                raise InvalidRequestError(
                    f"Invalid value: '{quoted(mode)}'. Supported values are: 'none', 'auto', and 'required'.",
                    param=path,
                    code="invalid_value",
                )
            return mode
        kind = _head.decode(raw).type
        if kind == "function":
            return _named_function(raw)
        if kind == "allowed_tools":
            return _allowed_tools(raw)
        body = _raw.decode(raw)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
    except RecursionError:
        raise too_deep(path) from None
    check_value(body, path)
    name = body.get("name")
    return NamedToolChoice(type=kind, name=name if isinstance(name, str) else None, body=body)


def _named_function(raw: Raw) -> FunctionChoice:
    choice = _function_choice.decode(raw)
    name = choice.name if choice.name is not None else choice.function and choice.function.name
    if not name:
        raise InvalidRequestError(
            "Missing required parameter: 'tool_choice.name'.",
            param="tool_choice.name",
            code="missing_required_parameter",
        )
    return FunctionChoice(name, choice.namespace or UNSET)


def _allowed_tools(raw: Raw) -> AllowedTools:
    choice = _allowed.decode(raw)
    if choice.mode not in ("auto", "required"):
        raise InvalidRequestError(
            f"Invalid value: '{quoted(choice.mode)}'. Supported values are: 'auto' and 'required'.",
            param="tool_choice.mode",
            code="invalid_value",
        )
    if not choice.tools:
        raise InvalidRequestError(
            "Invalid 'tool_choice.tools': at least one tool is expected.",
            param="tool_choice.tools",
            code="invalid_value",
        )
    check_value(choice.tools, "tool_choice.tools")
    return choice


def encode_choice(choice: ToolChoice) -> Any:
    """The choice as it is echoed: flat, and without loss."""
    return choice.body if isinstance(choice, NamedToolChoice) else choice

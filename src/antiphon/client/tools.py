"""Tools for a request, from whatever names one: a function, a type, a JSON Schema, a mapping of either API."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, cast, get_type_hints

import msgspec
from msgspec import UNSET

from antiphon.client.context import Tool
from antiphon.client.errors import DriverError
from antiphon.client.typed import can_close, close, describes_type, empty, schema_of

__all__ = ["as_tool", "encode_tools", "function_tool", "tool_name"]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SECTION: Final = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ARGUMENT: Final = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s+(.+)$")
_FIELD: Final = re.compile(r"^:param\s+(?:\w+\s+)?(\w+):\s*(.+)$")
_HEADING: Final = re.compile(r"^[A-Z]\w+:\s*$")
_RESEARCH: Final = ("web_search", "mcp", "file_search")
_OF_A_FUNCTION: Final = frozenset({"type", "function", "name", "description", "parameters", "strict"})


def encode_tools(tools: Sequence[Any] | None, *, research: bool = False) -> list[dict[str, Any]]:
    """The `tools` of a request (E12, E13); a model that does research gets a search where it has none (E14).

    Raises:
        DriverError: one of them is no tool.
    """
    encoded = [_encode(tool) for tool in tools or ()]
    if research and not any(str(tool.get("type")).startswith(_RESEARCH) for tool in encoded):
        return [{"type": "web_search"}, *encoded]
    return encoded


def as_tool(source: Any) -> Tool:
    """The function that this names, as a `Tool`: a Python function, a type, a JSON Schema or a mapping.

    Raises:
        DriverError: it is none, or one that a model cannot be offered.
    """
    if isinstance(source, Tool):
        return source
    if isinstance(source, Mapping):
        return _of_mapping(cast("Mapping[str, Any]", source))[0]
    if describes_type(source):
        schema = schema_of(source)
        name = str(getattr(source, "__name__", "") or schema.get("title", ""))
        return Tool(_checked(name), _described(schema), _bare(schema))
    if callable(source):
        return function_tool(cast("Callable[..., Any]", source))
    raise DriverError(f"{type(source).__name__} is not a tool: give a function, a type, a Tool or a mapping.")


def function_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
) -> Tool:
    """The tool of a Python function: its signature is the schema, its docstring says what it does and takes.

    Sections `Args:` and lines of `:param name:` describe parameters, and so does `Annotated` with `msgspec.Meta`.

    Raises:
        DriverError: it has no name, takes any number of arguments, or a parameter has no JSON Schema.
    """
    named = _checked(name or str(getattr(function, "__name__", "")))
    said, parameters = _documented(function)
    schema = _signature(function, named, parameters)
    return Tool(named, description or said, schema, strict=strict, function=function)


def tool_name(source: Any) -> str | None:
    """The name of what may be a tool; None where it is none."""
    if isinstance(source, Tool):
        return source.name
    if describes_type(source) or callable(source):
        return as_tool(source).name
    return None


def _encode(source: Any) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if isinstance(source, Mapping):
        mapping = cast("Mapping[str, Any]", source)
        if _is_hosted(mapping):
            return dict(mapping)
        tool, extra = _of_mapping(mapping)
    else:
        tool = as_tool(source)
    strict = tool.strict
    if strict is None:
        strict = tool.parameters is None or can_close(tool.parameters)
    encoded: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description is not None:
        encoded["description"] = tool.description
    if not tool.parameters:
        encoded["parameters"] = empty(strict=strict)
    else:
        encoded["parameters"] = close(tool.parameters) if strict else tool.parameters
    encoded["strict"] = strict
    if tool.defer_loading:
        encoded["defer_loading"] = True
    return encoded | extra


def _is_hosted(tool: Mapping[str, Any]) -> bool:
    """Whether a mapping is not a function: it goes as it is, of whatever type (E13)."""
    return "function" not in tool and tool.get("type", "function") not in ("function", "object")


def _of_mapping(mapping: Mapping[str, Any]) -> tuple[Tool, dict[str, Any]]:
    """The function of a mapping, flat, nested (#247) or a JSON Schema with a title; and what else it says of it."""
    if mapping.get("type") == "object":
        name = _checked(str(mapping.get("title", "")))
        return Tool(name, _described(mapping), _bare(mapping)), {}
    nested = mapping.get("function")
    flat = {**mapping, **cast("Mapping[str, Any]", nested)} if isinstance(nested, Mapping) else mapping
    parameters, strict = flat.get("parameters"), flat.get("strict")
    if parameters is not None and not isinstance(parameters, Mapping):
        parameters = schema_of(parameters)
    tool = Tool(
        _checked(str(flat.get("name", ""))),
        cast("str | None", flat.get("description")),
        dict(cast("Mapping[str, Any]", parameters)) if parameters is not None else None,
        strict=strict if isinstance(strict, bool) else None,
    )
    return tool, {key: value for key, value in flat.items() if key not in _OF_A_FUNCTION and value is not None}


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DriverError(f"A tool's name has letters, digits, '_' and '-' only, and '{name}' does not.")
    return name


def _described(schema: Mapping[str, Any]) -> str | None:
    description = schema.get("description")
    return description if isinstance(description, str) else None


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def _signature(function: Callable[..., Any], name: str, described: Mapping[str, str]) -> dict[str, Any] | None:
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise DriverError(f"The signature of '{name}' cannot be read: {error}") from None
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise DriverError(f"'{name}' cannot be a tool: a model gives every argument by its name.")
        kind = hints.get(parameter.name, Any)
        if parameter.name in described:
            kind = Annotated[kind, msgspec.Meta(description=described[parameter.name])]
        if parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, _default(parameter.default)))
    if not fields:
        return None
    return _bare(schema_of(msgspec.defstruct(name.replace("-", "_"), fields, kw_only=True)))


def _default(value: Any) -> Any:
    """A default as a field of a struct takes it; one that is not JSON is only known to be there."""
    try:
        plain: Any = msgspec.to_builtins(value)
    except TypeError:
        return UNSET
    if not isinstance(plain, list | dict):
        return plain
    held = cast("Any", plain)
    return msgspec.field(default_factory=lambda: held)


def _documented(function: Callable[..., Any]) -> tuple[str | None, dict[str, str]]:
    """What a docstring says of a function, and of each of its parameters."""
    lines = (inspect.getdoc(function) or "").splitlines()
    said: list[str] = []
    parameters: dict[str, str] = {}
    current = ""
    within = False
    ended = False
    for line in lines:
        field = _FIELD.match(line)
        if field or _HEADING.match(line):
            ended = True
            within = bool(_SECTION.match(line))
            current = field.group(1) if field else ""
            if field:
                parameters[current] = field.group(2).strip()
        elif within and (argument := _ARGUMENT.match(line)):
            current = argument.group(1)
            parameters[current] = argument.group(2).strip()
        elif within and current and line.strip():
            parameters[current] += " " + line.strip()
        elif not ended:
            said.append(line)
    return "\n".join(said).strip() or None, parameters

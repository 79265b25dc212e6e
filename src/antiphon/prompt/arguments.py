"""The arguments of a tool as grammars need them: one schema for JSON, or parameter by parameter. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct

from antiphon.errors import InvalidRequestError
from antiphon.prompt.lark import Lark
from antiphon.prompt.schema import Expressed, Schema, express
from antiphon.protocol.json import quoted
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = [
    "CUSTOM_INPUT",
    "NO_ARGUMENTS",
    "Parameter",
    "bare_input",
    "custom_format",
    "express_arguments",
    "parameters_of",
]

CUSTOM_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters under which a custom tool is shown to a model that knows functions only."""

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
"""The parameters of a function that declares none."""


class Parameter(Struct, frozen=True):
    """One parameter; `schema` holds all the definitions that it refers to, and its own type is not behind a `$ref`."""

    name: str
    schema: dict[str, Any]
    required: bool


def custom_format(tool: CustomTool) -> tuple[str, str]:
    """The syntax of a custom tool's input (`text`, `lark` or `regex`) and its definition."""
    form = tool.format
    if form is UNSET or not form or form.get("type") != "grammar":
        return "text", ""
    # Chat completions put the two under another `grammar`.
    inner: Mapping[str, Any] = form.get("grammar") or form
    return str(inner.get("syntax")), str(inner.get("definition"))


def bare_input(tool: CustomTool) -> str:
    """The body of a rule for a custom tool's input where it stands as it is, in no JSON string.

    A grammar may take in whatever follows the input, as long as it matches; so nothing should have to.
    """
    syntax, definition = custom_format(tool)
    if syntax == "lark":
        return Lark.nested(definition)
    return Lark.regex(definition if syntax == "regex" else "(?s:.*)")


def express_arguments(tool: FunctionTool | CustomTool, path: str = "tools") -> Expressed:
    """The expressible part of a tool's parameters; its root is an object and no reference.

    Raises:
        InvalidRequestError: the parameters are too large (M12), or are not an object.
    """
    if isinstance(tool, CustomTool):
        syntax, definition = custom_format(tool)
        if syntax != "regex":
            return Expressed(CUSTOM_INPUT, complete=True)
        text = {"type": "string", "pattern": f"^(?:{definition})$"}
        return Expressed({**CUSTOM_INPUT, "properties": {"input": text}}, complete=True)
    given = tool.parameters or NO_ARGUMENTS
    kinds: Any = given.get("type", "object")
    if "object" not in (cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]):
        raise InvalidRequestError(
            f"Invalid schema for function '{quoted(tool.name)}': an object is expected, but its type is {kinds!r:.50}.",
            param=path,
            code="invalid_function_parameters",
        )
    made = express({"type": "object"} | given | {"type": "object"}, path)
    defs: Schema = made.schema.get("$defs", {})
    root = _resolved(made.schema, defs)
    if root.get("type") != "object":
        root = {"type": "object", **root}
    return msgspec.structs.replace(made, schema={**root, "$defs": defs} if defs else root)


def parameters_of(schema: Mapping[str, Any]) -> list[Parameter]:
    """The parameters of an expressed schema, in its order, also those that only some of its alternatives have."""
    defs: Schema = schema.get("$defs", {})
    properties, required = _gathered(dict(schema), defs, ())
    return [
        Parameter(name, _self_contained(part, defs), name in required)
        for name, part in properties.items()
        if part is not False
    ]


def _gathered(node: Schema, defs: Schema, seen: tuple[str, ...]) -> tuple[Schema, set[str]]:
    properties: Schema = dict(node.get("properties") or {})
    required: set[str] = set(node.get("required") or ())
    reference = node.get("$ref")
    if reference is not None and reference not in seen:
        seen = (*seen, reference)
        _add(properties, required, _gathered(_target(reference, defs), defs, seen), "allOf")
    for part in _dicts(node.get("allOf")):
        _add(properties, required, _gathered(part, defs, seen), "allOf")
    branches = [_gathered(part, defs, seen) for part in _dicts(node.get("anyOf"))]
    if branches:
        any_of: Schema = {}
        for found, _ in branches:
            _add(any_of, set(), (found, set()), "anyOf")
        _add(properties, required, (any_of, set[str].intersection(*(names for _, names in branches))), "allOf")
    return properties, required


def _add(properties: Schema, required: set[str], more: tuple[Schema, set[str]], how: str) -> None:
    for name, part in more[0].items():
        known = properties.get(name)
        properties[name] = part if known is None or known == part else {how: [known, part]}
    required |= more[1]


def _dicts(parts: Any) -> Iterable[Schema]:
    return [cast("Schema", part) for part in cast("list[Any]", parts or []) if isinstance(part, dict)]


def _target(reference: str, defs: Schema) -> Schema:
    found = defs.get(reference.removeprefix("#/$defs/"))
    return cast("Schema", found) if isinstance(found, dict) else {}


def _resolved(node: Schema, defs: Schema) -> Schema:
    """The node without its definitions, and what it refers to where it is nothing but a reference."""
    body = {key: value for key, value in node.items() if key != "$defs"}
    if body.keys() - {"type"} == {"$ref"}:
        return _resolved(_target(body["$ref"], defs), defs)
    return body


def _self_contained(part: Any, defs: Schema) -> Schema:
    node = _resolved(cast("Schema", part), defs) if isinstance(part, dict) else {}
    needed: Schema = {}
    waiting = [*_references(node)]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = defs.get(name, True)
            waiting += _references(needed[name])
    return {**node, "$defs": needed} if needed else node


def _references(node: Any) -> list[str]:
    found: list[str] = []
    waiting: list[Any] = [node]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            members = cast("Schema", value)
            if isinstance(members.get("$ref"), str):
                found.append(members["$ref"].removeprefix("#/$defs/"))
            waiting += members.values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
    return found

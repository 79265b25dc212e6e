"""Grammars of calls in Python's form, `NAME(KEY=VALUE, …)`, with values of their schemas. Pure.

A value is written as Python writes it as far as the schema is plain; within what is not, JSON's names of constants
stand for Python's, and a whole call whose parameters are not plain is `NAME(**{…})`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from antiphon.prompt.dialects.base import tool_schema
from antiphon.prompt.dialects.kinds import type_of
from antiphon.prompt.lark import Lark
from antiphon.protocol.json import encode
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["PLAIN_KEY", "arguments_body", "python_text"]

Schema = Mapping[str, Any]

PLAIN_KEY: Final = re.compile(r"[^\s=,()\[\]{}'\"*]+")
"""A key that can stand before an equals sign."""

_BETWEEN: Final = Lark.literal(", ")
_REMARKS: Final = frozenset({"$defs", "title", "description", "default", "examples"})
_OF_OBJECT: Final = frozenset({"type", "properties", "required", "additionalProperties"}) | _REMARKS
_OF_ARRAY: Final = frozenset({"type", "items", "minItems", "maxItems"}) | _REMARKS
_CONSTANTS: Final = {"boolean": '("True" | "False")', "null": '"None"'}
_BINDS_ALL: Final = frozenset({"enum", "const", "anyOf", "allOf", "oneOf", "not", "$ref"})
"""Keywords that also bind values of these types."""

_MOST_DEPTH: Final = 8


def arguments_body(tool: FunctionTool | CustomTool, place: int, lark: Lark) -> str:
    """The body for what stands between the brackets of a call, empty where nothing can; `place` is that of the tool.

    Raises:
        InvalidRequestError: the parameters are too large (M12), or are not an object.
    """
    schema = tool_schema(tool)
    properties = _plain_properties(schema)
    if properties is None or not all(PLAIN_KEY.fullmatch(key) for key in properties):
        return f"{lark.literal('**')} {lark.rule(f'arguments{place}', lark.json(schema))}"
    members = _Members(lark, f"argument{place}", schema, 0)
    return members.body(properties, [lark.literal(f"{key}=") for key in properties])


def python_text(value: Any) -> str:
    """A JSON value as Python's literal; strings stand in double quotes."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(python_text(part) for part in cast("list[Any]", value)) + "]"
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return "{" + ", ".join(f"{encode(key).decode()}: {python_text(part)}" for key, part in members) + "}"
    return encode(value).decode()


class _Members:
    """The rules for members of one object in their order, those that are not required left out or not."""

    def __init__(self, lark: Lark, name: str, schema: Schema, depth: int) -> None:
        self._lark = lark
        self._name = name
        self._defs: Schema = schema.get("$defs", {})
        self._required: Sequence[str] = schema.get("required", ())
        self._depth = depth

    def body(self, properties: Schema, heads: Sequence[str]) -> str:
        """The body for the members; `heads` are the bodies for what stands before each value."""
        first = more = ""
        for place, (key, part) in reversed(list(enumerate(properties.items()))):
            rule = f"{self._name}_{place}"
            value = _Value(self._lark, f"{rule}_value", self._defs, self._depth + 1).body(part)
            member = self._lark.rule(rule, f"{heads[place]} {value}")
            begun = f"{member} {more}".rstrip()
            if key in self._required:
                first = self._lark.rule(f"{rule}_first", begun)
                more = self._lark.rule(f"{rule}_more", f"{_BETWEEN} {begun}")
            else:
                alternatives = f"{begun} | {first}" if first else begun
                first = self._lark.rule(f"{rule}_first", f"({alternatives}){'' if first else '?'}")
                more = self._lark.rule(f"{rule}_more", f"({_BETWEEN} {member})? {more}".rstrip())
        return first


class _Value:
    """The body for one value, and the rules that it needs."""

    def __init__(self, lark: Lark, name: str, defs: Schema, depth: int) -> None:
        self._lark = lark
        self._name = name
        self._defs = defs
        self._depth = depth

    def body(self, schema: Any) -> str:
        """The body for a value of this schema."""
        if not isinstance(schema, dict) or self._depth > _MOST_DEPTH:
            return self._json(schema)
        node = cast("dict[str, Any]", schema)
        self._defs = {**self._defs, **node.get("$defs", {})}
        if not _has_constants(node, _MOST_DEPTH):
            return self._json(node)
        keys = node.keys() - _REMARKS
        kind = node.get("type")
        if keys <= {"type", "enum"} and "enum" in node and _all_of(node["enum"], kind):
            return self._one_of(node["enum"])
        if keys == {"const"}:
            return self._one_of([node["const"]])
        if keys == {"anyOf"}:
            return self._any_of(node["anyOf"])
        if isinstance(kind, list):
            return self._any_of([{**node, "type": name} for name in cast("list[str]", kind)])
        if kind in _CONSTANTS and not keys & _BINDS_ALL:
            return _CONSTANTS[kind]
        if kind == "array" and keys <= _OF_ARRAY and "items" in node:
            return self._array(node)
        properties = _plain_properties(node) if kind == "object" else None
        return self._json(node) if properties is None else self._object(node, properties)

    def _json(self, schema: Any) -> str:
        node = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
        return self._lark.rule(self._name, self._lark.json({"$defs": self._defs, **node} if self._defs else node))

    def _one_of(self, values: Sequence[Any]) -> str:
        return Lark.any_of(Lark.literal(python_text(value)) for value in values)

    def _any_of(self, branches: Sequence[Any]) -> str:
        parts = [self._part(f"{place}", branch) for place, branch in enumerate(branches)]
        return Lark.any_of(parts)

    def _array(self, node: Schema) -> str:
        least, most = node.get("minItems", 0), node.get("maxItems")
        if most == 0:
            return '"[" "]"'
        item = self._lark.rule(f"{self._name}_item", self._part("item_value", node["items"]))
        more = self._lark.repeated(f"{_BETWEEN} {item}", least - 1, None if most is None else most - 1)
        row = f"{item} {more}".rstrip()
        return f'"[" {row if least else f"({row})?"} "]"'

    def _object(self, node: Schema, properties: Schema) -> str:
        members = _Members(self._lark, f"{self._name}_member", {**node, "$defs": self._defs}, self._depth)
        body = members.body(properties, [Lark.literal(f"{encode(key).decode()}: ") for key in properties])
        return f"{Lark.literal('{')} {body} {Lark.literal('}')}"

    def _part(self, name: str, schema: Any) -> str:
        return _Value(self._lark, f"{self._name}_{name}", self._defs, self._depth + 1).body(schema)


def _plain_properties(schema: Schema) -> Schema | None:
    """The properties of an object that has these and no others; None where it is not as plain."""
    if schema.keys() - _OF_OBJECT or schema.get("additionalProperties") is not False:
        return None
    properties = cast("dict[str, Any]", schema.get("properties", {}))
    required = cast("Sequence[str]", schema.get("required", ()))
    if any(name not in properties or properties[name] is False for name in required):
        return None
    return {name: part for name, part in properties.items() if part is not False}


def _all_of(values: Sequence[Any], kind: Any) -> bool:
    """Whether all values are of this type, or one of these types."""
    kinds = {"number" if name == "integer" else name for name in ([kind] if isinstance(kind, str) else kind or ())}
    return not kinds or all(type_of(value) in kinds for value in values)


def _has_constants(node: Any, depth: int) -> bool:
    """Whether a value may hold true, false or null, as far as its schema says without references."""
    if not isinstance(node, dict) or depth == 0:
        return False
    members = cast("dict[str, Any]", node)
    kind = members.get("type")
    if _CONSTANTS.keys() & set(cast("list[str]", kind) if isinstance(kind, list) else [kind]):
        return True
    values = [*members.get("enum", ()), *([members["const"]] if "const" in members else [])]
    if any(value is None or isinstance(value, bool) for value in values):
        return True
    parts: list[Any] = [members.get("items"), *members.get("anyOf", ()), *members.get("properties", {}).values()]
    return any(_has_constants(part, depth - 1) for part in parts)

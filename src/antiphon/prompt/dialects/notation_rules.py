"""Grammars of arguments in Gemma's notation. Pure.

Strings, objects and arrays of plain schemas stand in the notation; what is not as plain stands as JSON, which the
reader takes as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from antiphon.prompt.arguments import Parameter
from antiphon.prompt.dialects.kinds import Arguments, Kind
from antiphon.prompt.dialects.raw_text import raw_string
from antiphon.prompt.lark import Lark

__all__ = ["notation_object"]

_REMARKS: Final = frozenset({"$defs", "title", "description", "default", "examples"})
_OF_OBJECT: Final = frozenset({"type", "properties", "required", "additionalProperties"}) | _REMARKS
_OF_ARRAY: Final = frozenset({"type", "items", "minItems", "maxItems"}) | _REMARKS
_PLAIN_KEY = re.compile(r"[^\s:,{}\[\]\"<>|]+")
_MOST_DEPTH: Final = 8


def notation_object(lark: Lark, name: str, parameters: Sequence[Parameter], quote: str) -> str:
    """The name of the rule for an object of these members; those that are not required may be left out.

    Members stand in the order of their names, as the family's templates put those of past calls. `quote` is the mark
    around strings.
    """
    return _Notation(lark, quote).members(name, parameters, 0)


class _Notation:
    def __init__(self, lark: Lark, quote: str) -> None:
        self._lark = lark
        self._quote = quote

    def members(self, name: str, parameters: Sequence[Parameter], depth: int) -> str:
        lark = self._lark
        comma = lark.literal(",")
        first = more = ""
        ordered = sorted(enumerate(parameters), key=lambda found: found[1].name.lower(), reverse=True)
        for place, parameter in ordered:
            rule = f"{name}_{place}"
            value = self._value(f"{rule}_value", parameter.schema, depth + 1)
            key = parameter.name if _PLAIN_KEY.fullmatch(parameter.name) else lark.literal(parameter.name)
            member = lark.rule(rule, f"{lark.literal(key + ':')} {value}")
            begun = f"{member} {more}".rstrip()
            if parameter.required:
                first = lark.rule(f"{rule}_first", begun)
                more = lark.rule(f"{rule}_more", f"{comma} {begun}")
            else:
                first = lark.rule(f"{rule}_first", f"({begun} | {first})" if first else f"({begun})?")
                more = lark.rule(f"{rule}_more", f"({comma} {member})? {more}".rstrip())
        return lark.rule(name, f'"{{" {first} "}}"' if first else '"{}"')

    def _value(self, name: str, schema: Mapping[str, Any], depth: int) -> str:
        lark = self._lark
        kind = Arguments([Parameter(name, dict(schema), True)]).kind(name)
        if kind in (Kind.STRING, Kind.NULLABLE):
            opened = lark.marked(self._quote)
            text = raw_string(lark, f"{name}_text", schema, self._quote, self._quote)
            return f'({opened} {text} | "null")' if kind is Kind.NULLABLE else f"{opened} {text}"
        node = dict(schema)
        keys = node.keys() - _REMARKS
        if depth < _MOST_DEPTH and keys == {"anyOf"}:
            branches = cast("list[Any]", node["anyOf"])
            parts = [self._part(f"{name}_{place}", branch, node, depth) for place, branch in enumerate(branches)]
            return lark.any_of(parts)
        if depth < _MOST_DEPTH and isinstance(node.get("type"), list) and not keys & {"enum", "const"}:
            kinds = cast("list[str]", node["type"])
            return lark.any_of(
                self._value(f"{name}_{place}", {**node, "type": given}, depth + 1) for place, given in enumerate(kinds)
            )
        if depth < _MOST_DEPTH and node.get("type") == "array" and node.keys() <= _OF_ARRAY and "items" in node:
            return self._array(name, node, depth)
        if depth < _MOST_DEPTH and _is_plain_object(node):
            required = cast("Sequence[str]", node.get("required", ()))
            members = [
                Parameter(key, self._with_definitions(part, node), key in required)
                for key, part in cast("dict[str, Any]", node.get("properties", {})).items()
            ]
            return self.members(f"{name}_object", members, depth)
        return lark.rule(f"{name}_json", lark.json(schema))

    def _array(self, name: str, node: Mapping[str, Any], depth: int) -> str:
        least, most = node.get("minItems", 0), node.get("maxItems")
        if most == 0:
            return '"[]"'
        item = self._lark.rule(f"{name}_item", self._part(f"{name}_items", node["items"], node, depth))
        more = self._lark.repeated(f'"," {item}', least - 1, None if most is None else most - 1)
        row = f"{item} {more}".rstrip()
        return f'"[" {row} "]"' if least else f'"[" ({row})? "]"'

    def _part(self, name: str, part: Any, node: Mapping[str, Any], depth: int) -> str:
        return self._value(name, self._with_definitions(part, node), depth + 1)

    @staticmethod
    def _with_definitions(part: Any, node: Mapping[str, Any]) -> dict[str, Any]:
        schema = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        return {"$defs": node["$defs"], **schema} if "$defs" in node else schema


def _is_plain_object(node: Mapping[str, Any]) -> bool:
    """Whether it is an object of the properties that it names, all of which can be given, and no others."""
    if node.get("type") != "object" or node.keys() - _OF_OBJECT or node.get("additionalProperties") is not False:
        return False
    properties = cast("dict[str, Any]", node.get("properties", {}))
    required = cast("Sequence[str]", node.get("required", ()))
    return all(isinstance(part, dict) for part in properties.values()) and all(name in properties for name in required)

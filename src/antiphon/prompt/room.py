"""What a forced call may take where a turn has little room, so that it comes to an end within it. Pure.

A small model may write one word over and over, and is then cut in the midst of its call. A schema is narrowed here,
never widened: what is valid by the narrower one is valid by the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from antiphon.prompt.keywords import BOUNDS, IN_PLACE, Schema, meets_others, schemas_in

__all__ = ["LITTLE_ROOM", "most_calls", "narrowed"]

LITTLE_ROOM: Final = 1024
"""Tokens of a turn from which on nothing is narrowed."""

_TOKENS_A_CALL: Final = 192
_TOKENS_AROUND: Final = 48
"""Tokens of a call beside its open strings: its name, the names of its arguments, and what is short."""

_UNITS: Final = 5
_TOKENS: Final = 8
"""So many units of text for so many tokens."""

_TOKENS_AN_ITEM: Final = 64
_LEAST_UNITS: Final = 16
_LEAST_ITEMS: Final = 2
_MOST_INTEGER: Final = 10**15
_BOUND: Final = frozenset({"maxLength", "pattern", "format", "enum", "const", *IN_PLACE})
_ARRAY_BOUND: Final = frozenset({"maxItems", "enum", "const", *IN_PLACE})
_MAP_BOUND: Final = frozenset(
    {"properties", "patternProperties", "required", "maxProperties", "enum", "const", *IN_PLACE}
)


def most_calls(room: int | None, most: int) -> int:
    """The calls of one turn that so many tokens have room for, up to `most`; None stands for room enough."""
    return most if room is None or room >= LITTLE_ROOM else min(most, max(1, room // _TOKENS_A_CALL))


def narrowed(schema: Mapping[str, Any], room: int | None) -> Schema:
    """An expressed schema with an end for each string, array and map that has none, by the tokens of a call.

    The open strings share units of text, five for eight tokens: three small letters are one, and any other character
    with up to two of them before it. Words take fewer tokens than that, and numbers, capitals or abbreviations over and
    over no more, so that what has an end of its own is hardly ever cut, and what has none ends in time. Others may
    still meet the limit, and are then incomplete. Where schemas hold together for one value, what one of them allows
    may be less than another asks for: such a schema is left as it is.
    """
    given = dict(schema)
    nodes = list(_nodes(given))
    if room is None or room >= LITTLE_ROOM or any(meets_others(node) for node in nodes):
        return given
    strings = sum(_is_open(node, "string", _BOUND) for node in nodes)
    # A value of which nothing is said is one, however many definitions it takes to say how deep it may go.
    strings -= max(0, sum(name.startswith("any") for name in given.get("$defs", ())) - 1)
    units = (room - _TOKENS_AROUND) * _UNITS // _TOKENS // max(1, strings)
    return _narrow(given, units, max(_LEAST_ITEMS, room // _TOKENS_AN_ITEM))


def _nodes(root: Schema) -> Iterator[Schema]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [cast("Schema", part) for part in schemas_in(node) if isinstance(part, dict)]


def _is_open(node: Schema, kind: str, bounds: frozenset[str]) -> bool:
    kinds = node.get("type")
    return (kinds == kind or (isinstance(kinds, list) and kind in kinds)) and not bounds & node.keys()


def _narrow(node: Schema, units: int, items: int) -> Schema:
    """The schema, each open string of which may take so many units, and each open array so many items."""
    array, mapping = _is_open(node, "array", _ARRAY_BOUND), _is_open(node, "object", _MAP_BOUND)
    several = units // items if array or mapping else units
    made: Schema = {}
    for key, value in node.items():
        if key in ("properties", "patternProperties", "$defs"):
            parts = cast("Schema", value)
            made[key] = {name: _part(part, units, items) for name, part in parts.items()}
        elif key in ("anyOf", "prefixItems"):
            made[key] = [_part(part, units, items) for part in cast("list[Any]", value)]
        elif key in ("items", "additionalProperties"):
            made[key] = _part(value, several, items)
        else:
            made[key] = value
    if _is_open(node, "string", _BOUND):
        made |= _end_of_text(max(_LEAST_UNITS, units), node.get("minLength", 0))
    if array:
        made["maxItems"] = max(items, node.get("minItems", 0), len(node.get("prefixItems", ())))
    if mapping:
        made["maxProperties"] = max(items, node.get("minProperties", 0))
    if _is_open(node, "integer", frozenset({*BOUNDS, *_BOUND})):
        made |= {"minimum": -_MOST_INTEGER, "maximum": _MOST_INTEGER}
    return made


def _end_of_text(units: int, least: int) -> Schema:
    if least > units:
        return {"maxLength": least}
    # Whichever way a text is read there is one count of its units, so that a matcher needs no other than that.
    return {"pattern": rf"^(?:[a-z]{{3}}|[a-z]{{0,2}}[^a-z]){{0,{units}}}[a-z]{{0,2}}$"}


def _part(part: Any, units: int, items: int) -> Any:
    return _narrow(cast("Schema", part), units, items) if isinstance(part, dict) else part

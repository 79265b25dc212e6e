"""What a call or an object may take where a turn has little room, so that it comes to an end within it. Pure.

A small model may write one word over and over, and is then cut in the midst of its call. A schema is narrowed here,
never widened: what is valid by the narrower one is valid by the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.prompt.formats import FORMATS
from antiphon.prompt.keywords import BOUNDS, IN_PLACE, Schema, meets_others, schemas_in
from antiphon.prompt.pattern import PatternError, smallest_match

__all__ = ["LITTLE_ROOM", "ended", "leveled", "most_calls", "narrowed"]

LITTLE_ROOM: Final = 1024
"""Tokens of a turn from which on nothing is narrowed."""

_TOKENS_A_CALL: Final = 192
_TOKENS_AROUND: Final = 48
"""Tokens of an answer beside its open strings: the name of a call, the names of its arguments, and what is short."""

_UNITS: Final = 5
_TOKENS: Final = 8
"""So many units of text for so many tokens of a call."""

_TOKENS_AN_ITEM: Final = 64
_TOKENS_A_SHORT_ITEM: Final = 8
_TOKENS_A_MEMBER: Final = 24
_TOKENS_A_LEVEL: Final = 64
_LEAST_UNITS: Final = 16
_LEAST_ITEMS: Final = 2
_LEAST_LEVELS: Final = 2
_MOST_LEVELS: Final = 6
_MOST_DEFINITIONS: Final = 200
_LEVELS_OF_ANYTHING: Final = 2
_MOST_INTEGER: Final = 2**62
"""As far as llguidance counts."""

_MOST_NUMBER: Final = 1e17
_FRACTION: Final = 1e-9
_SMALL: Final = 1e-6
_MOST_STEP: Final = 100
"""A matcher of bounded multiples of more than that is large."""

_BOUND: Final = frozenset({"maxLength", "format", "enum", "const", *IN_PLACE})
_ARRAY_BOUND: Final = frozenset({"maxItems", "enum", "const", *IN_PLACE})
_MAP_BOUND: Final = frozenset({"properties", "required", "maxProperties", *_ARRAY_BOUND})
_NUMBER_BOUND: Final = frozenset({"enum", "const", *IN_PLACE})


def most_calls(room: int | None, most: int) -> int:
    """The calls of one turn that so many tokens have room for, up to `most`; None stands for room enough."""
    return most if room is None or room >= LITTLE_ROOM else min(most, max(1, room // _TOKENS_A_CALL))


def narrowed(schema: Mapping[str, Any], room: int | None) -> Schema:
    """An expressed schema of a call with an end for all that has none, by the tokens of the call.

    That are strings, arrays, maps, numbers, and schemas within themselves. The open strings share units of text, five
    for eight tokens: three small letters are one, and any other character with up to two of them before it. Words take
    fewer tokens than that, and numbers, capitals or abbreviations over and over no more, so that what has an end of its
    own is hardly ever cut, and what has none ends in time. Others may still meet the limit, and are then incomplete.
    Where schemas hold together for one value, what one of them allows may be less than another asks for: such a schema
    is left as it is.
    """
    given = dict(schema)
    nodes = list(_nodes(given))
    if room is None or room >= LITTLE_ROOM or any(meets_others(node) for node in nodes):
        return given
    strings = sum(_is_open(node, "string", _BOUND | {"pattern"}) for node in nodes)
    # A value of which nothing is said is one, however many definitions it takes to say how deep it may go.
    strings -= max(0, sum(name.startswith("any") for name in given.get("$defs", ())) - 1)
    units = (room - _TOKENS_AROUND) * _UNITS // _TOKENS // max(1, strings)
    items = max(_LEAST_ITEMS, room // _TOKENS_AN_ITEM)
    return _narrow(leveled(given, _levels(room)), _Ends(units, items, items, shared=True))


def ended(schema: Mapping[str, Any], room: int | None) -> Schema:
    """The same for the schema of an output format, in which long texts and lists are what is asked for.

    Each open string may take a unit for each token that there is, so that only what has no end of its own is cut.
    """
    given = dict(schema)
    if room is None or room >= LITTLE_ROOM or any(meets_others(node) for node in _nodes(given)):
        return given
    items = max(_LEAST_ITEMS, room // _TOKENS_A_SHORT_ITEM)
    members = max(_LEAST_ITEMS, room // _TOKENS_A_MEMBER)
    return _narrow(leveled(given, _levels(room)), _Ends(room - _TOKENS_AROUND, items, members, shared=False))


def leveled(schema: Schema, levels: int) -> Schema:
    """A schema whose definitions lead back to themselves so many times at most, where they need not at all.

    At the last of them, what would lead back is not allowed.
    """
    defs: Schema = schema.get("$defs", {})
    recursive = {name for name in defs if name in _reached(name, defs)}
    if not recursive or len(recursive) * (levels + 1) > _MOST_DEFINITIONS:
        return schema
    places = {name: place for place, name in enumerate(defs)}
    made: Schema = {}
    for name, node in defs.items():
        for level in range(levels + 1) if name in recursive else (0,):

            def renamed(target: str, name: str = name, level: int = level) -> str | None:
                if target not in recursive:
                    return target
                if name in recursive:
                    # Each way round leads back to a definition before, or to the same, at least once.
                    level += places[target] <= places[name]
                return f"{target}-{level}" if level <= levels else None

            made[f"{name}-{level}" if name in recursive else name] = _renamed(node, renamed)
    body = {key: value for key, value in schema.items() if key != "$defs"}
    first = _renamed(body, lambda target: f"{target}-0" if target in recursive else target)
    return {**first, "$defs": made}


def _reached(name: str, defs: Schema) -> set[str]:
    """The definitions that one leads to."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for node in _nodes(defs[waiting.pop()]):
            target = str(node.get("$ref", "")).removeprefix("#/$defs/")
            if target in defs and target not in found:
                found.add(target)
                waiting.append(target)
    return found


def _renamed(node: Any, renamed: Callable[[str], str | None]) -> Any:
    """An expressed schema with other names for what it refers to; False for a reference that gets none."""
    if not isinstance(node, dict):
        return node
    made: Schema = {}
    for key, value in cast("Schema", node).items():
        if key == "$ref":
            target = renamed(str(value).removeprefix("#/$defs/"))
            if target is None:
                return False
            made[key] = f"#/$defs/{target}"
        elif key in ("properties", "patternProperties"):
            made[key] = {name: _renamed(part, renamed) for name, part in cast("Schema", value).items()}
        elif key in ("anyOf", "prefixItems"):
            made[key] = [_renamed(part, renamed) for part in cast("list[Any]", value)]
        else:
            made[key] = _renamed(value, renamed) if key in ("items", "additionalProperties") else value
    return made


class _Ends(Struct, frozen=True):
    """What each open string, array or map may take; `shared` says that the items share it."""

    units: int
    items: int
    members: int
    shared: bool


def _levels(room: int) -> int:
    return min(_MOST_LEVELS, max(_LEAST_LEVELS, room // _TOKENS_A_LEVEL))


def _nodes(root: Any) -> Iterator[Schema]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield cast("Schema", node)
            waiting += schemas_in(cast("Schema", node))


def _is_open(node: Schema, kind: str, bounds: frozenset[str]) -> bool:
    kinds = node.get("type")
    return (kinds == kind or (isinstance(kinds, list) and kind in kinds)) and not bounds & node.keys()


def _narrow(node: Schema, ends: _Ends) -> Schema:
    array, mapping = _is_open(node, "array", _ARRAY_BOUND), _is_open(node, "object", _MAP_BOUND)
    each = ends
    if ends.shared and (array or mapping):
        each = replace(ends, units=ends.units // ends.items)
    made: Schema = {}
    for key, value in node.items():
        if key in ("properties", "patternProperties", "$defs"):
            made[key] = {name: _part(part, ends) for name, part in cast("Schema", value).items()}
        elif key in ("anyOf", "prefixItems"):
            made[key] = [_part(part, ends) for part in cast("list[Any]", value)]
        elif key in ("items", "additionalProperties"):
            made[key] = _part(value, each)
        elif key == "$ref" and str(value).startswith("#/$defs/any"):
            levels = int(str(value).removeprefix("#/$defs/any"))
            made[key] = f"#/$defs/any{min(levels, _LEVELS_OF_ANYTHING)}"
        else:
            made[key] = value
    if _is_open(node, "string", _BOUND):
        made |= _end_of_text(node, max(_LEAST_UNITS, ends.units))
    if array:
        made["maxItems"] = max(ends.items, node.get("minItems", 0), len(node.get("prefixItems", ())))
    if mapping:
        made["maxProperties"] = max(ends.members, node.get("minProperties", 0))
    return made | _end_of_number(node)


def _end_of_text(node: Schema, units: int) -> Schema:
    least, pattern = node.get("minLength", 0), node.get("pattern")
    if pattern is None:
        # Whichever way a text is read there is one count of its units, so that a matcher needs no other than that.
        end = {"pattern": rf"^(?:[a-z]{{3}}|[a-z]{{0,2}}[^a-z]){{0,{units}}}[a-z]{{0,2}}$"}
        return end if least < _LEAST_UNITS else {"maxLength": max(least, units)}
    if least or pattern in FORMATS.values():
        return {}
    try:
        return {"maxLength": units} if len(smallest_match(pattern)) <= units else {}
    except PatternError:
        return {}


def _end_of_number(node: Schema) -> Schema:
    """Bounds for a number where it has none, and an end for its fraction."""
    made: Schema = {}
    whole = _is_open(node, "integer", _NUMBER_BOUND)
    counted = node.get("multipleOf", 0) <= _MOST_STEP
    if counted and (whole or _is_open(node, "number", _NUMBER_BOUND)):
        most = _MOST_INTEGER if whole else _MOST_NUMBER
        if not {"minimum", "exclusiveMinimum"} & node.keys():
            made["minimum"] = -most
        if not {"maximum", "exclusiveMaximum"} & node.keys():
            made["maximum"] = most
        if (
            not whole
            and "multipleOf" not in node
            and not any(0 < abs(node[key]) < _SMALL for key in BOUNDS if key in node)
        ):
            made["multipleOf"] = _FRACTION
    return made


def _part(part: Any, ends: _Ends) -> Any:
    return _narrow(cast("Schema", part), ends) if isinstance(part, dict) else part

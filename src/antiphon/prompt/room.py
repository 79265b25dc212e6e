"""What a forced call may take where a turn has little room, so that it comes to an end within it. Pure.

A small model may write one word over and over, and is then cut in the midst of its call. A schema is narrowed here,
never widened: what is valid by the narrower one is valid by the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from antiphon.prompt.keywords import IN_PLACE, Schema, meets_others, schemas_in

__all__ = ["LITTLE_ROOM", "most_calls", "narrowed"]

LITTLE_ROOM: Final = 1024
"""Tokens of a turn from which on nothing is narrowed."""

_TOKENS_A_CALL: Final = 128
_CHARACTERS_A_TOKEN: Final = 2
_TOKENS_AN_ITEM: Final = 64
_LEAST_LENGTH: Final = 64
_LEAST_ITEMS: Final = 2
_BOUND: Final = frozenset({"maxLength", "pattern", "format", "enum", "const", *IN_PLACE})


def most_calls(room: int | None, most: int) -> int:
    """The calls of one turn that so many tokens have room for, up to `most`; None stands for room enough."""
    return most if room is None or room >= LITTLE_ROOM else min(most, max(1, room // _TOKENS_A_CALL))


def narrowed(schema: Mapping[str, Any], room: int | None) -> Schema:
    """An expressed schema with an end for each string and array that has none, by the tokens of a call.

    The open strings share two characters a token: less than words take, so that what has an end of its own is hardly
    ever cut, and one that repeats a word ends in time. Others may still meet the limit, and are then incomplete.
    Where schemas hold together for one value, what one of them allows may be less than another asks for: such a schema
    is left as it is.
    """
    given = dict(schema)
    nodes = list(_nodes(given))
    if room is None or room >= LITTLE_ROOM or any(meets_others(node) for node in nodes):
        return given
    strings = sum(_is_open(node, "string", _BOUND) for node in nodes)
    return _narrow(
        given,
        max(_LEAST_LENGTH, room * _CHARACTERS_A_TOKEN // max(1, strings)),
        max(_LEAST_ITEMS, room // _TOKENS_AN_ITEM),
    )


def _nodes(root: Schema) -> Iterator[Schema]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [cast("Schema", part) for part in schemas_in(node) if isinstance(part, dict)]


def _is_open(node: Schema, kind: str, bounds: frozenset[str]) -> bool:
    kinds = node.get("type")
    return (kinds == kind or (isinstance(kinds, list) and kind in kinds)) and not bounds & node.keys()


def _narrow(node: Schema, length: int, items: int) -> Schema:
    made: Schema = {}
    for key, value in node.items():
        if key in ("properties", "patternProperties", "$defs"):
            parts = cast("Schema", value)
            made[key] = {name: _part(part, length, items) for name, part in parts.items()}
        elif key in ("anyOf", "prefixItems"):
            made[key] = [_part(part, length, items) for part in cast("list[Any]", value)]
        elif key in ("items", "additionalProperties"):
            made[key] = _part(value, length, items)
        else:
            made[key] = value
    if _is_open(node, "string", _BOUND):
        made["maxLength"] = max(length, node.get("minLength", 0))
    if _is_open(node, "array", _BOUND - {"maxLength", "pattern", "format"} | {"maxItems"}):
        made["maxItems"] = max(items, node.get("minItems", 0), len(node.get("prefixItems", ())))
    return made


def _part(part: Any, length: int, items: int) -> Any:
    return _narrow(cast("Schema", part), length, items) if isinstance(part, dict) else part

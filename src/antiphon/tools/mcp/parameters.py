"""The parameters of a server's tool as a model is told of them: a schema that is sound and can be met, whatever it was.

Engines bind a model to the schemas of its tools, and refuse a turn with one that they cannot read or that nothing can
meet. What a server says must not have that power: here only what is plain of a schema is kept, which lets more through
than the whole of it. The server holds the arguments against its own schema in any case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, cast

__all__ = ["parameters_of"]

MOST_NODES: Final = 4_000
MOST_DEPTH: Final = 24
"""Schemas within schemas; what is deeper may be anything. References are replaced by what they lead to."""

MOST_ITEMS: Final = 1_000
_WORDS: Final = ("title", "description")
_TYPES: Final = frozenset({"string", "boolean", "integer", "number", "null", "object", "array"})
_FORMATS: Final = frozenset({"date", "date-time", "time", "email", "uri", "uuid"})

Schema = dict[str, Any]


def parameters_of(schema: Mapping[str, Any]) -> Schema:
    """The schema of an object that any engine takes; every object that meets the given one meets it too."""
    made = _Plain(schema).of(schema, 0)
    if made.get("type") != "object":
        made = {name: made[name] for name in _WORDS if name in made}
    return {"type": "object", "properties": {}, **made}


class _Plain:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def of(self, node: Any, depth: int) -> Schema:
        """What is plain of a schema."""
        self._nodes += 1
        if not isinstance(node, Mapping) or depth > MOST_DEPTH or self._nodes > MOST_NODES:
            return {}
        given = cast("Mapping[str, Any]", node)
        words: Schema = {name: given[name] for name in _WORDS if isinstance(given.get(name), str)}
        if "$ref" in given:
            return {**self.of(self._led(given["$ref"]), depth + 1), **words}
        values: Any = [given["const"]] if "const" in given else given.get("enum")
        if isinstance(values, list) and values:
            return {**words, "enum": list(cast("list[Any]", values))}
        kinds = _kinds(given)
        if len(kinds) > 1:
            return {**words, "anyOf": [self._of_kind(kind, given, depth) for kind in kinds]}
        if kinds:
            return {**words, **self._of_kind(kinds[0], given, depth)}
        return {**words, **self._combined(given, depth)}

    def _combined(self, given: Mapping[str, Any], depth: int) -> Schema:
        """A schema that is one of several; of one that is all of several only the single one is plain."""
        for key in ("anyOf", "oneOf"):
            choices = given.get(key)
            if isinstance(choices, list) and choices:
                return {"anyOf": [self.of(choice, depth + 1) for choice in cast("list[Any]", choices)[:MOST_ITEMS]]}
        whole: Any = given.get("allOf")
        if isinstance(whole, list) and len(cast("list[Any]", whole)) == 1:
            return self.of(whole[0], depth + 1)
        return {}

    def _of_kind(self, kind: str, given: Mapping[str, Any], depth: int) -> Schema:
        if kind == "object":
            return self._object(given, depth)
        if kind == "array":
            return {"type": kind, "items": self.of(given.get("items"), depth + 1)}
        if kind in ("integer", "number"):
            return {"type": kind, **_bounds(given, kind)}
        if kind == "string" and isinstance(given.get("format"), str) and given["format"] in _FORMATS:
            return {"type": kind, "format": given["format"]}
        return {"type": kind}

    def _object(self, given: Mapping[str, Any], depth: int) -> Schema:
        found: Any = given.get("properties")
        properties: Schema = {}
        for name, inner in cast("dict[str, Any]", found).items() if isinstance(found, dict) else ():
            if self._nodes > MOST_NODES:
                break
            properties[name] = self.of(inner, depth + 1)
        named: Any = given.get("required")
        wanted = cast("list[Any]", named) if isinstance(named, list) else []
        required = [name for name in properties if name in wanted]
        made: Schema = {"type": "object", "properties": properties}
        if required:
            made["required"] = required
        whole = isinstance(found, dict) and len(properties) == len(cast("dict[str, Any]", found))
        if given.get("additionalProperties") is False and whole and "patternProperties" not in given:
            made["additionalProperties"] = False
        return made

    def _led(self, reference: Any) -> Any:
        """Where a reference within the schema leads; to nothing where there is nothing."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        place: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            place = cast("Mapping[str, Any]", place).get(name) if isinstance(place, Mapping) else None
        return place


def _kinds(given: Mapping[str, Any]) -> list[str]:
    """The types that a schema names; that of an object where it has properties only."""
    kinds = given.get("type")
    if kinds is None and isinstance(given.get("properties"), dict):
        return ["object"]
    named = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
    return list(dict.fromkeys(kind for kind in named if isinstance(kind, str) and kind in _TYPES))


def _bounds(given: Mapping[str, Any], kind: str) -> Schema:
    """The least and the most of a number, where there is one between them."""
    least, most = (_number(given.get(name)) for name in ("minimum", "maximum"))
    if kind == "integer":
        least = None if least is None else math.ceil(least)
        most = None if most is None else math.floor(most)
    if least is not None and most is not None and least > most:
        return {}
    return {name: value for name, value in (("minimum", least), ("maximum", most)) if value is not None}


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if abs(value) < 1e15 else None

"""What can be told of a JSON Schema from its keywords alone: what is within it, and what excludes what. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, cast

from antiphon.protocol.json import encode

__all__ = [
    "BOUNDS",
    "IN_PLACE",
    "KIND_OF",
    "Schema",
    "anchors",
    "constraints",
    "countable",
    "disjoint",
    "evaluated",
    "meets_others",
    "names_in",
    "required_names",
    "schemas_in",
    "without",
]

Schema = dict[str, Any]
"""One that is no boolean."""

BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
IN_PLACE: Final = ("$ref", "anyOf", "oneOf", "allOf")
KIND_OF: Final = {
    **dict.fromkeys(("properties", "required", "additionalProperties", "patternProperties"), "object"),
    **dict.fromkeys(("minProperties", "maxProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), "array"),
    **dict.fromkeys(("pattern", "minLength", "maxLength"), "string"),
    **dict.fromkeys((*BOUNDS, "multipleOf"), "number"),
}
"""The type that a keyword is about."""

_EVALUATING: Final = frozenset({*IN_PLACE, "not", "if", "then", "else", "contains", "dependentSchemas", "$dynamicRef"})
_UNEVALUATED: Final = {"unevaluatedProperties": "additionalProperties", "unevaluatedItems": "items"}

_MANY: Final = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = (
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def schemas_in(node: Schema) -> Iterator[Any]:
    """The schemas one level within a schema, definitions included."""
    yield from (part for _, part in _placed(node))


def _placed(node: Schema) -> Iterator[tuple[str, Any]]:
    """The same, each with the pointer to it."""
    for key in _MANY:
        if isinstance(node.get(key), dict):
            yield from ((f"/{key}/{_escaped(name)}", part) for name, part in cast("Schema", node[key]).items())
    for key in (*_LISTS, "items"):
        if isinstance(node.get(key), list):
            yield from ((f"/{key}/{place}", part) for place, part in enumerate(cast("list[Any]", node[key])))
    for key in _SINGLE:
        if isinstance(node.get(key), dict):
            yield f"/{key}", node[key]


def without(node: Schema, dropped: Collection[str]) -> Schema:
    """The schema without these keywords, in schemas within it too."""
    made: Schema = {}
    for key, value in node.items():
        if key in dropped:
            continue
        if key in _MANY and isinstance(value, dict):
            made[key] = {name: _without(part, dropped) for name, part in cast("Schema", value).items()}
        elif (key in _LISTS or key == "items") and isinstance(value, list):
            made[key] = [_without(part, dropped) for part in cast("list[Any]", value)]
        else:
            made[key] = _without(value, dropped) if key in _SINGLE else value
    return made


def _without(part: Any, dropped: Collection[str]) -> Any:
    return without(cast("Schema", part), dropped) if isinstance(part, dict) else part


def anchors(root: Schema) -> Iterator[tuple[str, str]]:
    """Each anchor of a schema with the pointer to it."""
    waiting: list[tuple[str, Schema]] = [("", root)]
    while waiting:
        pointer, node = waiting.pop()
        if isinstance(node.get("$anchor"), str):
            yield node["$anchor"], pointer
        waiting += [(pointer + step, cast("Schema", part)) for step, part in _placed(node) if isinstance(part, dict)]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def constraints(node: Schema) -> set[str]:
    """The keywords beside references and choices that say something about a value, its type left aside."""
    return {key for key in node if key in KIND_OF or key in ("enum", "const", "format")}


def meets_others(node: Schema) -> bool:
    """Whether schemas within this one hold for the same value together with something else."""
    applicators = [key for key in IN_PLACE if key in node]
    several = node.get("allOf")
    beside = len(cast("list[Any]", several)) if isinstance(several, list) else 0
    return bool(applicators) and (len(applicators) > 1 or beside > 1 or bool(constraints(node)))


def names_in(node: Schema) -> set[str] | None:
    """The properties that schemas for the same value speak of; None where a reference hides them."""
    if "$ref" in node:
        return None
    names: set[str] = set()
    if isinstance(node.get("properties"), dict):
        names |= cast("Schema", node["properties"]).keys()
    names |= {*required_names(node)}
    for key in ("anyOf", "oneOf", "allOf"):
        for part in cast("list[Any]", node.get(key)) if isinstance(node.get(key), list) else ():
            inner = names_in(cast("Schema", part)) if isinstance(part, dict) else set[str]()
            if inner is None:
                return None
            names |= inner
    return names


def evaluated(node: Schema) -> Schema:
    """The schema with `unevaluatedProperties` and `unevaluatedItems` under the names that they have where alone.

    Where no schema for the same value stands beside them, they are what `additionalProperties` and `items` are.
    """
    if _EVALUATING & node.keys() or isinstance(node.get("items"), list):
        return node
    made = dict(node)
    for name, plain in _UNEVALUATED.items():
        if name in made:
            made.setdefault(plain, made.pop(name))
    return made


def required_names(node: Schema) -> list[str]:
    """The properties that a schema itself requires."""
    return _texts(node.get("required"))


def _texts(value: Any) -> list[str]:
    return [text for text in cast("list[Any]", value) if isinstance(text, str)] if isinstance(value, list) else []


def countable(node: Schema) -> bool:
    """Whether the properties can be counted: all that are named must be there."""
    properties = node.get("properties")
    return not isinstance(properties, dict) or set(cast("Schema", properties)) <= {*required_names(node)}


def disjoint(branches: Iterable[Any]) -> bool:
    """Whether of these no two can hold for one value, as far as their types and constants tell."""
    seen: list[Schema] = []
    for branch in branches:
        if not isinstance(branch, dict):
            return False
        node = cast("Schema", branch)
        if not all(_exclude(node, other) for other in seen):
            return False
        seen.append(node)
    return True


def _exclude(first: Schema, second: Schema) -> bool:
    kinds = [_kinds(first), _kinds(second)]
    if all(kinds) and not kinds[0] & kinds[1]:
        return True
    values = [_constants(first), _constants(second)]
    if all(values) and not set(values[0]) & set(values[1]):
        return True
    tops = [node.get("properties") for node in (first, second)]
    if not all(isinstance(top, dict) for top in tops):
        return False
    shared = {*required_names(first)} & {*required_names(second)}
    for name in shared & cast("Schema", tops[0]).keys() & cast("Schema", tops[1]).keys():
        values = [_constants(cast("Schema", top)[name]) for top in tops]
        if all(values) and not set(values[0]) & set(values[1]):
            return True
    return False


def _kinds(node: Schema) -> set[str]:
    kinds = node.get("type")
    found = {kinds} if isinstance(kinds, str) else {*_texts(kinds)}
    return found | {"integer"} if "number" in found else found


def _constants(node: Any) -> list[str]:
    """The values of which a schema allows one, as JSON; empty where it does not say."""
    if not isinstance(node, dict):
        return []
    members = cast("Schema", node)
    if "const" in members:
        return [encode(members["const"]).decode()]
    values = members.get("enum")
    return [encode(value).decode() for value in cast("list[Any]", values)] if isinstance(values, list) else []

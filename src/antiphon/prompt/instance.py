"""The smallest instance of a JSON Schema: what the scripted engine answers under a schema or a forced call.

It is made, not searched for: references are resolved, `allOf` is merged, of `anyOf` the simplest is taken. A schema
with a keyword that this cannot honour has no instance here, rather than a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

from antiphon.errors import InvalidRequestError
from antiphon.prompt.pattern import PatternError, smallest_match
from antiphon.protocol.json import quoted

__all__ = ["smallest_instance"]

MAX_DEPTH = 32
MAX_SIZE = 100_000
"""Characters and members of one instance: minLength and minItems come from a caller."""

Schema = dict[str, Any]

_FORMATS = {
    "date-time": "1970-01-01T00:00:00Z",
    "date": "1970-01-01",
    "time": "00:00:00Z",
    "duration": "PT0S",
    "email": "a@example.com",
    "hostname": "example.com",
    "ipv4": "0.0.0.0",
    "ipv6": "::",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "uri": "https://example.com/",
}
_BEYOND = ("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedItems")
_LOW = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_HIGH = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_NESTED = ("object", "array")


def smallest_instance(schema: Any) -> Any:
    """A value of the schema that is as small as can be told without search; keys come in the schema's order.

    Raises:
        InvalidRequestError: the schema nests without end, refers to what is not there, contradicts itself, or has a
            keyword that an instance cannot be made for.
    """
    try:
        return _Maker(schema).make(schema, 0)
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        raise _unusable("The schema is not a valid JSON Schema.") from None


class _Maker:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._room = MAX_SIZE

    def make(self, schema: Any, depth: int) -> Any:
        self._take(1)
        node = self._flat(schema, depth)
        for keyword in _BEYOND:
            if keyword in node:
                raise _unusable(f"An instance of a schema with '{keyword}' cannot be made.")
        if "const" in node:
            return node["const"]
        if node.get("enum"):
            return node["enum"][0]
        return self._by_type(node, depth)

    def _flat(self, schema: Any, depth: int) -> Schema:
        """The schema as one object: references resolved, `allOf` merged, one of `anyOf` or `oneOf` taken."""
        if depth > MAX_DEPTH:
            raise _unusable("The schema is nested too deeply.")
        if schema is True or schema is None:
            return {}
        if not isinstance(schema, dict):
            raise _unusable("The schema allows nothing.")
        node = dict(cast("Schema", schema))
        parts: list[Any] = []
        if "$ref" in node:
            parts.append(_resolve(str(node.pop("$ref")), self._root))
        parts += node.pop("allOf", None) or []
        for keyword in ("anyOf", "oneOf"):
            choices = node.pop(keyword, None)
            if choices:
                parts.append(_simplest(choices))
        for part in parts:
            node = _merged(node, self._flat(part, depth + 1))
        return node

    def _by_type(self, node: Schema, depth: int) -> Any:
        kind = _type_of(node)
        if kind == "object":
            return self._object(node, depth)
        if kind == "array":
            return self._array(node, depth)
        if kind == "string":
            return self._string(node)
        if kind in ("integer", "number"):
            return _number(node, whole=kind == "integer")
        return None if kind == "null" else False

    def _object(self, node: Schema, depth: int) -> Schema:
        properties: Schema = node.get("properties") or {}
        required: list[str] = list(node.get("required") or [])
        names = [name for name in properties if name in required]
        names += [name for name in required if name not in properties]
        missing = int(node.get("minProperties") or 0) - len(names)
        names += [name for name in properties if name not in names][: max(0, missing)]
        missing = int(node.get("minProperties") or 0) - len(names)
        self._take(max(0, missing))
        names += [f"property{number}" for number in range(1, missing + 1)]
        others = node.get("additionalProperties")
        if others is False and any(name not in properties for name in names):
            raise _unusable("The schema requires a property that it does not allow.")
        return {name: self.make(properties.get(name, others), depth + 1) for name in names}

    def _array(self, node: Schema, depth: int) -> list[Any]:
        size = int(node.get("minItems") or 0)
        self._take(size)
        prefix: list[Any] = node.get("prefixItems") or []
        made = [self.make(prefix[n] if n < len(prefix) else node.get("items"), depth + 1) for n in range(size)]
        if "contains" in node:
            made[: int(node.get("minContains", 1))] = [
                self.make(node["contains"], depth + 1) for _ in range(int(node.get("minContains", 1)))
            ]
        if node.get("uniqueItems") and len(made) > 1:
            return self._distinct(made, self._flat(node.get("items"), depth + 1))
        return made

    def _distinct(self, made: list[Any], item: Schema) -> list[Any]:
        if len(item.get("enum") or []) >= len(made):
            return item["enum"][: len(made)]
        kind = _type_of(item)
        if kind in ("integer", "number"):
            step = item.get("multipleOf") or 1
            return [made[0] + n * step for n in range(len(made))]
        if kind == "string" and not {"pattern", "format"} & item.keys():
            self._take(len(made) * (len(made) + len(made[0])))
            return [made[0] + "a" * n for n in range(len(made))]
        raise _unusable("An array of distinct items of that schema cannot be made.")

    def _string(self, node: Schema) -> str:
        low = int(node.get("minLength") or 0)
        self._take(low)
        if "pattern" in node:
            try:
                text = smallest_match(str(node["pattern"]))
            except PatternError as error:
                raise _unusable(f"A text for the pattern cannot be made: it has {error}.") from None
        else:
            text = _FORMATS.get(str(node.get("format"))) or "a" * low
        if len(text) < low or len(text) > int(node.get("maxLength", len(text))):
            raise _unusable("A text of that pattern or format and that length cannot be made.")
        return text

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise _unusable("The schema has no instance that is small enough.")


def _type_of(node: Schema) -> str:
    kind = node.get("type")
    if isinstance(kind, list):
        kinds = [str(name) for name in cast("list[Any]", kind)]
        return "null" if "null" in kinds else kinds[0]
    if kind is not None:
        return str(kind)
    if {"items", "prefixItems", "minItems", "contains"} & node.keys():
        return "array"
    if {"pattern", "format", "minLength"} & node.keys():
        return "string"
    return "number" if {"minimum", "exclusiveMinimum", "maximum", "multipleOf"} & node.keys() else "object"


def _simplest(choices: list[Any]) -> Any:
    """A leaf rather than a branch, so that a recursive schema ends."""
    for choice in choices:
        if isinstance(choice, dict):
            node = cast("Schema", choice)
            if node.get("type") not in _NESTED and not {"$ref", "properties", "allOf"} & node.keys():
                return node
    return choices[0]


def _merged(first: Schema, second: Schema) -> Schema:
    """Both schemas at once."""
    merged = {**first, **second}
    properties: Schema = dict(first.get("properties") or {})
    others: Schema = second.get("properties") or {}
    for name, value in others.items():
        properties[name] = {"allOf": [properties[name], value]} if name in properties else value
    if properties:
        merged["properties"] = properties
    if "required" in merged:
        merged["required"] = list(dict.fromkeys([*(first.get("required") or ()), *(second.get("required") or ())]))
    for keyword, choose in (*((name, max) for name in _LOW), *((name, min) for name in _HIGH)):
        if keyword in first and keyword in second:
            merged[keyword] = choose(first[keyword], second[keyword])
    if "enum" in first and "enum" in second:
        merged["enum"] = [value for value in first["enum"] if value in second["enum"]]
    if False in (first.get("additionalProperties"), second.get("additionalProperties")):
        merged["additionalProperties"] = False
    return merged


def _number(node: Schema, *, whole: bool) -> int | float:
    """The number nearest to zero that the bounds and the step allow."""
    step = node.get("multipleOf") or (1 if whole else 0)
    for candidate in _candidates(node, step):
        value = int(candidate) if float(candidate).is_integer() else candidate
        if _fits(value, node, whole=whole):
            return value
    raise _unusable("A number within those bounds cannot be made.")


def _candidates(node: Schema, step: float) -> Iterable[float]:
    yield 0
    lows: list[float] = [node[key] for key in ("minimum", "exclusiveMinimum") if key in node]
    highs: list[float] = [node[key] for key in ("maximum", "exclusiveMaximum") if key in node]
    if step:
        for low in lows:
            yield from (math.ceil(low / step) * step, (math.floor(low / step) + 1) * step)
        for high in highs:
            yield from (math.floor(high / step) * step, (math.ceil(high / step) - 1) * step)
        return
    yield from lows
    yield from (low + 1 for low in lows)
    yield from highs
    yield from (high - 1 for high in highs)
    yield from ((low + high) / 2 for low in lows for high in highs)


def _fits(value: float, node: Schema, *, whole: bool) -> bool:
    step = node.get("multipleOf")
    return (
        value >= node.get("minimum", value)
        and value <= node.get("maximum", value)
        and ("exclusiveMinimum" not in node or value > node["exclusiveMinimum"])
        and ("exclusiveMaximum" not in node or value < node["exclusiveMaximum"])
        and (not whole or float(value).is_integer())
        and (not step or math.isclose(value / step, round(value / step), abs_tol=1e-9))
    )


def _resolve(reference: str, root: Any) -> Any:
    found = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if not step:
            continue
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise _unusable(f"The schema has no '{quoted(reference)}'.")
        found = cast("Schema", found)[name]
    return found


def _unusable(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="invalid_json_schema")

"""The smallest instance of a JSON Schema: what the scripted engine answers under a schema or a forced call."""

from __future__ import annotations

from typing import Any

from antiphon.errors import InvalidRequestError

__all__ = ["smallest_instance"]

_MAX_DEPTH = 32
_MAX_SIZE = 20_000
"""Values, and characters of strings, that an instance may have: a small schema can ask for a huge one (M12)."""

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
}


def smallest_instance(schema: Any) -> Any:
    """A value of the schema that is as small as can be told without search; keys come in the schema's order.

    Raises:
        InvalidRequestError: the schema nests without end, has no small instance, refers to what is not there, or is
            no schema.
    """
    try:
        return _Maker(schema).make(schema, 0)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        raise _unusable("The schema is not a valid JSON Schema.") from None


class _Maker:
    """Makes instances of the parts of one schema, up to a size."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._room = _MAX_SIZE

    def make(self, schema: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise _unusable("The schema is nested too deeply.")
        self._take(1)
        if not isinstance(schema, dict):
            return {}
        node: Schema = schema  # pyright: ignore[reportUnknownVariableType]
        if "$ref" in node:
            return self.make(_resolve(str(node["$ref"]), self._root), depth + 1)
        for key in ("const", "default"):
            if key in node:
                return node[key]
        if node.get("enum"):
            return node["enum"][0]
        for key in ("anyOf", "oneOf"):
            if node.get(key):
                return self.make(_simplest(node[key]), depth + 1)
        if node.get("allOf"):
            merged: Schema = {}
            for part in node["allOf"]:
                merged.update(part)
            return self.make(merged, depth + 1)
        return self._by_type(node, depth)

    def _by_type(self, node: Schema, depth: int) -> Any:
        kind = node.get("type")
        if isinstance(kind, list):
            kind = "null" if "null" in kind else kind[0]  # pyright: ignore[reportUnknownVariableType]
        if kind is None:
            kind = "object" if "properties" in node else "array" if "items" in node else "object"
        if kind == "object":
            properties: Schema = node.get("properties") or {}
            required: list[str] = node.get("required") or []
            return {name: self.make(value, depth + 1) for name, value in properties.items() if name in required}
        if kind == "array":
            return [self.make(node.get("items"), depth + 1) for _ in range(int(node.get("minItems") or 0))]
        if kind == "string":
            return _FORMATS.get(str(node.get("format"))) or "a" * self._take(int(node.get("minLength") or 0))
        if kind in ("integer", "number"):
            return _number(node)
        return None if kind == "null" else False

    def _take(self, size: int) -> int:
        self._room -= size
        if self._room < 0:
            raise _unusable("The schema has no instance that is small enough.")
        return size


def _simplest(choices: list[Any]) -> Any:
    """A leaf rather than a branch, so that a recursive schema ends."""
    nested = ("object", "array")
    for choice in choices:
        if isinstance(choice, dict) and choice.get("type") not in nested and "$ref" not in choice:  # pyright: ignore[reportUnknownMemberType]
            return choice  # pyright: ignore[reportUnknownVariableType]
    return choices[0]


def _number(node: Schema) -> int | float:
    low = node.get("minimum", node.get("exclusiveMinimum"))
    value = 0 if low is None else low + (1 if "exclusiveMinimum" in node else 0)
    high = node.get("maximum", node.get("exclusiveMaximum"))
    if high is not None and value > high:
        return high
    return value


def _resolve(reference: str, root: Any) -> Any:
    found = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if not step:
            continue
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise _unusable(f"The schema has no '{reference[:200]}'.")
        found = found[name]  # pyright: ignore[reportUnknownVariableType]
    return found  # pyright: ignore[reportUnknownVariableType]


def _unusable(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="invalid_json_schema")

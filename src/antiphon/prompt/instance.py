"""The smallest instance of a JSON Schema: what the scripted engine answers under a schema or a forced call."""

from __future__ import annotations

from typing import Any

from antiphon.errors import InvalidRequestError

__all__ = ["smallest_instance"]

_MAX_DEPTH = 32

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


def smallest_instance(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """A value of the schema that is as small as can be told without search; keys come in the schema's order.

    Raises:
        InvalidRequestError: the schema nests without end, or refers to what is not there.
    """
    if depth > _MAX_DEPTH:
        raise InvalidRequestError("The schema is nested too deeply.", code="invalid_json_schema")
    if not isinstance(schema, dict):
        return {}
    node: Schema = schema  # pyright: ignore[reportUnknownVariableType]
    root = node if root is None else root
    if "$ref" in node:
        return smallest_instance(_resolve(str(node["$ref"]), root), root, depth + 1)
    for key in ("const", "default"):
        if key in node:
            return node[key]
    if node.get("enum"):
        return node["enum"][0]
    for key in ("anyOf", "oneOf"):
        if node.get(key):
            return _smallest_of(node[key], root, depth)
    if node.get("allOf"):
        merged: Schema = {}
        for part in node["allOf"]:
            merged.update(part)
        return smallest_instance(merged, root, depth + 1)
    return _by_type(node, root, depth)


def _smallest_of(choices: list[Any], root: Any, depth: int) -> Any:
    """A leaf rather than a branch, so that a recursive schema ends."""
    nested = ("object", "array")
    for choice in choices:
        if isinstance(choice, dict) and choice.get("type") not in nested and "$ref" not in choice:  # pyright: ignore[reportUnknownMemberType]
            return smallest_instance(choice, root, depth + 1)
    return smallest_instance(choices[0], root, depth + 1)


def _by_type(node: Schema, root: Any, depth: int) -> Any:
    kind = node.get("type")
    if isinstance(kind, list):
        kind = "null" if "null" in kind else kind[0]  # pyright: ignore[reportUnknownVariableType]
    if kind is None:
        kind = "object" if "properties" in node else "array" if "items" in node else "object"
    if kind == "object":
        properties: Schema = node.get("properties") or {}
        required: list[str] = node.get("required") or []
        return {
            name: smallest_instance(value, root, depth + 1) for name, value in properties.items() if name in required
        }
    if kind == "array":
        return [smallest_instance(node.get("items"), root, depth + 1)] * int(node.get("minItems") or 0)
    if kind == "string":
        return _FORMATS.get(str(node.get("format")), "a" * int(node.get("minLength") or 0))
    if kind in ("integer", "number"):
        return _number(node)
    return None if kind == "null" else False


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
            raise InvalidRequestError(f"The schema has no '{reference}'.", code="invalid_json_schema")
        found = found[name]  # pyright: ignore[reportUnknownVariableType]
    return found  # pyright: ignore[reportUnknownVariableType]

"""JSON Schemas of Python types, and schemas closed for strict calls: all is required, nothing else is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from antiphon.client.errors import DriverError

__all__ = ["can_close", "close", "describes_type", "empty", "schema_of"]

MAX_DEPTH: Final = 64
"""Schemas within schemas; what is deeper is refused."""

_DEFINITIONS: Final = "#/$defs/"
_MAPS: Final = ("properties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES: Final = ("items", "additionalProperties", "not")
_SAYS_WHAT: Final = ("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf")
_ANNOTATIONS: Final = ("title", "description")

_MARKS: Final = ("model_json_schema", "__dataclass_fields__", "__required_keys__", "__attrs_attrs__")

Schema = dict[str, Any]


def describes_type(value: object) -> bool:
    """Whether that is a type of which there is a schema: a struct, a dataclass, a pydantic model, a typed dict."""
    if not isinstance(value, type):
        return False
    names = dir(cast("type[object]", value))
    return issubclass(value, msgspec.Struct) or any(name in names for name in _MARKS)


def schema_of(kind: Any) -> Schema:
    """The JSON Schema of a type: that of an object stands at the root, and what it refers to in `$defs`.

    Raises:
        DriverError: there is none.
    """
    try:
        found = _own_schema(kind) or msgspec.json.schema(kind, schema_hook=_hook)
    except (TypeError, NotImplementedError, NameError) as error:
        raise DriverError(f"There is no JSON Schema of {kind!r}: {error}") from None
    definitions: dict[str, Schema] = {}
    root = _lift(found, definitions, 0)
    reference = root.get("$ref")
    if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
        root = {**definitions[reference.removeprefix(_DEFINITIONS)], **{k: v for k, v in root.items() if k != "$ref"}}
    kept = _referenced(root, definitions)
    return {**root, "$defs": kept} if kept else root


def empty(*, strict: bool) -> Schema:
    """The schema of a function that takes nothing (E12)."""
    schema: Schema = {"type": "object", "properties": {}}
    if strict:
        schema["required"] = []
    schema["additionalProperties"] = False
    return schema


def can_close(schema: Mapping[str, Any]) -> bool:
    """Whether the schema still says the same once it is closed: no object with names of its own, and no open value."""
    return _can_close(schema, 0)


def close(schema: Mapping[str, Any]) -> Schema:
    """The schema for a strict call: every property is required, no other allowed, at every depth (E12).

    Words that strict schemas may not have are put in those that they may: a single `allOf`, `oneOf`, and what stands
    beside a `$ref`. Defaults go, since nothing is left out. The order of keys stays (E27).

    Raises:
        DriverError: it is nested too deeply.
    """
    return _close(schema, 0)


def _own_schema(kind: Any) -> Schema | None:
    own = getattr(kind, "model_json_schema", None)
    return cast("Schema", own()) if callable(own) else None


def _hook(kind: type) -> Schema:
    own = _own_schema(kind)
    if own is None:
        raise NotImplementedError(f"{kind!r} is not a type of JSON")
    return own


def _deeper(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise DriverError(f"A JSON Schema may nest {MAX_DEPTH} levels; this one is deeper.")
    return depth + 1


def _children(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> Schema:
    """The schema with every schema in it changed, its own keys in order."""
    changed: Schema = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, Mapping):
            changed[key] = {name: change(entry) for name, entry in cast("Mapping[str, Any]", value).items()}
        elif key in _LISTS and isinstance(value, list):
            changed[key] = [change(entry) for entry in cast("list[Any]", value)]
        elif key in _SINGLES and isinstance(value, Mapping):
            changed[key] = change(value)
        else:
            changed[key] = value
    return changed


def _lift(schema: Any, definitions: dict[str, Schema], depth: int) -> Any:
    """The schema without the `$defs` in it, which are gathered."""
    if not isinstance(schema, Mapping):
        return schema
    deeper = _deeper(depth)
    found = _children(cast("Mapping[str, Any]", schema), lambda entry: _lift(entry, definitions, deeper))
    definitions.update(found.pop("$defs", {}))
    return found


def _referenced(root: Schema, definitions: dict[str, Schema]) -> dict[str, Schema]:
    """The definitions that the schema needs, in the order in which they were made."""
    needed: set[str] = set()
    waiting: list[Any] = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            found = cast("Mapping[str, Any]", value)
            reference = found.get("$ref")
            name = reference.removeprefix(_DEFINITIONS) if isinstance(reference, str) else None
            if name in definitions and name not in needed:
                needed.add(name)
                waiting.append(definitions[name])
            waiting.extend(found.values())
        elif isinstance(value, list):
            waiting.extend(cast("list[Any]", value))
    return {name: schema for name, schema in definitions.items() if name in needed}


def _can_close(schema: Any, depth: int) -> bool:
    if not isinstance(schema, Mapping):
        return False
    found = cast("Mapping[str, Any]", schema)
    deeper = _deeper(depth)
    if not any(key in found for key in _SAYS_WHAT) or found.get("additionalProperties", False) is not False:
        return False
    if "patternProperties" in found or (_has_type(found, "object") and "properties" not in found):
        return False
    if _has_type(found, "array") and "items" not in found:
        return False
    inner: list[Any] = []
    # `additionalProperties` is false here, if it is there at all.
    _children({**found, "additionalProperties": False}, inner.append)
    return all(_can_close(entry, deeper) for entry in inner)


def _has_type(schema: Mapping[str, Any], name: str) -> bool:
    kind = schema.get("type")
    return kind == name or (isinstance(kind, list) and name in kind)


def _close(schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    deeper = _deeper(depth)
    found = _children(_plain(cast("Mapping[str, Any]", schema)), lambda entry: _close(entry, deeper))
    properties = found.get("properties")
    if _has_type(found, "object") or isinstance(properties, dict):
        names = cast("dict[str, Any]", properties or {})
        found.setdefault("properties", names)
        found["required"] = list(names)
        found["additionalProperties"] = False
    return found


def _plain(schema: Mapping[str, Any]) -> Schema:
    """The schema in the words that strict schemas may have."""
    found = {key: value for key, value in schema.items() if key not in ("default", "discriminator")}
    if "oneOf" in found and "anyOf" not in found:
        found = {"anyOf" if key == "oneOf" else key: value for key, value in found.items()}
    whole = found.get("allOf")
    if isinstance(whole, list) and len(cast("list[Any]", whole)) == 1 and "anyOf" not in found:
        found = {"anyOf" if key == "allOf" else key: value for key, value in found.items()}
    if "$ref" in found and any(key in found for key in _ANNOTATIONS):
        said = {key: found[key] for key in _ANNOTATIONS if key in found}
        found = {"anyOf": [{key: value for key, value in found.items() if key not in _ANNOTATIONS}], **said}
    return found

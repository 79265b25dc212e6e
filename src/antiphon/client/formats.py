"""What a request says of the answer's form: a type, a JSON Schema or a format of either API, as `text.format` (E18)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from antiphon.client.errors import DriverError
from antiphon.client.response import Response
from antiphon.client.typed import can_close, close, describes_type, schema_of

__all__ = ["convert_object", "encode_format", "format_schema"]

_FORMATS = ("text", "json_object")
_NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
MAX_NAME = 64


def encode_format(wanted: Any) -> dict[str, Any] | None:
    """The `text.format` of what is wanted.

    A schema of ours, or of a type, is closed and strict where it can be. A whole format is sent as it is, flat.

    Raises:
        DriverError: it is none of these, or its schema is not that of an object.
    """
    if wanted is None:
        return None
    if isinstance(wanted, str):
        if wanted not in _FORMATS:
            raise DriverError(f"'{wanted}' is not a format: give a type, a JSON Schema, or 'json_object'.")
        return {"type": wanted}
    if not isinstance(wanted, Mapping):
        return _schema_format(str(getattr(wanted, "__name__", "output")), _of_type(wanted))
    given = cast("Mapping[str, Any]", wanted)
    kind = given.get("type")
    if kind in _FORMATS:
        return dict(given)
    if kind != "json_schema":
        return _schema_format(str(given.get("title", "output")), given)
    flat = {**given, **cast("Mapping[str, Any]", given.get("json_schema") or {})}
    if flat.get("schema") is not None and not isinstance(flat["schema"], Mapping):
        flat["schema"] = schema_of(flat["schema"])
    flat.setdefault("name", "output")
    names = ("type", "name", "description", "strict", "schema")
    return {name: flat[name] for name in names if flat.get(name) is not None}


def format_schema(wanted: Any) -> dict[str, Any] | None:
    """The JSON Schema that the answer is to be held against; None where any text will do.

    Raises:
        DriverError: there is none of that type.
    """
    found = encode_format(wanted)
    if found is None or found["type"] == "text":
        return None
    if not isinstance(wanted, str | Mapping):
        return _of_type(wanted)
    kind = found["type"] if isinstance(wanted, str) else cast("Mapping[str, Any]", wanted).get("type")
    if kind in ("json_schema", *_FORMATS):
        return cast("dict[str, Any]", found.get("schema", {"type": "object"}))
    return dict(cast("Mapping[str, Any]", wanted))


def convert_object(wanted: Any, answer: Response) -> None:
    """Make the structured answer one of the type that was asked for (D14).

    One that the type itself refuses is None, with `object_error`.
    """
    if answer.object is None or wanted is None or isinstance(wanted, str | Mapping):
        return
    own = getattr(wanted, "model_validate", None)
    try:
        answer.object = own(answer.object) if callable(own) else msgspec.convert(answer.object, wanted)
    except ValueError:
        answer.object = None
        answer.object_error = "validation_failed"
        answer.provider_meta["object_parse_error"] = answer.object_error


def _of_type(wanted: Any) -> dict[str, Any]:
    if not describes_type(wanted):
        raise DriverError(f"{wanted!r} is not a type with named fields: give a struct, a model or a dataclass.")
    return schema_of(wanted)


def _schema_format(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    strict = can_close(schema)
    described = schema.get("description")
    found: dict[str, Any] = {"type": "json_schema", "name": _NOT_OF_A_NAME.sub("_", name)[:MAX_NAME] or "output"}
    if isinstance(described, str):
        found["description"] = described
    found["strict"] = strict
    found["schema"] = close(schema) if strict else dict(schema)
    return found

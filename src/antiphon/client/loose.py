"""Values of what an endpoint sent, whatever that was: what is not of the type sought counts as missing."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

__all__ = [
    "as_dict",
    "as_dicts",
    "as_int",
    "as_list",
    "as_place",
    "as_str",
    "close_brackets",
    "dumps",
    "loads",
    "well_formed",
]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_LIMIT = 2**63


def loads(data: bytes | str) -> Any:
    """The value of JSON text; NaN and halves of surrogate pairs, which some endpoints send, are let pass.

    Raises:
        ValueError: it is no JSON, or is nested too deeply.
    """
    try:
        return _decode(data)
    except msgspec.DecodeError:
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("The JSON is nested too deeply.") from None
    except RecursionError:
        raise ValueError("The JSON is nested too deeply.") from None


def dumps(value: Any) -> str:
    """Compact JSON text."""
    try:
        return _encode(value).decode()
    except (UnicodeEncodeError, msgspec.EncodeError):
        return json.dumps(value, separators=(",", ":"))


def close_brackets(text: str) -> str:
    """The text with the brackets closed, and the string ended, that it leaves open at its end."""
    stack: list[str] = []
    quoted = escaped = False
    for character in text:
        if quoted:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                quoted = False
        elif character == '"':
            quoted = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
        elif character in "}]" and stack:
            stack.pop()
    if quoted:
        text = text[:-1] if escaped else text
        text += '"'
    return text + "".join(reversed(stack))


def well_formed(text: str) -> str:
    """The text with halves of surrogate pairs joined, and replaced where the other half is missing."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def as_str(value: Any) -> str | None:
    """Text, or None."""
    return value if isinstance(value, str) else None


def as_int(value: Any) -> int | None:
    """A whole number of 64 bits at most, also one written with a point, or None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_LIMIT <= value < _LIMIT else None


def as_place(value: Any) -> int:
    """A place in a list, 0 where none is given."""
    return max(as_int(value) or 0, 0)


def as_dict(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A list, or an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [cast("dict[str, Any]", item) for item in as_list(value) if isinstance(item, dict)]

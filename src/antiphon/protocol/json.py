"""JSON in and out: one encoder, and decoding that turns every malformed body into one clear 400."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from antiphon.errors import InvalidRequestError
from antiphon.protocol.depth import too_deep

__all__ = ["decode_body", "decode_part", "encode", "field_error", "loads", "quoted"]

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
"""Compact JSON bytes of any struct or plain value."""

_untyped = msgspec.json.Decoder()
_PATH = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `([^`]*)`$")
MAX_QUOTED = 200


def loads(data: bytes | str) -> Any:
    """Plain Python values of JSON that we wrote ourselves."""
    return _untyped.decode(data)


def quoted(text: str) -> str:
    """A caller's text as an error message repeats it: not more than a little of it."""
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"


def field_error(error: msgspec.ValidationError, prefix: str = "") -> InvalidRequestError:
    """The 400 for a body of the wrong shape, naming the path of the field that is at fault."""
    text = str(error)
    match = _PATH.search(text)
    path = prefix
    if match:
        text = text[: match.start()]
        path = (prefix + match.group(1)).lstrip(".").removesuffix("[...]")
    missing = _MISSING.match(text)
    if missing:
        name = missing.group(1)
        path = f"{path}.{name}" if path else name
        return InvalidRequestError(
            f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter"
        )
    where = f" for '{path}'" if path else ""
    return InvalidRequestError(
        f"Invalid value{where}: {quoted(text[:1].lower() + text[1:])}.", param=path or None, code="invalid_value"
    )


def decode_body(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """A typed body.

    Raises:
        InvalidRequestError: the JSON is malformed, too deep, has NaN or a lone surrogate, or a field has a wrong type.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise field_error(error) from None
    except RecursionError:
        raise InvalidRequestError("The JSON body is nested too deeply.", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidRequestError("We could not parse the JSON body of your request.", code="invalid_json") from None


def decode_part(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | bytes, path: str) -> T:
    """A part of a body, which is at that path of it and has been taken in as it came.

    Raises:
        InvalidRequestError: a field is missing or has a wrong type, or the part is nested too deeply.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
    except RecursionError:
        raise too_deep(path) from None

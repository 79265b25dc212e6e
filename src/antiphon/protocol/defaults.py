"""Fields of a request that an operator sets for a model, used where a request does not set them (issue 5, section 3).

They are written as in the body of `POST /v1/responses` and read by the same decoder, and hold for every generating
route alike, by the names that it has for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.protocol.items import Message
from antiphon.protocol.json import encode, quoted
from antiphon.protocol.request import CreateResponse, decode_create_response
from antiphon.protocol.sampling import SamplingFields

__all__ = ["NO_DEFAULTS", "Defaults", "decode_defaults", "with_defaults"]

_ABSENT_AS_NONE: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repeat_penalty",
    "thinking_budget",
    "seed",
    "max_output_tokens",
    "max_tool_calls",
)
_ABSENT_AS_UNSET: Final = (
    "presence_penalty",
    "frequency_penalty",
    "parallel_tool_calls",
    "truncation",
    "service_tier",
)
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {"reasoning": ("effort", "summary", "context"), "text": ("verbosity",)}
_KNOWN: Final = frozenset(
    {*_ABSENT_AS_NONE, *_ABSENT_AS_UNSET, *_PARTS, *SamplingFields.__struct_fields__, "instructions", "stop"}
)


class Defaults(Struct, frozen=True):
    """Such fields. `source` is the JSON object that they were read from; `request` holds those that are set."""

    source: bytes
    request: CreateResponse


NO_DEFAULTS: Final = Defaults(b"", decode_create_response(b"{}"))
"""Nothing is set."""


def decode_defaults(fields: Mapping[str, Any]) -> Defaults:
    """The defaults that a table gives.

    Raises:
        InvalidRequestError: a field is unknown or none that can be set so, or has a wrong type or is out of range.
    """
    if not fields:
        return NO_DEFAULTS
    for name in fields:
        if name not in _KNOWN:
            raise UnsupportedError(f"'{quoted(name)}' is no field that can be set so.", param=name)
    for name, parts in _PARTS.items():
        for part in fields[name] if isinstance(fields.get(name), Mapping) else ():
            if part not in parts:
                raise UnsupportedError(f"'{name}.{quoted(str(part))}' is no field that can be set so.", param=name)
    source = encode(fields)
    request = decode_create_response(source)
    if request.instruction_items is not None:
        raise InvalidRequestError("'instructions' must be a text.", param="instructions", code="invalid_type")
    return Defaults(source, request)


def with_defaults(request: CreateResponse, defaults: Defaults) -> CreateResponse:
    """The request with the defaults of what it does not set.

    Instructions are set only where it has no system text of its own, be it a field or a message.
    """
    if not defaults.source:
        return request
    given = defaults.request
    changes: dict[str, Any] = {}
    for name in _ABSENT_AS_NONE:
        value = getattr(given, name)
        if value is not None and (getattr(request, name) is None or name in request.unset):
            changes[name] = value
    for name in _ABSENT_AS_UNSET:
        if name in request.unset and name not in given.unset:
            changes[name] = getattr(given, name)
    if given.stop and "stop" in request.unset:
        changes["stop"] = given.stop
    if named := given.samplers.named():
        changes["samplers"] = type(given.samplers)(**{**named, **request.samplers.named()})
    for name, parts in _PARTS.items():
        own, theirs = getattr(request, name), getattr(given, name)
        filled = {part: getattr(theirs, part) for part in parts if getattr(own, part) is None}
        if any(value is not None for value in filled.values()):
            changes[name] = msgspec.structs.replace(own, **filled)
    if given.instructions is not None and not _has_system_text(request):
        changes["instructions"] = given.instructions
    return msgspec.structs.replace(request, **changes) if changes else request


def _has_system_text(request: CreateResponse) -> bool:
    if request.instructions is not None or request.instruction_items is not None:
        return True
    return any(isinstance(item, Message) and item.role in ("system", "developer") for item in request.items)

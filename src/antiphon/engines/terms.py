"""What an operator says of every request to one model: the fields that it has where it sets none, and its ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.errors import ConfigurationError, InvalidRequestError
from antiphon.protocol.defaults import NO_DEFAULTS, Defaults, decode_defaults, with_defaults
from antiphon.protocol.json import encode, loads
from antiphon.protocol.request import CreateResponse

__all__ = ["NO_TERMS", "Terms", "read_terms", "terms_of"]


class Terms(Struct, frozen=True):
    """The terms of one model.

    `max_output_tokens` is the most that a request may ask for, and what it gets where it asks for nothing.
    """

    defaults: Defaults = NO_DEFAULTS
    max_output_tokens: int | None = None

    def applied(self, request: CreateResponse) -> CreateResponse:
        """The request with what it does not set.

        Raises:
            InvalidRequestError: it asks for more output than the model may give.
        """
        request = with_defaults(request, self.defaults)
        most, asked = self.max_output_tokens, request.max_output_tokens
        if most is None or (asked is not None and asked <= most):
            return request
        if asked is not None and "max_output_tokens" not in request.unset:
            raise InvalidRequestError(
                f"Invalid 'max_output_tokens': integer above maximum value. "
                f"This model supports at most {most} output tokens, but got {asked} instead.",
                param="max_output_tokens",
                code="integer_above_max_value",
            )
        return msgspec.structs.replace(request, max_output_tokens=most)

    def kept(self) -> bytes:
        """The fields as JSON, for a response that another process may have to go on with; see `terms_of`."""
        if self.max_output_tokens is None:
            return self.defaults.source
        own: dict[str, Any] = loads(self.defaults.source) if self.defaults.source else {}
        return encode({"max_output_tokens": self.max_output_tokens, **own})


NO_TERMS: Final = Terms()
"""Every request is as it came."""


def terms_of(kept: bytes) -> Terms:
    """The terms that a response began with."""
    return Terms(decode_defaults(loads(kept))) if kept else NO_TERMS


def read_terms(place: str, fields: Mapping[str, Any], most: int | None, least: int) -> Terms:
    """The terms of a table; `place` names it, and `least` is the smallest limit of output that the server takes.

    Raises:
        ConfigurationError: a default is none that a request could have.
    """
    try:
        defaults = decode_defaults(fields)
    except InvalidRequestError as error:
        raise ConfigurationError(f"{place}, 'defaults': {error.message}") from None
    asked = defaults.request.max_output_tokens
    if asked is not None and (asked < least or (most is not None and asked > most)):
        bounds = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ConfigurationError(f"{place}, 'defaults': 'max_output_tokens' must be {bounds} here, but is {asked}.")
    return Terms(defaults, most)

"""Which event names a client wants, where they are not those of the settings (responses-api 8.4)."""

from __future__ import annotations

from urllib.parse import parse_qs

from antiphon.errors import InvalidRequestError
from antiphon.http.exchange import ASGIScope
from antiphon.machine.log import DIALECTS
from antiphon.protocol.json import quoted

__all__ = ["asked_dialect"]

_HEADER = b"x-antiphon-dialect"


def asked_dialect(asgi: ASGIScope) -> str | None:
    """The query parameter `dialect`, else the header `X-Antiphon-Dialect`; None where there is neither.

    Raises:
        InvalidRequestError: there is no such dialect.
    """
    query: bytes = asgi["query_string"]
    values = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("dialect") if query else None
    headers = [value.decode("latin-1") for name, value in asgi["headers"] if name == _HEADER]
    asked = values[-1] if values else headers[0] if headers else None
    if asked is None or asked in DIALECTS:
        return asked
    known = " and ".join(f"'{name}'" for name in DIALECTS)
    raise InvalidRequestError(
        f"Invalid value: '{quoted(asked)}'. Supported values are: {known}.", param="dialect", code="invalid_value"
    )

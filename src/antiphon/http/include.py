"""The `include` of a query: what a look-up shows beside the rest (responses-api 1.1, B4)."""

from __future__ import annotations

from urllib.parse import parse_qs

from antiphon.http.exchange import Exchange

__all__ = ["read_include"]

_NAMES = ("include", "include[]")
_MOST = 64


def read_include(exchange: Exchange) -> frozenset[str]:
    """What is included: values given one by one, in brackets as the SDKs do it, or with commas between.

    Values that mean nothing are ignored.
    """
    query = parse_qs(exchange.asgi["query_string"].decode("latin-1"))
    given = [value for name in _NAMES for value in query.get(name, [])]
    return frozenset([name.strip() for value in given for name in value.split(",")][:_MOST])

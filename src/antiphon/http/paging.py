"""Pages of lists over HTTP: what a query asks for, and the list object that answers it (responses-api 1.1, 1.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.http.exchange import Exchange
from antiphon.protocol.json import loads, quoted

__all__ = ["Page", "list_object", "read_page"]

DEFAULT_LIMIT = 20
MAX_LIMIT = 100


class Page(Struct, frozen=True):
    """What of a list is asked for: at most `limit` items after the one with that id."""

    limit: int
    newest_first: bool
    after: str | None


def read_page(exchange: Exchange, *, default: int = DEFAULT_LIMIT, most: int = MAX_LIMIT) -> Page:
    """The page of a query: `limit`, `order` and `after`; newest first unless `order=asc`.

    Raises:
        InvalidRequestError: a limit that is out of range, or an unknown order.
    """
    limit = exchange.query_integer("limit")
    limit = default if limit is None else limit
    if not 1 <= limit <= most:
        raise InvalidRequestError(
            f"Invalid 'limit': an integer from 1 to {most} is expected, but got {limit}.",
            param="limit",
            code="invalid_value",
        )
    order = exchange.query("order") or "desc"
    if order not in ("asc", "desc"):
        raise InvalidRequestError(
            f"Invalid value: '{quoted(order)}'. Supported values are: 'asc' and 'desc'.",
            param="order",
            code="invalid_value",
        )
    return Page(limit, order == "desc", exchange.query("after") or None)


def list_object(bodies: Sequence[bytes], has_more: bool) -> dict[str, Any]:
    """The list of items, each given as its JSON."""
    data = [loads(body) for body in bodies]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }

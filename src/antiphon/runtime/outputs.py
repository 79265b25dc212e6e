"""From a response to what is kept and told of it: its output as items, and an error as it carries it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from antiphon.errors import APIError
from antiphon.protocol.items import Item, RawItem, decode_stored_item
from antiphon.protocol.json import encode
from antiphon.protocol.response import ERROR_CODES, Response, ResponseError

__all__ = ["items_of", "output_items", "response_error"]


def output_items(response: Response) -> list[Item]:
    """The output as items; plain objects are raw items."""
    return items_of(response.output)


def items_of(output: Iterable[Any]) -> list[Item]:
    """The same of any objects of an output."""
    return [_raw_item(item) if isinstance(item, dict) else item for item in output]


def _raw_item(body: Any) -> Item:
    if body["type"] == "reasoning":
        # A sealed thought without words, which came whole.
        return decode_stored_item(encode(body))
    return RawItem(body["type"], body["id"], body)


def response_error(error: APIError) -> ResponseError:
    """An error as a response carries it."""
    code = error.code if error.code in ERROR_CODES else None
    return ResponseError(code or "server_error", error.message, error.type)

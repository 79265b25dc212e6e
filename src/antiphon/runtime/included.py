"""What a look-up shows of hosted items: results by `include`, and nothing that is kept for this server alone (B4).

The store has the items of a response in full. Its snapshot shows what the request that made it asked for; what a
look-up includes beside that is put in from the items.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from antiphon.protocol.hosted import HOSTED_ITEMS, project
from antiphon.protocol.json import encode, loads

__all__ = ["shown_item", "shown_items", "with_included"]

_PLACES = ("output", "hosted_tool_calls")


class _Head(Struct):
    type: str = ""


_head = msgspec.json.Decoder(_Head)


def shown_item(body: bytes, include: Collection[str] = ()) -> bytes:
    """The JSON of a stored item as it is shown."""
    if _head.decode(body).type not in HOSTED_ITEMS:
        return body
    return encode(project(loads(body), include))


def shown_items(bodies: Iterable[bytes], include: Collection[str] = ()) -> list[bytes]:
    """The same of many."""
    return [shown_item(body, include) for body in bodies]


async def with_included(
    body: bytes, include: Collection[str], full: Callable[[Sequence[str]], Awaitable[Mapping[str, Any]]]
) -> bytes:
    """The JSON of a response with what is included of its hosted items beside what it shows anyway.

    `full` gives items by their ids, in full, those that it has.
    """
    wanted = {name.partition(".")[0] for name in include} & HOSTED_ITEMS
    if not wanted or not any(f'"{kind}"'.encode() in body for kind in wanted):
        return body
    response: dict[str, Any] = loads(body)
    shown = [
        item
        for place in _PLACES
        for item in cast("list[dict[str, Any]]", response.get(place) or [])
        if item.get("type") in wanted
    ]
    items = await full([str(item["id"]) for item in shown])
    for item in shown:
        whole = items.get(str(item["id"]))
        if whole is not None:
            _add(item, project(whole, include))
    return encode(response)


def _add(item: dict[str, Any], seen: Mapping[str, Any]) -> None:
    """Add what is seen of an item to what is shown of it."""
    for name, value in seen.items():
        if item.get(name) is None:
            item[name] = value
        elif name == "action" and isinstance(value, dict):
            item[name] = {**cast("dict[str, Any]", value), **item[name]}

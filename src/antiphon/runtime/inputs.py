"""Input items on their way in: references are resolved, ids are kept or made anew, bodies are encoded for the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from antiphon.errors import InvalidRequestError, NotFoundError
from antiphon.prompt.hosted import SENT_ID
from antiphon.protocol.hosted import HOSTED_ITEMS, project
from antiphon.protocol.ids import is_id, item_prefix
from antiphon.protocol.items import (
    CustomToolCallOutput,
    FunctionCallOutput,
    Item,
    ItemReference,
    RawItem,
    decode_stored_item,
    encode_item,
)
from antiphon.protocol.json import loads, quoted
from antiphon.store.base import Scope, Store, StoredItem

__all__ = ["answered_calls", "resolve_items", "stored_items"]


async def resolve_items(
    store: Store | None, scope: Scope, items: Sequence[Item], max_bytes: int, field: str = "input"
) -> list[Item]:
    """The items, references replaced by what is stored, and no id that is not ours. `field` is where they came in.

    An item keeps an id that is ours in this scope and whose stored body is equal to it; any other id is dropped, so
    that the item gets a new one (issue 2, Input). References are bounded by what they refer to: together at most
    `max_bytes`, as if the items had been sent.

    Raises:
        NotFoundError: a reference to an item that is not stored in this scope.
        InvalidRequestError: the references stand for more than `max_bytes`.
    """
    wanted = [item.id for item in items if item.id is not None and _may_be_ours(item)]
    known = await store.get_items(scope, wanted) if store is not None and wanted else {}
    referred: dict[str, Item] = {}
    size = 0
    resolved: list[Item] = []
    for index, item in enumerate(items):
        if isinstance(item, ItemReference):
            body = known.get(item.id)
            if body is None:
                raise NotFoundError(
                    f"Item with id '{quoted(item.id)}' not found.", param=f"{field}[{index}].id", code="item_not_found"
                )
            size += len(body)
            if size > max_bytes:
                raise InvalidRequestError(
                    f"The item references stand for more than {max_bytes} bytes.",
                    param=f"{field}[{index}]",
                    code="request_too_large",
                )
            if item.id not in referred:
                referred[item.id] = decode_stored_item(body)
            resolved.append(referred[item.id])
            continue
        body = known.get(item.id or "")
        if isinstance(item, RawItem) and item.type in HOSTED_ITEMS:
            resolved.append(_hosted(item, body))
            continue
        if item.id is not None and not _is_stored(item, body):
            item.id = None
            if isinstance(item, RawItem):
                item.body.pop("id", None)
        resolved.append(item)
    return resolved


def _hosted(item: RawItem, body: bytes | None) -> RawItem:
    """An item of a hosted tool that a client sends back: in full where it is one of ours.

    Else it gets an id of ours.
    """
    stored: Any = None if body is None else loads(body)
    if stored is not None and _as_seen(stored) == _as_seen(item.body):
        return RawItem(item.type, item.id, stored)
    sent = {name: value for name, value in item.body.items() if not name.startswith("_")}
    sent_id = sent.pop("id", None)
    if isinstance(sent_id, str) and item.type == "mcp_approval_request":
        # Its answer names it so.
        sent[SENT_ID] = sent_id
    return RawItem(item.type, None, sent)


def _as_seen(body: dict[str, Any]) -> dict[str, Any]:
    """What a client is shown of an item whatever it asks for, without what is absent."""
    return {name: value for name, value in project(body).items() if value is not None}


def stored_items(items: Iterable[Item]) -> list[StoredItem]:
    """The rows of items; an item without an id gets one."""
    rows: list[StoredItem] = []
    for item in items:
        body = encode_item(item)
        rows.append(StoredItem(item.id or "", body))
    return rows


def answered_calls(items: Iterable[Item]) -> set[str]:
    """The ids of the calls whose outputs are among the items."""
    answered: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCallOutput | CustomToolCallOutput):
            answered.add(item.call_id or "")
        elif isinstance(item, RawItem) and item.type.endswith("_output"):
            answered.add(str(item.body.get("call_id")))
    return answered


def _is_stored(item: Item, body: bytes | None) -> bool:
    """Whether this is the JSON of the item; of one that is kept as it came, in whatever order its fields stand."""
    if body is None:
        return False
    return loads(body) == item.body if isinstance(item, RawItem) else body == encode_item(item)


def _may_be_ours(item: Item) -> bool:
    if item.id is None:
        return False
    if isinstance(item, ItemReference):
        return is_id(item.id.partition("_")[0], item.id)
    kind = item.type if isinstance(item, RawItem) else str(item.__struct_config__.tag)
    return is_id(item_prefix(kind), item.id)

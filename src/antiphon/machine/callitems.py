"""Items of calls that are no functions, as plain objects: a shell, patches, a search for tools."""

from __future__ import annotations

from typing import Any, cast

from antiphon.protocol.ids import item_prefix, new_id

__all__ = ["call_item", "identity_of"]


def call_item(type: str, **fields: Any) -> dict[str, Any]:  # noqa: A002 - the wire's name
    """A call that begins, with ids of its own; a search that the server makes has none to answer to."""
    call_id = None if fields.get("execution") == "server" else new_id("call")
    return {"id": new_id(item_prefix(type)), "type": type, "status": "in_progress", "call_id": call_id, **fields}


def identity_of(item: Any) -> str:
    """The id of an item, a struct or a plain object."""
    return cast("dict[str, str]", item)["id"] if isinstance(item, dict) else item.id

"""The routes under `/v1/conversations`, and the same without `/v1` (responses-api 1.2).

`include[]` says what is shown of hosted items; all others are listed with all that is stored of them.
"""

from __future__ import annotations

from antiphon.http.exchange import Exchange
from antiphon.http.include import read_include
from antiphon.http.paging import list_object, read_page
from antiphon.protocol.conversation import decode_create_conversation, decode_new_items, decode_new_metadata
from antiphon.runtime.conversations import Conversations
from antiphon.runtime.rules import persistence_off
from antiphon.runtime.service import Service

__all__ = ["ConversationsRoutes"]


class ConversationsRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, exchange: Exchange) -> None:
        """`POST /conversations`."""
        body = decode_create_conversation(await exchange.body())
        await exchange.reply_json(await self._conversations().create(exchange.scope, body))

    async def retrieve(self, exchange: Exchange) -> None:
        """`GET /conversations/{id}`."""
        await exchange.reply_json(await self._conversations().retrieve(exchange.scope, _id(exchange)))

    async def update(self, exchange: Exchange) -> None:
        """`POST /conversations/{id}`: its metadata is replaced."""
        metadata = decode_new_metadata(await exchange.body())
        await exchange.reply_json(await self._conversations().update(exchange.scope, _id(exchange), metadata))

    async def delete(self, exchange: Exchange) -> None:
        """`DELETE /conversations/{id}`."""
        await exchange.reply_json(await self._conversations().delete(exchange.scope, _id(exchange)))

    async def add_items(self, exchange: Exchange) -> None:
        """`POST /conversations/{id}/items`: the items as they were added, in their order."""
        items = decode_new_items(await exchange.body())
        bodies = await self._conversations().add_items(exchange.scope, _id(exchange), items)
        await exchange.reply_json(list_object(bodies, has_more=False))

    async def list_items(self, exchange: Exchange) -> None:
        """`GET /conversations/{id}/items`: pages by item id; newest first unless `order=asc`."""
        page = read_page(exchange)
        bodies, has_more = await self._conversations().list_items(
            exchange.scope,
            _id(exchange),
            newest_first=page.newest_first,
            after=page.after,
            limit=page.limit,
            include=read_include(exchange),
        )
        await exchange.reply_json(list_object(bodies, has_more))

    async def retrieve_item(self, exchange: Exchange) -> None:
        """`GET /conversations/{id}/items/{item_id}`."""
        item_id = exchange.path_parameter("item_id")
        body = await self._conversations().retrieve_item(exchange.scope, _id(exchange), item_id, read_include(exchange))
        await exchange.reply(body)

    async def delete_item(self, exchange: Exchange) -> None:
        """`DELETE /conversations/{id}/items/{item_id}`: the conversation, not the item."""
        item_id = exchange.path_parameter("item_id")
        await exchange.reply_json(await self._conversations().delete_item(exchange.scope, _id(exchange), item_id))

    def _conversations(self) -> Conversations:
        found = self._service.conversations
        if found is None:
            raise persistence_off()
        return found


def _id(exchange: Exchange) -> str:
    return exchange.path_parameter("conversation_id")

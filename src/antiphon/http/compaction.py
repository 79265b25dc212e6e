"""The routes `/v1/responses/compact` and `/v1/responses/input_tokens` (responses-api 2.3 and 2.4)."""

from __future__ import annotations

from antiphon.http.exchange import Exchange
from antiphon.http.leaving import unless_left
from antiphon.runtime.contexts import Contexts
from antiphon.runtime.service import Service

__all__ = ["CompactionRoutes"]


class CompactionRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._contexts = Contexts(service)

    async def compact(self, exchange: Exchange) -> None:
        """`POST /responses/compact`; a client that leaves stops the summary."""
        work = self._contexts.compact(exchange.scope, await exchange.body())
        await exchange.reply(await unless_left(exchange, work))

    async def input_tokens(self, exchange: Exchange) -> None:
        """`POST /responses/input_tokens`."""
        count = await self._contexts.count(exchange.scope, await exchange.body())
        await exchange.reply_json({"object": "response.input_tokens", "input_tokens": count})

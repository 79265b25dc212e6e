"""The routes `/v1/responses/compact` and `/v1/responses/input_tokens` (responses-api 2.3 and 2.4)."""

from __future__ import annotations

import asyncio

from antiphon.http.exchange import ClientDisconnectedError, Exchange
from antiphon.runtime.contexts import Contexts
from antiphon.runtime.service import Service

__all__ = ["CompactionRoutes"]


class CompactionRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._contexts = Contexts(service)

    async def compact(self, exchange: Exchange) -> None:
        """`POST /responses/compact`; a client that leaves stops the summary."""
        work = asyncio.create_task(self._contexts.compact(exchange.scope, await exchange.body()))
        gone = asyncio.create_task(_left(exchange))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientDisconnectedError
            await exchange.reply(work.result())
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def input_tokens(self, exchange: Exchange) -> None:
        """`POST /responses/input_tokens`."""
        count = await self._contexts.count(exchange.scope, await exchange.body())
        await exchange.reply_json({"object": "response.input_tokens", "input_tokens": count})


async def _left(exchange: Exchange) -> None:
    while (await exchange.receive())["type"] != "http.disconnect":
        pass

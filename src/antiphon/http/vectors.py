"""The routes `/v1/embeddings`, `/tokenize` and `/detokenize`, with and without `/v1`."""

from __future__ import annotations

from antiphon.http.exchange import Exchange
from antiphon.http.leaving import unless_left
from antiphon.runtime.service import Service
from antiphon.runtime.vectors import Vectors

__all__ = ["VectorsRoutes"]


class VectorsRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._vectors = Vectors(service)

    async def embed(self, exchange: Exchange) -> None:
        """`POST /embeddings`; nothing more is computed for a client that leaves."""
        work = self._vectors.embed(exchange.scope, await exchange.body())
        await exchange.reply(await unless_left(exchange, work))

    async def tokenize(self, exchange: Exchange) -> None:
        """`POST /tokenize`."""
        await exchange.reply(await self._vectors.tokenize(exchange.scope, await exchange.body()))

    async def detokenize(self, exchange: Exchange) -> None:
        """`POST /detokenize`."""
        await exchange.reply(await self._vectors.detokenize(exchange.scope, await exchange.body()))

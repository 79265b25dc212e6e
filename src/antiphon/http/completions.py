"""The routes `/v1/chat/completions` and `/v1/completions`, and the same without `/v1`."""

from __future__ import annotations

from antiphon.http.exchange import Exchange
from antiphon.http.foreground import answer
from antiphon.runtime.completions import CompletionRun, Completions
from antiphon.runtime.service import Service

__all__ = ["CompletionsRoutes"]


class CompletionsRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._beside = service.beside
        self._completions = Completions(service)
        self._keep_alive = service.settings.keep_alive_seconds

    async def chat(self, exchange: Exchange) -> None:
        """`POST /chat/completions`: the whole object, or a stream of chunks."""
        await self._answer(exchange, await self._completions.chat(exchange.scope, await exchange.body()))

    async def text(self, exchange: Exchange) -> None:
        """`POST /completions`: the same for text."""
        await self._answer(exchange, await self._completions.text(exchange.scope, await exchange.body()))

    async def _answer(self, exchange: Exchange, run: CompletionRun) -> None:
        exchange.release()
        work = self._beside.launch(run)
        # Of these a stream has nothing to say before its first token.
        await answer(exchange, run, work, self._keep_alive, stream=run.stream, held_seconds=self._keep_alive)

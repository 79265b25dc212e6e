"""The routes under `/v1/responses`, and the same without `/v1` (responses-api 1.1)."""

from __future__ import annotations

from antiphon.errors import InvalidRequestError
from antiphon.http.dialect import asked_dialect
from antiphon.http.exchange import Exchange
from antiphon.http.foreground import answer
from antiphon.http.include import read_include
from antiphon.http.paging import list_object, read_page
from antiphon.http.stream import stream_replay
from antiphon.runtime.idempotency import Earlier, Idempotency, idempotent
from antiphon.runtime.replays import Replay
from antiphon.runtime.runner import Run
from antiphon.runtime.service import Service

__all__ = ["ResponsesRoutes"]

_TRUE = ("true", "True", "1")


class ResponsesRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._idempotency = Idempotency(service)
        self._keep_alive = service.settings.keep_alive_seconds

    async def create(self, exchange: Exchange) -> None:
        """`POST /responses`: the whole object, or a stream of events."""
        dialect = asked_dialect(exchange.asgi)
        body = await exchange.body()
        path = str(exchange.asgi["path"])
        once = idempotent(exchange.header(b"idempotency-key"), exchange.method, path, body)
        if once is None:
            run = await self._service.create(exchange.scope, body, dialect=dialect)
        else:
            run = await self._idempotency.create(exchange.scope, body, once, dialect)
        exchange.release()
        if isinstance(run, Earlier):
            await self._again(exchange, run)
        elif run.plan.background:
            await self._background(exchange, run)
        else:
            # A client with a key may lose its connection and come back for the same response.
            stays = run.plan.idempotency is not None
            stream = run.plan.stream
            work = self._service.launch(run) if stream or stays else self._service.carry_out(run)
            await answer(exchange, run, work, self._keep_alive, stream=stream, stays=stays)

    async def _again(self, exchange: Exchange, earlier: Earlier) -> None:
        """The response of an earlier request with the same key."""
        found = await self._idempotency.again(exchange.scope, earlier)
        if isinstance(found, Replay):
            await stream_replay(exchange, found, -1, self._keep_alive)
        else:
            await exchange.reply(found)

    async def _background(self, exchange: Exchange, run: Run) -> None:
        """The response as it begins, or its events; it goes on when the client leaves."""
        accepted = run.body()
        self._service.submit(run)
        if run.plan.stream:
            replay = await self._service.replay(exchange.scope, run.id, -1)
            await stream_replay(exchange, replay, -1, self._keep_alive)
        else:
            await exchange.reply(accepted)

    async def retrieve(self, exchange: Exchange) -> None:
        """`GET /responses/{id}`: the object, or with `stream=true` its events after `starting_after`."""
        response_id = exchange.path_parameter("response_id")
        if exchange.query("stream") in _TRUE:
            await self._replay(exchange, response_id)
            return
        await exchange.reply(await self._service.retrieve(exchange.scope, response_id, read_include(exchange)))

    async def delete(self, exchange: Exchange) -> None:
        """`DELETE /responses/{id}`; with `chain=true` the whole chain that it belongs to (B22)."""
        response_id = exchange.path_parameter("response_id")
        chain = exchange.query("chain") in _TRUE
        await self._service.delete(exchange.scope, response_id, chain=chain)
        await exchange.reply_json({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, exchange: Exchange) -> None:
        """`POST /responses/{id}/cancel`."""
        body = await self._service.cancel(exchange.scope, exchange.path_parameter("response_id"))
        await exchange.reply(body)

    async def input_items(self, exchange: Exchange) -> None:
        """`GET /responses/{id}/input_items`: pages by item id; newest first unless `order=asc`."""
        page = read_page(exchange)
        bodies, has_more = await self._service.input_items(
            exchange.scope,
            exchange.path_parameter("response_id"),
            newest_first=page.newest_first,
            after=page.after,
            limit=page.limit,
            include=read_include(exchange),
        )
        await exchange.reply_json(list_object(bodies, has_more))

    async def _replay(self, exchange: Exchange, response_id: str) -> None:
        after = exchange.query_integer("starting_after")
        after = -1 if after is None else after
        if after < -1:
            raise InvalidRequestError(
                "Invalid 'starting_after': an event's sequence number is expected.",
                param="starting_after",
                code="invalid_value",
            )
        replay = await self._service.replay(exchange.scope, response_id, after)
        await stream_replay(exchange, replay, after, self._keep_alive)

"""The WebSocket mode of `/v1/responses` (responses-api 7): connections, and the responses that run on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from antiphon.errors import APIError, InternalError, UnavailableError, UnsupportedError
from antiphon.http import tickets
from antiphon.http.auth import Authenticator
from antiphon.http.dialect import asked_dialect
from antiphon.http.exchange import (
    ASGIScope,
    Bodies,
    ClientDisconnectedError,
    Receive,
    Send,
    common_headers,
    error_reply,
)
from antiphon.http.foreground import HELD_SECONDS, first_event
from antiphon.http.lanes import CONTINUABLE, Lanes
from antiphon.http.telemetry import Telemetry
from antiphon.http.tickets import EXPIRED, STOPPED, Effect, Ended, Ticket
from antiphon.http.turns import ConnectionTurns
from antiphon.protocol.context import compactions
from antiphon.protocol.ids import new_id
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, RawItem
from antiphon.protocol.request import CreateResponse, decode_create_response
from antiphon.protocol.websocket import error_frame, event_frame, lane_suffix
from antiphon.runtime.history import Turn
from antiphon.runtime.outputs import output_items
from antiphon.runtime.runner import Run
from antiphon.runtime.service import Service

__all__ = ["WebSockets", "required_input"]

ROUTE = "/responses"


class WebSockets:
    """All WebSocket connections of one server."""

    def __init__(self, service: Service, authenticator: Authenticator, bodies: Bodies, telemetry: Telemetry) -> None:
        self.service = service
        self.authenticator = authenticator
        self.bodies = bodies
        self.telemetry = telemetry
        self.turns = ConnectionTurns()
        self._open: set[_Connection] = set()

    async def __call__(self, asgi: ASGIScope, receive: Receive, send: Send) -> None:
        """Take one connection, to its end, or refuse it."""
        began = time.monotonic()
        request_id = new_id("req")
        status = 499
        try:
            await receive()
            try:
                await self.authenticator.authenticate(asgi["headers"])
                dialect = asked_dialect(asgi)
                if self.service.draining:
                    raise UnavailableError("The server is shutting down. Please try again later.", retry_after=5.0)
            except APIError as error:
                await _refuse(send, error, request_id)
                status = error.http_status
                return
            await send({"type": "websocket.accept", "headers": [*common_headers(request_id, 0)]})
            status = 101
        except ClientDisconnectedError:
            return
        finally:
            self.telemetry.http_request(ROUTE, "GET", status, time.monotonic() - began)
        connection = _Connection(self, asgi, receive, send, dialect)
        self._open.add(connection)
        self.telemetry.websockets(len(self._open))
        try:
            await connection.serve()
        finally:
            self._open.discard(connection)
            self.telemetry.websockets(len(self._open))

    def stop(self) -> None:
        """The server stops: let what runs on connections end, and take nothing new."""
        for connection in list(self._open):
            connection.stop()


async def _refuse(send: Send, error: APIError, request_id: str) -> None:
    headers, body = error_reply(error)
    length = (b"content-length", str(len(body)).encode())
    whole = [*headers, *common_headers(request_id, 0), length]
    await send({"type": "websocket.http.response.start", "status": error.http_status, "headers": whole})
    await send({"type": "websocket.http.response.body", "body": body})


class _Connection:
    """One connection: says to its lanes what happens, and does what they say."""

    def __init__(self, sockets: WebSockets, asgi: ASGIScope, receive: Receive, send: Send, dialect: str | None) -> None:
        self._sockets = sockets
        self._service = sockets.service
        self._headers: Sequence[tuple[bytes, bytes]] = asgi["headers"]
        self._dialect = dialect
        self._receive = receive
        self._send = send
        self._lanes: Lanes[Turn] = Lanes(sockets.turns)
        self._held = 0
        self._runs: dict[Ticket, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # What is decided in one order is sent in that order, also where senders wait for a slow client.
        self._order = asyncio.Lock()

    async def serve(self) -> None:
        """Take messages until the connection has ended; what still runs on it then is left."""
        self._begin(self._expire())
        try:
            while (message := await self._receive())["type"] == "websocket.receive":
                data = message.get("bytes")
                await self._do(self._lanes.receive(message["text"].encode() if data is None else data))
        except ClientDisconnectedError:
            pass
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._lanes.abandon()
            self._sockets.bodies.held -= self._held

    def stop(self) -> None:
        """Take nothing new, and close when what runs has ended."""
        self._begin(self._stop())

    async def _stop(self) -> None:
        await self._do(self._lanes.close(STOPPED))

    async def _expire(self) -> None:
        settings = self._service.settings
        await asyncio.sleep(settings.websocket_lifetime)
        await self._do(self._lanes.close(EXPIRED))
        await asyncio.sleep(settings.drain_timeout)
        await self._do(self._lanes.cut())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ClientDisconnectedError:
            pass
        except Exception as error:  # noqa: BLE001 - the last line: the other lanes go on
            self._sockets.telemetry.fault("a WebSocket request failed", error)

    async def _do(self, effects: Iterable[Effect]) -> None:
        self._sockets.bodies.held += self._lanes.held - self._held
        self._held = self._lanes.held
        async with self._order:
            for effect in effects:
                if isinstance(effect, tickets.Send):
                    await self._send({"type": "websocket.send", "text": effect.data.decode()})
                elif isinstance(effect, tickets.Start):
                    self._begin(self._run(effect.ticket, effect.parent))
                elif isinstance(effect, tickets.Close):
                    await self._send({"type": "websocket.close", "code": effect.code})
                else:
                    self._stop_run(effect)

    def _stop_run(self, effect: tickets.Interrupt | tickets.Leave) -> None:
        run = self._runs.get(effect.ticket)
        if run is None:
            return
        if isinstance(effect, tickets.Interrupt):
            run.steer()
        else:
            run.leave()

    async def _run(self, ticket: Ticket, parent: Turn | None) -> None:
        """Create the response of a ticket, send its events, and say how it ended."""
        try:
            request = _request(ticket)
            scope = await self._sockets.authenticator.authenticate(self._headers)
            run = await self._service.create(scope, request, parent=parent, dialect=self._dialect)
        except APIError as error:
            await self._do(self._lanes.refused(ticket, error))
            return
        except Exception as error:  # noqa: BLE001 - a client never sees a traceback
            self._sockets.telemetry.fault("a WebSocket request failed", error)
            fault = InternalError("The server had an error while processing your request.")
            await self._do(self._lanes.refused(ticket, fault))
            return
        self._runs[ticket] = run
        ended = self._service.launch(run)
        try:
            await self._do(self._lanes.began(ticket, run.id, request, steerable=_steerable(request)))
            await first_event(run.live, HELD_SECONDS)
            if run.declined is None:
                await self._pump(ticket, run)
            await asyncio.shield(ended)
        except BaseException:
            run.leave()
            raise
        finally:
            del self._runs[ticket]
        error = run.declined or (_BROKEN if run.broken else None)
        told: list[Effect] = [] if error is None else [tickets.Send(error_frame(error, ticket.stream_id))]
        await self._do([*told, *self._lanes.ended(ticket, _end_of(run))])

    async def _pump(self, ticket: Ticket, run: Run) -> None:
        suffix = lane_suffix(ticket.stream_id)
        live = run.live
        number = 0
        while True:
            for frame in live.slice(number):
                text = event_frame(frame, suffix).decode()
                async with self._order:
                    await self._send({"type": "websocket.send", "text": text})
                ticket.sequence = number
                number += 1
            if number >= live.published:
                if live.closed:
                    break
                await live.wait()


def _request(ticket: Ticket) -> CreateResponse:
    """What a ticket asks for: its message, or what the response before it asked for, and the steers that come first.

    Raises:
        InvalidRequestError: the message is no request.
    """
    if ticket.settings is not None:
        request = replace(ticket.settings, previous_response_id=ticket.parent_id)
    else:
        request = decode_create_response(ticket.message.body if ticket.message is not None else b"{}")
        if request.background:
            raise UnsupportedError(
                "'background' is not supported over WebSocket: use POST /v1/responses for background responses.",
                param="background",
                code="unsupported_parameter",
            )
    request.stream = True
    if ticket.steers:
        request.items = [*(item for steer in ticket.steers for item in steer.items), *request.items]
    return request


def _steerable(request: CreateResponse) -> bool:
    compacts = bool(compactions(request.context_management)) or request.compaction_trigger
    return request.generate and request.conversation is None and not compacts


_BROKEN = InternalError("The server had an error while generating.")


def _end_of(run: Run) -> Ended[Turn]:
    if run.moved:
        return Ended("failed")
    response = run.plan.response
    # A conversation holds its own history; one that no store has could not be told apart from it.
    unstored = run.plan.store is None and response.status in CONTINUABLE and not response.conversation
    required = list(required_input(output_items(response)))
    return Ended(response.status, required, run.ended_turn() if unstored else None)


_OUTPUTS = {
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "local_shell_call": "local_shell_call_output",
}


def required_input(output: Iterable[Item]) -> Iterator[dict[str, Any]]:
    """Stubs of the outputs and decisions that a client owes to a response before it can go on."""
    for item in output:
        if isinstance(item, FunctionCall | CustomToolCall):
            if item.status == "incomplete":
                continue
            if isinstance(item, FunctionCall):
                yield {"type": "function_call_output", "call_id": item.call_id, "name": item.name}
            else:
                yield {"type": "custom_tool_call_output", "call_id": item.call_id}
        elif isinstance(item, RawItem):
            body = item.body
            if item.type in _OUTPUTS:
                yield {"type": _OUTPUTS[item.type], "call_id": body.get("call_id")}
            elif item.type == "tool_search_call" and body.get("execution") == "client":
                yield {"type": "tool_search_output", "call_id": body.get("call_id"), "execution": "client"}
            elif item.type == "mcp_approval_request":
                yield {"type": "mcp_approval_response", "approval_request_id": body.get("id")}

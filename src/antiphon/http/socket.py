"""One WebSocket connection: frames by wsproto, and bounds and deadlines of our own.

The application gets an ASGI scope of type `websocket` and may refuse it with a whole HTTP answer. Frames are not
compressed: a compressed one could be a thousand times as large as what came in.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from msgspec import Struct
from uvicorn.server import ServerState
from wsproto import events
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.utilities import LocalProtocolError, generate_accept_token

from antiphon.errors import ServerBusyError
from antiphon.http.exchange import ASGIScope, Bodies, ClientDisconnectedError, Receive, Send
from antiphon.http.pace import Backlog, Intake

__all__ = ["Socket", "SocketLimits"]

CLOSE_SECONDS = 2.0
"""How long the client may take to answer the end of the connection."""

App = Callable[[ASGIScope, Receive, Send], Awaitable[None]]


class SocketLimits(Struct, frozen=True):
    """What a connection may hold: `bodies` bounds messages. After `keep_alive` seconds of silence there is a ping."""

    bodies: Bodies
    keep_alive: float


class _State(enum.Enum):
    CONNECTING = enum.auto()
    OPEN = enum.auto()
    ENDING = enum.auto()
    """The end was sent, or a refusal begun: what still comes in is of no interest."""
    LOST = enum.auto()


class Socket(asyncio.Protocol):
    """One connection, from the head of the request for it on, which HTTP has read."""

    def __init__(self, limits: SocketLimits, app: App, server_state: ServerState, scope: ASGIScope, key: bytes) -> None:
        self._app = app
        self._server = server_state
        self._limits = limits
        self._scope = scope
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(ConnectionType.SERVER)
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "websocket.connect"})
        self._state = _State.CONNECTING
        self._refusal: list[bytes] = []
        self._message = bytearray()
        self._held = 0
        self._reading = True
        self._writable = asyncio.Event()
        self._writable.set()
        self._intake = Intake()
        self._backlog = Backlog()
        self._heard_at = self._pinged_at = self._loop.time()
        self._ended_at = 0.0

    def begin(self, transport: asyncio.Transport) -> None:
        """Take the transport over, and let the application decide."""
        self.transport = transport
        transport.set_protocol(self)
        self._server.connections.add(self)  # type: ignore[arg-type]
        task = self._loop.create_task(self._run())
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self.receive, self.send)
        finally:
            self._release(self._held)
            if self._state in (_State.CONNECTING, _State.OPEN):
                self._end(1011, "")

    # What the loop calls

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection is gone: the application is told."""
        del exc
        self._state = _State.LOST
        self._server.connections.discard(self)  # type: ignore[arg-type]
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})
        self._writable.set()

    def pause_writing(self) -> None:
        """Called when the client takes in less than it is sent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called when it has taken in most of it."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Called for bytes that came in."""
        self._heard_at = self._loop.time()
        if self._state is _State.CONNECTING:
            # A client waits for the answer before it sends frames (RFC 6455 4.1).
            self.transport.abort()
        elif self._connection.state in (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING):
            self._connection.receive_data(data)
            for event in self._connection.events():
                self._take(event)

    def shutdown(self) -> None:
        """Called when the server stops: the application, which was told before, ends what it has begun."""

    def check(self, now: float, receive_timeout: float, write_timeout: float) -> None:
        """Called every moment: end the connection where its client has been still for too long."""
        if self._backlog.stuck(self.transport, now, write_timeout):
            self.transport.abort()
        elif self._state is _State.ENDING:
            if now - self._ended_at >= CLOSE_SECONDS:
                self.transport.close()
        elif not self._reading:
            # What we do not read cannot come.
            self._heard_at = now
            self._intake.restart()
        elif self._message and self._intake.late(now, receive_timeout, len(self._message)):
            self._end(1008, "The message did not come in time.")
        elif now - self._heard_at >= self._limits.keep_alive + write_timeout:
            self.transport.abort()
        elif self._state is _State.OPEN and now - max(self._heard_at, self._pinged_at) >= self._limits.keep_alive:
            self._pinged_at = now
            self.transport.write(self._connection.send(events.Ping()))

    # What comes in

    def _take(self, event: events.Event) -> None:
        if isinstance(event, events.CloseConnection):
            self._closed(event)
        elif self._state is not _State.OPEN:
            return
        elif isinstance(event, events.TextMessage | events.BytesMessage):
            self._piece(event)
        elif isinstance(event, events.Ping) and self._writable.is_set():
            # Whoever sends pings and does not read gets no answers that would heap up.
            self.transport.write(self._connection.send(event.response()))

    def _piece(self, event: events.TextMessage | events.BytesMessage) -> None:
        data = event.data.encode() if isinstance(event, events.TextMessage) else bytes(event.data)
        bodies = self._limits.bodies
        if len(self._message) + len(data) > bodies.largest:
            self._end(1009, f"A message may have {bodies.largest} bytes.")
            return
        try:
            bodies.take(len(data))
        except ServerBusyError:
            self._end(1013, "Too many messages are being received. Please try again later.")
            return
        self._held += len(data)
        self._message += data
        if not event.message_finished:
            return
        whole = bytes(self._message)
        self._message.clear()
        self._intake.restart()
        if isinstance(event, events.BytesMessage) and not _is_text(whole):
            self._end(1007, "Messages are text.")
            return
        self._inbox.put_nowait({"type": "websocket.receive", "bytes": whole})
        self._read(False)

    def _closed(self, event: events.CloseConnection) -> None:
        """The client ends the connection, answers to our end of it, or broke the rules."""
        if self._connection.state is ConnectionState.OPEN:
            self._end(event.code, event.reason or "")
            return
        if self._connection.state is ConnectionState.REMOTE_CLOSING:
            self.transport.write(self._connection.send(event.response()))
        self._state = _State.ENDING
        self.transport.close()
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": event.code})

    def _end(self, code: int, reason: str) -> None:
        """Send the end; the transport is closed when the client has answered, or does not in time."""
        if self._state is _State.CONNECTING:
            self.transport.abort()
        elif self._state is _State.OPEN:
            self.transport.write(self._connection.send(events.CloseConnection(code=code, reason=reason)))
        else:
            return
        self._state = _State.ENDING
        self._ended_at = self._loop.time()
        self._read(True)
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": code})

    def _read(self, wanted: bool) -> None:
        if wanted is self._reading or self.transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _release(self, size: int) -> None:
        self._held -= size
        self._limits.bodies.held -= size

    # What the application calls

    async def receive(self) -> dict[str, Any]:
        """The next ASGI message. Whoever takes a message out holds its bytes from then on."""
        message = await self._inbox.get()
        if self._inbox.empty() and self._state is _State.OPEN:
            self._read(True)
        if message["type"] == "websocket.receive":
            self._release(len(message["bytes"]))
        return message

    async def send(self, message: Any) -> None:
        """Send an ASGI message; one that a client which is gone would have got is dropped.

        Raises:
            ClientDisconnectedError: the connection has ended.
        """
        await self._writable.wait()
        kind = message["type"]
        if self._state in (_State.LOST, _State.ENDING):
            raise ClientDisconnectedError
        if kind == "websocket.send":
            try:
                frame = self._connection.send(events.TextMessage(data=message["text"]))
            except LocalProtocolError:
                raise ClientDisconnectedError from None
            self.transport.write(frame)
        elif kind == "websocket.close":
            self._end(message["code"], message.get("reason") or "")
        elif kind == "websocket.accept":
            accept = (b"sec-websocket-accept", generate_accept_token(self._key))
            headers = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade"), accept, *message["headers"]]
            self._state = _State.OPEN
            self.transport.write(self._head(101, headers))
        elif kind == "websocket.http.response.start":
            self._refusal.append(self._head(message["status"], [*message["headers"], (b"connection", b"close")]))
        else:
            self._refusal.append(message["body"])
            self._state = _State.ENDING
            self._ended_at = self._loop.time()
            self.transport.write(b"".join(self._refusal))
            self.transport.close()

    def _head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
        lines += [b"%s: %s" % header for header in (*self._server.default_headers, *headers)]
        return b"\r\n".join((*lines, b"", b""))


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

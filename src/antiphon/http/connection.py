"""What one connection may cost: a bound on the head of a request, and deadlines for clients that are still.

uvicorn has none of them. They are kept where bytes come in, since the application sees a request only after its head.
A request for a WebSocket turns the connection into one (see `socket.py`).
"""

from __future__ import annotations

import asyncio
import enum
from array import array
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from antiphon.errors import APIError, InvalidRequestError, ServerBusyError
from antiphon.http.exchange import common_headers, error_reply
from antiphon.http.pace import Backlog, Intake
from antiphon.http.socket import Socket
from antiphon.protocol.ids import new_id

__all__ = ["SOCKET_PATHS", "BoundedProtocol", "watch"]

SOCKET_PATHS = frozenset({b"/v1/responses", b"/responses"})
"""Where a WebSocket is to be had."""

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 256
SPARE_CONNECTIONS = 32
"""So many above the limit are answered 503, and their `/health` is; the rest is closed without a word."""

LINGER_SECONDS = 2.0
LONGEST_STEP = 1.0


class _Phase(enum.Enum):
    IDLE = enum.auto()
    """No request is being received: the whole of the last one is here."""
    HEAD = enum.auto()
    BODY = enum.auto()


_UPGRADE_HEADERS = frozenset({b"upgrade", b"connection", b"http2-settings"})


class _PlainParser(httptools.HttpRequestParser):
    """A parser that takes a request for an upgrade as it stands, as RFC 9110 asks of who does not upgrade.

    Java's HttpClient and `curl --http2` ask for h2c with every first request; the parser below takes such a request
    for one without a body. Only a request for a WebSocket, where there are any, is taken at its word.
    """

    def __init__(self, protocol: BoundedProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes | bytearray | memoryview[int] | array[int]) -> None:
        """Parse bytes; the protocol's callbacks get what they mean."""
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._protocol.upgrade(bytes(data)[upgrade.args[0] :])


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's connection with bounds; `limit_concurrency` is how many connections there may be.

    `ws` of its configuration is None or `"none"`, or makes a `Socket` of all that one takes but the limits.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.parser = _PlainParser(self)
        # Here, since uvicorn answers those above it without the envelope.
        self._most = self.limit_concurrency
        self.limit_concurrency = None
        self._crowded = False
        # A connection that says nothing is as slow as one that says half of what it wants.
        self._phase = _Phase.HEAD
        self._received = 0
        self._chunk = 0
        self._unparsed = 0
        self._refused = False
        self._fault: APIError | None = None
        self._intake = Intake()
        self._backlog = Backlog()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called for a new connection: count it."""
        super().connection_made(transport)
        if self._most is None:
            return
        self._crowded = len(self.connections) > self._most
        if len(self.connections) > self._most + SPARE_CONNECTIONS:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Called for bytes that came in."""
        if self._refused:
            return
        self._chunk = len(data)
        self._received += self._chunk
        if self._phase is _Phase.IDLE:
            self._phase = _Phase.HEAD
            self._unparsed = 0
        else:
            self._unparsed += self._chunk
        super().data_received(data)
        # Of a line without an end, and of what follows a chunked body, nothing is handed on that could be counted.
        if self._unparsed > MAX_HEAD_BYTES and self._receiving():
            self._refuse(_head_too_large())

    def upgrade(self, rest: bytes) -> None:
        """A head asked for an upgrade, and `rest` followed it: become a WebSocket, or go on as if it had not asked."""
        key = self._socket_key()
        if key is None:
            self._go_on_without_upgrade(rest)
        elif rest:
            # A client waits for the answer before it sends frames (RFC 6455 4.1).
            raise httptools.HttpParserError("frames before the answer")
        else:
            self._become_socket(key)

    def _socket_key(self) -> bytes | None:
        """The key of a proper request for a WebSocket, where there is one to be had."""
        names = [name for name, _ in self.headers]
        headers = dict(self.headers)
        key = headers.get(b"sec-websocket-key")
        proper = (
            self.ws_protocol_class is not None
            and self.url.partition(b"?")[0] in SOCKET_PATHS
            and self.parser.get_method() == b"GET"
            and self.parser.get_http_version() == "1.1"
            and headers.get(b"upgrade", b"").lower() == b"websocket"
            and headers.get(b"sec-websocket-version") == b"13"
            and headers.get(b"content-length", b"0") == b"0"
            and b"transfer-encoding" not in headers
            and names.count(b"host") == names.count(b"upgrade") == names.count(b"sec-websocket-key") == 1
        )
        return key if proper and not self._busy() and not self.pipeline else None

    def _become_socket(self, key: bytes) -> None:
        path, _, query = self.url.partition(b"?")
        scope: dict[str, Any] = {
            **cast(dict[str, Any], self.scope),
            "type": "websocket",
            "scheme": "wss" if self.scheme == "https" else "ws",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "headers": self.headers,
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        self._phase = _Phase.IDLE
        self.connections.discard(self)
        make = cast(Callable[..., Socket], self.ws_protocol_class)
        make(cast(Any, self).app, self.server_state, scope, key).begin(self.transport)

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Parse the head that asked for an upgrade again without it, and then what followed it."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserError("CONNECT")
        head = [method, b" ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name not in _UPGRADE_HEADERS:
                head += [name, b": ", value, b"\r\n"]
        self.parser = _PlainParser(self)
        self.parser.feed_data(b"".join((*head, b"\r\n", rest)))

    def on_message_begin(self) -> None:
        """Called by the parser at the first byte of a request."""
        self._phase = _Phase.HEAD
        self._unparsed = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Called by the parser after the head of a request: refuse it, or hand it to the application."""
        if len(self.headers) > MAX_HEADERS or (
            # Else all of it came in one chunk that is small enough.
            (self._unparsed or self._chunk > MAX_HEAD_BYTES) and self._head_bytes() > MAX_HEAD_BYTES
        ):
            self._fault = _head_too_large()
        elif self._crowded and self.url != b"/health":
            self._fault = ServerBusyError("Too many connections. Please try again later.")
        if self._fault is not None:
            # The parser stops, and uvicorn has the fault answered.
            raise self._fault
        if self.parser.should_upgrade():
            return
        super().on_headers_complete()
        self._phase = _Phase.BODY
        self._intake.restart()
        self._unparsed = 0

    def on_body(self, body: bytes) -> None:
        """Called by the parser for a piece of a body."""
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Called by the parser at the end of a request."""
        if self.parser.should_upgrade():
            return
        self._phase = _Phase.IDLE
        self._intake.restart()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn where the parser stopped."""
        self._refuse(self._fault or InvalidRequestError(msg, code="invalid_http"))

    def check(self, now: float, receive_timeout: float, write_timeout: float) -> None:
        """Called every moment: end the connection where its client has been still for too long."""
        if self._backlog.stuck(self.transport, now, write_timeout):
            # An application that still writes sees that its client is gone.
            self.transport.abort()
        elif not self.transport.is_closing() and self._slow(now, receive_timeout):
            if self._received == 0:
                self.transport.close()
            else:
                self._refuse(
                    InvalidRequestError("The request did not come in time.", http_status=408, code="request_timeout")
                )

    def _slow(self, now: float, timeout: float) -> bool:
        # A next request may wait while one is answered, and what we do not read cannot come.
        answering = self._phase is _Phase.HEAD and self._busy()
        if not self._receiving() or self._refused or answering or self.flow.read_paused:
            self._intake.restart()
            return False
        return self._intake.late(now, timeout, self._received, may_go_on=self._phase is _Phase.BODY)

    def _receiving(self) -> bool:
        return self._phase is not _Phase.IDLE

    def _busy(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)

    def _refuse(self, error: APIError) -> None:
        """Answer with an error, where that cannot be taken for the answer to another request, and take no more."""
        self._refused = True
        self._unset_keepalive_if_required()
        receiving = self._phase is _Phase.BODY
        if self.pipeline or (self.cycle.response_started if receiving else self._busy()):
            self.transport.abort()
            return
        if receiving:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        headers, body = error_reply(error)
        status = HTTPStatus(error.http_status)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        lines += [b"%s: %s" % header for header in (*headers, *common_headers(new_id("req"), 0))]
        lines += [b"content-length: %d" % len(body), b"connection: close", b"", body]
        self.transport.write(b"\r\n".join(lines))
        # Not closed at once: what the client still sends would be answered with a reset, which can overtake the error.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)


async def watch(connections: Iterable[Any], receive_timeout: float, write_timeout: float) -> None:
    """Hold the connections to their deadlines, until it is cancelled."""
    loop = asyncio.get_running_loop()
    step = min(LONGEST_STEP, receive_timeout / 4, write_timeout / 4)
    while True:
        await asyncio.sleep(step)
        now = loop.time()
        for connection in list(connections):
            if isinstance(connection, BoundedProtocol | Socket):
                connection.check(now, receive_timeout, write_timeout)


def _head_too_large() -> APIError:
    return InvalidRequestError(
        f"The head of the request is larger than {MAX_HEAD_BYTES} bytes, or has more than {MAX_HEADERS} headers.",
        http_status=431,
        code="headers_too_large",
    )

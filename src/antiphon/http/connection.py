"""What one connection may cost: a bound on the head of a request, and deadlines for clients that are still.

uvicorn has none of them. They are kept where bytes come in, since the application sees a request only after its head.
"""

from __future__ import annotations

import asyncio
import enum
import sys
from array import array
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from antiphon.errors import APIError, InvalidRequestError, ServerBusyError
from antiphon.http.exchange import common_headers, error_reply
from antiphon.protocol.ids import new_id

try:
    import fcntl
    import termios
except ImportError:  # Windows: a reader's progress is then seen only when it makes room in our own buffer.
    fcntl = termios = None

__all__ = ["BoundedProtocol", "watch"]

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 256
MIN_BODY_PROGRESS = 1024
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
    """A parser that answers a request for an upgrade as it stands, as RFC 9110 asks of who does not upgrade.

    Java's HttpClient and `curl --http2` ask for h2c with every first request; the parser below takes such a request
    for one without a body.
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
            self._protocol.go_on_without_upgrade(bytes(data)[upgrade.args[0] :])


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's connection with bounds; `limit_concurrency` is how many connections there may be."""

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
        self._slow_since: float | None = None
        self._received_then = 0
        self._stuck_since: float | None = None
        self._backlog = 0

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

    def go_on_without_upgrade(self, rest: bytes) -> None:
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
        self._slow_since = None
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
        self._slow_since = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn where the parser stopped."""
        self._refuse(self._fault or InvalidRequestError(msg, code="invalid_http"))

    def check(self, now: float, receive_timeout: float, write_timeout: float) -> None:
        """Called every moment: end the connection where its client has been still for too long."""
        if self._stuck(now, write_timeout):
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
            self._slow_since = None
            return False
        progress = self._phase is _Phase.BODY and self._received - self._received_then >= MIN_BODY_PROGRESS
        if self._slow_since is None or (progress and now - self._slow_since >= timeout):
            self._slow_since = now
            self._received_then = self._received
        return now - self._slow_since >= timeout

    def _stuck(self, now: float, timeout: float) -> bool:
        size = self.transport.get_write_buffer_size()
        if not size:
            self._stuck_since = None
            return False
        backlog = size + _unsent(self.transport)
        if self._stuck_since is None or backlog < self._backlog:
            self._stuck_since = now
        self._backlog = backlog
        return now - self._stuck_since >= timeout

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
            if isinstance(connection, BoundedProtocol):
                connection.check(now, receive_timeout, write_timeout)


def _head_too_large() -> APIError:
    return InvalidRequestError(
        f"The head of the request is larger than {MAX_HEAD_BYTES} bytes, or has more than {MAX_HEADERS} headers.",
        http_status=431,
        code="headers_too_large",
    )


def _unsent(transport: asyncio.Transport) -> int:
    """What the kernel holds of the answer: it takes more from us only after a third of that has gone."""
    if fcntl is None or termios is None:
        return 0
    try:
        answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except (OSError, ValueError):
        return 0
    return int.from_bytes(answer, sys.byteorder)

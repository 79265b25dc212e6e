"""One HTTP request and its answer, over raw ASGI: bounded bodies, the error envelope and common headers."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs

from antiphon.errors import APIError, InvalidRequestError, PayloadTooLargeError, ServerBusyError
from antiphon.protocol.ids import new_id
from antiphon.protocol.json import encode
from antiphon.runtime.limits import Rate, go_duration
from antiphon.store.base import Scope as TenantScope

__all__ = [
    "ASGIScope",
    "Bodies",
    "ClientDisconnectedError",
    "Exchange",
    "Handler",
    "Receive",
    "Send",
    "common_headers",
    "error_reply",
    "rate_headers",
]

ASGIScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

_JSON = (b"content-type", b"application/json")
_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ClientDisconnectedError(Exception):
    """The client went away before its request was read."""


class Bodies:
    """Bounds the request bodies of all exchanges: each by itself, and what is held of them at the same time.

    A body is held from its first byte until its response has begun; from then on the number of responses is bounded.
    """

    def __init__(self, largest: int, together: int) -> None:
        self.largest = largest
        self.held = 0
        # Else a body that is allowed could never come in.
        self._together = max(largest, together)

    def take(self, size: int) -> None:
        """Hold so many bytes more.

        Raises:
            ServerBusyError: there is no room for them now.
        """
        if self.held + size > self._together:
            raise ServerBusyError("Too many request bodies are being received. Please try again later.")
        self.held += size


class Exchange:
    """What a handler gets.

    `scope` is whose rows the request may see, and `rates` tells where a key with limits stands; both are set by the
    authentication. `cross_origin` are headers for the browser of a page of another origin.
    """

    def __init__(self, asgi: ASGIScope, receive: Receive, send: Send, bodies: Bodies) -> None:
        self.asgi = asgi
        self.receive = receive
        self.send = send
        self.scope = TenantScope("default")
        self.cross_origin: Headers = ()
        self.rates: Callable[[TenantScope], Sequence[Rate]] | None = None
        self.request_id = new_id("req")
        self.started_at = time.monotonic()
        self.status = 0
        self._bodies = bodies
        self._held = 0
        self._headers: dict[bytes, bytes] | None = None
        self._query: dict[str, list[str]] | None = None

    @property
    def method(self) -> str:
        """The HTTP method, upper case."""
        return self.asgi["method"]

    def header(self, name: bytes) -> str | None:
        """A request header by its lower-case name; the first one where it is repeated."""
        value = self.raw_header(name)
        return None if value is None else value.decode("latin-1")

    def raw_header(self, name: bytes) -> bytes | None:
        """The same, as its bytes: only they tell what a client meant by letters beyond ASCII."""
        if self._headers is None:
            self._headers = dict(reversed(self.asgi["headers"]))
        return self._headers.get(name)

    def path_parameter(self, name: str) -> str:
        """A part of the path."""
        return self.asgi["path_params"][name]

    def query(self, name: str) -> str | None:
        """The last value of a query parameter."""
        if self._query is None:
            self._query = parse_qs(self.asgi["query_string"].decode("latin-1"), keep_blank_values=True)
        values = self._query.get(name)
        return values[-1] if values else None

    def query_integer(self, name: str) -> int | None:
        """A query parameter that is a whole number.

        Raises:
            InvalidRequestError: it is something else.
        """
        text = self.query(name)
        if text is None:
            return None
        digits = text[1:] if text.startswith("-") else text
        if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            raise InvalidRequestError(f"Invalid '{name}': an integer is expected.", param=name, code="invalid_value")
        return int(text)

    async def body(self) -> bytes:
        """The whole request body, which is held until `release`.

        Raises:
            PayloadTooLargeError: it is larger than the limit.
            ServerBusyError: there is no room for it beside the bodies of other requests.
            ClientDisconnectedError: the client went away.
        """
        largest = self._bodies.largest
        declared = self.header(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > largest:
            raise self._too_large()
        chunks: list[bytes] = []
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectedError
            chunk: bytes = message.get("body", b"")
            size = len(chunk)
            if self._held + size > largest:
                raise self._too_large()
            self._bodies.take(size)
            self._held += size
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def release(self) -> None:
        """The body is no longer held."""
        self._bodies.held -= self._held
        self._held = 0

    async def reply(self, body: bytes, status: int = 200, headers: Headers = (_JSON,)) -> None:
        """Send a whole answer."""
        await self._start(status, (*headers, (b"content-length", str(len(body)).encode())))
        await self.send({"type": "http.response.body", "body": body})

    async def reply_json(self, value: Any, status: int = 200) -> None:
        """Send a value as JSON."""
        await self.reply(encode(value), status)

    async def reply_in_pieces(self, size: int, pieces: AsyncGenerator[bytes], headers: Headers) -> None:
        """Send so many bytes as their pieces come; where one fails, the client gets less than it was told."""
        await self._start(200, (*headers, (b"content-length", str(size).encode())))
        async with aclosing(pieces):
            async for piece in pieces:
                await self.send({"type": "http.response.body", "body": piece, "more_body": True})
        await self.send({"type": "http.response.body", "body": b""})

    async def reply_error(self, error: APIError) -> None:
        """Send an error in OpenAI's envelope."""
        headers, body = error_reply(error)
        await self.reply(body, error.http_status, headers)

    async def start_stream(self) -> None:
        """Send the head of an event stream."""
        await self._start(200, _STREAM)

    async def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        elapsed = round((time.monotonic() - self.started_at) * 1000)
        await self.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    *headers,
                    *common_headers(self.request_id, elapsed),
                    *self._rate_headers(),
                    *self.cross_origin,
                ],
            }
        )

    def _rate_headers(self) -> Headers:
        return () if self.rates is None else rate_headers(self.rates(self.scope))

    def _too_large(self) -> PayloadTooLargeError:
        return PayloadTooLargeError(f"The request body is larger than {self._bodies.largest} bytes.")


Handler = Callable[[Exchange], Awaitable[None]]
"""What answers the requests of a route."""


def common_headers(request_id: str, elapsed_ms: int) -> Headers:
    """The headers of every answer."""
    return (
        (b"x-request-id", request_id.encode()),
        (b"openai-processing-ms", str(elapsed_ms).encode()),
        (b"openai-version", b"2020-10-01"),
    )


def rate_headers(rates: Sequence[Rate]) -> Headers:
    """The headers that tell a client where its key stands (operations C1); none for a key without limits."""
    return tuple(
        (f"x-ratelimit-{what}-{rate.kind}".encode(), str(value).encode())
        for rate in rates
        for what, value in (
            ("limit", rate.limit),
            ("remaining", rate.remaining),
            ("reset", go_duration(rate.reset_seconds)),
        )
    )


def error_reply(error: APIError) -> tuple[Headers, bytes]:
    """The headers and the body of an error: OpenAI's envelope, and what steers the SDKs' retries (operations C1)."""
    headers: list[tuple[bytes, bytes]] = [_JSON]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after))).encode()))
        headers.append((b"retry-after-ms", str(math.ceil(error.retry_after * 1000)).encode()))
    if error.retry is not None:
        headers.append((b"x-should-retry", b"true" if error.retry else b"false"))
    if error.http_status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return tuple(headers), encode({"error": error.body()})

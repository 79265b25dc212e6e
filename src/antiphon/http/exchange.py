"""One HTTP request and its answer, over raw ASGI: bounded bodies, the error envelope and common headers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from antiphon.errors import APIError, InvalidRequestError, PayloadTooLargeError
from antiphon.protocol.ids import new_id
from antiphon.protocol.json import encode
from antiphon.store.base import Scope as TenantScope

__all__ = ["ASGIScope", "Exchange", "Receive", "Send"]

ASGIScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ClientDisconnectedError(Exception):
    """The client went away before its request was read."""


class Exchange:
    """What a handler gets. `scope` is whose rows the request may see; it is set by the authentication."""

    def __init__(self, asgi: ASGIScope, receive: Receive, send: Send, max_body_bytes: int) -> None:
        self.asgi = asgi
        self.receive = receive
        self.send = send
        self.scope = TenantScope("default")
        self.request_id = new_id("req")
        self.started_at = time.monotonic()
        self.status = 0
        self._max_body_bytes = max_body_bytes
        self._query: dict[str, list[str]] | None = None

    @property
    def method(self) -> str:
        """The HTTP method, upper case."""
        return self.asgi["method"]

    def header(self, name: bytes) -> str | None:
        """A request header by its lower-case name; the first one where it is repeated."""
        for key, value in self.asgi["headers"]:
            if key == name:
                return value.decode("latin-1")
        return None

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
        """The whole request body.

        Raises:
            PayloadTooLargeError: it is larger than the limit.
            ClientDisconnectedError: the client went away.
        """
        declared = self.header(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > self._max_body_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectedError
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > self._max_body_bytes:
                raise self._too_large()
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def reply(self, body: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = (_JSON,)) -> None:
        """Send a whole answer."""
        await self._start(status, (*headers, (b"content-length", str(len(body)).encode())))
        await self.send({"type": "http.response.body", "body": body})

    async def reply_json(self, value: Any, status: int = 200) -> None:
        """Send a value as JSON."""
        await self.reply(encode(value), status)

    async def reply_error(self, error: APIError) -> None:
        """Send an error in OpenAI's envelope, with the headers that steer the SDKs' retries (operations C1)."""
        headers: list[tuple[bytes, bytes]] = [_JSON]
        if error.retry_after is not None:
            headers.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
            headers.append((b"retry-after-ms", str(round(error.retry_after * 1000)).encode()))
        if error.http_status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self.reply(encode({"error": error.body()}), error.http_status, tuple(headers))

    async def start_stream(self) -> None:
        """Send the head of an event stream."""
        await self._start(200, _STREAM)

    async def _start(self, status: int, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self.status = status
        elapsed = round((time.monotonic() - self.started_at) * 1000)
        await self.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    *headers,
                    (b"x-request-id", self.request_id.encode()),
                    (b"openai-processing-ms", str(elapsed).encode()),
                    (b"openai-version", b"2020-10-01"),
                ],
            }
        )

    def _too_large(self) -> PayloadTooLargeError:
        return PayloadTooLargeError(f"The request body is larger than {self._max_body_bytes} bytes.")

"""A WebSocket to an ASGI application in this process: its messages come as it sends them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

import anyio
import httpx2

__all__ = ["Application", "ApplicationSocket", "Message"]

_log = logging.getLogger(__name__)

Message: TypeAlias = MutableMapping[str, Any]
"""What an application is sent, or sends."""

Application: TypeAlias = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]
"""An ASGI application."""

_HELD: Final = 64
"""Messages that wait to be read; then who sends waits."""

_NORMAL: Final = 1000
_BROKEN: Final = 1011
_REFUSED: Final = 403


class ApplicationSocket:
    """One connection; `run` is a task of its own, and `begin` is to be waited for before anything is sent."""

    def __init__(self, application: Application, url: str, headers: Mapping[str, str]) -> None:
        self._application = application
        self._url = httpx2.URL(url)
        given = {"host": self._url.netloc.decode(), **{name.lower(): value for name, value in headers.items()}}
        self._headers = [(name.encode(), value.encode()) for name, value in given.items()]
        self._to_write, self._to_read = anyio.create_memory_object_stream[Message](_HELD)
        self._from_write, self._from_read = anyio.create_memory_object_stream[str](_HELD)
        self._settled = anyio.Event()
        self._accepted = False
        self._refusal: tuple[int, list[tuple[bytes, bytes]]] = (_REFUSED, [])
        self._body = bytearray()
        self._closed_with = _BROKEN

    async def run(self) -> None:
        """Have it served; what goes wrong inside is the application's, and ends the connection."""
        url = self._url
        scope: dict[str, Any] = {
            "type": "websocket",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "headers": self._headers,
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.partition(b"?")[0],
            "query_string": url.query,
            "server": (url.host, url.port),
            "client": ("127.0.0.1", 0),
            "root_path": "",
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        try:
            await self._to_write.send({"type": "websocket.connect"})
            await self._application(scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - the caller is told that the connection broke off
            _log.exception("the application failed")
            self._closed_with = _BROKEN
        finally:
            self._from_write.close()
            self._settled.set()

    async def begin(self) -> None:
        """Wait until the application takes the connection.

        Raises:
            httpx2.websockets.WebSocketUpgradeError: it does not; the error has its answer.
        """
        await self._settled.wait()
        if not self._accepted:
            from httpx2.websockets import WebSocketUpgradeError

            status, headers = self._refusal
            raise WebSocketUpgradeError(httpx2.Response(status, headers=headers, content=bytes(self._body)))

    async def send_text(self, text: str, /) -> None:
        """Send a message.

        Raises:
            httpx2.websockets.WebSocketDisconnect: the application has closed the connection.
        """
        try:
            await self._to_write.send({"type": "websocket.receive", "text": text})
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise self._gone() from None

    async def receive_text(self, seconds: float, /) -> str:
        """The next message.

        Raises:
            TimeoutError: none came in that time.
            httpx2.websockets.WebSocketDisconnect: the application has closed the connection.
        """
        with anyio.fail_after(seconds):
            try:
                return await self._from_read.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                raise self._gone() from None

    def leave(self) -> None:
        """Hear no more of it; the application is told so."""
        for end in (self._to_write, self._to_read, self._from_read, self._from_write):
            end.close()

    def _gone(self) -> Exception:
        from httpx2.websockets import WebSocketDisconnect

        return WebSocketDisconnect(self._closed_with)

    async def _receive(self) -> Message:
        try:
            return await self._to_read.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return {"type": "websocket.disconnect", "code": _NORMAL}

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "websocket.accept":
            self._accepted = True
            self._settled.set()
        elif kind == "websocket.send":
            text = message.get("text")
            try:
                await self._from_write.send(text if text is not None else bytes(message["bytes"]).decode())
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise OSError("The caller has left.") from None
        elif kind == "websocket.close":
            self._closed_with = int(message.get("code", _NORMAL))
            self._from_write.close()
        elif kind == "websocket.http.response.start":
            self._refusal = (int(message["status"]), list(message.get("headers", [])))
        elif kind == "websocket.http.response.body":
            self._body += message.get("body", b"")

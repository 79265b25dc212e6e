"""An ASGI application as an endpoint in this process: what it sends comes as it is sent, and who leaves disconnects."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self

import anyio
import httpx2
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from antiphon.client.appsocket import Application, ApplicationSocket, Message
from antiphon.client.errors import DriverError
from antiphon.client.steps import Connect

__all__ = ["Application", "ApplicationTransport"]

_log = logging.getLogger(__name__)

_HELD: Final = 64
"""Pieces of a body that wait to be read; then the application waits."""


class ApplicationTransport(httpx2.AsyncBaseTransport):
    """Asks an ASGI application; each request runs in a task of the transport, which is used with `async with`."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._tasks: TaskGroup | None = None
        self._calls: set[_Call] = set()

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        tasks, self._tasks = self._tasks, None
        for call in list(self._calls):
            call.leave()
        if tasks is not None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(exc_type, exc_value, traceback)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The application's answer, whose body is read as the application sends it.

        Raises:
            DriverError: the transport is not in use.
            httpx2.RemoteProtocolError: the application ended without an answer.
        """
        tasks = self._used()
        call = _Call(self._application, request, await request.aread(), self._calls)
        tasks.start_soon(call.run)
        try:
            await call.begun.wait()
        except BaseException:
            call.leave()
            raise
        if call.start is None:
            call.leave()
            raise httpx2.RemoteProtocolError("The application ended without an answer.", request=request)
        return httpx2.Response(call.start["status"], headers=call.start.get("headers", []), stream=_Body(call))

    @asynccontextmanager
    async def websocket(self, step: Connect) -> AsyncGenerator[ApplicationSocket]:
        """A WebSocket to the application while the block runs.

        Raises:
            DriverError: the transport is not in use.
            httpx2.websockets.WebSocketUpgradeError: the application does not take the connection.
        """
        socket = ApplicationSocket(self._application, step.url, step.headers)
        self._used().start_soon(socket.run)
        try:
            await socket.begin()
            yield socket
        finally:
            socket.leave()

    def _used(self) -> TaskGroup:
        if self._tasks is None:
            raise DriverError("A client of an application is used with `async with`.")
        return self._tasks


class _Call:
    """One request in the application."""

    def __init__(self, application: Application, request: httpx2.Request, body: bytes, calls: set[_Call]) -> None:
        self._calls = calls
        calls.add(self)
        self._application = application
        self._request = request
        self._body: bytes | None = body
        self._write: MemoryObjectSendStream[bytes]
        self._write, self.read = anyio.create_memory_object_stream[bytes](_HELD)
        self.start: Message | None = None
        self.begun = anyio.Event()
        self.left = anyio.Event()
        self.failed = False

    async def run(self) -> None:
        """Have it answered; what goes wrong inside is the application's, and ends the answer."""
        url = self._request.url
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self._request.method,
            "headers": [(name.lower(), value) for name, value in self._request.headers.raw],
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.partition(b"?")[0],
            "query_string": url.query,
            "server": (url.host, url.port),
            "client": ("127.0.0.1", 0),
            "root_path": "",
        }
        try:
            await self._application(scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - the caller is told that the answer broke off
            _log.exception("the application failed")
            self.failed = True
        finally:
            self._write.close()
            self.begun.set()

    def leave(self) -> None:
        """Hear no more of it; the application is told so."""
        self._calls.discard(self)
        self.left.set()
        self.read.close()

    async def _receive(self) -> Message:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            self.begun.set()
        elif message["type"] == "http.response.body" and message.get("body"):
            # As over a socket, what is sent to who has left is lost.
            with suppress(anyio.BrokenResourceError):
                await self._write.send(bytes(message["body"]))


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, as it comes."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._read: MemoryObjectReceiveStream[bytes] = call.read

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._read:
            yield data
        if self._call.failed:
            raise httpx2.RemoteProtocolError("The application broke off.")

    async def aclose(self) -> None:
        self._call.leave()

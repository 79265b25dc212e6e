"""A hand-driven ASGI WebSocket to an application in the test's own process: frames one by one, and backpressure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from antiphon.http.exchange import ClientDisconnectedError

__all__ = ["ManualSocket", "manual_socket"]

DEADLINE = 60.0
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


class ManualSocket:
    """One connection; what the application sends is kept until the test asks for it."""

    def __init__(self, app: Any, headers: dict[str, str], path: str) -> None:
        given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._scope = {
            "type": "websocket",
            "path": path,
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1"), *given],
        }
        self._app = app
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "websocket.connect"})
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = False
        self.seen: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self._app(self._scope, self._inbox.get, self._send)

    async def _send(self, message: Any) -> None:
        await self.gate.wait()
        if self._gone:
            raise ClientDisconnectedError
        self._sent.put_nowait(dict(message))
        if message["type"] == "websocket.close":
            self._gone = True
            self._inbox.put_nowait({"type": "websocket.disconnect", "code": message["code"]})

    async def message(self) -> dict[str, Any]:
        """The next ASGI message that the application sends."""
        return await asyncio.wait_for(self._sent.get(), DEADLINE)

    async def text(self) -> str:
        """The next frame, as it was sent."""
        message = await self.message()
        assert message["type"] == "websocket.send", message
        return message["text"]

    async def frame(self) -> dict[str, Any]:
        """The next frame."""
        self.seen.append(msgspec.json.decode(await self.text()))
        return self.seen[-1]

    async def until(self, *types: str) -> list[dict[str, Any]]:
        """The frames up to the first of one of these types; an error that was not asked for fails the test."""
        frames = [await self.frame()]
        while frames[-1]["type"] not in types:
            assert frames[-1]["type"] != "error", frames[-1]
            frames.append(await self.frame())
        return frames

    def send_text(self, text: str) -> None:
        """Send a frame as it is."""
        self._inbox.put_nowait({"type": "websocket.receive", "text": text})

    def send(self, **fields: Any) -> None:
        """Send a frame."""
        self.send_text(msgspec.json.encode(fields).decode())

    def create(self, input: Any = None, **fields: Any) -> None:  # noqa: A002 - the wire's name
        """Ask the scripted model."""
        self.send(**{"type": "response.create", "model": "scripted", "input": input, **fields})

    async def response(self, input: Any = None, **fields: Any) -> dict[str, Any]:  # noqa: A002
        """The response that a request ends with."""
        self.create(input, **fields)
        return (await self.until(*TERMINAL))[-1]["response"]

    async def refused(self, input: Any = None, **fields: Any) -> dict[str, Any]:  # noqa: A002
        """The error frame of a request."""
        self.create(input, **fields)
        frame = await self.frame()
        assert frame["type"] == "error", frame
        return frame

    def leave(self) -> None:
        """The client goes away."""
        self._gone = True
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": 1005})


@asynccontextmanager
async def manual_socket(
    app: Any, headers: dict[str, str] | None = None, *, path: str = "/v1/responses"
) -> AsyncIterator[ManualSocket]:
    """A connection that was taken; it is left when the block ends."""
    socket = ManualSocket(app, headers or {}, path)
    accepted = await socket.message()
    assert accepted["type"] == "websocket.accept", accepted
    assert any(name == b"x-request-id" for name, _ in accepted["headers"])
    try:
        yield socket
    finally:
        socket.leave()
        socket.gate.set()
        await asyncio.wait_for(socket.task, DEADLINE)

"""A hand-driven ASGI exchange, for what a client library hides: single writes, disconnects and backpressure."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

__all__ = ["ManualExchange"]

DEADLINE = 60.0


class ManualExchange:
    """One request to an ASGI application, whose sends are seen one by one and whose client can leave."""

    def __init__(self, app: Any, body: Any, path: str = "/v1/responses", method: str = "POST") -> None:
        path, _, query = path.partition("?")
        self._scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        }
        self._app = app
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": msgspec.json.encode(body), "more_body": False})
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.gate.set()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self._app(self._scope, self._inbox.get, self._send)

    async def _send(self, message: Any) -> None:
        await self.gate.wait()
        self.sent.put_nowait(dict(message))

    async def next(self) -> dict[str, Any]:
        """The next message that the application sends."""
        return await asyncio.wait_for(self.sent.get(), DEADLINE)

    def leave(self) -> None:
        """The client goes away."""
        self._inbox.put_nowait({"type": "http.disconnect"})

    async def finished(self) -> list[dict[str, Any]]:
        """All that was sent and not yet read, once the application has ended."""
        await asyncio.wait_for(self.task, DEADLINE)
        rest: list[dict[str, Any]] = []
        while not self.sent.empty():
            rest.append(self.sent.get_nowait())
        return rest

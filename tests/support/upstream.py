"""An upstream on loopback that does as a test says, in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["Exchange", "FakeUpstream", "fake_upstream", "said"]

MODELS = {"object": "list", "data": [{"id": "m", "max_model_len": 4096}]}


class Exchange:
    """One request, and the connection that it came on."""

    def __init__(self, path: str, headers: dict[str, str], body: Any, writer: asyncio.StreamWriter) -> None:
        self.path = path
        self.headers = headers
        self.body = body
        self.gone = asyncio.Event()
        """Set when the other side has closed the connection."""
        self._writer = writer

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int = 200, kind: str = "text/event-stream", extra: str = "") -> None:
        """Begin an answer that the end of the connection ends."""
        await self.raw(f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n{extra}\r\n".encode())

    async def events(self, *events: Any) -> None:
        """Send events; plain values as JSON, texts as they stand."""
        for event in events:
            await self.raw(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode())

    async def answer(self, status: int, body: Any) -> None:
        """Send a whole JSON answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.head(status, "application/json", f"content-length: {len(data)}\r\n")
        await self.raw(data)

    def abort(self) -> None:
        """Break the connection off with a reset."""
        self._writer.transport.abort()


Behaviour = Callable[[Exchange], Awaitable[None]]


class FakeUpstream:
    """What was asked of it is in `asked`, chat completions only."""

    def __init__(self) -> None:
        self.asked: list[Exchange] = []
        self.up = True
        """Whether it answers at all; else each connection is broken off."""
        self.behave: Behaviour = said("Hello")
        self.url = ""
        self.connections = 0
        self.keeps = False
        """Whether connections serve more than one chat completion; then nobody watches for their end."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._serve(reader, writer):
                pass
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        data = await reader.readexactly(int(headers.get("content-length") or 0))
        exchange = Exchange(head[0].split(" ")[1], headers, json.loads(data) if data else None, writer)
        if not self.up:
            exchange.abort()
        elif exchange.path.endswith("/models"):
            await exchange.answer(200, MODELS)
        else:
            self.asked.append(exchange)
            watching = None if self.keeps else asyncio.create_task(_watch(reader, exchange))
            try:
                await self.behave(exchange)
            finally:
                if watching is not None:
                    watching.cancel()
        return self.keeps and not exchange.path.endswith("/models")


async def _watch(reader: asyncio.StreamReader, exchange: Exchange) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read(1)
    exchange.gone.set()


def said(*texts: str, finish: str = "stop") -> Behaviour:
    """Answers with that text."""

    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(*({"choices": [{"delta": {"content": text}}]} for text in texts))
        await exchange.events({"choices": [{"delta": {}, "finish_reason": finish}]}, "[DONE]")

    return behave


@asynccontextmanager
async def fake_upstream() -> AsyncIterator[FakeUpstream]:
    """An upstream on a free port while the block runs."""
    fake = FakeUpstream()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield fake
    finally:
        server.close()

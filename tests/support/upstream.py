"""An upstream on loopback that does as a test says, in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

__all__ = [
    "FAULTS",
    "KEY",
    "REFUSALS",
    "Exchange",
    "FakeUpstream",
    "dies",
    "dies_in_a_chunk",
    "error_in_a_200",
    "fake_upstream",
    "half_a_frame",
    "hangs_up",
    "never_answers",
    "refuses",
    "said",
    "stalls",
]

KEY = "the-key-of-the-upstream"

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

    def piece(self, text: str) -> Any:
        """An event with more text, in the form in which this was asked."""
        if self.path.endswith("/responses"):
            return {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}
        return {"choices": [{"delta": {"content": text}}]}


Behaviour = Callable[[Exchange], Awaitable[None]]


class FakeUpstream:
    """What was asked of it is in `asked`, but for its models."""

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
        elif _lists(exchange):
            await exchange.answer(200, MODELS)
        else:
            self.asked.append(exchange)
            watching = None if self.keeps else asyncio.create_task(_watch(reader, exchange))
            try:
                await self.behave(exchange)
            finally:
                if watching is not None:
                    watching.cancel()
        return self.keeps and not _lists(exchange)


def _lists(exchange: Exchange) -> bool:
    return exchange.path.partition("?")[0].endswith("/models")


async def _watch(reader: asyncio.StreamReader, exchange: Exchange) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read(1)
    exchange.gone.set()


def said(*texts: str, finish: str = "stop") -> Behaviour:
    """Answers with that text, whichever way it was asked."""

    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(*(exchange.piece(text) for text in texts))
        if exchange.path.endswith("/responses"):
            await exchange.events({"type": "response.completed", "response": {"status": "completed"}}, "[DONE]")
        else:
            await exchange.events({"choices": [{"delta": {}, "finish_reason": finish}]}, "[DONE]")

    return behave


async def dies(exchange: Exchange) -> None:
    """The process dies in the middle of its answer."""
    await exchange.head()
    await exchange.events(exchange.piece("Half"))
    exchange.abort()


async def dies_in_a_chunk(exchange: Exchange) -> None:
    """It dies in the middle of a chunk of HTTP."""
    await exchange.head(extra="transfer-encoding: chunked\r\n")
    frame = f"data: {json.dumps(exchange.piece('Half'))}\n\n".encode()
    await exchange.raw(b"%x\r\n%b\r\n5\r\nda" % (len(frame), frame))
    exchange.abort()


async def half_a_frame(exchange: Exchange) -> None:
    """The bytes end in the middle of a frame."""
    await exchange.head()
    await exchange.events(exchange.piece("Half"))
    await exchange.raw(b'data: {"choices":[{"del')


async def stalls(exchange: Exchange) -> None:
    """It says nothing more."""
    await exchange.head()
    await exchange.events(exchange.piece("Half"))
    await exchange.gone.wait()


async def never_answers(exchange: Exchange) -> None:
    """It says nothing at all."""
    await exchange.gone.wait()


async def error_in_a_200(exchange: Exchange) -> None:
    """An error comes in a stream that began well."""
    await exchange.head()
    await exchange.events(exchange.piece("Half"), {"error": {"message": "no memory at /srv/x"}})


async def garbage(exchange: Exchange) -> None:
    """What comes is not UTF-8."""
    await exchange.head()
    await exchange.raw(b"data: \xff\n\n")


async def noise(exchange: Exchange) -> None:
    """What comes is no stream of events."""
    await exchange.head()
    await exchange.raw(b"\xff\xfe\x00data: \xff\n\n\x07")


async def no_json(exchange: Exchange) -> None:
    """An event is no JSON."""
    await exchange.head()
    await exchange.events("<html>busy</html>")


async def no_http(exchange: Exchange) -> None:
    """What comes is not HTTP."""
    await exchange.raw(b"what?\r\n\r\n")


async def refuses(exchange: Exchange) -> None:
    """The request is too long for it."""
    await exchange.answer(
        400, {"error": {"message": "too long for http://10.1.2.3:8000", "code": "context_length_exceeded"}}
    )


async def wrong_key(exchange: Exchange) -> None:
    """It does not take the key."""
    await exchange.answer(401, {"error": {"message": f"Incorrect API key: {KEY}"}})


async def busy(exchange: Exchange) -> None:
    """It has too much to do."""
    await exchange.answer(429, {"error": {"message": "slow down"}})


async def moved(exchange: Exchange) -> None:
    """It leads elsewhere."""
    await exchange.head(307, "text/plain", "location: http://127.0.0.1:9/v1/chat/completions\r\n")


async def gone_behind_a_proxy(exchange: Exchange) -> None:
    """A proxy stands for it."""
    await exchange.answer(502, b"<html>Bad gateway</html>")


async def hangs_up(exchange: Exchange) -> None:
    """It breaks the connection off before it answers."""
    exchange.abort()


FAULTS: dict[Behaviour, str] = {
    dies: "upstream_lost",
    dies_in_a_chunk: "upstream_lost",
    half_a_frame: "upstream_lost",
    stalls: "upstream_timeout",
    never_answers: "upstream_timeout",
    error_in_a_200: "upstream_error",
    garbage: "upstream_invalid",
    noise: "upstream_lost",
    no_json: "upstream_invalid",
    no_http: "upstream_invalid",
    refuses: "context_length_exceeded",
    wrong_key: "upstream_unauthorized",
    busy: "rate_limit_exceeded",
    moved: "upstream_invalid",
    gone_behind_a_proxy: "upstream_lost",
    hangs_up: "upstream_lost",
}
"""Ways in which an upstream fails, and the code of the response that is made of each."""

REFUSALS: dict[Behaviour, int] = {refuses: 400, wrong_key: 401, busy: 429}
"""Those among them in which it does not take the request, and the status that a client is told."""


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

"""The load: keep-alive connections over asyncio and httptools that count answers, events and bytes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httptools

from antiphon.protocol.json import encode

__all__ = ["Connection", "LoadError", "Reply", "Tally", "connections", "drive", "get", "post"]

EVENT = b"event: "
TEXT = b"event: response.output_text.delta"
DELTA = b".delta\n"
"""How the name of an event with a delta ends; not longer than `EVENT`, so that what is kept of a read is enough."""
PATIENCE = 60.0


class LoadError(RuntimeError):
    """An answer that is not 200, or a connection that broke: a figure would mean nothing."""


@dataclass
class Reply:
    """One answer. `text_at` is when its first and its last piece of text came; `body` only where it was asked for.

    `delta_at` is when its first event with a delta came, be it of text, thinking or a call.
    """

    status: int = 0
    events: int = 0
    bytes: int = 0
    text_at: tuple[float, float] = (0.0, 0.0)
    delta_at: float = 0.0
    body: bytes = b""


@dataclass
class Tally:
    """What a number of answers add up to."""

    answers: int = 0
    events: int = 0
    bytes: int = 0

    def add(self, reply: Reply) -> None:
        """Count one in."""
        self.answers += 1
        self.events += reply.events
        self.bytes += reply.bytes


class Connection(asyncio.Protocol):
    """A keep-alive connection that sends one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._done: asyncio.Future[None] | None = None
        self._reply = Reply()
        self._keep = False
        self._chunks: list[bytes] = []
        self._tail = b""

    async def request(self, raw: bytes, *, keep: bool = False) -> Reply:
        """Send a request and read its whole answer; `keep` keeps the body.

        Raises:
            LoadError: the answer is not 200, or the connection broke.
        """
        if self._transport is None:
            raise LoadError("the connection is not open")
        self._parser = httptools.HttpResponseParser(self)
        self._reply, self._keep, self._chunks, self._tail = Reply(), keep, [], b""
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(raw)
        await asyncio.wait_for(self._done, PATIENCE)
        reply = self._reply
        reply.body = b"".join(self._chunks)
        if reply.status != 200:
            raise LoadError(f"status {reply.status}: {reply.body[:300].decode('utf-8', 'replace')}")
        return reply

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(LoadError("the server closed the connection"))

    # What httptools calls

    def on_headers_complete(self) -> None:
        self._reply.status = self._parser.get_status_code()
        self._keep = self._keep or self._reply.status != 200

    def on_body(self, body: bytes) -> None:
        reply = self._reply
        reply.bytes += len(body)
        # A marker may be cut by a read: what is left of the last piece goes before the next one.
        joined = self._tail + body
        found = joined.count(EVENT)
        reply.events += found
        self._tail = joined[-len(EVENT) + 1 :] if not joined.endswith(b"\n\n") else b""
        if not reply.delta_at and DELTA in joined:
            reply.delta_at = time.monotonic()
        if TEXT in joined:
            now = time.monotonic()
            reply.text_at = (reply.text_at[0] or now, now)
        if self._keep:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


@contextlib.asynccontextmanager
async def connections(address: int | str, count: int) -> AsyncIterator[list[Connection]]:
    """That many open connections to a port of this machine, or to a Unix socket."""
    loop = asyncio.get_running_loop()
    opened: list[Connection] = []
    try:
        for _ in range(count):
            if isinstance(address, str):
                _, connection = await loop.create_unix_connection(Connection, address)
            else:
                _, connection = await loop.create_connection(Connection, "127.0.0.1", address)
            opened.append(connection)
        yield opened
    finally:
        for connection in opened:
            connection.close()


async def drive(port: int, clients: int, seconds: float, request: Callable[[], bytes]) -> Tally:
    """Send requests from so many clients, each one after its answer, for that time; what has begun is finished."""
    tally = Tally()
    end = time.monotonic() + seconds

    async def client(connection: Connection) -> None:
        while True:
            tally.add(await connection.request(request()))
            if time.monotonic() >= end:
                return

    async with connections(port, clients) as opened:
        await asyncio.gather(*map(client, opened))
    return tally


def post(path: str, body: dict[str, Any]) -> bytes:
    """The bytes of a POST request."""
    data = encode(body)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:8080\r\nuser-agent: bench\r\naccept: */*\r\n"
    head += f"authorization: Bearer bench\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def get(path: str) -> bytes:
    """The bytes of a GET request."""
    head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:8080\r\nuser-agent: bench\r\naccept: */*\r\n"
    return (head + "authorization: Bearer bench\r\n\r\n").encode()

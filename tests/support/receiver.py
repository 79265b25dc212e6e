"""An HTTP server on loopback inside the test's own loop: it answers what it is told and records what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

__all__ = ["Received", "Receiver", "addresses_dialled", "receiver", "reply"]

PATIENCE = 60.0


@dataclass
class Received:
    """One request; the names of its headers are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def reply(status: int = 200, body: bytes = b"", *headers: str) -> bytes:
    """An answer as its bytes."""
    head = [f"HTTP/1.1 {status} Reason", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@dataclass
class Receiver:
    """`answers` are given one a request, and after them an empty 200; None holds a request until `release` is set."""

    host: str
    port: int = 0
    answers: list[bytes | None] = field(default_factory=list["bytes | None"])
    requests: list[Received] = field(default_factory=list[Received])
    connections: int = 0
    open: int = 0
    most_open: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        """Its root, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    async def wait(self, count: int) -> list[Received]:
        """The requests, once there are so many."""
        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection, which carries one request."""
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await self._exchange(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        headers = {name.lower(): value for name, value in headers.items()}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        async with self._arrived:
            self.requests.append(Received(method, path, headers, body))
            self._arrived.notify_all()
        answer = self.answers.pop(0) if self.answers else reply()
        if answer is None:
            await self.release.wait()
            answer = reply()
        writer.write(answer)
        await writer.drain()


@asynccontextmanager
async def receiver(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Receiver]:
    """A running receiver."""
    found = Receiver(host)
    server = await asyncio.start_server(found.handle, host, port)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        found.release.set()
        server.close()
        await server.wait_closed()


def addresses_dialled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every address that a socket of the loop was connected to."""
    found: list[Any] = []
    connect = asyncio.SelectorEventLoop.sock_connect

    async def spy(self: asyncio.SelectorEventLoop, sock: Any, address: Any) -> None:
        found.append(address)
        await connect(self, sock, address)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", spy)
    return found

"""The whole server inside the test's own process, on a socket: what clients do over a network, seen from within."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct

from antiphon.engines.registry import build_registry
from antiphon.http.app import create_app
from antiphon.http.connection import watch
from antiphon.http.server import _config, _listen, _Server
from antiphon.http.telemetry import Telemetry
from antiphon.protocol.json import encode
from antiphon.runtime.service import Service
from antiphon.settings import Settings
from antiphon.store.open import open_store

__all__ = ["Client", "Listening", "listening_app"]

DEADLINE = 60.0


class Listening(Struct, frozen=True):
    """A started service, and the port that it answers on."""

    service: Service
    port: int


class Client:
    """One connection to it, which can be left at any moment."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._received = b""

    @classmethod
    async def connect(cls, port: int) -> Client:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, method: str, path: str, body: object = None) -> None:
        """Send a request; the connection ends after the answer."""
        data = b"" if body is None else encode(body)
        head = f"{method} /v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        self._writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    async def read_until(self, mark: bytes) -> bytes:
        """All that came, once it holds the mark."""
        while mark not in self._received:
            chunk = await asyncio.wait_for(self._reader.read(65_536), DEADLINE)
            assert chunk, f"the connection ended after {self._received!r}"
            self._received += chunk
        return self._received

    async def answer(self) -> tuple[int, bytes]:
        """The status and the body of an answer whose length was said, once the connection has ended."""
        self._received += await asyncio.wait_for(self._reader.read(), DEADLINE)
        head, _, body = self._received.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    async def leave(self) -> None:
        """Close the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


@asynccontextmanager
async def listening_app(settings: Settings) -> AsyncIterator[Listening]:
    """The server of these settings on a free port, over the scripted model; as `antiphon serve` would run it."""
    settings = msgspec.structs.replace(settings, model=("scripted",), port=0)
    telemetry = Telemetry()
    service = Service(settings, build_registry(settings), open_store(settings), telemetry)
    server = _Server(_config(create_app(service, telemetry), settings))
    with contextlib.closing(_listen(settings)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        watching = asyncio.create_task(
            watch(server.server_state.connections, settings.receive_timeout, settings.write_timeout)
        )
        try:
            await service.start()
            while not server.started:
                await asyncio.sleep(0.01)
            yield Listening(service, listener.getsockname()[1])
        finally:
            await service.end_runs()
            server.should_exit = True
            watching.cancel()
            await asyncio.gather(serving, watching, return_exceptions=True)
            await service.close()

"""An MCP server on loopback inside the test's own loop, over streamable HTTP, that can be told to misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["McpStub", "Request", "answer", "mcp_stub", "result", "sse", "tool"]

Send = Callable[[bytes], Awaitable[None]]


@dataclass
class Request:
    """One message as it came."""

    method: str
    path: str
    headers: dict[str, str]
    message: dict[str, Any]
    send: Send


Behaviour = Callable[[Request], Awaitable[bytes | None]]
"""Gives the bytes of the answer, or None where it has sent what it wanted to; the connection then closes."""


def answer(status: int, body: bytes = b"", *headers: str, content_type: str = "application/json") -> bytes:
    """An HTTP answer."""
    head = [f"HTTP/1.1 {status} Reason", f"content-length: {len(body)}", f"content-type: {content_type}", *headers]
    return "\r\n".join([*head, "connection: close", "", ""]).encode() + body


def result(request: Request, value: Any) -> bytes:
    """A JSON-RPC result as JSON."""
    return answer(200, json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": value}).encode())


def sse(request: Request, value: Any) -> bytes:
    """The same as a stream of events."""
    text = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": value})
    return answer(200, f"event: message\ndata: {text}\n\n".encode(), content_type="text/event-stream")


def tool(name: str, description: str = "A tool.", **annotations: bool) -> dict[str, Any]:
    """A tool as a server lists it."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": annotations}


@dataclass
class McpStub:
    """`behaviours` and `results` answer methods in the place of a sound server; paths in `moved` redirect."""

    port: int = 0
    tools: list[dict[str, Any]] = field(default_factory=lambda: [tool("echo"), tool("look", readOnlyHint=True)])
    behaviours: dict[str, Behaviour] = field(default_factory=dict[str, Behaviour])
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    moved: dict[str, str] = field(default_factory=dict[str, str])
    asked: list[Request] = field(default_factory=list[Request])
    connections: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def methods(self) -> list[str]:
        """The methods that were asked, in order, without notifications."""
        return [str(request.message.get("method")) for request in self.asked if "id" in request.message]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection, which carries one request."""
        self.connections += 1

        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = lines[0].split(" ")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Request(method, path, headers, json.loads(body) if body else {"method": method}, send)
            self.asked.append(request)
            data = await self._answered(request)
            if data is not None:
                await send(data)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answered(self, request: Request) -> bytes | None:
        if request.path in self.moved:
            return answer(307, b"", f"location: {self.moved[request.path]}")
        method = request.message.get("method", "")
        behaviour = self.behaviours.get(method)
        if behaviour is not None:
            return await behaviour(request)
        if method in self.results:
            return result(request, self.results[method])
        if "id" not in request.message or not method:
            return answer(202 if request.method == "POST" else 405)
        if method == "initialize":
            return result(
                request,
                {
                    "protocolVersion": request.message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "stub", "version": "1"},
                },
            )
        if method == "tools/list":
            return sse(request, {"tools": self.tools})
        if method == "tools/call":
            text = json.dumps(request.message["params"]["arguments"])
            return sse(request, {"content": [{"type": "text", "text": text}]})
        raise AssertionError(method)


@asynccontextmanager
async def mcp_stub() -> AsyncIterator[McpStub]:
    """A running server."""
    found = McpStub()
    server = await asyncio.start_server(found.handle, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        found.release.set()
        server.close()
        await server.wait_closed()

"""Servers of the mcp package itself, over streamable HTTP (as of 2025 and of 2026) and over SSE."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from antiphon.settings import Settings
from antiphon.tools.mcp.provider import McpProvider
from support.mcp_use import entry, use

requirement = pytest.mark.requirement

pytest.importorskip("mcp")

from mcp.server.mcpserver import MCPServer  # noqa: E402 - only where it is installed
from mcp_types import ToolAnnotations  # noqa: E402


def application(kind: str) -> Any:
    """A server with tools of several kinds."""
    server = MCPServer("real")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("it broke")

    del add, fail
    if kind == "sse":
        return server.sse_app(host="127.0.0.1")
    return server.streamable_http_app(json_response=kind == "json", stateless_http=kind == "stateless")


@asynccontextmanager
async def served(kind: str) -> AsyncIterator[str]:
    """Its URL."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(application(kind), log_level="critical", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.001)
        try:
            path = "sse" if kind == "sse" else "mcp"
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/{path}"
        finally:
            server.should_exit = True
            await task


@requirement("mcp:real")
@pytest.mark.parametrize("kind", ["events", "json", "stateless", "sse"])
async def test_a_real_server_is_listed_and_called(kind: str) -> None:
    async with served(kind) as url:
        provider = McpProvider(Settings(), ["127.0.0.1"])
        found = await use(provider, entry(url))
        assert "error" not in found.items[0]
        assert sorted(found.tools) == ["add", "fail"]
        assert (found.tools["add"].repeatable, found.tools["fail"].repeatable) == (True, False)
        assert (await found.call("add", '{"a":2,"b":3}'))["output"] == "5"
        failed = await found.call("fail", "{}")
        assert failed["error"]["type"] == "mcp_tool_execution_error"
        assert "fail" in failed["error"]["content"][0]["text"]
        wrong = await found.call("add", '{"a":"x"}')
        assert wrong["status"] == "failed"
        await provider.close()

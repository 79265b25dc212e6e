"""A real server whose loop of hosted tools is killed, and an MCP server that counts what it was called with."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from tests.kills.replicas import Replica

from antiphon.protocol.response import TERMINAL_STATUSES
from support.mcp_stub import McpStub, Request, mcp_stub, sse

__all__ = ["Calls", "begun", "ended", "killed_at", "started"]

PATIENCE = 60.0
LOOP = "\n!THEN\n".join(
    ['!CALL look {"text":"one"}', '!CALL echo {"text":"two"}', '!CALL look {"text":"three"}', "!TEXT done"]
)


class Calls:
    """What was called; a call of a text that is held answers once it is let go, any other one after so many seconds."""

    def __init__(self, stub: McpStub, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self.seen: Counter[str] = Counter()
        self.held: dict[str, asyncio.Event] = {}
        self.came: dict[str, asyncio.Event] = {}
        stub.behaviours["tools/call"] = self._call

    def hold(self, text: str) -> None:
        """Hold the next call of a text back."""
        self.held[text], self.came[text] = asyncio.Event(), asyncio.Event()

    async def _call(self, request: Request) -> bytes:
        text = request.message["params"]["arguments"]["text"]
        self.seen[text] += 1
        await asyncio.sleep(self._seconds)
        if text in self.came:
            self.came[text].set()
            held = self.held.pop(text, None)
            if held is not None:
                await held.wait()
        return sse(request, {"content": [{"type": "text", "text": f"said {text}"}]})


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Replica]:
    """A server over a store in a file, that has not been started yet, and is dead afterwards."""
    store = str(folder / "state.db")
    replica = Replica(["--model", "scripted", "--store", store, "--allow-outbound", "127.0.0.1"])
    try:
        yield replica
    finally:
        await asyncio.to_thread(replica.kill)


async def begun(replica: Replica, stub: McpStub) -> str:
    """A background response with the loop, by its id."""
    tools = [{"type": "mcp", "server_label": "stub", "server_url": stub.url, "require_approval": "never"}]
    body = {"model": "scripted", "input": LOOP, "background": True, "tools": tools}
    async with httpx2.AsyncClient(base_url=replica.base_url, timeout=PATIENCE) as client:
        return (await client.post("/responses", json=body)).json()["id"]


async def ended(replica: Replica, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The object of a response once it has ended, and its calls."""
    async with httpx2.AsyncClient(base_url=replica.base_url, timeout=PATIENCE) as client, asyncio.timeout(PATIENCE):
        while True:
            found = (await client.get(f"/responses/{name}")).json()
            if found["status"] in TERMINAL_STATUSES:
                return found, [item for item in found["output"] if item["type"] == "mcp_call"]
            await asyncio.sleep(0.02)


async def killed_at(folder: Path, moment: Callable[[Calls], Any], text: str) -> tuple[dict[str, Any], Any, Calls]:
    """The end of a response whose server was killed while the call of that text ran."""
    async with mcp_stub() as stub, started(folder) as replica:
        calls = Calls(stub)
        calls.hold(text)
        await asyncio.to_thread(replica.start)
        name = await begun(replica, stub)
        await asyncio.wait_for(moment(calls), PATIENCE)
        await asyncio.to_thread(replica.kill)
        for held in calls.held.values():
            held.set()
        await asyncio.to_thread(replica.start)
        return *await ended(replica, name), calls

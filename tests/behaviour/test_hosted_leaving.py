"""Clients that leave in the middle of a real tool's run, and cancel one: it stops, and what it held is free again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from antiphon.http.app import create_app
from antiphon.settings import Settings
from antiphon.tools.code.monty import find_monty
from antiphon.tools.later import LaterProvider
from antiphon.tools.mcp.provider import McpProvider
from antiphon.tools.web.provider import WebProvider
from support.asgi import ManualExchange
from support.inprocess import InProcess, inprocess_app
from support.mcp_stub import McpStub, Request, mcp_stub
from support.receiver import Receiver, receiver

requirement = pytest.mark.requirement

ENDLESS = json.dumps({"code": "while True:\n    pass"})


class World:
    """A server whose tools hang: code that never ends, an MCP server and a web server that say nothing."""

    def __init__(self, api: InProcess, stub: McpStub, web: Receiver) -> None:
        self.api = api
        self.stub = stub
        self.web = web

    def body(self, kind: str) -> dict[str, Any]:
        """A request whose model calls a tool that hangs."""
        mcp = {"type": "mcp", "server_label": "it", "server_url": self.stub.url, "require_approval": "never"}
        tools = {
            "code": ({"type": "code_interpreter", "container": {"type": "auto"}}, f"code_interpreter {ENDLESS}"),
            "mcp": (mcp, 'look {"text":"x"}'),
            "page": ({"type": "web_search"}, f'open_page {{"url":"{self.web.url}/a"}}'),
        }
        entry, call = tools[kind]
        return {"model": "scripted", "input": f"!CALL {call}\n!THEN\n!TEXT done", "tools": [entry]}

    def runs(self, kind: str) -> bool:
        """Whether the tool is in the middle of its run."""
        if kind == "code":
            return any(container.box is not None and container.cells == 0 for container in self._containers())
        return "tools/call" in self.stub.methods() if kind == "mcp" else self.web.open >= 1

    def free(self, kind: str) -> bool:
        """Whether nothing of it is left."""
        if kind == "code":
            boxes = [container.box for container in self._containers() if container.box is not None]
            waiting = any(container.waiting or container.lock.locked() for container in self._containers())
            return not waiting and not any(box.alive for box in boxes)
        if kind == "mcp":
            provider = self._provider(McpProvider)
            assert provider._links is not None
            return all(link.users == 0 for link in provider._links._links.values())
        provider = self._provider(WebProvider)
        session = provider._pages._client._session
        assert session is not None
        return not session._session.connector._acquired  # pyright: ignore[reportOptionalMemberAccess]

    def _provider(self, kind: type[Any]) -> Any:
        given = self.api.service.hosting.providers
        made = [each._made if isinstance(each, LaterProvider) else each for each in given]
        (found,) = [each for each in made if isinstance(each, kind)]
        return found

    def _containers(self) -> list[Any]:
        return self.api.service.containers._all()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    pytest.importorskip("mcp")
    async with mcp_stub() as stub, receiver() as web:

        async def hangs(request: Request) -> None:
            await stub.release.wait()

        stub.behaviours["tools/call"] = hangs
        web.answers = [None]
        settings = Settings(
            document_embedding="none", allow_outbound=("127.0.0.1",), web_search="searxng", web_search_url=web.url
        )
        async with inprocess_app(settings=settings) as api:
            api.service.containers.sandboxes._found = find_monty()
            yield World(api, stub, web)
        web.release.set()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.002)


@requirement("loop:leave")
@pytest.mark.parametrize("kind", ["code", "mcp", "page"])
async def test_a_real_tool_stops_when_its_client_leaves_or_cancels(world: World, kind: str) -> None:
    api = world.api
    asked = ManualExchange(create_app(api.service), {**world.body(kind), "stream": True})
    await until(lambda: world.runs(kind))
    assert api.service.admission.running == 1
    (run,) = api.service._runs.values()
    asked.leave()
    await asked.finished()
    await until(lambda: world.free(kind))
    assert api.service.admission.running == 0
    assert (await api.client.get(f"/responses/{run.id}")).json()["status"] == "cancelled"

    world.stub.asked.clear()
    world.web.answers = [None]
    made = (await api.client.post("/responses", json={**world.body(kind), "background": True})).json()
    await until(lambda: world.runs(kind) and not world.free(kind))
    assert (await api.client.post(f"/responses/{made['id']}/cancel")).json()["status"] == "cancelled"
    await until(lambda: world.free(kind))
    assert api.service.admission.running == 0

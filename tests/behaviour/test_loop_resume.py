"""Loops of hosted tools, gone on with by another server at any write of the one that began them (law 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.runtime import keeper, runner
from antiphon.settings import Settings
from antiphon.store.base import RunningResponse
from antiphon.store.memory import MemoryStore
from support.fake_tools import Corpus, Servers
from support.inprocess import InProcess
from support.resuming import Stalls, replay, told
from support.unsteady import OURS, Faults, Gate, UnsteadyStore, ended, frames_of, served

requirement = pytest.mark.requirement

SHARED = Settings(drain_timeout=0, lease_seconds=60)
TOOLS: list[Any] = [
    {"type": "search_corpus"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "mcp", "server_label": "here", "server_url": "https://mcp.test", "require_approval": "never"},
    {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}},
]
ASKS = [{"type": "mcp", "server_label": "here", "server_url": "https://mcp.test"}]
CHANGE = '!CALL change {"queries":["it"]}'
SEARCHES = "\n".join(
    [
        "!SLOW 1",
        "!REASON one two",
        "!TEXT I look",
        '!CALL search_corpus {"queries":["one"]}',
        '!CALL file_search {"queries":["two"]}',
        "!THEN",
        '!CALL search_corpus {"queries":["fail"]}',
        "!THEN",
        "!TEXT found it",
    ]
)
CHANGES = "\n".join(
    [
        "!TEXT first",
        '!CALL search_corpus {"queries":["one"]}',
        CHANGE,
        '!CALL look {"queries":["two"]}',
        "!THEN",
        "!REASON hm",
        '!CALL search_corpus {"queries":["three"]}',
        "!THEN",
        "!TEXT done with it",
    ]
)
MIXED = "\n".join(["!CALL weather {}", CHANGE, '!CALL search_corpus {"queries":["one"]}'])
APPROVAL = "\n".join(['!CALL look {"queries":["one"]}', CHANGE])
_INTERRUPTED = b"The server was restarted while the tool ran"


class Server:
    """Providers of one server, and what ran in it."""

    def __init__(self) -> None:
        self.corpus, self.servers = Corpus(), Servers()

    @property
    def tools(self) -> list[Any]:
        return [self.corpus, self.servers]

    @property
    def runs(self) -> list[str]:
        return self.corpus.runs + self.servers.runs


async def whole(text: Any, fields: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The events of a response that nobody interrupts, and the writes that it takes."""
    store, count, server = UnsteadyStore(shared=True), Stalls(10_000), Server()
    async with served(store, SHARED, server.tools) as api:
        text, fields = await prepared(api, text, fields)
        store.around |= {"append_events": count, "set_tool_runs": count}
        answer = await api.create(text, background=True, **fields)
        await ended(store, answer["id"])
        return await replay(api, answer["id"]), 10_000 - count.left


async def prepared(api: InProcess, text: Any, fields: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The request; where it approves something, after a response that asks for that."""
    if text is not None:
        return text, fields
    first = await api.create(f"{CHANGE}\n!THEN\n!TEXT done", **fields)
    answer = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
    return [answer], {**fields, "previous_response_id": first["id"]}


async def cut_after(
    writes: int, text: Any, fields: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[str], list[bytes]]:
    """The events of a response that another server takes over after so many writes, what ran, and its items."""
    store, stalls = UnsteadyStore(shared=True), Stalls(writes)
    here, there = Server(), Server()
    async with served(store, SHARED, here.tools) as paused, served(store, SHARED, there.tools) as other:
        text, fields = await prepared(paused, text, fields)
        store.around |= {"append_events": stalls, "set_tool_runs": stalls}
        name = (await paused.create(text, background=True, **fields))["id"]
        finished = asyncio.create_task(ended(store, name))
        stalled = asyncio.create_task(stalls.stalled.wait())
        try:
            await asyncio.wait({finished, stalled}, return_when=asyncio.FIRST_COMPLETED)
            if not finished.done():
                durable = frames_of(await MemoryStore.events(store, OURS, name))
                store.around.clear()
                row = await MemoryStore.get_response(store, OURS, name)
                assert row is not None
                assert other.service._takeover is not None
                await other.service._takeover.take(RunningResponse(OURS, name, "dead", row.fence))
                await finished
                assert frames_of(await MemoryStore.events(store, OURS, name)).startswith(durable)
        finally:
            stalls.opened.set()
            stalled.cancel()
        assert await store.tool_runs(OURS, name) == []
        turns = await store.chain(OURS, name)
        return await replay(other, name), here.runs + there.runs, list(turns[-1].output_items)


@requirement("loop:resume", "loop:resume:once")
@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (SEARCHES, {"tools": TOOLS, "include": ["file_search_call.results"]}),
        (CHANGES, {"tools": TOOLS}),
        (MIXED, {"tools": TOOLS}),
        (APPROVAL, {"tools": ASKS}),
        (None, {"tools": ASKS}),
    ],
    ids=["searches", "changes", "mixed", "approval", "approved"],
)
async def test_another_server_goes_on_wherever_the_writes_of_the_first_one_end(
    text: Any, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runner, "BACKGROUND_DELAY", 0)
    expected, writes = await whole(text, fields)
    assert expected[-1]["response"]["status"] == "completed"
    assert writes >= 5
    interrupted = 0
    for count in range(1, writes + 1):
        events, runs, items = await cut_after(count, text, fields)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        final, wanted = events[-1]["response"], expected[-1]["response"]
        assert final["status"] == "completed", (count, final["error"])
        # What changes the world runs once, or not at all where nobody knows.
        assert runs.count("change it") == (text not in (APPROVAL, SEARCHES)), count
        assert max(map(runs.count, runs)) <= 2
        assert any(b"found one" in item for item in items) == (text is not None)
        if any(_INTERRUPTED in item for item in items):
            interrupted += 1
            continue
        assert told(events) == told(expected), count
        assert final["usage"] == wanted["usage"], count
    assert bool(interrupted) == (text not in (SEARCHES, APPROVAL))


@requirement("loop:runs-kept")
async def test_a_store_that_is_away_is_waited_for_before_a_tool_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keeper, "_AGAIN_SECONDS", 0.01)
    store, server = UnsteadyStore(), Server()
    store.around["set_tool_runs"] = Faults(2)
    async with served(store, tools=server.tools) as api:
        answer = await api.create(SEARCHES, background=True, tools=TOOLS)
        found = await ended(store, answer["id"])
    assert found["output_text"] == "I lookfound it"


@requirement("loop:resume:end")
async def test_a_loop_that_is_cancelled_elsewhere_keeps_what_its_tools_have_given():
    store, gate, here, there = UnsteadyStore(shared=True), Gate(), Server(), Server()
    text = '!CALL search_corpus {"queries":["one"]}\n!CALL change {"queries":["it"]}'
    async with served(store, SHARED, here.tools) as first, served(store, SHARED, there.tools) as second:
        here.servers.gates["never"] = asyncio.Event()
        asked = text.replace("it", "wait never")
        name = (await first.create(asked, background=True, tools=TOOLS))["id"]
        async with asyncio.timeout(20):
            while len(here.runs) < 2:
                await asyncio.sleep(0.001)
        cancelled = (await second.client.post(f"/responses/{name}/cancel")).json()
        assert cancelled["status"] == "cancelled"
        assert [call["status"] for call in cancelled["hosted_tool_calls"]] == ["completed"]
        assert cancelled["output"][1]["status"] == "incomplete"
        told_again = await second.create("!ECHO", previous_response_id=name)
        assert "found one" in told_again["output_text"]
        gate.opened.set()

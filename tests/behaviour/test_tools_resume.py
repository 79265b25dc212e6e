"""Responses of several turns, shells and patches, gone on with by another server at any batch of their log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.runtime import runner
from antiphon.settings import Settings
from antiphon.store.base import RunningResponse
from antiphon.store.memory import MemoryStore
from support.resuming import Stalls, replay, told
from support.unsteady import OURS, UnsteadyStore, ended, frames_of, served

requirement = pytest.mark.requirement

SHARED = Settings(drain_timeout=0, lease_seconds=60)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": CITY, "defer_loading": True},
    {"type": "function", "name": "send_mail", "description": "Mail.", "defer_loading": True},
    {"type": "namespace", "name": "crm", "description": "C.", "tools": [{"type": "function", "name": "get"}]},
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "apply_patch"},
    {"type": "tool_search"},
]
SEARCHES = "\n".join(
    [
        "!SLOW 2",
        "!REASON one two three",
        "!TEXT I look for it",
        '!CALL tool_search {"query":"weather"}',
        '!CALL tool_search {"query":"nothing of that"}',
        "!THEN",
        "!SLOW 2",
        "!REASON four five",
        '!CALL tool_search {"query":"mail"}',
        "!THEN",
        "!SLOW 2",
        "!TEXT found it",
        '!CALL get_weather {"city":"Oslo and Bergen"}',
    ]
)
CLIENTS = "\n".join(
    [
        "!SLOW 2",
        "!REASON one two three",
        '!CALL crm::get {"id":12345678}',
        '!CALL shell {"commands":["ls -l somewhere","pwd and more"],"timeout_ms":1000}',
        '!CALL apply_patch {"type":"update_file","path":"a/b.txt","diff":"@@\\n-one two\\n+three four\\n"}',
        '!CALL apply_patch {"type":"delete_file","path":"c.txt"}',
        '!CALL tool_search {"query":"mail"}',
    ]
)


async def whole(text: str, **fields: Any) -> tuple[list[dict[str, Any]], int]:
    """The events of a response that nobody interrupts, and the batches that it takes."""
    store = UnsteadyStore(shared=True)
    count = Stalls(10_000)
    store.around["append_events"] = count
    async with served(store, SHARED) as api:
        answer = await api.create(text, background=True, **fields)
        await ended(store, answer["id"])
        return await replay(api, answer["id"]), 10_000 - count.left


@requirement("tools:rounds:resume", "tools:client:resume")
@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (SEARCHES, {}),
        (SEARCHES, {"tool_choice": "required"}),
        (SEARCHES, {"reasoning": {"summary": "auto"}}),
        (CLIENTS, {"include": ["apply_patch_call.operation_diff"]}),
        (CLIENTS, {}),
    ],
    ids=["searches", "forced", "summaries", "clients", "clients-without-diffs"],
)
async def test_another_server_goes_on_with_a_response_wherever_its_log_ends(
    text: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    # So that each event has a batch of its own, as far as it can.
    monkeypatch.setattr(runner, "BACKGROUND_DELAY", 0)
    fields = {"tools": TOOLS, **fields}
    expected, batches = await whole(text, **fields)
    assert expected[-1]["response"]["status"] == "completed"
    assert batches > 10
    for count in range(1, batches + 1):
        events = await cut_after(count, text, fields)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        final, wanted = events[-1]["response"], expected[-1]["response"]
        assert final["status"] == "completed", (count, final["error"])
        assert told(events)[:-1] == told(expected)[:-1]
        assert told([{**final, "usage": None, "sequence_number": 0}]) == told(
            [{**wanted, "usage": None, "sequence_number": 0}]
        )
        if "reasoning" not in fields:
            assert final["usage"]["output_tokens"] == wanted["usage"]["output_tokens"]


async def cut_after(batches: int, text: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a response that another server takes over once so many of its batches are durable."""
    store, stalls = UnsteadyStore(shared=True), Stalls(batches)
    store.around["append_events"] = stalls
    async with served(store, SHARED) as paused, served(store, SHARED) as other:
        name = (await paused.create(text, background=True, **fields))["id"]
        finished = asyncio.create_task(ended(store, name))
        stalled = asyncio.create_task(stalls.stalled.wait())
        try:
            await asyncio.wait({finished, stalled}, return_when=asyncio.FIRST_COMPLETED)
            if not finished.done():
                durable = frames_of(await MemoryStore.events(store, OURS, name))
                del store.around["append_events"]
                row = await MemoryStore.get_response(store, OURS, name)
                assert row is not None
                assert other.service._takeover is not None
                await other.service._takeover.take(RunningResponse(OURS, name, "dead", row.fence))
                await finished
                assert frames_of(await MemoryStore.events(store, OURS, name)).startswith(durable)
        finally:
            stalls.opened.set()
            stalled.cancel()
        return await replay(other, name)

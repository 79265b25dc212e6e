"""Names of events: each request may ask for those of Open Responses, whatever the server's setting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.http.app import create_app
from antiphon.settings import Settings
from antiphon.store.base import RunningResponse
from support.inprocess import InProcess, inprocess_app, sse_events
from support.sockets import manual_socket
from support.unsteady import OURS, UnsteadyStore, eventually, served

requirement = pytest.mark.requirement

SAID = "!REASON let me see\n!TEXT hi"
HEADER = "x-antiphon-dialect"
RENAMED = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}


async def streamed(
    api: InProcess, query: str | None = None, header: str | None = None, **fields: Any
) -> list[dict[str, Any]]:
    """The events of a stream for which a dialect is asked in one of the two ways."""
    answer = await api.client.post(
        "/responses",
        json={"model": "scripted", "input": SAID, "stream": True, **fields},
        params={} if query is None else {"dialect": query},
        headers={} if header is None else {HEADER: header},
    )
    assert answer.status_code == 200, answer.text
    return sse_events(answer.content)


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


@requirement("wire:dialect:request", "wire:dialect")
async def test_a_request_asks_for_a_dialect_by_query_or_header(api: InProcess) -> None:
    plain = types(await streamed(api))
    assert set(RENAMED) <= set(plain)
    renamed = [RENAMED.get(name, name) for name in plain]
    assert types(await streamed(api, query="openresponses")) == renamed
    assert types(await streamed(api, header="openresponses")) == renamed
    assert types(await streamed(api, query="openai", header="openresponses")) == plain


@requirement("wire:dialect:request")
async def test_a_request_may_also_turn_the_servers_dialect_off() -> None:
    async with inprocess_app(settings=Settings(dialect="openresponses")) as api:
        assert set(RENAMED.values()) <= set(types(await streamed(api)))
        assert set(RENAMED) <= set(types(await streamed(api, query="openai")))


@requirement("wire:dialect:request")
@pytest.mark.parametrize("background", [False, True])
async def test_a_stream_is_replayed_in_the_dialect_that_it_had(api: InProcess, background: bool) -> None:
    events = await streamed(api, query="openresponses", background=background)
    found = events[-1]["response"]
    for params in ({}, {"dialect": "openai"}):
        answer = await api.client.get(f"/responses/{found['id']}", params={"stream": "true", **params})
        assert sse_events(answer.content) == events
    assert (await api.client.get(f"/responses/{found['id']}")).json() == found


@requirement("wire:dialect:request")
async def test_no_other_dialect_is_there(api: InProcess) -> None:
    for given in ({"params": {"dialect": "klingon"}}, {"headers": {HEADER: ""}}):
        answer = await api.client.post("/responses", json={"model": "scripted", "input": "hi"}, **given)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("dialect", "invalid_value")
        assert "'openresponses'" in error["message"]


@requirement("wire:dialect:request")
async def test_a_connection_has_the_dialect_that_it_was_opened_with(api: InProcess) -> None:
    async with manual_socket(create_app(api.service), {HEADER: "openresponses"}) as socket:
        socket.create(SAID)
        seen = types(await socket.until("response.completed"))
    assert set(RENAMED.values()) <= set(seen)
    assert not set(RENAMED) & set(seen)


@requirement("wire:dialect:request")
async def test_a_response_that_another_server_ends_keeps_its_dialect() -> None:
    store = UnsteadyStore(shared=True)
    settings = Settings(drain_timeout=0, lease_seconds=60)
    async with served(store, settings) as paused, served(store, settings) as other:
        said = "!SLOW 10\n!REASON " + "so " * 5000
        asking = asyncio.create_task(streamed(paused, query="openresponses", input=said))
        run = await eventually(lambda: _told(paused))
        assert other.service._takeover is not None
        await other.service._takeover.take(RunningResponse(OURS, run.id, "dead", run.fence))
        seen = types(await asking)
    assert seen[-2:] == ["error", "response.failed"]
    assert "response.reasoning.done" in seen
    assert not set(RENAMED) & set(seen)


async def _told(api: InProcess) -> Any:
    """The run of the one response that is generated here, once some of it is durable."""
    runs = [run for run in api.service._runs.values() if run.journal is not None and run.journal.durable > 5]
    return runs[0] if runs else None

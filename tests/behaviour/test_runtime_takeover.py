"""Responses that change hands: taken by another server, cancelled there, left at a stop, and gone on with."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from antiphon.errors import InternalError
from antiphon.runtime.runner import Run
from antiphon.settings import Settings
from antiphon.store.base import RunningResponse
from support.inprocess import InProcess, sse_events
from support.unsteady import OURS, Gate, UnsteadyStore, ended, eventually, served

requirement = pytest.mark.requirement

SLOW = "!SLOW 10\n!COUNT 5000"
SHARED = Settings(drain_timeout=0, lease_seconds=60)


async def generating(api: InProcess) -> Run:
    """The run of the one response that is generated here, once some of its text is durable."""

    async def told() -> Any:
        return [run for run in api.service._runs.values() if run.journal is not None and run.journal.durable > 5]

    (run,) = await eventually(told)
    return run


async def take(api: InProcess, run: Run) -> None:
    """A server takes a response over, as if whoever runs it were dead."""
    await api.service._take(RunningResponse(OURS, run.id, "dead", run.fence))


async def ask(api: InProcess, text: str, **fields: Any) -> httpx2.Response:
    return await api.client.post("/responses", json={"model": "scripted", "input": text, **fields})


async def replayed(api: InProcess, name: str) -> list[dict[str, Any]]:
    return sse_events((await api.client.get(f"/responses/{name}?stream=true")).content)


@requirement("takeover:foreground")
async def test_a_foreground_stream_that_another_server_ended_fails_for_its_client_too():
    store = UnsteadyStore(shared=True)
    async with served(store, SHARED) as paused, served(store, SHARED) as other:
        asking = asyncio.create_task(ask(paused, SLOW, stream=True))
        run = await generating(paused)
        await take(other, run)
        events = sse_events((await asking).content)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert events[-1]["response"]["error"]["code"] == "server_restarted"
        for api in (paused, other):
            found = (await api.client.get(f"/responses/{run.id}")).json()
            assert (found["status"], found["error"]["code"]) == ("failed", "server_restarted")
        assert not paused.service._runs
        assert paused.service.admission.running == 0
        assert (await replayed(paused, run.id)) == (await replayed(other, run.id))


@requirement("takeover:foreground")
@pytest.mark.parametrize("while_committing", [False, True], ids=["generating", "ending"])
async def test_an_answer_whose_response_another_server_ended_is_an_error_and_no_200(while_committing: bool):
    store, gate = UnsteadyStore(shared=True), Gate()
    async with served(store, SHARED) as paused, served(store, SHARED) as other:
        talk = (await paused.client.post("/conversations", json={})).json()["id"]
        if while_committing:
            store.around["finish_response"] = gate
            asking = asyncio.create_task(ask(paused, "hi", conversation=talk))
            await gate.entered.wait()
            (run,) = paused.service._runs.values()
            store.around.clear()
            await take(other, run)
            gate.opened.set()
        else:
            asking = asyncio.create_task(ask(paused, SLOW, conversation=talk))
            run = await eventually(lambda: _only_run(paused))
            await take(other, run)
        reply = await asking
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "server_restarted")
        found = (await paused.client.get(f"/responses/{run.id}")).json()
        assert (found["status"], found["error"]["code"]) == ("failed", "server_restarted")
        assert (await ask(paused, "again", conversation=talk)).json()["status"] == "completed"


async def _only_run(api: InProcess) -> Run | None:
    await asyncio.sleep(0)
    return next(iter(api.service._runs.values()), None)


@requirement("background:end-refused")
async def test_the_end_of_a_background_response_that_the_store_refuses_is_shown_only_once_another_is_there():
    store = UnsteadyStore()
    gate = Gate()
    attempts: list[bytes] = []

    async def refuse(call: Any) -> Any:
        attempts.append(b"")
        if len(attempts) == 1:
            raise InternalError("The store failed.")
        return await gate(call)

    store.around["finish_response"] = refuse
    async with served(store) as api:
        reading = asyncio.create_task(ask(api, "!COUNT 5", background=True, stream=True))
        await asyncio.wait_for(gate.entered.wait(), 20)
        (run,) = api.service._runs.values()
        shown, closed = (await api.client.get(f"/responses/{run.id}")).json(), run.live.closed
        gate.opened.set()
        assert (shown["status"], closed) == ("queued", False)
        events = sse_events((await reading).content)
        assert (events[-1]["type"], events[-1]["response"]["error"]["code"]) == ("response.failed", "server_error")
        assert (await ended(store, run.id)) == events[-1]["response"]
        assert await replayed(api, run.id) == events

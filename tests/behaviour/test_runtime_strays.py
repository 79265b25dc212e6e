"""What a failing store or a client that leaves could let lie half-way: every row that was begun or taken over ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx2
import msgspec
import pytest

from antiphon.engines.base import PreparedTurn
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import ConflictError
from antiphon.machine.deltas import Delta, TextDelta
from antiphon.protocol.ids import new_id
from antiphon.protocol.json import encode
from antiphon.protocol.response import Response
from antiphon.settings import Settings
from antiphon.store.base import EventBatch, NewResponse
from support.inprocess import InProcess, sse_events
from support.unsteady import AWAY, OURS, Faults, Gate, UnsteadyStore, ended, eventually, served

requirement = pytest.mark.requirement

SLOW = "!SLOW 10\n!COUNT 5000"
SHARED = Settings(drain_timeout=0, lease_seconds=1.0)


def request(text: str = "hi", **fields: Any) -> bytes:
    return msgspec.json.encode({"model": "scripted", "input": text, **fields})


def snapshot(name: str) -> bytes:
    return encode(Response(id=name, created_at=1, model="scripted", status="in_progress"))


async def running(store: UnsteadyStore) -> str:
    """The id of the one response that runs in a store."""

    async def told() -> Any:
        return [key[1] for key in store._running]

    (name,) = await eventually(told)
    return name


@requirement("strays:left")
async def test_a_client_that_leaves_while_its_response_is_begun_leaves_no_row_that_runs():
    store, gate = UnsteadyStore(), Gate()

    async def on_its_own(call: Any) -> Any:
        # A writer's thread or a database goes on with what it was given, whoever waits for it.
        return await asyncio.shield(asyncio.ensure_future(gate(call)))

    async with served(store) as api:
        talk = (await api.client.post("/conversations", json={})).json()["id"]
        store.around["create_response"] = on_its_own
        creating = asyncio.create_task(api.service.create(OURS, request(conversation=talk)))
        await gate.entered.wait()
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        gate.opened.set()
        name = await running(store)
        assert (await ended(store, name))["status"] == "cancelled"
        assert (await api.create("again", conversation=talk))["status"] == "completed"
        assert api.service.admission.running == 0


@requirement("strays:unsure")
@pytest.mark.parametrize("fields", [{"stream": True}, {"background": True}], ids=["stream", "background"])
async def test_a_response_that_began_although_its_client_was_told_that_it_did_not_is_ended(fields: dict[str, Any]):
    store = UnsteadyStore()
    async with served(store) as api:
        talk = (await api.client.post("/conversations", json={})).json()["id"]
        store.around["create_response"] = Faults(after=True)
        reply = await api.client.post("/responses", content=request(conversation=talk, **fields))
        assert reply.status_code == 503
        found = await ended(store, await running(store))
        assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
        assert (await api.create("again", conversation=talk))["status"] == "completed"
        assert (api.service.admission.running, api.service.workers._reserved) == (0, 0)


@requirement("strays:unsure")
async def test_a_response_is_ended_that_began_but_whose_conversation_could_not_be_looked_at_again():
    store = UnsteadyStore(shared=True)

    async def away_once_it_began(call: Any) -> Any:
        if store._running:
            raise AWAY
        return await call()

    async with served(store) as api:
        talk = (await api.client.post("/conversations", json={})).json()["id"]
        store.around["conversation_item_ids"] = away_once_it_began
        reply = await api.client.post("/responses", content=request(conversation=talk, stream=True))
        assert reply.status_code == 503
        name = await running(store)
        del store.around["conversation_item_ids"]
        assert (await ended(store, name))["error"]["code"] == "server_error"
        assert (await api.create("again", conversation=talk))["status"] == "completed"
        assert api.service.admission.running == 0


@requirement("strays:refused")
async def test_a_response_that_did_not_begin_leaves_nothing_behind():
    store = UnsteadyStore()
    async with served(store) as api:
        store.around["create_response"] = Faults()
        assert (await api.client.post("/responses", content=request(stream=True))).status_code == 503
        store.around["create_response"] = Faults(error=ConflictError("It is taken."))
        assert (await api.client.post("/responses", content=request(stream=True))).status_code == 409
        assert (await store.status()).responses == 0
        assert api.service.admission.running == 0


@requirement("strays:cancel")
async def test_a_cancellation_that_took_a_response_over_but_could_not_end_it_is_made_good():
    store = UnsteadyStore(shared=True)
    async with served(store) as owner, served(store) as other:
        name = (await owner.create(SLOW, background=True))["id"]
        store.around["finish_response"] = Faults(times=2)
        reply = await other.client.post(f"/responses/{name}/cancel")
        assert reply.status_code == 503
        assert (await ended(store, name))["status"] == "cancelled"
        again = await other.client.post(f"/responses/{name}/cancel")
        assert (again.status_code, again.json()["status"]) == (200, "cancelled")


@requirement("strays:takeover")
async def test_an_orphan_that_was_taken_over_but_could_not_be_ended_is_ended_later():
    store = UnsteadyStore(shared=True)
    name = new_id("resp")
    await store.create_response(OURS, NewResponse(name, None, "in_progress", 1, snapshot(name), (), owner="gone"))
    async with served(store, SHARED):
        store.around["finish_response"] = Faults()
        found = await ended(store, name)
        assert (found["status"], found["error"]["code"]) == ("failed", "server_restarted")


@requirement("strays:damaged")
@pytest.mark.parametrize("body", [b"event: what.is.this\ndata: {}\n\n", b"no frame"], ids=["unknown", "broken"])
async def test_a_log_that_cannot_be_read_keeps_no_server_from_starting_and_its_response_fails(body: bytes):
    store = UnsteadyStore()
    names = [new_id("resp") for _ in range(2)]
    for name, plan in zip(names, [b"", b"no plan"], strict=True):
        new = NewResponse(name, None, "in_progress", 1, snapshot(name), (), [EventBatch(0, body, [0])], plan=plan)
        await store.create_response(OURS, new)
    async with served(store) as api:
        for name in names:
            assert (await ended(store, name))["status"] == "failed"
            assert (await api.client.delete(f"/responses/{name}")).status_code == 200


class _Broken(ScriptedEngine):
    """Draws what no event can hold."""

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        yield [TextDelta("whole ")]
        await asyncio.sleep(0)
        yield [TextDelta("\ud800")]


async def _ask(api: InProcess, **fields: Any) -> httpx2.Response:
    return await api.client.post("/responses", content=request(**fields))


@requirement("strays:broken")
async def test_a_run_whose_log_breaks_is_ended_from_what_is_durable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ScriptedEngine, "generate", _Broken.generate)
    store = UnsteadyStore()
    async with served(store) as api:
        events = sse_events((await _ask(api, stream=True, background=True)).content)
        assert (events[-1]["type"], events[-1]["response"]["status"]) == ("response.failed", "failed")
        name = events[-1]["response"]["id"]
        assert (await api.client.get(f"/responses/{name}")).json() == events[-1]["response"]
        talk = (await api.client.post("/conversations", json={})).json()["id"]
        assert (await _ask(api, conversation=talk)).status_code == 500
        assert (await ended(store, (await running(store))))["status"] == "failed"
        assert not api.service._runs
        assert (api.service.admission.running, api.service.workers.running) == (0, 0)


@requirement("strays:stop")
async def test_a_stop_in_the_middle_of_a_takeover_leaves_the_response_to_the_next_owner():
    store, gate = UnsteadyStore(shared=True), Gate()
    name = new_id("resp")
    async with served(store, SHARED) as api:
        store.around["finish_response"] = gate
        await store.create_response(OURS, NewResponse(name, None, "in_progress", 1, snapshot(name), (), owner="gone"))
        await gate.entered.wait()
        await api.service.close()
        assert api.service._takeover is not None
        assert api.service._takeover.strays._task is None
    store.around.clear()
    assert store._owners == {}
    async with served(store, SHARED):
        assert (await ended(store, name))["error"]["code"] == "server_restarted"


@requirement("strays:idempotent")
async def test_a_request_that_is_sent_again_after_its_response_began_unknown_to_it_does_not_wait_for_ever():
    store = UnsteadyStore()
    async with served(store) as api:
        store.around["create_response"] = Faults(after=True)
        for status in (503, 200):
            reply = await api.client.post("/responses", content=request(), headers={"Idempotency-Key": "once"})
            assert reply.status_code == status
        assert reply.json()["status"] == "completed"
        assert (await store.status()).responses == 2

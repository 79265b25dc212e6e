"""Responses that change hands: taken by another server, cancelled there, left at a stop, and gone on with."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx2
import pytest

from antiphon.errors import ConflictError, InternalError, UnavailableError
from antiphon.http.telemetry import Telemetry
from antiphon.runtime.runner import Run
from antiphon.settings import Settings
from antiphon.store.base import RunningResponse
from support.inprocess import InProcess, sse_events
from support.unsteady import OURS, Faults, Gate, UnsteadyStore, ended, eventually, served

requirement = pytest.mark.requirement

SLOW = "!SLOW 10\n!COUNT 5000"
SHARED = Settings(drain_timeout=0, lease_seconds=60)
ONE_WORKER = Settings(drain_timeout=0, lease_seconds=60, background_workers=1, background_queue=1)


async def generating(api: InProcess) -> Run:
    """The run of the one response that is generated here, once some of its text is durable."""

    async def told() -> Any:
        return [run for run in api.service._runs.values() if run.journal is not None and run.journal.durable > 5]

    (run,) = await eventually(told)
    return run


async def take(api: InProcess, run: Run) -> None:
    """A server takes a response over, as if whoever runs it were dead."""
    assert api.service._takeover is not None
    await api.service._takeover.take(RunningResponse(OURS, run.id, "dead", run.fence))


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


async def left_running(store: UnsteadyStore, text: str = "!SLOW 10\n!COUNT 60", **fields: Any) -> str:
    """The id of a background response that a server has left in the middle of its text."""
    async with served(store) as api:
        name = (await api.create(text, background=True, **fields))["id"]
        await generating(api)
    return name


@requirement("takeover:store-away")
@pytest.mark.parametrize("method", ["events", "get_response", "claim"])
async def test_a_store_that_is_away_for_a_moment_does_not_end_what_could_go_on(method: str):
    store = UnsteadyStore(shared=True)
    name = await left_running(store)
    async with served(store, SHARED) as api:
        run = await generating(api)
        store.around[method] = Faults(times=3)
        # As if this one had been paused: another owner's fence, and then it is its turn again.
        assert api.service._takeover is not None
        with contextlib.suppress(UnavailableError):
            await take(api, run)
        assert (await ended(store, name))["status"] == "completed"
        events = await replayed(api, name)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert "".join(deltas) == " ".join(str(number) for number in range(1, 61))


@requirement("takeover:stop")
async def test_a_stop_while_a_response_is_taken_up_does_not_wait_for_its_end():
    store, gate = UnsteadyStore(), Gate()
    name = await left_running(store, SLOW)
    store.around["events"] = gate
    async with served(store) as api:
        await gate.entered.wait()
        # Both at once: the store answers, and the server is told to stop.
        gate.opened.set()
        store.around.clear()
        await asyncio.wait_for(api.service.end_runs(), 20)
        assert not api.service._runs
    row = await store.get_response(OURS, name)
    assert row is not None
    assert row.status == "in_progress"
    async with served(store) as api:
        await generating(api)
        assert (await api.client.post(f"/responses/{name}/cancel")).json()["status"] == "cancelled"


@requirement("background:accepted-at-stop")
async def test_a_response_that_is_accepted_while_the_server_stops_lets_its_reader_go_and_waits_for_the_next_start():
    store, gate = UnsteadyStore(), Gate()
    async with served(store) as api:
        store.around["create_response"] = gate
        asking = asyncio.create_task(ask(api, "!TEXT later", background=True, stream=True))
        await gate.entered.wait()
        await api.service.end_runs()
        gate.opened.set()
        reply = await asyncio.wait_for(asking, 5)
        events = sse_events(reply.content)
        assert [event["type"] for event in events] == ["response.created", "response.queued"]
        await eventually(lambda: _none_runs(api))
    store.around.clear()
    async with served(store) as api:
        found = await ended(store, events[0]["response"]["id"])
        assert (found["status"], found["output_text"]) == ("completed", "later")


async def _none_runs(api: InProcess) -> bool:
    await asyncio.sleep(0)
    return not api.service._runs and not api.service.workers.waiting


@requirement("takeover:queued")
async def test_the_reader_of_a_queued_response_hears_at_once_that_another_server_cancelled_it():
    store = UnsteadyStore(shared=True)
    async with served(store, ONE_WORKER) as owner, served(store, SHARED) as other:
        busy = (await owner.create(SLOW, background=True))["id"]
        reading = asyncio.create_task(ask(owner, "hi", background=True, stream=True))
        await eventually(lambda: _waits(owner))
        (name,) = {key[1] for key in owner.service._runs} - {busy}
        reply = await other.client.post(f"/responses/{name}/cancel")
        assert reply.json()["status"] == "cancelled"
        # The doorbell of a shared store.
        owner.service._rung(OURS.tenant, name)
        events = sse_events((await asyncio.wait_for(reading, 5)).content)
        assert [event["type"] for event in events] == ["response.created", "response.queued", "response.incomplete"]
        assert events[-1]["response"] == reply.json()
        assert (owner.service.workers.waiting, len(owner.service._runs)) == (0, 1)
        await owner.client.post(f"/responses/{busy}/cancel")


async def _waits(api: InProcess) -> bool:
    await asyncio.sleep(0)
    return api.service.workers.waiting == 1


@requirement("background:cancel-place")
async def test_a_queued_response_that_is_cancelled_gives_its_place_back():
    store = UnsteadyStore()
    async with served(store, ONE_WORKER) as api:
        busy = (await api.create(SLOW, background=True))["id"]
        for _ in range(3):
            waiting = (await api.create("hi", background=True))["id"]
            assert (await ask(api, "one more", background=True)).status_code == 503
            assert (await api.client.post(f"/responses/{waiting}/cancel")).json()["status"] == "cancelled"
        await api.client.post(f"/responses/{busy}/cancel")
        await eventually(lambda: _none_runs(api))


@requirement("takeover:cancelled")
async def test_what_is_cancelled_or_deleted_while_it_waits_to_go_on_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    store = UnsteadyStore()
    faults: list[str] = []
    monkeypatch.setattr(Telemetry, "fault", lambda self, message, error: faults.append(message))
    names = [await left_running(store), await left_running(store)]
    settings = Settings(drain_timeout=0, background_workers=1)
    async with served(store, settings) as api:
        busy = await generating(api)
        (name,) = set(names) - {busy.id}
        assert (await api.client.post(f"/responses/{name}/cancel")).json()["status"] == "cancelled"
        cancelled = await replayed(api, name)
        assert (await api.client.delete(f"/responses/{name}")).status_code == 200
        assert cancelled[-1]["response"]["status"] == "cancelled"
        await ended(store, busy.id)
        await eventually(lambda: _none_runs(api))
        assert (await api.client.get(f"/responses/{name}")).status_code == 404
    assert faults == []


@requirement("takeover:conversation")
async def test_a_conversation_is_kept_for_a_response_that_goes_on_until_its_end_is_stored():
    store, gate = UnsteadyStore(), Gate()
    async with served(store) as api:
        talk = (await api.client.post("/conversations", json={})).json()["id"]
    name = await left_running(store, conversation=talk)
    store.around["finish_response"] = gate
    async with served(store) as api:
        await asyncio.wait_for(gate.entered.wait(), 20)
        # Its end is under way: a request that read the history now would miss it.
        with pytest.raises(ConflictError), api.service.conversations.held(OURS, talk):
            pass
        assert (await ask(api, "hi", conversation=talk)).status_code == 409
        gate.opened.set()
        await ended(store, name)
        await eventually(lambda: _none_runs(api))
        told = await api.echo(conversation=talk)
        assert "59 60" in told


@requirement("takeover:parent")
async def test_a_queued_child_of_a_deleted_parent_has_its_history_after_a_restart():
    store = UnsteadyStore()
    async with served(store, ONE_WORKER) as api:
        parent = (await api.create("!TEXT blue"))["id"]
        busy = (await api.create(SLOW, background=True))["id"]
        asked = [{"role": "user", "content": "which?"}, {"role": "user", "content": "!ECHO"}]
        child = (await api.create(asked, background=True, previous_response_id=parent))["id"]
    async with served(store, ONE_WORKER) as api:
        await generating(api)
        assert (await api.client.delete(f"/responses/{parent}")).status_code == 200
        assert (await ask(api, "hi", previous_response_id=parent)).status_code == 404
        await api.client.post(f"/responses/{busy}/cancel")
        assert "blue" in (await ended(store, child))["output_text"]


@requirement("takeover:idempotent")
@pytest.mark.parametrize("fields", [{}, {"stream": True}], ids=["whole", "stream"])
async def test_who_waits_for_a_response_under_its_key_hears_its_end_from_whoever_took_it(fields: dict[str, Any]):
    store = UnsteadyStore(shared=True)
    body, headers = {"model": "scripted", "input": SLOW, **fields}, {"Idempotency-Key": "once"}
    async with served(store, SHARED) as paused, served(store, SHARED) as other:
        first = asyncio.create_task(paused.client.post("/responses", json=body, headers=headers))
        run = await eventually(lambda: _only_run(paused))

        async def waiting_here() -> bool:
            readers = [future for future in run.live._waiting if not future.done()]
            return len(readers) > bool(fields) and bool(other.service._bells._waiting)

        waiting = [
            asyncio.create_task(api.client.post("/responses", json=body, headers=headers)) for api in (paused, other)
        ]
        await eventually(waiting_here)
        await take(other, run)
        stored = (await ended(store, run.id))["error"]["code"]
        assert stored == "server_restarted"
        for answer in await asyncio.wait_for(asyncio.gather(*waiting), 20):
            if fields:
                told = sse_events(answer.content)[-1]["response"]
                assert (answer.status_code, told["status"], told["error"]["code"]) == (200, "failed", stored)
            else:
                # The first request got an error, so nobody was told of that end.
                assert answer.status_code == 409
                assert answer.json()["error"]["code"] == "idempotency_unanswered"
                assert answer.headers["x-should-retry"] == "true"
        assert (await first).status_code == (200 if fields else 500)

"""Background responses: queued, polled, streamed, cancelled, deleted, and gone on with after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.protocol.response import TERMINAL_STATUSES
from antiphon.protocol.sse import SSEParser
from antiphon.runtime.recovery import stored_response
from antiphon.settings import Settings
from antiphon.store.base import Scope
from support.inprocess import InProcess, inprocess_app, sse_events

SLOW = "!SLOW 20\n!COUNT 3000"


async def until(told: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    """Ask until it is so."""
    async with asyncio.timeout(seconds):
        while not await told():
            await asyncio.sleep(0.01)


async def get(api: InProcess, response_id: str) -> dict[str, Any]:
    answer = await api.client.get(f"/responses/{response_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ended(api: InProcess, response_id: str) -> dict[str, Any]:
    """The response once it has ended."""
    found: list[dict[str, Any]] = []

    async def told() -> bool:
        found.append(await get(api, response_id))
        return found[-1]["status"] in TERMINAL_STATUSES

    await until(told)
    return found[-1]


async def begun(api: InProcess, response_id: str) -> dict[str, Any]:
    """The response once it shows text."""
    found: list[dict[str, Any]] = []

    async def told() -> bool:
        found.append(await get(api, response_id))
        return bool(found[-1]["output"]) and bool(found[-1]["output"][0]["content"][0]["text"])

    await until(told)
    return found[-1]


async def log(api: InProcess, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
    """The events of a response to its end."""
    query = "" if after is None else f"&starting_after={after}"
    answer = await api.client.get(f"/responses/{response_id}?stream=true{query}")
    assert answer.status_code == 200, answer.text
    return sse_events(answer.content)


@pytest.mark.requirement("api:background", "background:accepted")
async def test_a_background_response_is_queued_at_once_and_can_be_polled_to_its_end(api: InProcess):
    first = await api.create("!COUNT 300", background=True)
    assert (first["status"], first["background"], first["output"]) == ("queued", True, [])
    last = await ended(api, first["id"])
    assert (last["status"], last["background"]) == ("completed", True)
    assert last["output"][0]["content"][0]["text"].endswith("300")
    assert last["usage"]["output_tokens"] == 300


@pytest.mark.requirement("background:events")
async def test_its_events_are_created_queued_in_progress_and_end_with_what_get_returns(api: InProcess):
    events = await api.stream("!COUNT 200", background=True)
    types = [event["type"] for event in events]
    assert types[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert [event["response"]["status"] for event in events[:3]] == ["queued", "queued", "in_progress"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert types[-1] == "response.completed"
    assert await get(api, events[0]["response"]["id"]) == events[-1]["response"]
    assert await log(api, events[0]["response"]["id"]) == events


@pytest.mark.requirement("background:poll")
async def test_a_running_one_shows_the_fold_of_its_durable_events(api: InProcess):
    first = await api.create(SLOW, background=True)
    running = await begun(api, first["id"])
    assert running["status"] == "in_progress"
    assert api.service.store is not None
    scope_log = await api.service.store.events(api.service._runs.copy().popitem()[1].plan.scope, first["id"])
    durable = b"".join(batch.body for batch in scope_log)
    text = "".join(
        msgspec.json.decode(frame.data)["delta"]
        for frame in SSEParser().feed(durable)
        if frame.event == "response.output_text.delta"
    )
    assert text.startswith(running["output"][0]["content"][0]["text"])
    await api.client.post(f"/responses/{first['id']}/cancel")


@pytest.mark.requirement("background:cancel")
async def test_cancel_ends_it_with_its_partial_output_and_again_gives_the_same(api: InProcess):
    first = await api.create(SLOW, background=True)
    running = await begun(api, first["id"])
    answer = await api.client.post(f"/responses/{first['id']}/cancel")
    assert answer.status_code == 200
    cancelled = answer.json()
    assert cancelled["status"] == "cancelled"
    assert cancelled["output"][0]["status"] == "incomplete"
    text = cancelled["output"][0]["content"][0]["text"]
    assert text.startswith(running["output"][0]["content"][0]["text"])
    assert (await api.client.post(f"/responses/{first['id']}/cancel")).json() == cancelled
    assert await get(api, first["id"]) == cancelled
    events = await log(api, first["id"])
    assert (events[-1]["type"], events[-1]["response"]) == ("response.incomplete", cancelled)


@pytest.mark.requirement("background:cancel-ended")
async def test_cancel_of_one_that_has_ended_gives_it_as_it_is(api: InProcess):
    first = await api.create("hi", background=True)
    last = await ended(api, first["id"])
    answer = await api.client.post(f"/responses/{first['id']}/cancel")
    assert (answer.status_code, answer.json()) == (200, last)


@pytest.mark.requirement("background:cancel-sync")
async def test_cancel_of_a_synchronous_one_is_a_400(api: InProcess):
    first = await api.create("hi")
    answer = await api.client.post(f"/responses/{first['id']}/cancel")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "Cannot cancel a synchronous response."


@pytest.mark.requirement("background:cancel-queued", "background:queue", "ops:metrics:queue")
async def test_one_that_waits_for_a_worker_is_cancelled_at_once_and_too_many_are_refused(tmp_path: Path):
    settings = Settings(background_workers=1, background_queue=1)
    async with inprocess_app(settings=settings, store="sqlite", tmp_path=tmp_path) as api:
        running = await api.create(SLOW, background=True)
        await begun(api, running["id"])
        waiting = await api.create("hi", background=True)
        error = await api.refused(503, "one more", background=True)
        assert error["code"] == "server_busy"
        metrics = (await api.client.get("http://127.0.0.1/metrics")).text
        assert "antiphon:background_waiting 1.0" in metrics
        assert "antiphon:background_running 1.0" in metrics
        assert await waited(api) > 0
        cancelled = (await api.client.post(f"/responses/{waiting['id']}/cancel")).json()
        assert (cancelled["status"], cancelled["output"]) == ("cancelled", [])
        events = await log(api, waiting["id"])
        assert [event["type"] for event in events] == ["response.created", "response.queued", "response.incomplete"]
        await api.client.post(f"/responses/{running['id']}/cancel")
        assert (await get(api, waiting["id"]))["status"] == "cancelled"
        assert await waited(api) == 0


async def waited(api: InProcess) -> float:
    """For how long the first of those that wait for a worker has waited, as /metrics says."""
    metrics = (await api.client.get("http://127.0.0.1/metrics")).text.splitlines()
    (line,) = [line for line in metrics if line.startswith("antiphon:background_waiting_seconds ")]
    return float(line.split()[1])


@pytest.mark.requirement("background:delete")
async def test_an_in_flight_one_cannot_be_deleted_and_an_ended_one_is_gone_everywhere(api: InProcess):
    first = await api.create(SLOW, background=True)
    answer = await api.client.delete(f"/responses/{first['id']}")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "Cannot delete an in-flight response."
    await api.client.post(f"/responses/{first['id']}/cancel")
    assert (await api.client.delete(f"/responses/{first['id']}")).status_code == 200
    for method, path in (
        ("GET", ""),
        ("GET", "?stream=true"),
        ("DELETE", ""),
        ("POST", "/cancel"),
        ("GET", "/input_items"),
    ):
        gone = await api.client.request(method, f"/responses/{first['id']}{path}")
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "response_not_found")


@pytest.mark.requirement("background:store-false")
async def test_with_store_false_it_can_be_polled_but_not_chained_to(api: InProcess):
    first = await api.create("!TEXT fleeting", background=True, store=False)
    last = await ended(api, first["id"])
    assert (last["store"], last["status"]) == (False, "completed")
    error = await api.refused(404, "go on", previous_response_id=first["id"])
    assert error["code"] == "previous_response_not_found"


@pytest.mark.requirement("background:chain")
async def test_a_background_response_can_be_continued(api: InProcess):
    first = await api.create("!TEXT blue", background=True)
    await ended(api, first["id"])
    assert "blue" in await api.echo("what colour?", previous_response_id=first["id"])


@pytest.mark.requirement("replay:numbers")
async def test_a_replay_begins_after_the_number_that_is_asked_for(api: InProcess):
    for fields in ({"background": True}, {}):
        events = await api.stream("!COUNT 70", **fields)
        name, last = events[0]["response"]["id"], events[-1]["sequence_number"]
        assert await log(api, name) == await log(api, name, -1) == events
        for after in (0, 1, 5, 63, 64, 70, last - 1):
            assert await log(api, name, after) == events[after + 1 :]
        empty = await api.client.get(f"/responses/{name}?stream=true&starting_after={last}")
        assert (empty.status_code, empty.content) == (200, b"data: [DONE]\n\n")
        for malformed in ("x", "1.5", "", "-2"):
            answer = await api.client.get(f"/responses/{name}?stream=true&starting_after={malformed}")
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "starting_after")


@pytest.mark.requirement("replay:live")
async def test_a_replay_of_a_running_one_goes_on_live_to_its_end(api: InProcess):
    first = await api.create("!SLOW 5\n!COUNT 100", background=True)
    events = await log(api, first["id"], 1)
    assert [event["sequence_number"] for event in events] == list(range(2, 2 + len(events)))
    assert events[-1]["type"] == "response.completed"
    assert await log(api, first["id"], 1) == events


@pytest.mark.requirement("replay:readers")
async def test_fifty_readers_of_one_stream_agree(api: InProcess):
    first = await api.create("!SLOW 2\n!COUNT 150", background=True)
    url = f"/responses/{first['id']}?stream=true"
    answers = await asyncio.gather(*(api.client.get(url) for _ in range(50)))
    assert {answer.content for answer in answers} == {(await api.client.get(url)).content}


@pytest.mark.requirement("background:restart", "api:resume")
async def test_a_stop_lets_it_wait_and_the_next_start_goes_on_with_the_next_number(tmp_path: Path):
    settings = Settings(drain_timeout=0)
    async with inprocess_app(settings=settings, store="sqlite", tmp_path=tmp_path) as api:
        first = await api.create("!SLOW 10\n!COUNT 150", background=True)
        waiting = [await api.create(f"!TEXT waits {number}", background=True) for number in range(3)]
        seen = await begun(api, first["id"])
    assert seen["status"] == "in_progress"
    async with inprocess_app(settings=settings, store="sqlite", tmp_path=tmp_path) as api:
        events = await log(api, first["id"])
        last = await ended(api, first["id"])
        for number, response in enumerate(waiting):
            assert (await ended(api, response["id"]))["output"][0]["content"][0]["text"] == f"waits {number}"
    assert last["status"] == "completed"
    assert last["output"][0]["content"][0]["text"] == " ".join(str(number) for number in range(1, 151))
    assert last["usage"]["output_tokens"] == 150
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == last["output"][0]["content"][0]["text"]
    assert len({event["item_id"] for event in events if "item_id" in event}) == 1


@pytest.mark.requirement("background:poll-race")
async def test_a_poll_that_meets_the_end_half_way_gives_the_ended_response(api: InProcess):
    first = await api.create("!COUNT 100", background=True)
    last = await ended(api, first["id"])
    store = api.service.store
    assert store is not None
    # The row was read before the end, the events after it.
    body = await stored_response(store, Scope("default"), first["id"], b"{}")
    assert msgspec.json.decode(body) == last
    assert await stored_response(store, Scope("default"), "resp_of_nobody", b"{}") == b"{}"

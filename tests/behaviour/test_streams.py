"""Streams on the wire: exact bytes, whole events in a write, silence, and clients that leave."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from antiphon.http.app import create_app
from antiphon.http.stream import MAX_WRITE, whole_events
from antiphon.protocol.json import loads
from antiphon.settings import Settings
from antiphon.store.base import Scope
from support.asgi import ManualExchange
from support.inprocess import InProcess, inprocess_app, sse_events

SCOPE = Scope("default")


def bodies(messages: list[dict[str, Any]]) -> list[bytes]:
    return [bytes(message["body"]) for message in messages if message["type"] == "http.response.body"]


def exchange(api: InProcess, said: str, **fields: Any) -> ManualExchange:
    return ManualExchange(create_app(api.service), {"model": "scripted", "input": said, **fields})


async def until_delta(stream: ManualExchange) -> str:
    """The response's id, once a first delta has been sent."""
    seen = b""
    while b"output_text.delta" not in seen:
        message = await stream.next()
        seen += bytes(message.get("body", b""))
    return re.search(rb'"id":"(resp_[0-9a-f]+)"', seen).group(1).decode()  # type: ignore[union-attr]


@pytest.mark.requirement("stream:bytes")
async def test_the_bytes_of_a_stream_are_exactly_these(api: InProcess):
    reply = await api.client.post("/responses", json={"model": "scripted", "input": "!TEXT hi", "stream": True})
    text = reply.text
    for name in ("resp", "msg"):
        text = re.sub(rf"{name}_[0-9a-f]{{44}}", name, text)
    text = re.sub(r'"response":\{.*\},"sequence_number"', '"response":{…},"sequence_number"', text)
    place = '"item_id":"msg","output_index":0,"content_index":0'
    part = '"part":{"type":"output_text","text":"%s","annotations":[],"logprobs":[]}'
    expected = [
        ("response.created", '"response":{…},"sequence_number":0'),
        ("response.in_progress", '"response":{…},"sequence_number":1'),
        (
            "response.output_item.added",
            '"output_index":0,"item":{"type":"message","role":"assistant","content":[],"id":"msg",'
            '"status":"in_progress"},"sequence_number":2',
        ),
        ("response.content_part.added", f'{place},{part % ""},"sequence_number":3'),
        ("response.output_text.delta", f'{place},"delta":"hi","logprobs":[],"sequence_number":4'),
        ("response.output_text.done", f'{place},"text":"hi","logprobs":[],"sequence_number":5'),
        ("response.content_part.done", f'{place},{part % "hi"},"sequence_number":6'),
        (
            "response.output_item.done",
            '"output_index":0,"item":{"type":"message","role":"assistant","content":[{"type":"output_text",'
            '"text":"hi","annotations":[],"logprobs":[]}],"id":"msg","status":"completed"},"sequence_number":7',
        ),
        ("response.completed", '"response":{…},"sequence_number":8'),
    ]
    frames = "".join(f'event: {name}\ndata: {{"type":"{name}",{rest}}}\n\n' for name, rest in expected)
    assert text == frames + "data: [DONE]\n\n"


@pytest.mark.requirement("stream:writes")
async def test_every_write_holds_whole_events_and_at_most_sixteen_kib(api: InProcess):
    stream = exchange(api, "!COUNT 400", stream=True)
    sent = bodies(await stream.finished())
    assert len(sent) > 3
    for body in sent[:-1]:
        assert body.startswith(b"event: ")
        assert body.endswith(b"\n\n")
        assert len(body) <= MAX_WRITE or body.count(b"event: ") == 1
    assert sent[-1] == b"data: [DONE]\n\n"
    assert sse_events(b"".join(sent))[-1]["type"] == "response.completed"


@pytest.mark.requirement("stream:writes")
def test_an_event_larger_than_a_write_is_still_one_write():
    frames = [b"a" * 10, b"b" * (MAX_WRITE + 1), b"c" * 10, b"d" * 10]
    assert list(whole_events(frames)) == [frames[0], frames[1], frames[2] + frames[3]]
    assert list(whole_events([])) == []


@pytest.mark.requirement("stream:keep-alive")
async def test_a_silent_stream_gets_comments_and_nothing_else():
    async with inprocess_app(settings=Settings(keep_alive_seconds=0.02)) as api:
        stream = exchange(api, "!SLOW 150\n!COUNT 2", stream=True)
        sent = bodies(await stream.finished())
        assert sent.count(b": keep-alive\n\n") >= 2
        rest = b"".join(body for body in sent if not body.startswith(b":"))
        assert sse_events(rest)[-1]["response"]["output_text"] == "1 2"


@pytest.mark.requirement("leave:stream", "subset:M36")
async def test_a_client_that_leaves_a_stream_stops_the_engine_and_the_response_is_kept_as_cancelled(api: InProcess):
    stream = exchange(api, "!SLOW 20\n!COUNT 5000", stream=True)
    response_id = await until_delta(stream)
    running = (await api.client.get(f"/responses/{response_id}")).json()
    assert running["status"] == "in_progress"
    assert running["output_text" if "output_text" in running else "output"]
    stream.leave()
    await stream.finished()
    stored = (await api.client.get(f"/responses/{response_id}")).json()
    assert stored["status"] == "cancelled"
    assert stored["output"][0]["status"] == "incomplete"
    assert stored["output_text"].startswith("1 ")
    assert api.service.admission.running == 0
    events = sse_events((await api.client.get(f"/responses/{response_id}?stream=true")).content)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"] == stored


@pytest.mark.requirement("leave:whole", "subset:M36")
async def test_a_client_that_leaves_before_its_whole_answer_stops_the_engine_too(api: InProcess):
    stream = exchange(api, "!SLOW 20\n!COUNT 5000")
    while not api.service._runs:
        await asyncio.sleep(0)
    (run,) = api.service._runs.values()
    stream.leave()
    await stream.finished()
    stored = (await api.client.get(f"/responses/{run.id}")).json()
    assert stored["status"] == "cancelled"
    assert api.service.admission.running == 0


@pytest.mark.requirement("leave:whole")
async def test_a_request_whose_task_is_cancelled_ends_as_if_its_client_had_left(api: InProcess):
    asked = exchange(api, "!SLOW 20\n!COUNT 5000")
    while not api.service._runs:
        await asyncio.sleep(0)
    (run,) = api.service._runs.values()
    while len(run.log.frames) < 4:
        await asyncio.sleep(0)
    asked.task.cancel()
    await asyncio.wait({asked.task})
    stored = (await api.client.get(f"/responses/{run.id}")).json()
    assert stored["status"] == "cancelled"
    assert api.service.admission.running == 0


@pytest.mark.requirement("leave:replay")
async def test_a_reader_that_leaves_a_replay_does_not_stop_the_response(api: InProcess):
    stream = exchange(api, "!SLOW 5\n!COUNT 40", stream=True)
    response_id = await until_delta(stream)
    reader = ManualExchange(create_app(api.service), None, f"/v1/responses/{response_id}?stream=true", "GET")
    assert (await reader.next())["status"] == 200
    follower = ManualExchange(
        create_app(api.service), None, f"/v1/responses/{response_id}?stream=true&starting_after=3", "GET"
    )
    reader.leave()
    live = b"".join(bodies(await stream.finished()))
    followed = b"".join(bodies(await follower.finished()))
    await reader.finished()
    assert followed.endswith(live)
    assert sse_events(followed)[0]["sequence_number"] == 4
    assert (await api.client.get(f"/responses/{response_id}")).json()["status"] == "completed"


@pytest.mark.requirement("delete:running")
async def test_a_response_that_is_still_running_cannot_be_deleted_or_chained(api: InProcess):
    stream = exchange(api, "!SLOW 5\n!COUNT 60", stream=True)
    response_id = await until_delta(stream)
    reply = await api.client.delete(f"/responses/{response_id}")
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "Cannot delete an in-flight response."
    error = (
        await api.client.post(
            "/responses", json={"model": "scripted", "input": "x", "previous_response_id": response_id}
        )
    ).json()["error"]
    assert error["code"] == "response_in_progress"
    await stream.finished()
    assert (await api.client.delete(f"/responses/{response_id}")).status_code == 200


@pytest.mark.requirement("law:4:created")
async def test_a_stored_stream_is_in_the_store_before_its_first_event_is_sent(api: InProcess):
    stream = exchange(api, "!SLOW 20\n!COUNT 50", stream=True)
    await stream.next()
    first = await stream.next()
    identity = loads(bytes(first["body"]).split(b"data: ", 1)[1].split(b"\n", 1)[0])["response"]["id"]
    assert api.service.store is not None
    row = await api.service.store.get_response(SCOPE, identity)
    assert row is not None
    assert row.status == "in_progress"
    stream.leave()
    await stream.finished()


@pytest.mark.requirement("law:4:terminal")
async def test_the_end_is_in_the_store_before_the_terminal_event_is_sent(api: InProcess):
    stream = exchange(api, "!COUNT 3", stream=True)
    assert api.service.store is not None
    seen = b""
    while b"event: response.completed" not in seen:
        message = await stream.next()
        seen += bytes(message.get("body", b""))
    identity = loads(seen.split(b"data: ", 1)[1].split(b"\n", 1)[0])["response"]["id"]
    row = await api.service.store.get_response(SCOPE, identity)
    assert row is not None
    assert row.status == "completed"
    await stream.finished()

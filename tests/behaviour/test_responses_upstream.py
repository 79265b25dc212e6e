"""Responses over an upstream that has a Responses endpoint itself: another server of this kind, or one that fails."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.settings import ModelConfig, Settings
from support.inprocess import InProcess, inprocess_app, sse_events
from support.upstream import (
    FAULTS,
    KEY,
    Exchange,
    FakeUpstream,
    dies,
    dies_in_a_chunk,
    error_in_a_200,
    fake_upstream,
    half_a_frame,
    said,
    stalls,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOL = {"type": "function", "name": "f", "parameters": SCHEMA}
FORMAT = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as upstream:
        yield upstream


@asynccontextmanager
async def serving(url: str, **fields: Any) -> AsyncIterator[InProcess]:
    """The application over that upstream; the model is named `scripted` for the helpers of the client."""
    given = {"name": "scripted", "engine": "responses", "profile": "antiphon", "base_url": url, **fields}
    async with inprocess_app(settings=Settings(models=(ModelConfig(**given),))) as app:
        yield app


@pytest.fixture
async def app(scripted_server: str) -> AsyncIterator[InProcess]:
    """The application over a second server."""
    async with serving(scripted_server) as client:
        yield client


@pytest.mark.requirement("responses-upstream:serve", "responses-upstream:usage")
async def test_a_turn_of_another_server_is_one_of_this_one(app: InProcess):
    events = await app.stream('!REASON hm, so\n!COUNT 3\n!CALL f {"n": 1}', tools=[TOOL])
    response = events[-1]["response"]
    assert response["status"] == "completed"
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
    thought, message, call = response["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "hm, so"}]
    assert message["content"][0]["text"] == "1 2 3"
    assert (call["name"], call["arguments"]) == ("f", '{"n": 1}')
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert deltas == ["1 ", "2 ", "3"]
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 2
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.requirement("responses-upstream:serve", "responses-upstream:request")
async def test_the_upstream_sees_the_whole_history(app: InProcess):
    first = await app.create('!REASON so\n!CALL f {"n": 1}', tools=[TOOL], instructions="Be kind.")
    call = first["output"][-1]["call_id"]
    output = {"type": "function_call_output", "call_id": call, "output": "one"}
    second = await app.create([output], previous_response_id=first["id"], tools=[TOOL])
    assert second["output_text"] == "FINAL: one"
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    asked = [{"type": "message", "role": "user", "content": "!ECHO"}]
    third = (await app.create(asked, previous_response_id=second["id"]))["output_text"]
    assert "<think>so</think>" in third
    assert "<tool_call>" in third
    assert third.index("one") < third.index("FINAL: one") < third.index("!ECHO")
    assert "Be kind." not in third
    error = await app.refused(400, [{"role": "user", "content": [image]}])
    assert error["message"] == "image input is not supported by this model."


@pytest.mark.requirement("responses-upstream:serve")
async def test_choices_formats_custom_tools_and_log_probabilities_hold(app: InProcess):
    forced = await app.create("Hi", tools=[TOOL], tool_choice="required")
    assert forced["output"][0]["arguments"] == '{"n":0}'
    formed = await app.create("Hi", text=FORMAT)
    assert formed["output_text"] == '{"n":0}'
    custom = {"type": "custom", "name": "shout"}
    free = await app.create("!CUSTOM shout a {b}", tools=[custom])
    assert [(item["type"], item["input"]) for item in free["output"]] == [("custom_tool_call", "a {b}")]
    likely = await app.create("Hi", include=["message.output_text.logprobs"], top_logprobs=2)
    part = likely["output"][0]["content"][0]
    assert "".join(entry["token"] for entry in part["logprobs"]) == part["text"]


@pytest.mark.requirement("responses-upstream:end", "responses-upstream:error")
async def test_ends_and_errors_are_those_of_the_upstream(app: InProcess):
    cut = await app.create("!COUNT 100", max_output_tokens=16)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert cut["usage"]["output_tokens"] == 16
    refused = await app.create("!REFUSE I will not")
    assert refused["output"][0]["content"][0]["type"] == "refusal"
    failed = (await app.stream("!FAIL"))[-1]["response"]
    assert failed["status"] == "failed"
    assert failed["error"]["code"] in ("server_error", "upstream_error")
    busy = await app.client.post("/responses", json={"model": "scripted", "input": "!ERR429"})
    assert busy.json()["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.requirement("responses-upstream:fault")
async def test_every_fault_of_an_upstream_is_a_failed_response_that_is_stored(fake: FakeUpstream):
    async with serving(fake.url, idle_timeout=0.3, upstream_model="m") as app:
        for fault, code in FAULTS.items():
            # An answer between two faults, so that the upstream does not count as gone.
            fake.behave = said("Hello")
            assert (await app.create("Hi"))["output_text"] == "Hello"
            fake.behave = fault
            began = time.monotonic()
            answer = await app.client.post("/responses", json={"model": "scripted", "input": "Hi", "stream": True})
            elapsed = time.monotonic() - began
            last = sse_events(answer.content)[-1]
            assert last["type"] == "response.failed", fault
            assert last["response"]["error"]["code"] == code, (fault, last["response"]["error"])
            for hidden in ("10.1.2.3", "/srv", KEY, "127.0.0.1", "html"):
                assert hidden not in last["response"]["error"]["message"]
            stored = (await app.client.get(f"/responses/{last['response']['id']}")).json()
            assert stored["status"] == "failed"
            if fault in (dies, dies_in_a_chunk, half_a_frame, stalls, error_in_a_200):
                assert stored["output"][0]["content"][0]["text"] == "Half"
                assert stored["output"][0]["status"] == "incomplete"
            assert elapsed < 2, fault


@pytest.mark.requirement("responses-upstream:serve")
async def test_an_answer_that_breaks_its_schema_is_asked_for_once_more(fake: FakeUpstream):
    async def behave(exchange: Exchange) -> None:
        await said("no JSON" if len(fake.asked) == 1 else '{"n":2}')(exchange)

    fake.behave = behave
    async with serving(fake.url, profile="generic", upstream_model="m") as app:
        assert (await app.create("Hi", text=FORMAT))["output_text"] == '{"n":2}'
    assert len(fake.asked) == 2
    assert '"n"' in fake.asked[0].body["instructions"]

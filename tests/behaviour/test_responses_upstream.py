"""Responses over an upstream that has a Responses endpoint itself: another server of this kind, or one that fails."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.elsewhere import serving
from support.inprocess import InProcess
from support.upstream import Exchange, FakeUpstream, fake_upstream, said
from support.upstream_faults import IDLE, fails_in_every_way

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOL = {"type": "function", "name": "f", "parameters": SCHEMA}
FORMAT = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as upstream:
        yield upstream


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
    async with serving(fake.url, idle_timeout=IDLE, upstream_model="m") as app:
        await fails_in_every_way(app, fake)


@pytest.mark.requirement("responses-upstream:serve")
async def test_an_answer_that_breaks_its_schema_is_asked_for_once_more(fake: FakeUpstream):
    async def behave(exchange: Exchange) -> None:
        await said("no JSON" if len(fake.asked) == 1 else '{"n":2}')(exchange)

    fake.behave = behave
    async with serving(fake.url, profile="generic", upstream_model="m") as app:
        assert (await app.create("Hi", text=FORMAT))["output_text"] == '{"n":2}'
    assert len(fake.asked) == 2
    assert '"n"' in fake.asked[0].body["instructions"]


WEB = {"type": "web_search", "filters": {"allowed_domains": ["example.org"]}}
SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}
CITATION = {"type": "url_citation", "url": "https://example.org", "title": "t", "start_index": 0, "end_index": 5}


async def searched(exchange: Exchange) -> None:
    """Search the web, and answer with a sealed thought before it and a citation."""
    message = {"type": "message", "role": "assistant", "content": [], "phase": "final_answer"}
    sealed = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "blob"}
    kind = "response.reasoning_summary_text.delta"
    await exchange.head()
    await exchange.events(
        {"type": "response.created", "response": {"id": "resp_u", "status": "in_progress"}},
        {"type": kind, "output_index": 0, "summary_index": 0, "delta": "I look."},
        {"type": "response.output_item.done", "output_index": 0, "item": sealed},
        {"type": "response.output_item.added", "output_index": 1, "item": {**SEARCH, "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 1, "item": SEARCH},
        {"type": "response.output_item.added", "output_index": 2, "item": message},
        {"type": "response.output_text.delta", "output_index": 2, "content_index": 0, "delta": "Found"},
        {
            "type": "response.output_text.annotation.added",
            "output_index": 2,
            "content_index": 0,
            "annotation_index": 0,
            "annotation": CITATION,
        },
        {"type": "response.completed", "response": {"id": "resp_u", "status": "completed"}},
        "[DONE]",
    )


@pytest.mark.requirement("responses-upstream:hosted", "responses-upstream:thoughts", "responses-upstream:phases")
async def test_tools_that_the_upstream_runs_go_down_and_what_they_gave_goes_back(fake: FakeUpstream):
    fake.behave = searched
    async with serving(fake.url, profile="openai", upstream_model="gpt-5") as app:
        choice = {"type": "web_search"}
        include = ["web_search_call.action.sources"]
        text = {"verbosity": "low"}
        options = {"tools": [TOOL, WEB], "tool_choice": choice, "include": include, "text": text}
        events = await app.stream("Hi", reasoning={"summary": "auto"}, **options)
        response = events[-1]["response"]
        await app.create("More", previous_response_id=response["id"], tools=[WEB], tool_choice="required")
        again = [{key: value for key, value in item.items() if key != "status"} for item in response["output"]]
        await app.create([{"role": "user", "content": "Hi"}, *again, {"role": "user", "content": "More"}], store=False)
        items = (await app.client.get(f"/responses/{response['id']}")).json()["output"]
    thought, search, message = response["output"]
    assert items == response["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "I look."}]
    assert thought["encrypted_content"] == "blob"
    assert search["id"].startswith("ws_")
    assert search["id"] != "ws_1"
    assert {**search, "id": "ws_1"} == {**SEARCH, "upstream_id": "ws_1"}
    assert message["phase"] == "final_answer"
    assert message["content"][0]["annotations"] == [CITATION]
    kinds = [event["type"] for event in events]
    assert "response.reasoning_summary_text.delta" in kinds
    assert "response.output_text.annotation.added" in kinds
    first, second, third = (exchange.body for exchange in fake.asked)
    assert (first["tools"][1], first["tool_choice"]) == (WEB, choice)
    assert first["include"] == [*include, "reasoning.encrypted_content"]
    assert (first["text"], first["reasoning"]) == ({"verbosity": "low"}, {"summary": "auto"})
    assert second["tool_choice"] == "required"
    past = [
        {"type": "message", "role": "user", "content": "Hi"},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "I look."}],
            "encrypted_content": "blob",
        },
        SEARCH,
        {"type": "message", "role": "assistant", "content": "Found"},
        {"type": "message", "role": "user", "content": "More"},
    ]
    assert second["input"] == past
    assert third["input"][:2] == past[:2]
    assert third["input"][3:] == past[3:]


@pytest.mark.requirement("responses-upstream:hosted")
async def test_an_approval_goes_down_with_what_it_approves_and_to_nobody_else(fake: FakeUpstream):
    asked = {"id": "mcpr_1", "type": "mcp_approval_request", "server_label": "s", "name": "f", "arguments": "{}"}

    async def asks(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(
            {"type": "response.output_item.done", "output_index": 0, "item": asked},
            {"type": "response.completed", "response": {"status": "completed"}},
        )

    fake.behave = asks
    server = {"type": "mcp", "server_label": "s", "server_url": "https://example.org/mcp"}
    async with serving(fake.url, profile="openai", upstream_model="gpt-4.1") as app:
        first = await app.create("Hi", tools=[server])
        request = first["output"][0]
        fake.behave = said("Done")
        approval = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        second = await app.create([approval], previous_response_id=first["id"], tools=[server])
    assert second["output_text"] == "Done"
    told = fake.asked[-1].body["input"]
    assert told[1] == asked
    assert (told[2]["type"], told[2]["approval_request_id"]) == ("mcp_approval_response", "mcpr_1")

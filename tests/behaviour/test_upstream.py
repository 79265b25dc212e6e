"""Responses over an upstream that does as the test says: faults, limits, and what is checked before it is told."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.engines.upstream import generation
from antiphon.errors import EngineUnavailableError
from antiphon.runtime.planner import wait_ready
from antiphon.settings import ModelConfig, Settings
from support.inprocess import InProcess, inprocess_app, sse_events
from support.timing import quickest
from support.upstream import KEY, Exchange, FakeUpstream, fake_upstream, hangs_up, said
from support.upstream_faults import IDLE, fails_in_every_way

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOL = {"type": "function", "name": "f", "parameters": SCHEMA}
FORMAT = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as upstream:
        yield upstream


@asynccontextmanager
async def serving(fake: FakeUpstream, **fields: Any) -> AsyncIterator[InProcess]:
    """The application over that upstream; the model is named `scripted` for the helpers of the client."""
    config = ModelConfig(**{"name": "scripted", "upstream_model": "m", "base_url": fake.url, **fields})
    async with inprocess_app(settings=Settings(models=(config,))) as app:
        yield app


async def called(exchange: Exchange, *arguments: str, name: str = "f", finish: str = "tool_calls") -> None:
    """Answer with calls of a function, each with such arguments."""
    pieces = [
        {"index": index, "id": f"c{index}", "function": {"name": name, "arguments": text}}
        for index, text in enumerate(arguments)
    ]
    await exchange.head()
    await exchange.events({"choices": [{"delta": {"tool_calls": pieces}}]})
    await exchange.events({"choices": [{"delta": {}, "finish_reason": finish}]}, "[DONE]")


@pytest.mark.requirement("upstream:serve", "upstream:key")
async def test_a_response_is_made_of_what_the_upstream_says(
    fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("UPSTREAM_KEY", KEY)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    fake.behave = said("Hel", "lo")
    async with serving(fake, api_key_env="UPSTREAM_KEY") as app:
        response = await app.create("Hi", instructions="Be kind.", temperature=0.5)
        again = (await app.client.get(f"/responses/{response['id']}")).json()
        chained = await app.create("More", previous_response_id=response["id"])
    assert response["status"] == "completed"
    assert response["output_text"] == "Hello"
    assert again["output"] == response["output"]
    assert response["usage"]["input_tokens"] > 0
    first, second = fake.asked
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.body["model"] == "m"
    assert first.body["temperature"] == 0.5
    assert [m["content"] for m in first.body["messages"]] == ["Be kind.", "Hi"]
    assert [m["content"] for m in second.body["messages"]] == ["Hi", "Hello", "More"]
    assert chained["status"] == "completed"
    assert KEY not in json.dumps(response) + caplog.text


@pytest.mark.requirement("upstream:serve")
async def test_thinking_and_calls_become_items(fake: FakeUpstream):
    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events({"choices": [{"delta": {"reasoning_content": "why"}}]})
        call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"n":1}'}}
        await exchange.events({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        usage = {"prompt_tokens": 11, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}
        await exchange.events({"choices": [], "usage": usage}, "[DONE]")

    fake.behave = behave
    async with serving(fake) as app:
        events = await app.stream("Hi", tools=[TOOL])
    response = events[-1]["response"]
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]
    assert response["output"][1]["arguments"] == '{"n":1}'
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (11, 5)
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == 8


@pytest.mark.requirement("machine:content-filter", "upstream:end")
async def test_what_a_filter_cut_is_an_incomplete_response(fake: FakeUpstream):
    fake.behave = said("Once", finish="content_filter")
    async with serving(fake) as app:
        response = await app.create("Hi")
        chat = await app.client.post(
            "/chat/completions", json={"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
        )
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "content_filter"}
    assert chat.json()["choices"][0]["finish_reason"] == "content_filter"


@pytest.mark.requirement("upstream:fault", "upstream:words")
async def test_every_fault_of_an_upstream_is_a_failed_response_that_is_stored(fake: FakeUpstream):
    async with serving(fake, idle_timeout=IDLE) as app:
        await fails_in_every_way(app, fake)


@pytest.mark.requirement("upstream:refused")
@pytest.mark.parametrize(
    ("status", "type_", "code"),
    [
        (400, "invalid_request_error", "upstream_error"),
        (401, "authentication_error", "upstream_unauthorized"),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (500, "server_error", "upstream_error"),
        (503, "server_error", "upstream_lost"),
    ],
)
async def test_a_client_gets_the_status_of_an_upstream_that_refuses(
    fake: FakeUpstream, status: int, type_: str, code: str
):
    async def behave(exchange: Exchange) -> None:
        data = b'{"error": {"message": "not you"}}'
        await exchange.head(status, "application/json", f"content-length: {len(data)}\r\nretry-after: 7\r\n")
        await exchange.raw(data)

    fake.behave = behave
    async with serving(fake) as app:
        body: dict[str, Any] = {"model": "scripted", "input": "Hi"}
        said = [{"role": "user", "content": "Hi"}]
        chat = {"model": "scripted", "messages": said}
        for path, sent in (
            ("/responses", body),
            ("/responses", {**body, "stream": True}),
            ("/responses", {**body, "stream": True, "store": False}),
            ("/chat/completions", chat),
            ("/chat/completions", {**chat, "stream": True}),
            ("/completions", {"model": "scripted", "prompt": "Hi"}),
            ("/completions", {"model": "scripted", "prompt": "Hi", "stream": True}),
        ):
            answer = await app.client.post(path, json=sent)
            assert answer.status_code == status
            error = answer.json()["error"]
            assert (error["type"], error["code"]) == (type_, code)
            assert answer.headers["retry-after"] == "7"
        behind = await app.client.post("/responses", json={**body, "background": True, "stream": True})
        last = sse_events(behind.content)[-1]["response"]
        assert (last["status"], last["error"]["code"]) == ("failed", code)


@pytest.mark.requirement("upstream:retry")
async def test_a_connection_that_fails_before_the_first_delta_is_tried_once_more(fake: FakeUpstream):
    async def behave(exchange: Exchange) -> None:
        await (hangs_up if len(fake.asked) == 1 else said("Hello"))(exchange)

    fake.behave = behave
    async with serving(fake) as app:
        assert (await app.create("Hi"))["output_text"] == "Hello"
    assert len(fake.asked) == 2


@pytest.mark.requirement("upstream:cancel")
@pytest.mark.parametrize("began", [False, True])
async def test_a_cancelled_response_closes_the_connection_at_once(fake: FakeUpstream, began: bool):
    reached = asyncio.Event()

    async def behave(exchange: Exchange) -> None:
        if began:
            await exchange.head()
            await exchange.events({"choices": [{"delta": {"content": "Once"}}]})
        reached.set()
        await exchange.gone.wait()

    fake.behave = behave
    async with serving(fake) as app:

        async def one() -> float:
            reached.clear()
            response = await app.create("Hi", background=True)
            await asyncio.wait_for(reached.wait(), 20)
            await app.client.post(f"/responses/{response['id']}/cancel")
            cancelled = time.monotonic()
            await asyncio.wait_for(fake.asked[-1].gone.wait(), 20)
            return time.monotonic() - cancelled

        assert await quickest(one, 0.2) < 0.2


@pytest.mark.requirement("upstream:away")
async def test_a_server_starts_without_its_upstream_and_is_ready_when_that_comes(fake: FakeUpstream):
    fake.up = False
    async with serving(fake) as app:
        engine = app.service.registry.engines[0]
        assert not engine.ready
        assert (await app.client.get("http://127.0.0.1/ready")).status_code == 503
        fake.up = True
        assert (await app.create("Hi"))["output_text"] == "Hello"
        assert engine.ready
        assert engine.capabilities.context_length == 4096


@pytest.mark.requirement("upstream:breaker")
async def test_an_upstream_that_is_gone_is_left_alone_until_it_answers(fake: FakeUpstream):
    async with serving(fake) as app:
        engine = app.service.registry.engines[0]
        fake.up = False
        answer = (await app.client.post("/responses", json={"model": "scripted", "input": "Hi"})).json()
        assert answer["error"]["code"] == "upstream_lost"
        async with asyncio.timeout(20):
            while engine.ready:
                await asyncio.sleep(0)
        with pytest.raises(EngineUnavailableError, match="does not answer"):
            await wait_ready(engine, 0.01)
        fake.up = True
        assert await engine.wait_ready(5)
        assert (await app.create("Hi"))["output_text"] == "Hello"


@pytest.mark.requirement("upstream:checked")
async def test_an_answer_that_nothing_enforced_is_asked_for_again_and_told_when_it_is_right(fake: FakeUpstream):
    async def behave(exchange: Exchange) -> None:
        await said("no json" if len(fake.asked) == 1 else '{"n": 2}')(exchange)

    fake.behave = behave
    async with serving(fake) as app:
        events = await app.stream("Hi", text=FORMAT)
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == '{"n": 2}'
        assert not any("no json" in json.dumps(event) for event in events)
    assert len(fake.asked) == 2


@pytest.mark.requirement("upstream:checked")
async def test_an_answer_that_is_wrong_twice_fails(fake: FakeUpstream):
    fake.behave = said("no json")
    async with serving(fake) as app:
        response = await app.create("Hi", text=FORMAT)
        assert (response["status"], response["error"]["code"]) == ("failed", "invalid_output")
        assert response["output"] == []
        fake.behave = said("I will not call.")
        forced = await app.create("Hi", tools=[TOOL], tool_choice="required")
        assert (forced["status"], forced["error"]["code"]) == ("failed", "invalid_tool_call")
    assert len(fake.asked) == 4


@pytest.mark.requirement("upstream:checked")
@pytest.mark.parametrize(
    ("strict", "tries", "status"), [(True, 2, "failed"), (None, 1, "failed"), (False, 1, "completed")]
)
async def test_arguments_are_held_to_their_schema_as_strictly_as_it_says(
    fake: FakeUpstream, strict: bool | None, tries: int, status: str
):
    fake.behave = lambda exchange: called(exchange, '{"n":"one"}')
    async with serving(fake) as app:
        response = await app.create("Hi", tools=[{**TOOL, "strict": strict}])
    assert response["status"] == status
    assert len(fake.asked) == tries
    assert len(response["output"]) == (0 if strict else 1)


@pytest.mark.requirement("upstream:checked")
async def test_a_refusal_is_no_answer_of_a_form(fake: FakeUpstream):
    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events({"choices": [{"delta": {"refusal": "No."}, "finish_reason": "stop"}]}, "[DONE]")

    fake.behave = behave
    async with serving(fake) as app:
        response = await app.create("Hi", text=FORMAT)
    assert response["status"] == "completed"
    assert response["output"][0]["content"][0] == {"type": "refusal", "refusal": "No."}


@pytest.mark.requirement("upstream:declared")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tools": [{**TOOL, "parameters": {"type": "objekt"}}]}, "invalid_function_parameters"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "objekt"}}}},
            "invalid_json_schema",
        ),
        (
            {
                "tools": [
                    {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "("}}
                ]
            },
            "invalid_grammar",
        ),
    ],
)
async def test_what_nothing_could_be_checked_by_is_refused(fake: FakeUpstream, fields: dict[str, Any], code: str):
    async with serving(fake) as app:
        assert (await app.refused(400, "Hi", **fields))["code"] == code
    assert fake.asked == []


@pytest.mark.requirement("upstream:context")
async def test_a_prompt_that_is_longer_than_the_context_is_refused_before_anything_is_sent(fake: FakeUpstream):
    async with serving(fake, context_length=64) as app:
        assert (await app.refused(400, "word " * 200))["code"] == "context_length_exceeded"
        dropped = await app.create(
            [{"role": "user", "content": "word " * 200}, {"role": "user", "content": "Hi"}], truncation="auto"
        )
        assert dropped["status"] == "completed"
    assert len(fake.asked) == 1


@pytest.mark.requirement("upstream:whole")
async def test_an_upstream_that_does_not_stream_is_understood(fake: FakeUpstream):
    whole = {"choices": [{"message": {"role": "assistant", "content": "Whole."}, "finish_reason": "stop"}]}
    fake.behave = lambda exchange: exchange.answer(
        200, {**whole, "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    )
    async with serving(fake) as app:
        response = await app.create("Hi")
    assert response["output_text"] == "Whole."
    assert response["usage"]["total_tokens"] == 5


@pytest.mark.requirement("upstream:linger")
async def test_an_upstream_that_says_its_end_and_stays_is_not_waited_for(
    fake: FakeUpstream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(generation, "_LINGER", 0.2)

    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events({"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]})
        await exchange.gone.wait()

    fake.behave = behave
    async with serving(fake) as app:
        began = time.monotonic()
        response = await app.create("Hi")
        assert response["output_text"] == "Hello"
        assert time.monotonic() - began < 10


@pytest.mark.requirement("upstream:pool")
async def test_a_connection_whose_stream_has_ended_is_used_again(fake: FakeUpstream):
    async def behave(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        frames = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        await exchange.raw(b"%x\r\n%b\r\n" % (len(frames), frames))
        # The end of the body comes by itself, as most servers send it.
        await exchange.raw(b"0\r\n\r\n")

    async with serving(fake) as app:
        fake.keeps, fake.behave, before = True, behave, fake.connections
        for _ in range(4):
            assert (await app.create("Hi"))["output_text"] == "Hello"
        assert (len(fake.asked), fake.connections - before) == (4, 1)


@pytest.mark.requirement("upstream:media")
async def test_images_go_down_as_their_data(fake: FakeUpstream):
    url = (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Er"
        "kJggg=="
    )
    content = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": url}]
    async with serving(fake, media=("image",)) as app:
        await app.create([{"role": "user", "content": content}])
    assert fake.asked[0].body["messages"][0]["content"] == [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "auto"}},
    ]
    async with serving(fake) as app:
        await app.refused(400, [{"role": "user", "content": content}])


@pytest.mark.requirement("upstream:media:urls")
@pytest.mark.parametrize("engine", ["chat", "responses"])
async def test_an_upstream_that_brings_images_itself_is_told_their_urls(fake: FakeUpstream, engine: str):
    url = "https://images.example/a.png"

    def asked(place: str) -> list[Any]:
        return [{"role": "user", "content": [{"type": "input_image", "image_url": place, "detail": "low"}]}]

    async with serving(fake, engine=engine, media=("image",), profile="openai") as app:
        await app.create(asked(url))
        refused = await app.refused(400, asked("http://10.0.0.1/a.png"))
        assert (refused["code"], refused["param"]) == ("invalid_image_url", "input[0].content[0]")
        assert (await app.refused(400, asked("file:///etc/hosts")))["code"] == "invalid_image_url"
    (sent,) = fake.asked
    (part,) = (sent.body["messages"] if engine == "chat" else sent.body["input"])[0]["content"]
    assert part in (
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "input_image", "image_url": url, "detail": "low"},
    )


@pytest.mark.requirement("upstream:media:urls")
async def test_images_are_brought_here_where_the_operator_has_named_places_for_that(fake: FakeUpstream):
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1:9/a.png"}]}]
    config = ModelConfig(name="scripted", base_url=fake.url, profile="openai", media=("image",))
    async with inprocess_app(settings=Settings(models=(config,), allow_outbound=("127.0.0.0/8",))) as app:
        assert (await app.refused(400, image))["code"] == "failed_to_download_image"
    assert fake.asked == []


@pytest.mark.requirement("upstream:strict")
async def test_a_conversation_that_is_refused_is_sent_as_strict_templates_take_it(fake: FakeUpstream):
    async def behave(exchange: Exchange) -> None:
        roles = [message["role"] for message in exchange.body["messages"]]
        if "system" in roles:
            await exchange.answer(400, {"error": {"message": "System role not supported."}})
        else:
            await said("Hello")(exchange)

    fake.behave = behave
    async with serving(fake) as app:
        assert (await app.create("Hi", instructions="Be kind."))["output_text"] == "Hello"
        plain = await app.create("Hi")
        fake.behave = lambda exchange: exchange.answer(400, {"detail": "no"})
        refused = await app.refused(400, "Hi", instructions="Be kind.")
    assert plain["status"] == "completed"
    assert refused["message"] == "The upstream answers 400: no"
    sent = [[message["role"] for message in exchange.body["messages"]] for exchange in fake.asked]
    assert sent == [["system", "user"], ["user"], ["user"], ["system", "user"], ["user"]]
    assert fake.asked[1].body["messages"][0]["content"] == "Be kind.\n\nHi"


@pytest.mark.requirement("upstream:serve")
async def test_what_an_upstream_cannot_do_is_refused(fake: FakeUpstream):
    async with serving(fake) as app:
        echo = {"model": "scripted", "prompt": [1, 2], "echo": True}
        text = await app.client.post("/completions", json=echo)
        tokens = await app.client.post("http://127.0.0.1/tokenize", json={"model": "scripted", "content": "Once"})
        counted = await app.client.post(
            "/responses/input_tokens", json={"model": "scripted", "input": "Four words of text"}
        )
    assert (text.status_code, tokens.status_code) == (400, 400)
    assert 5 <= counted.json()["input_tokens"] <= 20
    assert fake.asked == []

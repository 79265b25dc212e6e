"""`/v1/responses/compact` and `/v1/responses/input_tokens` (responses-api 2.3 and 2.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseCompactionItem, ResponseInputItem, ResponseUsage
from openai.types.responses.compacted_response import CompactedResponse
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from pydantic import TypeAdapter

from antiphon.engines.base import PreparedTurn
from antiphon.http.app import create_app
from antiphon.machine.deltas import Delta
from antiphon.prompt.compaction import SUMMARY_HEAD
from antiphon.settings import ModelConfig, Settings
from support.asgi import ManualExchange
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

NOTES = f"<|im_start|>user\n{SUMMARY_HEAD}SUMMARY<|im_end|>\n"
TOOL: dict[str, Any] = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
PIXEL = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}

_input_item: TypeAdapter[Any] = TypeAdapter(ResponseInputItem)


async def compact(api: InProcess, **body: Any) -> dict[str, Any]:
    """The compacted context of a body, held against the SDK's types."""
    before = await api.service.store.status() if api.service.store is not None else None
    reply = await api.client.post("/responses/compact", json={"model": "scripted", **body})
    assert reply.status_code == 200, reply.text
    assert (await api.service.store.status() if api.service.store is not None else None) == before
    found = reply.json()
    *messages, item = found["output"]
    ResponseCompactionItem.model_validate(item, strict=True)
    for message in messages:
        assert message["role"] == "user"
        _input_item.validate_python(message, strict=True)
    # The package types the user's messages here as the assistant's, which only its lenient reading takes.
    read = CompactedResponse.model_validate({**found, "output": [item]}, strict=True)
    assert set(found) == {"id", "object", "created_at", "output", "usage"}
    assert read.id.startswith("resp_")
    ResponseUsage.model_validate(found["usage"], strict=True)
    assert read.usage.total_tokens == read.usage.input_tokens + read.usage.output_tokens
    return found


async def refused(api: InProcess, path: str, status: int, body: Any) -> dict[str, Any]:
    reply = await api.client.post(path, json=body)
    assert reply.status_code == status, reply.text
    return reply.json()["error"]


def texts(found: dict[str, Any]) -> list[str]:
    """The texts of the user's messages in a compacted context."""
    return [item["content"][0]["text"] for item in found["output"] if item["type"] == "message"]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@requirement("compaction:endpoint", "api:compact")
async def test_a_context_that_was_sent_is_compacted_into_the_next_window(api: InProcess) -> None:
    given_items = [user("hello"), {"role": "assistant", "content": "hi"}, user("more")]
    for given_input in (given_items, [*given_items, {"type": "compaction_trigger"}]):
        found = await compact(api, input=given_input, instructions="Be brief.", tools=[TOOL], stream=True)
        assert texts(found) == ["hello", "more"]
        window = [*found["output"], user("go")]
        assert (await api.create(window))["output_text"] == "Hello from scripted."
        prompt = await api.echo(window)
        assert prompt.startswith(NOTES + "<|im_start|>user\nhello<|im_end|>\n<|im_start|>user\nmore")
        assert "Be brief." not in prompt
    assert texts(await compact(api, input="hello")) == ["hello"]


@requirement("compaction:endpoint", "api:compact")
async def test_a_history_that_is_only_named_is_compacted(api: InProcess) -> None:
    first = await api.create("one")
    second = await api.create("two", previous_response_id=first["id"])
    found = await compact(api, previous_response_id=second["id"])
    assert texts(found) == ["one", "two"]
    more = await compact(api, previous_response_id=second["id"], input="three")
    assert texts(more) == ["one", "two", "three"]
    assert "<|im_start|>user\ntwo<|im_end|>" in await api.echo(found["output"][-1:])
    again = await compact(api, input=[*more["output"], user("four")])
    assert texts(again) == ["one", "two", "three", "four"]
    assert (await api.echo(again["output"])).count(SUMMARY_HEAD) == 1


@requirement("compaction:endpoint", "compaction:open-calls")
async def test_open_calls_of_a_history_are_kept(api: InProcess) -> None:
    asked = await api.create('!CALL get_weather {"city": "Oslo"}')
    call_id = asked["output"][0]["call_id"]
    found = await compact(api, previous_response_id=asked["id"])
    output = {"type": "function_call_output", "call_id": call_id, "output": "12C"}
    answer = await api.create([*found["output"], output], store=False)
    assert answer["output_text"] == "FINAL: 12C"


@requirement("compaction:endpoint")
async def test_a_foreign_model_name_maps_by_its_alias_and_null_is_the_default() -> None:
    models = Settings(models=(ModelConfig("scripted"),), alias=("gpt-5=scripted",))
    async with inprocess_app(settings=models) as api:
        for name in ("gpt-5", None):
            assert texts(await compact(api, model=name, input="hello")) == ["hello"]
        error = await refused(api, "/responses/compact", 404, {"model": "gpt-4", "input": "hello"})
        assert error["code"] == "model_not_found"
    async with inprocess_app(settings=msgspec.structs.replace(models, default_model="gpt-5")) as api:
        assert texts(await compact(api, model=None, input="hello")) == ["hello"]


@requirement("compaction:endpoint")
async def test_the_oldest_messages_are_left_out_where_they_could_not_be_sent_back() -> None:
    async with inprocess_app(settings=Settings(max_body_bytes=4_096)) as api:
        response = await api.create("message 0 " + "x" * 900)
        for number in range(1, 7):
            text = f"message {number} " + "x" * 900
            response = await api.create(text, previous_response_id=response["id"])
        found = await compact(api, previous_response_id=response["id"])
        kept = [text.split()[1] for text in texts(found)]
        assert kept == [str(number) for number in range(7 - len(kept), 7)]
        assert 1 < len(kept) < 4


@requirement("compaction:endpoint:errors", "api:compact")
async def test_what_cannot_be_compacted_is_refused(api: InProcess) -> None:
    async def error(status: int, **body: Any) -> dict[str, Any]:
        return await refused(api, "/responses/compact", status, body)

    assert (await error(400, input="hello"))["param"] == "model"
    assert (await error(400, model="scripted"))["param"] == "input"
    assert (await error(400, model="scripted", instructions="Be brief."))["code"] == "empty_input"
    assert (await error(400, model="scripted", input=" "))["code"] == "empty_input"
    missing = await error(404, model="scripted", previous_response_id="resp_none")
    assert missing["code"] == "previous_response_not_found"
    assert (await error(400, model="scripted", input="x", prompt_cache_key="k" * 65))["param"] == "prompt_cache_key"
    early = [{"type": "compaction_trigger"}, user("x")]
    assert (await error(400, model="scripted", input=early))["param"] == "input[0]"
    assert (await error(400, model="scripted", input=5))["param"] == "input"


@requirement("compaction:endpoint:errors")
async def test_a_compaction_takes_a_place_like_a_response() -> None:
    async with inprocess_app(settings=Settings(max_concurrent_requests=1)) as api:
        api.service.admission.enter()
        for path in ("/responses/compact", "/responses/input_tokens"):
            assert (await refused(api, path, 503, {"model": "scripted", "input": "x"}))["code"] == "server_busy"
        api.service.admission.leave()
        await compact(api, input="x")
        api.service.draining = True
        for path in ("/responses/compact", "/responses/input_tokens"):
            await refused(api, path, 503, {"model": "scripted", "input": "x"})


@requirement("compaction:endpoint:leave")
async def test_a_client_that_leaves_stops_the_summary(api: InProcess) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()
    (engine,) = api.service.registry.engines

    async def endless(turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        begun.set()
        try:
            await asyncio.Event().wait()
            yield []
        finally:
            closed.set()

    engine.generate = endless
    body = {"model": "scripted", "input": "hello"}
    exchange = ManualExchange(create_app(api.service), body, "/v1/responses/compact")
    await begun.wait()
    assert api.service.admission.running == 1
    exchange.leave()
    assert await exchange.finished() == []
    assert closed.is_set()
    assert api.service.admission.running == 0
    del engine.generate


async def count(api: InProcess, **body: Any) -> int:
    """The counted tokens of a body, held against the SDK's type."""
    reply = await api.client.post("/responses/input_tokens", json={"model": "scripted", **body})
    assert reply.status_code == 200, reply.text
    found = InputTokenCountResponse.model_validate(reply.json(), strict=True)
    assert set(reply.json()) == {"object", "input_tokens"}
    return found.input_tokens


words = st.text("ab é\n", min_size=1, max_size=60)
items = st.one_of(
    words.map(user),
    words.map(lambda text: {"role": "assistant", "content": text}),
    words.map(lambda text: {"role": "developer", "content": text}),
    words.map(lambda text: user([{"type": "input_text", "text": text}, PIXEL])),
    words.map(lambda text: {"type": "function_call", "call_id": "c", "name": "f", "arguments": f'{{"a":{len(text)}}}'}),
    words.map(lambda text: {"type": "function_call_output", "call_id": "c", "output": text}),
    words.map(lambda text: {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}),
)
SOME_OBJECT = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
requests = st.fixed_dictionaries(
    {
        "input": st.one_of(
            words.map(lambda text: f"x{text}"), st.lists(items, max_size=6).map(lambda i: [*i, user("x")])
        )
    },
    optional={
        "instructions": words,
        "tools": st.just([TOOL]),
        "tool_choice": st.sampled_from(["auto", "none"]),
        "parallel_tool_calls": st.booleans(),
        "reasoning": st.just({"effort": "low"}),
        "text": st.sampled_from([{"format": {"type": "text"}}, {"format": SOME_OBJECT}]),
        "truncation": st.sampled_from(["auto", "disabled"]),
    },
)


@requirement("count:usage", "api:input-tokens")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(body=requests, chained=st.booleans())
def test_the_count_is_what_the_same_request_uses(body: dict[str, Any], chained: bool) -> None:
    async def check() -> None:
        async with inprocess_app() as api:
            if chained:
                body["previous_response_id"] = (await api.create("!REASON Hm.\n!TEXT Before."))["id"]
            counted = await count(api, **body)
            assert counted == (await api.create(**body))["usage"]["input_tokens"] > 0

    asyncio.run(check())


@requirement("count:usage")
async def test_the_count_of_a_compacted_context_is_what_its_prompt_uses(api: InProcess) -> None:
    found = await compact(api, input=[user("hello " * 50), {"role": "assistant", "content": "hi " * 200}])
    window = [*found["output"], user("go")]
    assert await count(api, input=window) == (await api.create(window))["usage"]["input_tokens"]


@requirement("count:usage", "count:overflow")
@pytest.mark.parametrize("truncation", ["auto", "disabled"])
async def test_counts_of_the_local_engine_are_those_of_its_usage(tiny: Callable[..., Path], truncation: str) -> None:
    local = Settings(model=(str(tiny()),), threads=1, slots=1)
    async with inprocess_app(settings=local) as api:
        model = api.service.registry.engines[0].name
        for text in ("Hi.", "Once upon a time, é. " * 20, "a\nb"):
            for fields in ({}, {"instructions": "Be brief."}, {"tools": [TOOL]}):
                body = {"model": model, "input": text, "truncation": truncation, **fields}
                counted = await count(api, **body)
                made = await api.create(**body, max_output_tokens=2)
                assert counted == made["usage"]["input_tokens"]
        context = api.service.registry.engines[0].capabilities.context_length
        long = "a " * (2 * context)
        if truncation == "disabled":
            assert await count(api, model=model, input=long) > context
        else:
            error = await refused(api, "/responses/input_tokens", 400, {"model": model, "input": "a " * 40 * context})
            assert error["code"] == "context_length_exceeded"


@requirement("count:overflow", "api:input-tokens")
async def test_what_is_longer_than_the_context_is_counted_too() -> None:
    async with inprocess_app(settings=Settings(scripted_context_length=100)) as api:
        assert await count(api, input="x" * 4_000) == 1_001
        assert (await api.refused(400, "x" * 4_000))["code"] == "context_length_exceeded"
        cut = [user("x" * 4_000), {"role": "assistant", "content": "y"}, user("z")]
        counted = await count(api, input=cut, truncation="auto")
        assert counted == (await api.create(cut, truncation="auto"))["usage"]["input_tokens"] < 100


@requirement("count:errors", "api:input-tokens")
async def test_a_count_needs_no_model_and_refuses_what_create_refuses(api: InProcess) -> None:
    reply = await api.client.post("/responses/input_tokens", json={"input": "hi"})
    assert reply.json()["input_tokens"] == (await api.create("hi"))["usage"]["input_tokens"]
    for body, status in (
        ({}, 400),
        ({"input": " "}, 400),
        ({"input": "x", "model": "none"}, 404),
        ({"input": "x", "previous_response_id": "resp_none"}, 404),
        ({"input": "x", "tools": 5}, 400),
        ({"input": "x", "tool_choice": "required"}, 400),
    ):
        assert (await refused(api, "/responses/input_tokens", status, body))["type"] == "invalid_request_error"
    assert api.service.admission.running == 0

"""What stands beside the answers of an upstream: texts that it goes on with, and tokens that it counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.engines.base import Engine
from antiphon.engines.build import upstream_engine
from antiphon.engines.replicas.engine import ReplicatedEngine
from antiphon.engines.upstream import counting
from antiphon.engines.upstream.decoder import ChatDecoder, Reading
from antiphon.engines.upstream.profiles import PROFILES
from antiphon.engines.upstream.request import text_body
from antiphon.errors import ContextOverflowError, UnsupportedError
from antiphon.machine.deltas import Delta, Stop, TextDelta
from antiphon.prompt.prompt import Affinity, ChatMessage, Prompt, Sampling
from antiphon.protocol.completions import RawPrompt
from antiphon.protocol.tools import CustomTool, FunctionTool
from antiphon.settings import ModelConfig
from support.upstream import Behaviour, Exchange, FakeUpstream, fake_upstream

SAID = Prompt(
    messages=[ChatMessage("system", "Be brief."), ChatMessage("user", "Hi")],
    tools=[FunctionTool("f"), CustomTool("c")],
    sampling=Sampling(temperature=0),
    template_kwargs={"enable_thinking": False},
)


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as upstream:
        yield upstream


@asynccontextmanager
async def over(fake: FakeUpstream, **fields: Any) -> AsyncIterator[Engine]:
    """An engine over that upstream."""
    engine = upstream_engine(ModelConfig(**{"name": "m", "base_url": fake.url, **fields}))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def answers(*bodies: Any) -> Behaviour:
    """Answers with these bodies, one after another."""
    left = iter(bodies)

    async def behave(exchange: Exchange) -> None:
        await exchange.answer(200, next(left))

    return behave


@pytest.mark.requirement("upstream:texts")
@pytest.mark.parametrize("prompt", ["Once", [1, 2], ""])
def test_a_text_goes_down_as_it_came_with_what_the_upstream_reads(prompt: RawPrompt):
    sampling = Sampling(temperature=0.5, top_k=3, stop=("\n",), top_logprobs=2)
    asked = Prompt(messages=(), sampling=sampling, max_output_tokens=7, affinity=Affinity(key="k", cache_salt="s"))
    common = {"model": "m", "prompt": prompt, "stream": True, "stream_options": {"include_usage": True}}
    drawn = {"temperature": 0.5, "stop": ["\n"], "max_tokens": 7, "logprobs": 2}
    assert text_body(prompt, asked, PROFILES["openai"], "m") == common | drawn | {"prompt_cache_key": "k"}
    assert text_body(prompt, asked, PROFILES["vllm"], "m") == common | drawn | {"top_k": 3, "cache_salt": "s"}


def read(*choices: Any, logprobs: bool = False) -> list[Delta]:
    decoder = ChatDecoder(Reading(3, tags=False, logprobs=logprobs))
    deltas: list[Delta] = []
    for choice in choices:
        deltas += decoder.feed(json.dumps({"object": "text_completion", "choices": [choice]}))
    return [*deltas, *decoder.feed("[DONE]")]


@pytest.mark.requirement("upstream:texts")
def test_a_text_is_read_whole_and_in_pieces():
    *said, stop = read({"index": 0, "text": "<think> a"}, {"text": " b", "finish_reason": "length"})
    assert "".join(delta.text for delta in said if isinstance(delta, TextDelta)) == "<think> a b"
    assert isinstance(stop, Stop)
    assert (stop.reason, stop.usage.input_tokens) == ("length", 3)
    assert read({"text": "<think> a b", "finish_reason": "stop"})[0] == TextDelta("<think> a b")
    assert [type(delta) for delta in read({"text": None}, {"text": 7}, {"text": {}})] == [Stop]


@pytest.mark.requirement("upstream:texts")
@pytest.mark.parametrize(
    ("lists", "tokens"),
    [
        (
            {"tokens": ["a", "b"], "token_logprobs": [-1, None], "top_logprobs": [{"a": -1.0, "c": -2}]},
            [("a", -1.0, 2)],
        ),
        ({"tokens": ["a", 7], "token_logprobs": {}, "top_logprobs": [7, None]}, []),
        ({"tokens": None}, []),
        ({"content": [{"token": "a", "logprob": -1.0, "top_logprobs": [{"token": "a", "logprob": -1}] * 2}]}, None),
    ],
)
def test_log_probabilities_of_texts_come_in_lists_of_their_own(lists: Any, tokens: Any):
    first = read({"text": "ab", "logprobs": lists}, logprobs=True)[0]
    assert isinstance(first, TextDelta)
    entries = first.logprobs or []
    known = [(entry.token, entry.logprob, len(entry.top_logprobs)) for entry in entries if entry.logprob > -9000]
    assert known == ([("a", -1.0, 2)] if tokens is None else tokens)


@pytest.mark.requirement("upstream:texts")
@pytest.mark.parametrize("engine", ["chat", "responses"])
async def test_an_upstream_goes_on_with_a_text_whichever_way_it_is_asked_else(fake: FakeUpstream, engine: str):
    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(*({"choices": [{"text": text}]} for text in (" upon", " a", " time")))
        await exchange.events({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}, "[DONE]")

    fake.behave = behave
    async with over(fake, engine=engine) as served:
        turn = await served.prepare_text("Once", Sampling(), 5)
        deltas = [delta async for batch in served.generate(turn) for delta in batch]
    (asked,) = fake.asked
    assert (asked.path, asked.body["prompt"], asked.body["max_tokens"]) == ("/v1/completions", "Once", 5)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == " upon a time"
    stop = deltas[-1]
    assert isinstance(stop, Stop)
    assert (stop.usage.input_tokens, stop.usage.output_tokens) == (9, 3)


@pytest.mark.requirement("upstream:texts")
async def test_a_text_that_cannot_be_gone_on_with_is_refused(fake: FakeUpstream):
    async with over(fake, context_length=4) as served:
        with pytest.raises(ContextOverflowError):
            await served.prepare_text([1, 2, 3, 4], Sampling(), 1)
    async with over(fake, profile="ollama") as served:
        with pytest.raises(UnsupportedError, match="log probabilities"):
            await served.prepare_text("Once", Sampling(top_logprobs=1), 1)
    async with over(fake, engine="responses", profile="mixedbread") as served:
        with pytest.raises(UnsupportedError, match="conversations only"):
            await served.prepare_text("Once", Sampling(), 1)


@pytest.mark.requirement("upstream:count")
@pytest.mark.parametrize("engine", ["chat", "responses"])
@pytest.mark.parametrize("profile", ["openai", "antiphon"])
async def test_an_upstream_with_responses_is_asked_for_the_tokens_of_one(fake: FakeUpstream, engine: str, profile: str):
    fake.behave = answers({"object": "response.input_tokens", "input_tokens": 77})
    async with over(fake, engine=engine, profile=profile) as served:
        assert await served.count(await served.prepare(SAID)) == 77
    (asked,) = fake.asked
    assert asked.path == "/v1/responses/input_tokens"
    templated = {"chat_template_kwargs"} if profile == "antiphon" else set[str]()
    assert set(asked.body) == {"model", "instructions", "input", "tools"} | templated
    kinds = [tool["type"] for tool in asked.body["tools"]]
    assert kinds == (["function", "function"] if engine == "chat" else ["function", "custom"])


@pytest.mark.requirement("upstream:count")
@pytest.mark.parametrize("engine", ["chat", "responses"])
async def test_vllm_counts_the_messages_of_a_chat(fake: FakeUpstream, engine: str):
    fake.behave = answers({"count": 78, "max_model_len": 4096, "tokens": []})
    async with over(fake, engine=engine, profile="vllm") as served:
        assert await served.count(await served.prepare(SAID)) == 78
    (asked,) = fake.asked
    assert asked.path == "/tokenize"
    assert asked.body["messages"][0]["role"] == "system"
    assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["f", "c"]
    assert asked.body["chat_template_kwargs"] == {"enable_thinking": False}
    assert asked.body["add_generation_prompt"] is True


@pytest.mark.requirement("upstream:count")
async def test_llama_server_makes_a_text_of_a_chat_and_counts_that(fake: FakeUpstream):
    fake.behave = answers({"prompt": "<s>Hi"}, {"tokens": [1, 2, 3]})
    async with over(fake, profile="llama-server") as served:
        assert await served.count(await served.prepare(SAID)) == 3
    rendered, counted = fake.asked
    assert (rendered.path, counted.path) == ("/apply-template", "/tokenize")
    assert set(rendered.body) == {"messages", "tools", "chat_template_kwargs"}
    assert counted.body == {"content": "<s>Hi", "add_special": True, "parse_special": True}


@pytest.mark.requirement("upstream:count")
@pytest.mark.parametrize("profile", ["antiphon", "vllm", "llama-server", "sglang", "ollama", "generic"])
async def test_what_an_upstream_does_not_count_is_estimated(
    fake: FakeUpstream, profile: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(counting, "_SECONDS", 0.05)

    async def missing(exchange: Exchange) -> None:
        await exchange.answer(404, {"error": {"message": "no such route"}})

    async def silent(exchange: Exchange) -> None:
        await exchange.gone.wait()

    async def gone(exchange: Exchange) -> None:
        exchange.abort()

    odd = [b"what?", [], {}, {"count": -1, "input_tokens": True, "prompt": 7, "tokens": None}, {"prompt": "Hi"}]
    async with over(fake, profile=profile) as served:
        turn = await served.prepare(SAID)
        for behaviour in (missing, silent, gone, *(answers(body, body) for body in odd)):
            fake.behave = behaviour
            assert await served.count(turn) == turn.input_tokens > 0


@pytest.mark.requirement("upstream:count")
async def test_the_best_of_several_replicas_is_asked_to_count(fake: FakeUpstream):
    fake.behave = answers({"input_tokens": 79})
    config = ModelConfig(name="m", base_url=fake.url, profile="antiphon")
    replicas = ReplicatedEngine("m", [upstream_engine(config), upstream_engine(config)])
    await replicas.start()
    try:
        async with asyncio.timeout(20):
            assert await replicas.count(await replicas.prepare(SAID)) == 79
    finally:
        await replicas.close()

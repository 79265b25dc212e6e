"""What the operator says of a model in its table: where it is, and what holds for every request to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.settings import ModelConfig, Settings
from antiphon.tables import LimitsConfig
from support.inprocess import InProcess, inprocess_app
from support.upstream import KEY, Exchange, FakeUpstream, fake_upstream, said

DEFAULTS: dict[str, Any] = {
    "temperature": 0.25,
    "top_p": 0.5,
    "presence_penalty": 1.5,
    "max_output_tokens": 100,
    "parallel_tool_calls": False,
    "truncation": "auto",
    "service_tier": "flex",
    "reasoning": {"effort": "low"},
    "text": {"verbosity": "low"},
    "instructions": "Be brief.",
    "stop": ["END"],
    "seed": 7,
}


@asynccontextmanager
async def over(fake: FakeUpstream, **fields: Any) -> AsyncIterator[InProcess]:
    """The application over that upstream, whose model is named `scripted` for the helpers of the client."""
    config = ModelConfig(**{"name": "scripted", "upstream_model": "m", "base_url": fake.url, **fields})
    async with inprocess_app(settings=Settings(models=(config,))) as app:
        yield app


def scripted(**fields: Any) -> Settings:
    """The settings of a server of the scripted model with such a table."""
    return Settings(models=(ModelConfig(path="scripted", **fields),))


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as upstream:
        yield upstream


@pytest.mark.requirement("registry:azure")
async def test_a_deployment_of_azure_is_asked_with_its_version_and_its_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AZURE_KEY", KEY)
    async with fake_upstream() as fake:
        url = fake.url.removesuffix("/v1") + "/openai/deployments/d?api-version=2024-10-21"
        config = ModelConfig(name="scripted", base_url=url, profile="azure", api_key_env="AZURE_KEY")
        async with inprocess_app(settings=Settings(models=(config,))) as app:
            assert (await app.create("Hi"))["output_text"] == "Hello"
        (asked,) = fake.asked
    assert asked.path == "/openai/deployments/d/chat/completions?api-version=2024-10-21"
    assert asked.headers["api-key"] == KEY
    assert "authorization" not in asked.headers


@pytest.mark.requirement("registry:defaults")
async def test_defaults_hold_where_a_request_sets_nothing_and_are_shown(fake: FakeUpstream):
    async with over(fake, profile="openai", defaults=DEFAULTS) as app:
        response = await app.create("Hi", temperature=None)
        own = await app.create(
            [{"role": "system", "content": "Be long."}, {"role": "user", "content": "Hi"}],
            temperature=1,
            presence_penalty=0,
            parallel_tool_calls=True,
            truncation="disabled",
            service_tier="default",
            max_output_tokens=20,
            reasoning={"effort": "high"},
        )
    effective = {**DEFAULTS, "reasoning": {"effort": "low", "summary": None}}
    shown = {name: response[name] for name in effective if name in response}
    shown["text"] = {"verbosity": response["text"]["verbosity"]}
    assert shown == {name: value for name, value in effective.items() if name in shown}
    assert len(shown) == 10
    first, second = (exchange.body for exchange in fake.asked)
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}
    sent = {"temperature": 0.25, "top_p": 0.5, "presence_penalty": 1.5, "max_completion_tokens": 100, "stop": ["END"]}
    assert {name: first[name] for name in sent} == sent
    assert (first["seed"], first["reasoning_effort"]) == (7, "low")
    assert [message["content"] for message in second["messages"]] == ["Be long.", "Hi"]
    assert (own["temperature"], own["presence_penalty"], own["top_p"]) == (1, 0, 0.5)
    assert (own["parallel_tool_calls"], own["truncation"], own["service_tier"]) == (True, "disabled", "default")
    assert (own["max_output_tokens"], own["reasoning"]["effort"], own["instructions"]) == (20, "high", None)


@pytest.mark.requirement("registry:defaults")
async def test_defaults_hold_for_chat_and_text_completions(fake: FakeUpstream):
    async with over(fake, profile="openai", defaults=DEFAULTS) as app:
        for fields in ({}, {"temperature": 0, "max_tokens": 5, "reasoning_effort": "none"}):
            body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], **fields}
            assert (await app.client.post("/chat/completions", json=body)).status_code == 200
    names = ("temperature", "max_completion_tokens", "reasoning_effort", "presence_penalty")
    assert [[asked.body[name] for name in names] for asked in fake.asked] == [
        [0.25, 100, "low", 1.5],
        [0, 5, "none", 1.5],
    ]
    async with inprocess_app(settings=scripted(defaults={"max_output_tokens": 20})) as app:
        for limit, words in (({}, 20), ({"max_tokens": 3}, 3)):
            answer = await app.client.post("/completions", json={"model": "scripted", "prompt": "!COUNT 50", **limit})
            assert len(answer.json()["choices"][0]["text"].split()) == words


@pytest.mark.requirement("registry:limits:output")
async def test_more_output_than_a_model_may_give_is_refused_and_nothing_asked_is_the_most():
    async with inprocess_app(settings=scripted(limits=LimitsConfig(max_output_tokens=10))) as app:
        error = await app.refused(400, "Hi", max_output_tokens=11)
        assert (error["param"], error["code"]) == ("max_output_tokens", "integer_above_max_value")
        assert "at most 10 output tokens, but got 11" in error["message"]
        cut = await app.create("!COUNT 50")
        assert (cut["status"], cut["max_output_tokens"]) == ("incomplete", 10)
        for path, body, name in (
            ("/chat/completions", {"messages": [{"role": "user", "content": "!COUNT 50"}]}, "max_completion_tokens"),
            ("/completions", {"prompt": "!COUNT 50"}, "max_tokens"),
        ):
            refused = await app.client.post(path, json={"model": "scripted", **body, name: 11})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
            answer = (await app.client.post(path, json={"model": "scripted", **body})).json()
            assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (10, "length")


@pytest.mark.requirement("registry:limits:context")
async def test_a_prompt_that_is_longer_than_the_limit_of_its_model_is_refused():
    async with inprocess_app(settings=scripted(limits=LimitsConfig(context_length=50))) as app:
        error = await app.refused(400, "word " * 100)
        assert error["code"] == "context_length_exceeded"
        assert "50 tokens" in error["message"]


@pytest.mark.requirement("registry:limits:concurrent")
async def test_one_request_too_many_is_told_to_come_back_and_the_others_wait(fake: FakeUpstream):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        begun.set()
        await go_on.wait()
        await said("Hello")(exchange)

    fake.behave = slow
    async with over(fake, limits=LimitsConfig(max_concurrent=1, max_queue=1)) as app:
        gate = app.service.registry.engines[0].gate
        first = asyncio.create_task(app.create("one"))
        await begun.wait()
        second = asyncio.create_task(app.create("two"))
        background = await app.create("three", background=True)
        while gate.waiting < 2:
            await asyncio.sleep(0)
        refused = await app.client.post("/responses", json={"model": "scripted", "input": "four"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_busy")
        assert float(refused.headers["retry-after"]) > 0
        chat = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
        assert (await app.client.post("/chat/completions", json=chat)).status_code == 503
        error = (await app.client.post("/chat/completions", json={**chat, "n": 3})).json()["error"]
        assert (error["param"], error["code"]) == ("n", "integer_above_max_value")
        exposed = (await app.client.get("http://127.0.0.1/metrics")).text
        assert 'antiphon:num_requests_waiting{model_name="scripted"} 2.0' in exposed
        cancelled = (await app.client.post(f"/responses/{background['id']}/cancel")).json()
        assert cancelled["status"] == "cancelled"
        assert (len(fake.asked), gate.running, gate.waiting) == (1, 1, 1)
        go_on.set()
        assert [(await task)["output_text"] for task in (first, second)] == ["Hello", "Hello"]
        assert (await app.client.post("/chat/completions", json=chat)).status_code == 200
        await gate.idle()
        assert (gate.running, gate.waiting) == (0, 0)


@pytest.mark.requirement("registry:defaults:kept")
async def test_a_background_response_goes_on_by_the_defaults_that_it_began_with(tmp_path: Path):
    before = scripted(defaults={"temperature": 0.25}, limits=LimitsConfig(max_output_tokens=30))
    after = scripted(defaults={"temperature": 0.75, "max_output_tokens": 5})
    async with inprocess_app(settings=before, store="sqlite", tmp_path=tmp_path) as app:
        begun = await app.create("!SLOW 20\n!COUNT 50", background=True)
        while "1 2" not in (await app.client.get(f"/responses/{begun['id']}")).json().get("output_text", ""):
            await asyncio.sleep(0.01)
    async with inprocess_app(settings=after, store="sqlite", tmp_path=tmp_path) as app:
        ended = begun
        while ended["status"] not in ("completed", "incomplete", "failed"):
            await asyncio.sleep(0.01)
            ended = (await app.client.get(f"/responses/{begun['id']}")).json()
    assert (ended["status"], ended["temperature"], ended["max_output_tokens"]) == ("incomplete", 0.25, 30)
    assert ended["output_text"].split() == [str(n) for n in range(1, 31)]

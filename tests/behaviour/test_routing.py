"""What an upstream is told of the history of each turn, and what it is sent of it, over chains and restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.runtime.history import Turn
from antiphon.settings import ModelConfig, Settings
from antiphon.store.base import Scope
from support.inprocess import InProcess, inprocess_app, sse_events
from support.upstream import (
    FAULTS,
    REFUSALS,
    Behaviour,
    Exchange,
    FakeUpstream,
    busy,
    dies,
    fake_upstream,
    gone_behind_a_proxy,
    hangs_up,
    said,
)

TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}
    for name in ("late", "early")
]


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as upstream:
        yield upstream


@asynccontextmanager
async def serving(fake: FakeUpstream, tmp_path: Path) -> AsyncIterator[InProcess]:
    config = ModelConfig(name="scripted", upstream_model="m", base_url=fake.url, profile="vllm")
    async with inprocess_app(settings=Settings(models=(config,)), store="sqlite", tmp_path=tmp_path) as app:
        yield app


def session(fake: FakeUpstream) -> str:
    """The session of the last turn, which every header of it must name."""
    headers = fake.asked[-1].headers
    told = {headers[name] for name in ("x-session-id", "x-smg-routing-key", "x-dynamo-session-id")}
    assert len(told) == 1
    return told.pop()


async def asked(app: InProcess, scope: Scope, **fields: Any) -> str:
    """The id of a response for that tenant."""
    body = {"model": "scripted", "input": "Hi", **fields}
    run = await app.service.create(scope, json.dumps(body).encode())
    await app.service.launch(run)
    return run.id


@pytest.mark.requirement("routing:keys", "routing:hints")
async def test_each_way_of_going_on_with_a_history_is_one_session(fake: FakeUpstream, tmp_path: Path):
    sessions: list[str] = []
    async with serving(fake, tmp_path) as app:
        first = await app.create("Hi", instructions="Be kind.")
        sessions.append(session(fake))
        second = await app.create("More", previous_response_id=first["id"])
    async with serving(fake, tmp_path) as app:
        # After a restart, with other instructions, on two branches of the same chain.
        for parent in (second, first):
            await app.create("More", previous_response_id=parent["id"], instructions="Be short.")
            assert session(fake) == sessions[0]
        await app.create("Hi", instructions="Be kind.")
        sessions.append(session(fake))
        conversation = (await app.client.post("/conversations", json={})).json()["id"]
        for text in ("Hi", "More"):
            await app.create(text, conversation=conversation)
            sessions.append(session(fake))
        assert sessions[-1] == sessions.pop()
        for fields in ({}, {"previous_response_id": first["id"]}, {"conversation": conversation}):
            await app.create("Hi", prompt_cache_key="user-1", **fields)
            sessions.append(session(fake))
        assert sessions[-3:] == sessions[-1:] * 3
        del sessions[-2:]
        history: list[Any] = [{"role": "user", "content": "Hi"}]
        for _ in range(2):
            history += [{"role": "assistant", "content": "Hello"}, {"role": "user", "content": "More"}]
            await app.create(history)
            sessions.append(session(fake))
        assert sessions.pop() == sessions[-1]
        for _ in range(2):
            answer = await app.client.post("/chat/completions", json={"model": "scripted", "messages": history})
            assert answer.status_code == 200
            assert session(fake) == sessions[-1]
    assert len(set(sessions)) == len(sessions) == 5
    assert all(len(name) == 32 for name in sessions)


@pytest.mark.requirement("routing:keys")
async def test_a_chain_that_no_store_has_is_one_session_too(fake: FakeUpstream, tmp_path: Path):
    """As a WebSocket connection keeps it; a branch of it in the background, which is stored, belongs to it."""
    async with serving(fake, tmp_path) as app:
        sessions: list[str] = []
        parent: Turn | None = None
        for fields in ({}, {}, {}, {"store": True, "background": True}):
            body: dict[str, Any] = {"model": "scripted", "input": "Hi", "store": False, **fields}
            if parent is not None:
                body["previous_response_id"] = parent.id
            run = await app.service.create(Scope("ours"), json.dumps(body).encode(), parent=parent)
            if run.plan.background:
                app.service.submit(run)
            else:
                app.service.launch(run)
            await run.closed()
            parent = run.ended_turn()
            sessions.append(session(fake))
    assert sessions == sessions[:1] * 4


@pytest.mark.requirement("routing:salt")
async def test_the_texts_of_a_tenant_share_a_cache_with_its_own_only(fake: FakeUpstream, tmp_path: Path):
    ours, theirs = Scope("ours"), Scope("theirs")
    salts: dict[Scope, set[str]] = {ours: set(), theirs: set()}
    sessions: set[str] = set()
    for _ in range(2):
        async with serving(fake, tmp_path) as app:
            for scope, salt in salts.items():
                first = await asked(app, scope, prompt_cache_key="same")
                sessions.add(session(fake))
                for fields in ({"previous_response_id": first}, {"store": False}, {"stream": True}):
                    await asked(app, scope, **fields)
                    salt.add(fake.asked[-1].body["cache_salt"])
    assert [len(salt) for salt in salts.values()] == [1, 1]
    assert not salts[ours] & salts[theirs]
    assert len(sessions) == 2
    sent = json.dumps([[exchange.headers, exchange.body] for exchange in fake.asked])
    assert not any(told in sent for told in ("ours", "theirs", "same"))


@pytest.mark.requirement("routing:salt", "compaction:endpoint")
async def test_a_summary_is_salted_too(fake: FakeUpstream, tmp_path: Path):
    async with serving(fake, tmp_path) as app:
        await app.create("Hi")
        body = {
            "model": "scripted",
            "input": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "x"}],
        }
        answer = await app.client.post("/responses/compact", json=body)
        assert answer.status_code == 200, answer.text
    first, summary = fake.asked
    assert summary.body["cache_salt"] == first.body["cache_salt"]
    assert "x-session-id" not in summary.headers


async def thinks_and_calls(exchange: Exchange) -> None:
    """Some thinking, some text, and a call of each tool."""
    calls = [
        {"index": n, "id": f"call_{n}", "function": {"name": tool["name"], "arguments": '{"b": 1,  "a": [2.0]}'}}
        for n, tool in enumerate(TOOLS)
    ]
    await exchange.head()
    await exchange.events(
        {"choices": [{"delta": {"reasoning_content": "Both."}}]},
        {"choices": [{"delta": {"content": "I ask."}}]},
        {"choices": [{"delta": {"tool_calls": calls}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        "[DONE]",
    )


@pytest.mark.requirement("routing:bytes")
async def test_the_turns_of_a_chain_go_up_with_the_same_bytes_at_their_beginning(fake: FakeUpstream, tmp_path: Path):
    fixed = {"instructions": "Be kind.", "tools": TOOLS, "temperature": 0.5}
    outputs = [
        {"type": "function_call_output", "call_id": call_id, "output": "café \N{SNOWMAN}"}
        for call_id in ("call_0", "call_1")
    ]
    previous: dict[str, Any] = {}
    for turn in range(3):
        # Each second turn is of a server that has just started and knows the history from its store only.
        async with serving(fake, tmp_path) as app:
            for _ in range(2):
                calls = [item for item in previous.get("output", ()) if item["type"] == "function_call"]
                given = [{**output, "call_id": call["call_id"]} for output, call in zip(outputs, calls, strict=False)]
                fake.behave = said("Well.") if given else thinks_and_calls
                body = {**fixed, **({"previous_response_id": previous["id"]} if previous else {})}
                previous = await app.create(given or f"Question {turn}", **body)
                assert previous["status"] == "completed"
    sent = [json.dumps(exchange.body["messages"])[:-1] for exchange in fake.asked]
    rest = [json.dumps({**exchange.body, "messages": None}) for exchange in fake.asked]
    assert len(sent) == 6
    assert len(set(rest)) == 1
    for shorter, longer in zip(sent, sent[1:], strict=False):
        assert longer.startswith(shorter + ", ")


@pytest.mark.requirement("routing:metrics")
async def test_what_replicas_do_is_counted_by_their_number(fake: FakeUpstream, tmp_path: Path):
    async with fake_upstream() as other:
        config = ModelConfig(name="scripted", upstream_model="m", replicas=(fake.url, other.url))
        settings = Settings(models=(config,))
        async with inprocess_app(settings=settings, store="sqlite", tmp_path=tmp_path) as app:

            async def metrics() -> set[str]:
                text = (await app.client.get("http://127.0.0.1/metrics")).text
                return {line for line in text.splitlines() if 'replica="' in line or 'event="moved"' in line}

            assert await metrics() == {
                f'antiphon:replica_{name}{{model_name="scripted",replica="{number}"}} {value}'
                for name, value in (("ready", "1.0"), ("requests_running", "0.0"))
                for number in (0, 1)
            }
            first = await app.create("Hi")
            home = 0 if fake.asked else 1
            seen: list[set[str]] = []

            async def answers(exchange: Exchange) -> None:
                seen.append(await metrics())
                await said("Well.")(exchange)

            fake.behave = other.behave = answers
            (fake, other)[home].up = False
            second = await app.create("More", previous_response_id=first["id"])
            assert second["output_text"] == "Well."
    assert f'antiphon:replica_requests_running{{model_name="scripted",replica="{1 - home}"}} 1.0' in seen[0]
    assert not any("127.0.0.1" in line for line in seen[0])


@pytest.mark.requirement("routing:sticks", "registry:reload")
async def test_chains_stay_where_they_are_when_a_replica_is_added(fake: FakeUpstream, tmp_path: Path):
    async with fake_upstream() as second, fake_upstream() as third:

        def settings(*fakes: FakeUpstream) -> Settings:
            urls = tuple(each.url for each in fakes)
            return Settings(models=(ModelConfig(name="scripted", upstream_model="m", replicas=urls),))

        def counts() -> list[int]:
            return [len(each.asked) for each in (fake, second)]

        async with inprocess_app(settings=settings(fake, second), store="sqlite", tmp_path=tmp_path) as app:
            last = [(await app.create("Hi"))["id"] for _ in range(12)]
            before = counts()
            registry = app.service.registry
            registry.reload(settings(third, second, fake))
            while len(registry.resolve("scripted")[1].replicas) < 3:
                await asyncio.sleep(0.005)
            for previous in last:
                await app.create("More", previous_response_id=previous)
            assert counts() == [2 * count for count in before]
            assert not third.asked
            for _ in range(40):
                await app.create("Hi")
            assert third.asked


@pytest.mark.requirement("routing:failover")
@pytest.mark.parametrize("fault", [hangs_up, busy, gone_behind_a_proxy])
async def test_a_client_notices_nothing_of_a_replica_that_does_not_begin(fault: Behaviour, tmp_path: Path):
    async with fake_upstream() as one, fake_upstream() as other:
        config = ModelConfig(name="scripted", upstream_model="m", replicas=(one.url, other.url))
        async with inprocess_app(settings=Settings(models=(config,))) as app:
            first = await app.create("Hi")
            home, away = (one, other) if one.asked else (other, one)
            home.behave, away.behave = fault, said("We", "ll.")
            events = await app.stream("More", previous_response_id=first["id"])
            kinds = [event["type"] for event in events]
            assert kinds.count("response.created") == 1
            assert kinds[-1] == "response.completed"
            assert "".join(event["delta"] for event in events if "delta" in event) == "Well."
            again = await app.create("More", previous_response_id=first["id"])
            assert again["output_text"] == "Well."
            # Where none takes it, the client is told what the last one said.
            away.behave = home.behave
            body = {"model": "scripted", "input": "More", "previous_response_id": first["id"], "stream": True}
            answer = await app.client.post("/responses", json=body)
            assert answer.status_code == REFUSALS.get(fault, 200)
            refused = fault in REFUSALS
            told = answer.json() if refused else sse_events(answer.content)[-1]["response"]
            assert told["error"]["code"] == FAULTS[fault]


@pytest.mark.requirement("routing:failover")
async def test_what_a_replica_began_is_not_begun_again(tmp_path: Path):
    async with fake_upstream() as one, fake_upstream() as other:
        config = ModelConfig(name="scripted", upstream_model="m", replicas=(one.url, other.url))
        one.behave = other.behave = dies
        async with inprocess_app(settings=Settings(models=(config,))) as app:
            events = await app.stream("Hi")
            assert events[-1]["type"] == "response.failed"
            assert events[-1]["response"]["error"]["code"] == "upstream_lost"
            assert [event["delta"] for event in events if "delta" in event] == ["Half"]
            assert len(one.asked) + len(other.asked) == 1

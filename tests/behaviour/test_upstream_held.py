"""When the stream of a response begins whose model runs elsewhere, and what is told of an upstream that refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.errors import EngineError, UnavailableError
from antiphon.http import foreground
from antiphon.http.app import create_app
from antiphon.machine.deltas import TextDelta
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.runtime.early import EarlyTurn
from antiphon.settings import ModelConfig, Settings
from antiphon.store.base import FinishedResponse, Scope
from support.asgi import ManualExchange
from support.inprocess import InProcess, inprocess_app, sse_events
from support.sockets import TERMINAL, manual_socket
from support.upstream import Exchange, FakeUpstream, fake_upstream, never_answers, refuses, said

BODY = {"model": "scripted", "input": "Hi", "stream": True}


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as upstream:
        yield upstream


@pytest.fixture(params=["chat", "responses"])
async def app(fake: FakeUpstream, request: pytest.FixtureRequest) -> AsyncIterator[InProcess]:
    """The application over that upstream, which it asks in either way."""
    config = ModelConfig(name="scripted", engine=request.param, upstream_model="m", base_url=fake.url)
    async with inprocess_app(settings=Settings(models=(config,))) as served:
        yield served


@pytest.fixture
def ended(app: InProcess, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The status of each response that the store is told the end of."""
    store, statuses = app.service.store, list[str]()
    assert store is not None
    finish = store.finish_response

    async def told(scope: Scope, finished: FinishedResponse) -> bool:
        statuses.append(finished.status)
        return await finish(scope, finished)

    monkeypatch.setattr(store, "finish_response", told)
    return statuses


@pytest.mark.requirement("upstream:held")
async def test_a_stream_begins_when_its_upstream_has_taken_the_turn(fake: FakeUpstream, app: InProcess):
    asked, takes, goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def behave(exchange: Exchange) -> None:
        asked.set()
        await takes.wait()
        await exchange.head()
        await goes_on.wait()
        await exchange.events(exchange.piece("Hello"))

    fake.behave = behave
    exchange = ManualExchange(create_app(app.service), BODY)
    await asyncio.wait_for(asked.wait(), 20)
    assert exchange.sent.empty()
    takes.set()
    assert (await exchange.next())["status"] == 200
    assert b"response.created" in (await exchange.next())["body"]
    goes_on.set()
    assert b"Hello" in b"".join(message["body"] for message in await exchange.finished())


@pytest.mark.requirement("upstream:held")
async def test_a_stream_begins_although_its_upstream_says_nothing(
    fake: FakeUpstream, app: InProcess, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(foreground.answer, "__kwdefaults__", {"stays": False, "held_seconds": 0.01})
    fake.behave = never_answers
    exchange = ManualExchange(create_app(app.service), BODY)
    assert (await exchange.next())["status"] == 200
    assert b"response.created" in (await exchange.next())["body"]
    exchange.leave()
    await exchange.finished()


@pytest.mark.requirement("upstream:held:end")
async def test_a_stream_that_is_refused_is_stored_as_failed(fake: FakeUpstream, app: InProcess, ended: list[str]):
    fake.behave = refuses
    answer = await app.client.post("/responses", json=BODY)
    assert (answer.status_code, ended) == (400, ["failed"])
    again = await app.client.post("/responses", json=BODY, headers={"idempotency-key": "k"})
    assert (answer.headers["content-type"], ended) == ("application/json", ["failed", "failed"])
    failed = sse_events(again.content)[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", answer.json()["error"]["code"])


@pytest.mark.requirement("upstream:held:end")
async def test_a_conversation_is_free_again_when_its_response_was_refused(fake: FakeUpstream, app: InProcess):
    conversation = (await app.client.post("/conversations", json={})).json()["id"]
    fake.behave = refuses
    for stream in (True, False):
        body = {**BODY, "stream": stream, "conversation": conversation}
        assert (await app.client.post("/responses", json=body)).status_code == 400
    fake.behave = said("Hello")
    answer = await app.create("Hi", conversation=conversation)
    assert answer["output_text"] == "Hello"
    items: list[Any] = (await app.client.get(f"/conversations/{conversation}/items")).json()["data"]
    assert len(items) == 2


@pytest.mark.requirement("upstream:held:websocket")
async def test_over_a_websocket_a_refusal_is_an_error_frame(fake: FakeUpstream, app: InProcess):
    async with manual_socket(create_app(app.service)) as socket:
        fake.behave = refuses
        frame = await socket.refused("Hi", stream_id="a")
        assert (frame["status"], frame["stream_id"]) == (400, "a")
        assert frame["error"]["code"] == "context_length_exceeded"
        fake.behave = said("Hello")
        socket.create("Hi", stream_id="a")
        frames = await socket.until(*TERMINAL)
    assert frames[0]["type"] == "response.created"
    assert frames[-1]["response"]["status"] == "completed"


@pytest.mark.requirement("upstream:early")
async def test_an_upstream_is_asked_while_the_response_is_begun_in_the_store(
    fake: FakeUpstream, app: InProcess, monkeypatch: pytest.MonkeyPatch
):
    asked, begins, store = asyncio.Event(), asyncio.Event(), app.service.store
    assert store is not None
    create = store.create_response

    async def behave(exchange: Exchange) -> None:
        asked.set()
        await said("Hello")(exchange)

    async def slow(*arguments: Any, **named: Any) -> None:
        await begins.wait()
        await create(*arguments, **named)

    fake.behave = behave
    monkeypatch.setattr(store, "create_response", slow)
    exchange = ManualExchange(create_app(app.service), BODY)
    await asyncio.wait_for(asked.wait(), 20)
    assert exchange.sent.empty()
    begins.set()
    sent = await exchange.finished()
    assert b"Hello" in b"".join(message.get("body", b"") for message in sent)
    assert len(fake.asked) == 1


@pytest.mark.requirement("upstream:early")
async def test_an_upstream_is_left_when_the_store_does_not_begin_the_response(
    fake: FakeUpstream, app: InProcess, monkeypatch: pytest.MonkeyPatch
):
    asked, store = asyncio.Event(), app.service.store
    assert store is not None

    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(exchange.piece("Hello"))
        asked.set()
        await exchange.gone.wait()

    async def away(*_arguments: Any, **_named: Any) -> None:
        await asked.wait()
        raise UnavailableError("The store is away.")

    fake.behave = behave
    with monkeypatch.context() as patched:
        patched.setattr(store, "create_response", away)
        answer = await app.client.post("/responses", json=BODY)
    assert answer.status_code == 503
    await asyncio.wait_for(fake.asked[0].gone.wait(), 20)
    fake.behave = said("Hello")
    assert (await app.stream("Hi"))[-1]["type"] == "response.completed"


@pytest.mark.requirement("upstream:early")
async def test_what_an_engine_has_begun_early_is_taken_or_given_up(fake: FakeUpstream, app: InProcess):
    fake.behave = said("Hello", " you")
    engine = app.service.registry.engines[0]

    async def early() -> EarlyTurn:
        return EarlyTurn(engine, await engine.prepare(Prompt(messages=[ChatMessage("user", "Hi")])))

    taken = await early()
    deltas = [delta async for batch in taken for delta in batch]
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello you"
    await taken.aclose()
    asked = asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        asked.set()
        await exchange.gone.wait()

    fake.behave = silent
    given_up = await early()
    await asyncio.wait_for(asked.wait(), 20)
    await given_up.aclose()
    await asyncio.wait_for(fake.asked[1].gone.wait(), 20)
    fake.behave = refuses
    refused = await early()
    with pytest.raises(EngineError):
        await anext(aiter(refused))
    await refused.aclose()

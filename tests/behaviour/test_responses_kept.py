"""Background responses that an upstream runs in the background too: breaks, cancels, and what it has lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from antiphon.engines.responses import generation
from support.elsewhere import serving
from support.inprocess import InProcess
from support.upstream import Exchange, fake_upstream

WORDS = ["one ", "two ", "three ", "four "]


def numbered(first: int = 0) -> list[dict[str, Any]]:
    """The events of a response that says some words, from that number on."""
    created = {"type": "response.created", "response": {"id": "resp_u", "status": "in_progress"}}
    place = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0}
    events = [created, *({**place, "delta": word} for word in WORDS)]
    events.append({"type": "response.completed", "response": {"id": "resp_u", "status": "completed"}})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)][first:]


async def ended(app: InProcess, name: str) -> dict[str, Any]:
    """The response once it has ended."""
    async with asyncio.timeout(10):
        while True:
            response = (await app.client.get(f"/responses/{name}")).json()
            if response["status"] not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.01)


@pytest.mark.requirement("responses-upstream:kept", "responses-upstream:kept:break")
async def test_a_broken_connection_is_taken_up_after_its_last_event(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generation, "_PAUSE", 0.01)

    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        if len(fake.asked) == 1:
            await exchange.events(*numbered()[:3])
            exchange.abort()
        elif len(fake.asked) == 2:
            exchange.abort()
        else:
            await exchange.events(*numbered(3), "[DONE]")

    async with fake_upstream() as fake, serving(fake.url, upstream_model="m") as app:
        fake.behave = behave
        begun = await app.create("Hi", background=True)
        response = await ended(app, begun["id"])
    assert (response["status"], response["output_text"]) == ("completed", "".join(WORDS))
    first, second, third = fake.asked
    assert {name: first.body[name] for name in ("background", "store", "stream")} == {
        "background": True, "store": True, "stream": True
    }  # fmt: skip
    assert second.path == third.path == "/v1/responses/resp_u?stream=true&starting_after=2"
    assert second.body is None


@pytest.mark.requirement("responses-upstream:kept:break")
async def test_a_request_whose_answer_never_came_is_sent_again_under_its_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generation, "_PAUSE", 0.01)

    async def behave(exchange: Exchange) -> None:
        if len(fake.asked) == 1:
            exchange.abort()
            return
        await exchange.head()
        await exchange.events(*numbered(), "[DONE]")

    async with fake_upstream() as fake, serving(fake.url, upstream_model="m") as app:
        fake.behave = behave
        for _ in range(2):
            begun = await app.create("Hi", background=True)
            assert (await ended(app, begun["id"]))["output_text"] == "".join(WORDS)
    first, second, third = (exchange.headers["idempotency-key"] for exchange in fake.asked)
    assert first == second != third


@pytest.mark.requirement("responses-upstream:kept:break")
async def test_an_upstream_that_brings_nothing_new_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generation, "_PAUSE", 0.001)

    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(*numbered()[:3])
        exchange.abort()

    async with fake_upstream() as fake, serving(fake.url, upstream_model="m") as app:
        fake.behave = behave
        begun = await app.create("Hi", background=True)
        response = await ended(app, begun["id"])
    assert (response["status"], response["error"]["code"]) == ("failed", "upstream_lost")


@pytest.mark.requirement("responses-upstream:kept:lost")
async def test_what_the_upstream_has_lost_is_run_again_or_failed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generation, "_PAUSE", 0.01)
    missing = {"error": {"message": "no such response", "code": "response_not_found"}}

    async with fake_upstream() as fake, serving(fake.url, upstream_model="m") as app:
        for told in (1, 3):

            async def behave(exchange: Exchange, told: int = told) -> None:
                if exchange.body is None:
                    await exchange.answer(404, missing)
                    return
                await exchange.head()
                if len(fake.asked) == 1:
                    await exchange.events(*numbered()[:told])
                    exchange.abort()
                else:
                    await exchange.events(*numbered())

            fake.behave = behave
            fake.asked.clear()
            begun = await app.create("Hi", background=True)
            response = await ended(app, begun["id"])
            if told == 1:
                assert response["output_text"] == "".join(WORDS)
            else:
                assert response["status"] == "failed"
                assert response["error"]["code"] == "upstream_lost"


@pytest.mark.requirement("responses-upstream:kept:cancel")
async def test_a_cancelled_response_is_cancelled_there_too():
    reached, cancelled = asyncio.Event(), asyncio.Event()

    async def behave(exchange: Exchange) -> None:
        if exchange.path.endswith("/cancel"):
            await exchange.answer(200, {"id": "resp_u", "status": "cancelled"})
            cancelled.set()
            return
        await exchange.head()
        await exchange.events(*numbered()[:2])
        reached.set()
        await exchange.gone.wait()

    async with fake_upstream() as fake, serving(fake.url, upstream_model="m") as app:
        fake.behave = behave
        begun = await app.create("Hi", background=True)
        await asyncio.wait_for(reached.wait(), 5)
        async with asyncio.timeout(5):
            while not (await app.client.get(f"/responses/{begun['id']}")).json()["output"]:
                await asyncio.sleep(0.01)
        await app.client.post(f"/responses/{begun['id']}/cancel")
        left = time.monotonic()
        await asyncio.wait_for(cancelled.wait(), 5)
        await asyncio.wait_for(fake.asked[0].gone.wait(), 5)
        assert time.monotonic() - left < 1
    assert fake.asked[1].path == "/v1/responses/resp_u/cancel"


@pytest.mark.requirement("responses-upstream:kept")
async def test_a_foreground_response_is_kept_nowhere():
    async def behave(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(*numbered())

    async with fake_upstream() as fake, serving(fake.url, upstream_model="m") as app:
        fake.behave = behave
        assert (await app.create("Hi"))["output_text"] == "".join(WORDS)
        assert (await app.create("Hi", stream=False, background=False))["status"] == "completed"
    assert [exchange.body["store"] for exchange in fake.asked] == [False, False]
    assert "background" not in fake.asked[0].body


@pytest.mark.requirement("responses-upstream:kept")
async def test_what_may_not_be_stored_runs_in_the_foreground_there():
    async def behave(exchange: Exchange) -> None:
        if exchange.body["store"]:
            await exchange.answer(400, {"error": {"message": "no responses of this account are stored"}})
            return
        await exchange.head()
        await exchange.events(*numbered())

    async with fake_upstream() as fake, serving(fake.url, upstream_model="m") as app:
        fake.behave = behave
        for store in (True, False):
            begun = await app.create("Hi", background=True, store=store)
            assert (await ended(app, begun["id"]))["output_text"] == "".join(WORDS)
    assert [exchange.body["store"] for exchange in fake.asked] == [True, False, False]
    assert ["background" in exchange.body for exchange in fake.asked] == [True, False, False]

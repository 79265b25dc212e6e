"""Idempotency keys of requests whose answer was no response: what is sent again is made again."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2
import pytest

from antiphon.protocol.ids import new_id
from antiphon.protocol.json import encode
from antiphon.protocol.response import Response
from antiphon.runtime.idempotency import idempotent
from antiphon.runtime.recovery import RESTARTED
from antiphon.store.base import IdempotencyRecord, NewResponse
from support.inprocess import InProcess, sse_events
from support.unsteady import OURS, Faults, UnsteadyStore, ended, eventually, served

requirement = pytest.mark.requirement

KEY = "one and the same"


async def ask(api: InProcess, **fields: Any) -> httpx2.Response:
    return await api.client.post("/responses", content=body(**fields), headers={"Idempotency-Key": KEY})


def body(**fields: Any) -> bytes:
    return encode({"model": "scripted", "input": "!TEXT once", **fields})


def status(answer: httpx2.Response) -> str:
    """How the response of an answer stands, which is a stream or an object."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        return sse_events(answer.content)[-1]["response"]["status"]
    return answer.json()["status"]


@requirement("idempotency:free")
@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"background": True}], ids=["whole", "stream", "background"])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "later"])
async def test_a_response_that_began_although_its_client_was_told_that_it_did_not_does_not_hold_its_key(
    fields: dict[str, Any], at_once: bool
) -> None:
    store = UnsteadyStore()
    async with served(store) as api:
        store.around["create_response"] = Faults(after=True)
        assert (await ask(api, **fields)).status_code == 503
        (name,) = [key[1] for key in store._running]
        if not at_once:
            await ended(store, name)
        again = await ask(api, **fields)
        assert again.status_code == 200
        assert status(again) in ("completed", "queued")
        assert (await ask(api, **fields)).status_code == 200
        assert (await ended(store, name))["status"] == "failed"
        assert (await store.status()).responses == 2


@requirement("idempotency:free")
async def test_a_response_whose_end_could_not_be_stored_does_not_hold_its_key() -> None:
    store = UnsteadyStore()
    async with served(store) as api:
        store.around["finish_response"] = Faults()
        assert (await ask(api)).status_code == 503
        again = await ask(api)
        assert (again.status_code, status(again)) == (200, "completed")
        assert (await ask(api)).content == again.content


@requirement("idempotency:free")
async def test_a_stream_that_failed_since_it_could_not_be_stored_is_what_its_client_was_told() -> None:
    store = UnsteadyStore()
    async with served(store) as api:
        store.around["finish_response"] = Faults()
        first = await ask(api, stream=True)
        assert status(first) == "failed"
        assert (await ask(api, stream=True)).content == first.content


async def left_running(store: UnsteadyStore, request: bytes, owner: str = "gone") -> str:
    """What a server that died left of a request with the key: its row, which runs nowhere."""
    name = new_id("resp")
    once = idempotent(KEY, "POST", "/v1/responses", request)
    assert once is not None
    record = IdempotencyRecord(once.key, once.digest, name, time.time() + 1000)
    begun = encode(Response(id=name, created_at=1, model="scripted", status="in_progress"))
    await store.create_response(
        OURS, NewResponse(name, None, "in_progress", 1, begun, (), owner=owner, idempotency=record)
    )
    return name


@requirement("idempotency:free")
async def test_what_a_restart_cut_off_before_its_answer_is_made_again() -> None:
    store = UnsteadyStore(shared=True)
    name = await left_running(store, body())
    async with served(store) as api:
        assert (await ended(store, name))["error"]["code"] == "server_restarted"
        again = await ask(api)
        assert (again.status_code, status(again)) == (200, "completed")
        assert again.json()["id"] != name
        assert (await ask(api)).content == again.content


@requirement("idempotency:free")
async def test_a_stream_that_a_restart_cut_off_is_replayed_as_it_ended() -> None:
    store = UnsteadyStore(shared=True)
    name = await left_running(store, body(stream=True))
    async with served(store) as api:
        await ended(store, name)
        again = sse_events((await ask(api, stream=True)).content)
        assert again[-1]["response"]["id"] == name
        assert again[-1]["response"]["error"]["code"] == "server_restarted"


@requirement("idempotency:free")
async def test_who_waits_for_a_response_that_turns_out_to_be_nobodys_is_told_to_ask_again() -> None:
    store = UnsteadyStore(shared=True)
    async with served(store) as api:
        takeover = api.service._takeover
        assert takeover is not None
        name = await left_running(store, body(), takeover.owner)
        waiting = asyncio.create_task(ask(api))

        async def waits() -> bool:
            return bool(api.service._bells._waiting)

        await eventually(waits)
        await takeover.end(OURS, name, 1, RESTARTED)
        refused = await waiting
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_unanswered")
        assert refused.headers["x-should-retry"] == "true"
        assert (await ask(api)).json()["id"] != name

"""Idempotency keys: what is sent again gets the response of the first request, however far that is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from antiphon.errors import ConflictError
from antiphon.http.app import create_app
from antiphon.protocol.json import encode
from antiphon.runtime.idempotency import Earlier, Idempotency, idempotent
from antiphon.runtime.runner import Run
from antiphon.settings import Settings
from antiphon.store.base import Scope
from clients.strict import Recorder
from support.asgi import ManualExchange
from support.inprocess import InProcess, inprocess_app, sse_events

requirement = pytest.mark.requirement

KEY = "0b7c7a5e-3c1f-4c5f-9c5e-1d2f3a4b5c6d"
SLOW = "!SLOW 5\n!COUNT 30"
PATIENCE = 60.0


async def ask(api: InProcess, text: str, key: str = KEY, path: str = "/responses", **fields: Any) -> httpx2.Response:
    body = {"model": "scripted", "input": text, **fields}
    return await api.client.post(path, json=body, headers={"Idempotency-Key": key})


async def stored(api: InProcess) -> int:
    assert api.service.store is not None
    return (await api.service.store.status()).responses


def exchange(api: InProcess, text: str, **fields: Any) -> ManualExchange:
    """The same request, by hand: its client can leave."""
    headers = [(b"host", b"127.0.0.1"), (b"idempotency-key", KEY.encode())]
    made = ManualExchange(create_app(api.service), {"model": "scripted", "input": text, **fields})
    made._scope["headers"] = headers
    return made


async def begun(api: InProcess) -> Run:
    """The run of the one response that runs."""
    async with asyncio.timeout(PATIENCE):
        while not api.service._runs:
            await asyncio.sleep(0)
    (run,) = api.service._runs.values()
    return run


@requirement("idempotency:again")
async def test_the_same_request_gets_the_same_response(api: InProcess) -> None:
    first = await ask(api, "!TEXT once")
    again = await ask(api, "!TEXT once")
    without_v1 = await ask(api, "!TEXT once", path="http://127.0.0.1/responses")
    assert first.status_code == again.status_code == 200
    assert first.content == again.content == without_v1.content
    assert await stored(api) == 1
    other = await ask(api, "!TEXT once", key="another key")
    assert other.json()["id"] != first.json()["id"]
    assert (await api.create("!TEXT once"))["id"] != first.json()["id"]


@requirement("idempotency:again")
async def test_the_same_stream_is_replayed_byte_for_byte(api: InProcess) -> None:
    first = await ask(api, "!REASON hm\n!COUNT 5", stream=True)
    again = await ask(api, "!REASON hm\n!COUNT 5", stream=True)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.content == first.content
    assert sse_events(first.content)[-1]["type"] == "response.completed"
    assert await stored(api) == 1


@requirement("idempotency:again")
@pytest.mark.parametrize(("text", "status"), [("!FAIL", "failed"), ("!INCOMPLETE", "incomplete")])
async def test_whatever_end_it_had_is_the_end_that_is_told(api: InProcess, text: str, status: str) -> None:
    first = await ask(api, text)
    again = await ask(api, text)
    assert first.json()["status"] == status
    assert again.content == first.content


@requirement("idempotency:reused")
async def test_another_request_under_the_key_is_a_conflict_that_is_not_retried(api: InProcess) -> None:
    first = await ask(api, "!TEXT once")
    for text, fields in (("!TEXT twice", {}), ("!TEXT once", {"stream": True}), ("!TEXT once", {"store": False})):
        refused = await ask(api, text, **fields)
        assert refused.status_code == 409
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("conflict_error", "idempotency_key_reused")
        assert refused.headers["x-should-retry"] == "false"
    assert (await ask(api, "!TEXT once")).content == first.content
    assert await stored(api) == 1


@requirement("idempotency:reused")
def test_the_sdk_does_not_retry_it(scripted_server: str) -> None:
    recorder = Recorder()
    http = httpx2.Client(transport=recorder, timeout=60)
    headers = {"Idempotency-Key": f"sdk {time.time_ns()}"}
    with openai.OpenAI(base_url=scripted_server, api_key="none", max_retries=5, http_client=http) as client:
        first = client.responses.create(model="scripted", input="!TEXT a", extra_headers=headers)
        again = client.responses.create(model="scripted", input="!TEXT a", extra_headers=headers)
        assert again.id == first.id
        with pytest.raises(openai.ConflictError) as caught:
            client.responses.create(model="scripted", input="!TEXT b", extra_headers=headers)
    assert caught.value.code == "idempotency_key_reused"
    assert len(recorder.exchanges) == 3


@requirement("idempotency:running")
@pytest.mark.parametrize("stream", [False, True])
async def test_requests_at_the_same_time_share_one_response(api: InProcess, stream: bool) -> None:
    answers = await asyncio.gather(*[ask(api, SLOW, stream=stream) for _ in range(6)])
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert await stored(api) == 1
    assert (await ask(api, SLOW, stream=stream)).content == answers[0].content


@requirement("idempotency:running")
async def test_servers_that_get_the_same_request_share_one_response(api: InProcess) -> None:
    # Each application lets its own requests with a key through one by one, but knows nothing of the other's.
    one, other = exchange(api, SLOW), exchange(api, SLOW)
    answers = [(await made.finished())[-1]["body"] for made in (one, other)]
    assert answers[0] == answers[1]
    assert await stored(api) == 1


@requirement("idempotency:running")
async def test_one_that_comes_later_waits_for_the_end(api: InProcess) -> None:
    first = exchange(api, SLOW)
    run = await begun(api)
    waiting = asyncio.create_task(ask(api, SLOW))
    body = (await first.finished())[-1]["body"]
    assert (await waiting).content == body
    assert (await waiting).json()["id"] == run.id


@requirement("idempotency:running")
async def test_in_the_background_it_is_told_how_it_stands(api: InProcess) -> None:
    first = await ask(api, "!SLOW 20\n!COUNT 500", background=True)
    again = await ask(api, "!SLOW 20\n!COUNT 500", background=True)
    assert first.json()["status"] == "queued"
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["status"] in ("queued", "in_progress")
    await api.client.post(f"/responses/{first.json()['id']}/cancel")
    assert (await ask(api, "!SLOW 20\n!COUNT 500", background=True)).json()["status"] == "cancelled"
    assert await stored(api) == 1


@requirement("idempotency:running")
async def test_two_at_once_in_a_conversation_are_one(api: InProcess) -> None:
    identity = (await api.client.post("/conversations", json={})).json()["id"]
    answers = await asyncio.gather(*[ask(api, SLOW, conversation=identity) for _ in range(3)])
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    items = (await api.client.get(f"/conversations/{identity}/items")).json()["data"]
    assert len(items) == 2


@requirement("idempotency:leave")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_lost_its_connection_finds_the_response_whole(api: InProcess, stream: bool) -> None:
    first = exchange(api, SLOW, stream=stream)
    run = await begun(api)
    if stream:
        await first.next()
    first.leave()
    again = await ask(api, SLOW, stream=stream)
    await first.finished()
    ended = sse_events(again.content)[-1]["response"] if stream else again.json()
    assert (ended["id"], ended["status"]) == (run.id, "completed")
    assert ended["output_text"].endswith("30")


@requirement("idempotency:leave", "idempotency:unstored")
async def test_a_response_that_is_not_stored_still_ends_with_its_client(api: InProcess) -> None:
    first = exchange(api, "!SLOW 20\n!COUNT 500", store=False)
    run = await begun(api)
    first.leave()
    await first.finished()
    assert run.plan.response.status == "cancelled"


@requirement("idempotency:unstored")
async def test_what_is_not_stored_or_was_refused_is_made_anew(api: InProcess) -> None:
    first = await ask(api, "Hi.", store=False)
    second = await ask(api, "Hi.", store=False)
    assert first.json()["id"] != second.json()["id"]
    for _ in range(2):
        assert (await ask(api, " ")).status_code == 400
        assert (await ask(api, "!ERR429")).status_code == 429
    assert await stored(api) == 0
    assert (await ask(api, "!TEXT fine")).status_code == 200


@requirement("idempotency:unstored")
async def test_without_persistence_a_key_has_no_effect() -> None:
    async with inprocess_app(settings=Settings(responses_store_max_entries=0)) as app:
        first, second = await ask(app, "Hi."), await ask(app, "Hi.")
        assert (first.status_code, second.status_code) == (200, 200)
        assert first.json()["id"] != second.json()["id"]


@requirement("idempotency:key")
@pytest.mark.parametrize("key", ["", "k" * 257, "tab\there", "ü"])
async def test_a_key_that_cannot_be_used_is_named(api: InProcess, key: str) -> None:
    body = {"model": "scripted", "input": "Hi."}
    refused = await api.client.post("/responses", json=body, headers={"Idempotency-Key": key.encode("latin-1")})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["code"]) == ("Idempotency-Key", "invalid_idempotency_key")
    assert (await ask(api, "Hi.", key="k" * 256)).status_code == 200


@requirement("idempotency:gone")
async def test_a_deleted_response_is_not_made_again_under_its_key(api: InProcess) -> None:
    first = await ask(api, "Hi.")
    assert (await api.client.delete(f"/responses/{first.json()['id']}")).status_code == 200
    refused = await ask(api, "Hi.")
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "idempotency_response_gone"
    assert refused.headers["x-should-retry"] == "false"
    assert await stored(api) == 0


@requirement("idempotency:record")
async def test_a_key_is_kept_for_a_day_and_for_its_tenant(api: InProcess) -> None:
    service, ours, theirs = api.service, Scope("default"), Scope("someone else")
    first = (await ask(api, "Hi.")).json()["id"]
    assert service.store is not None
    now = time.time()
    record = await service.store.find_idempotent(ours, KEY, now + 86_000)
    assert record is not None
    assert record.response_id == first
    assert await service.store.find_idempotent(ours, KEY, now + 86_401) is None
    body = encode({"model": "scripted", "input": "Another."})
    once = idempotent(KEY, "POST", "/v1/responses", body)
    assert once is not None
    keys = Idempotency(service)
    with pytest.raises(ConflictError):
        await keys.create(ours, body, once)
    run = await keys.create(theirs, body, once)
    assert isinstance(run, Run)
    await service.launch(run)
    assert await keys.create(theirs, body, once) == Earlier(run.id, False, False, KEY)


@requirement("idempotency:record")
async def test_a_key_outlives_a_restart(tmp_path: Path) -> None:
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as app:
        first = await ask(app, "!TEXT once")
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as app:
        assert (await ask(app, "!TEXT once")).content == first.content
        assert (await ask(app, "!TEXT twice")).status_code == 409


@requirement("idempotency:key")
def test_the_digest_is_of_method_path_and_body() -> None:
    def digest(method: str, path: str, body: bytes) -> bytes:
        found = idempotent(KEY, method, path, body)
        assert found is not None
        return found.digest

    first = digest("POST", "/v1/responses", b"{}")
    assert first == digest("POST", "/responses", b"{}")
    others = [("PUT", "/responses", b"{}"), ("POST", "/responses/", b"{}"), ("POST", "/responses", b"{ }")]
    assert all(digest(*other) != first for other in others)
    assert idempotent(None, "POST", "/responses", b"{}") is None

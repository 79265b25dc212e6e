"""What a store that cannot write does to a response: never a 200 that is forgotten, never a stream that hangs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from antiphon.errors import UnavailableError
from antiphon.store.base import FinishedResponse, Scope
from antiphon.store.memory import MemoryStore
from support.inprocess import InProcess, inprocess_app, sse_events

FULL = UnavailableError("The store cannot be written now.", retry_after=3)


def breaking(monkeypatch: pytest.MonkeyPatch, method: str, error: Exception) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(MemoryStore, method, fails)


async def request(api: InProcess, **fields: Any) -> Any:
    return await api.client.post("/responses", json={"model": "scripted", "input": "!COUNT 3", **fields})


@pytest.mark.requirement("store:fault:whole")
@pytest.mark.parametrize(("error", "status"), [(FULL, 503), (RuntimeError("secret"), 500)])
async def test_an_answer_that_cannot_be_stored_is_an_error_and_not_a_200(monkeypatch, error, status):
    async with inprocess_app() as api:
        breaking(monkeypatch, "create_finished_response", error)
        reply = await request(api)
        assert reply.status_code == status
        assert "secret" not in reply.text
        assert ("retry-after" in reply.headers) == (status == 503)
        assert (await request(api, store=False)).json()["status"] == "completed"
        assert api.service.admission.running == 0


@pytest.mark.requirement("store:fault:begin")
async def test_a_stream_that_cannot_be_begun_in_the_store_is_an_error_before_any_event(monkeypatch):
    async with inprocess_app() as api:
        breaking(monkeypatch, "create_response", FULL)
        reply = await request(api, stream=True)
        assert reply.status_code == 503
        assert reply.headers["content-type"] == "application/json"
        assert api.service.admission.running == 0


@pytest.mark.requirement("store:fault:owed")
async def test_an_end_that_the_store_would_not_take_is_told_and_is_written_later(monkeypatch):
    async with inprocess_app() as api:
        with monkeypatch.context() as broken:
            breaking(broken, "finish_response", FULL)
            events = sse_events((await request(api, stream=True)).content)
            told = events[-1]["response"]
            path = f"/responses/{told['id']}"
            assert (await api.client.get(path)).json() == told
            replayed = sse_events((await api.client.get(path, params={"stream": "true"})).content)
            assert replayed == events
        assert api.service.store is not None
        deadline = time.monotonic() + 10
        while (await api.service.store.get_response(Scope("default"), told["id"])).status == "in_progress":  # type: ignore[union-attr]
            assert time.monotonic() < deadline
            await asyncio.sleep(0)
        assert (await api.client.get(path)).json() == told


@pytest.mark.requirement("store:fault:owed")
async def test_an_owed_end_is_written_before_its_response_is_deleted(monkeypatch):
    async with inprocess_app() as api:
        with monkeypatch.context() as broken:
            breaking(broken, "finish_response", FULL)
            events = sse_events((await request(api, stream=True)).content)
            path = f"/responses/{events[-1]['response']['id']}"
            assert (await api.client.delete(path)).status_code == 503
        assert (await api.client.delete(path)).status_code == 200
        assert (await api.client.get(path)).status_code == 404


@pytest.mark.requirement("law:4:look-up")
async def test_an_end_is_looked_up_only_once_it_is_in_the_store(monkeypatch):
    async with inprocess_app() as api:
        entered, go_on = asyncio.Event(), asyncio.Event()
        real = MemoryStore.finish_response

        async def slow(self: MemoryStore, scope: Scope, finished: FinishedResponse) -> bool:
            entered.set()
            await go_on.wait()
            return await real(self, scope, finished)

        monkeypatch.setattr(MemoryStore, "finish_response", slow)
        stream = asyncio.create_task(request(api, stream=True))
        await asyncio.wait_for(entered.wait(), 10)
        (run,) = api.service._runs.values()
        look_up = asyncio.create_task(api.client.get(f"/responses/{run.id}"))
        done, _ = await asyncio.wait({look_up}, timeout=0.05)
        assert not done
        go_on.set()
        assert (await look_up).json()["status"] == "completed"
        assert (await stream).status_code == 200


@pytest.mark.requirement("store:fault:end")
@pytest.mark.parametrize(("error", "code"), [(FULL, "server_error"), (RuntimeError("secret"), "server_error")])
async def test_a_stream_whose_end_cannot_be_stored_ends_as_failed(monkeypatch, error, code):
    async with inprocess_app() as api:
        breaking(monkeypatch, "finish_response", error)
        reply = await request(api, stream=True)
        events = sse_events(reply.content)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert events[-1]["response"]["error"]["code"] == code
        assert "secret" not in reply.text
        assert api.service.admission.running == 0

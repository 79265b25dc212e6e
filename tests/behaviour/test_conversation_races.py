"""A conversation that another server extends between the reading of it and the beginning of a response in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.protocol.request import CreateResponse
from antiphon.runtime.planner import Planner
from antiphon.runtime.plans import RunPlan
from antiphon.store.base import Scope, StoredItem
from antiphon.store.memory import MemoryStore
from support.inprocess import inprocess_app

SCOPE = Scope("default")


@pytest.mark.requirement("replicas:conversation")
async def test_a_response_that_read_an_older_conversation_is_refused_and_can_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
):
    async with inprocess_app() as api:
        store = api.service.store
        assert isinstance(store, MemoryStore)
        store.shared = True
        name = (await api.client.post("/conversations", json={})).json()["id"]
        plan = Planner.plan

        async def slow(planner: Planner, scope: Scope, request: CreateResponse, **fields: Any) -> RunPlan:
            made = await plan(planner, scope, request, **fields)
            item = StoredItem("msg_other", b'{"type":"message","role":"user","id":"msg_other","content":[]}')
            assert await store.add_conversation_items(SCOPE, name, [item])
            return made

        body = {"model": "scripted", "input": "hi", "conversation": name}
        with monkeypatch.context() as patched:
            patched.setattr(Planner, "plan", slow)
            answer = await api.client.post("/responses", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conversation_locked")
        assert answer.headers["x-should-retry"] == "true"
        # What had begun is ended, and the conversation is free again.
        async with asyncio.timeout(20):
            while (answer := await api.client.post("/responses", json=body)).status_code != 200:
                await asyncio.sleep(0.02)
        assert answer.json()["status"] == "completed"

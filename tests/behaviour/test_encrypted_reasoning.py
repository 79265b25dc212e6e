"""`reasoning.encrypted_content`: thinking that a client keeps for the server (client-contract 3.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.json import encode, loads
from antiphon.runtime.unseal import REASONING
from antiphon.settings import Settings
from antiphon.store.base import Scope
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

INCLUDE = ["reasoning.encrypted_content"]
THOUGHT = "!REASON Two and two.\n!CALL get_weather {}"
OTHER = Scope("other")


def question(text: str = "What?") -> dict[str, Any]:
    return {"role": "user", "content": text}


async def turn(api: InProcess, **fields: Any) -> list[dict[str, Any]]:
    """The output of a turn that thinks and calls, as a client without a store keeps it, and the call's output."""
    made = await api.create(THOUGHT, include=INCLUDE, store=False, **fields)
    thinking, call = made["output"]
    assert thinking["type"] == "reasoning"
    return [thinking, call, {"type": "function_call_output", "call_id": call["call_id"], "output": "12C"}]


def without_content(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "content"}


@requirement("reasoning:encrypted", "api:encrypted-reasoning")
async def test_reasoning_items_carry_their_sealed_text_where_it_is_included(api: InProcess) -> None:
    whole = await api.create(THOUGHT, include=INCLUDE)
    events = await api.stream(THOUGHT, include=INCLUDE)
    final = events[-1]["response"]
    for response in (whole, final):
        sealed = response["output"][0]["encrypted_content"]
        assert await api.service.codec.open(Scope("default"), REASONING, sealed) == b"Two and two."
        stored = await api.client.get(f"/responses/{response['id']}")
        assert stored.json() == response
    (done,) = [e["item"] for e in events if e["type"] == "response.output_item.done" and e["output_index"] == 0]
    assert done == final["output"][0]
    plain = await api.create(THOUGHT)
    assert "encrypted_content" not in plain["output"][0]


@requirement("reasoning:encrypted")
async def test_thinking_that_was_cut_is_sealed_as_far_as_it_went(api: InProcess) -> None:
    made = await api.create(THOUGHT, include=INCLUDE, max_output_tokens=2)
    (thinking,) = made["output"]
    assert thinking["status"] == "incomplete"
    opened = await api.service.codec.open(Scope("default"), REASONING, thinking["encrypted_content"])
    assert opened == b"Two and "


@requirement("reasoning:encrypted:replay", "api:encrypted-reasoning")
async def test_sealed_thinking_that_comes_back_is_in_the_prompt(api: InProcess) -> None:
    thinking, call, output = await turn(api)
    plain = await api.echo([question(), {**thinking, "encrypted_content": None}, call, output])
    assert "<think>Two and two.</think>" in plain
    for sent in (
        without_content(thinking),
        {**thinking, "content": None},
        {**thinking, "content": []},
        {**without_content(thinking), "id": None, "summary": None},
        thinking,
    ):
        assert await api.echo([question(), sent, call, output]) == plain


@requirement("reasoning:encrypted:replay")
async def test_thinking_in_plain_text_goes_before_what_is_sealed(api: InProcess) -> None:
    thinking, call, output = await turn(api)
    sent = {**thinking, "content": [{"type": "reasoning_text", "text": "Three."}]}
    prompt = await api.echo([question(), sent, call, output])
    assert "<think>Three.</think>" in prompt
    assert "Two and two." not in prompt


@requirement("reasoning:encrypted:replay")
async def test_the_stored_item_stays_as_it_came(api: InProcess) -> None:
    thinking, call, output = await turn(api)
    made = await api.create([question(), without_content(thinking), call, output])
    page = await api.client.get(f"/responses/{made['id']}/input_items", params={"order": "asc"})
    item = page.json()["data"][1]
    assert item["encrypted_content"] == thinking["encrypted_content"]
    assert "content" not in item
    assert "<think>Two and two.</think>" in await api.echo(previous_response_id=made["id"])


@requirement("reasoning:encrypted:foreign")
async def test_what_is_not_ours_is_ignored(api: InProcess) -> None:
    thinking, call, output = await turn(api)
    sealed: str = thinking["encrypted_content"]
    blobs = ["gAAAAABo_of_another_server", "", "x" * 100, sealed[:-4] + "AAAA", "YW50AQ" + "A" * 80, "é"]
    expected = await api.echo([question(), call, output])
    for blob in blobs:
        sent = {**without_content(thinking), "encrypted_content": blob}
        assert await api.echo([question(), sent, call, output]) == expected


@requirement("reasoning:encrypted:foreign")
async def test_the_thinking_of_another_tenant_is_ignored(api: InProcess) -> None:
    thinking, call, output = await turn(api)
    items = [question(), without_content(thinking), call, output, question("!ECHO")]
    run = await api.service.create(OTHER, encode({"model": "scripted", "input": items}))
    await api.service.launch(run)
    told = loads(run.body())["output_text"]
    assert "get_weather" in told
    assert "Two and two." not in told


@requirement("reasoning:encrypted:restart")
async def test_sealed_thinking_opens_after_a_restart(tmp_path: Path) -> None:
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as api:
        thinking, call, output = await turn(api)
        kept = await api.create([question(), without_content(thinking), call, output])
        expected = await api.echo([question(), thinking, call, output])
        chained = await api.echo(previous_response_id=kept["id"], store=False)
        assert "<think>Two and two.</think>" in chained
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as api:
        assert await api.echo([question(), without_content(thinking), call, output]) == expected
        assert await api.echo(previous_response_id=kept["id"], store=False) == chained


@requirement("reasoning:encrypted:restart")
async def test_sealed_thinking_opens_where_nothing_is_stored() -> None:
    nothing = Settings(responses_store_max_entries=0)
    async with inprocess_app(settings=nothing) as api:
        thinking, call, output = await turn(api)
        assert "<think>Two and two.</think>" in await api.echo([question(), without_content(thinking), call, output])
    async with inprocess_app(settings=nothing) as api:
        prompt = await api.echo([question(), without_content(thinking), call, output])
        assert "Two and two." not in prompt

"""Chains by `previous_response_id`: what a model sees of them, and what they cost in the store."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app, sse_events

requirement = pytest.mark.requirement
both_stores = pytest.mark.parametrize("store", ["memory", "sqlite"])

PIXEL = "data:image/png;base64,iVBORw0KGgo="
ECHO = {"role": "user", "content": "!ECHO"}


class Turn(msgspec.Struct, frozen=True):
    """One turn to send: its items, what the outputs of calls that are open look like, and a limit of tokens."""

    items: Sequence[dict[str, Any]]
    output: Any = "done"
    limit: int | None = None


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def answers(output: Sequence[dict[str, Any]], content: Any) -> list[dict[str, Any]]:
    """The outputs that a client sends for the calls that a response left to it."""
    found: list[dict[str, Any]] = []
    for item in output:
        if item["type"] in ("function_call", "custom_tool_call") and item["status"] == "completed":
            found.append({"type": item["type"] + "_output", "call_id": item["call_id"], "output": content})
    return found


@requirement("client:chain:recall")
@both_stores
async def test_fifty_turns_recall_the_first_one_and_never_a_sibling(store: str, tmp_path: Path) -> None:
    async with inprocess_app(store=store, tmp_path=tmp_path) as app:
        response = await app.create("The word is heron.", instructions="Old rule 1.")
        for number in range(2, 51):
            if number % 10 == 0:
                side = await app.create(f"Sibling of {number}.", previous_response_id=response["id"])
                await app.create(f"Child of the sibling of {number}.", previous_response_id=side["id"])
            response = await app.create(
                f"This is turn {number}.", previous_response_id=response["id"], instructions=f"Old rule {number}."
            )
        prompt = await app.echo(previous_response_id=response["id"], instructions="The new rule.")
        assert prompt.startswith("<|im_start|>system\nThe new rule.<|im_end|>\n<|im_start|>user\nThe word is heron.")
        assert [prompt.count(f"This is turn {number}.") for number in range(2, 51)] == [1] * 49
        assert "ibling" not in prompt
        assert "Old rule" not in prompt
        without = await app.echo(previous_response_id=response["id"])
        assert "<|im_start|>system" not in without
        other = await app.echo(previous_response_id=side["id"])
        assert "Sibling of 50." in other
        assert "This is turn 49." in other
        assert "This is turn 50." not in other


@requirement("client:chain:recall")
@both_stores
async def test_deleting_an_ancestor_breaks_no_chain(store: str, tmp_path: Path) -> None:
    async with inprocess_app(store=store, tmp_path=tmp_path) as app:
        first = await app.create("The word is heron.")
        second = await app.create("Keep it.", previous_response_id=first["id"])
        third = await app.create("Still?", previous_response_id=second["id"])
        before = await app.echo(previous_response_id=third["id"])
        for gone in (first, second):
            await app.client.delete(f"/responses/{gone['id']}")
            await app.refused(404, "And?", previous_response_id=gone["id"])
        assert "The word is heron." in before
        assert await app.echo(previous_response_id=third["id"]) == before


@requirement("client:chain:recall")
@both_stores
async def test_eviction_breaks_no_younger_response(store: str, tmp_path: Path) -> None:
    few = Settings(responses_store_max_entries=2)
    async with inprocess_app(settings=few, store=store, tmp_path=tmp_path) as app:
        first = response = await app.create("The word is heron.")
        for number in range(8):
            response = await app.create(f"This is turn {number}.", previous_response_id=response["id"])
        assert (await app.client.get(f"/responses/{first['id']}")).status_code == 404
        prompt = await app.echo(previous_response_id=response["id"], store=False)
        assert "The word is heron." in prompt
        listed = await app.client.get(f"/responses/{response['id']}/input_items", params={"order": "asc"})
        assert listed.json()["data"][0]["content"][0]["text"] == "The word is heron."
    if store == "sqlite":
        async with inprocess_app(settings=few, store=store, tmp_path=tmp_path) as app:
            assert await app.echo(previous_response_id=response["id"], store=False) == prompt


@requirement("client:chain:recall")
@both_stores
async def test_a_parent_that_goes_while_its_child_is_generated_breaks_nothing(store: str, tmp_path: Path) -> None:
    async with inprocess_app(store=store, tmp_path=tmp_path) as app:
        first = await app.create("The word is heron.")
        second = await app.create("Keep it.", previous_response_id=first["id"])
        for fields in ({"stream": True}, {}):
            parent = await app.create("Go.", previous_response_id=second["id"])
            body = {"model": "scripted", "input": "!SLOW 20\n!COUNT 9", "previous_response_id": parent["id"], **fields}
            child = asyncio.create_task(app.client.post("/responses", json=body))
            while not app.service.admission.running:
                await asyncio.sleep(0)
            assert (await app.client.delete(f"/responses/{parent['id']}")).status_code == 200
            answer = await child
            made = sse_events(answer.content)[-1]["response"] if fields else answer.json()
            assert made["status"] == "completed"
            prompt = await app.echo(previous_response_id=made["id"])
            assert [text in prompt for text in ("The word is heron.", "Keep it.", "Go.", "!COUNT 9")] == [True] * 4


@requirement("client:chain:recall")
async def test_a_chain_goes_on_after_the_server_was_started_anew(tmp_path: Path) -> None:
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as app:
        first = await app.create("!REASON Birds.\n!TEXT A heron.")
        second = await app.create("Why?", previous_response_id=first["id"])
        before = await app.echo(previous_response_id=second["id"])
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as app:
        assert await app.echo(previous_response_id=second["id"]) == before


@requirement("client:chain:cost")
@both_stores
async def test_what_a_turn_stores_does_not_grow_with_depth(store: str, tmp_path: Path) -> None:
    sizes: list[int] = []
    async with inprocess_app(store=store, tmp_path=tmp_path) as app:
        assert app.service.store is not None
        response = await app.create("x" * 1000)
        for _ in range(60):
            response = await app.create("x" * 1000, previous_response_id=response["id"], stream=False)
            sizes.append((await app.service.store.status()).bytes)
    growth = [after - before for before, after in pairwise(sizes)]
    # The counts of tokens in the response grow by a digit now and then.
    assert max(growth) - min(growth) <= 16


@requirement("client:chain:cost")
async def test_a_file_grows_with_the_turns_and_not_with_their_square(tmp_path: Path) -> None:
    async def bytes_of(turns: int) -> int:
        folder = tmp_path / str(turns)
        folder.mkdir()
        async with inprocess_app(store="sqlite", tmp_path=folder) as app:
            response = await app.create("x" * 1000)
            for _ in range(turns - 1):
                response = await app.create("x" * 1000, previous_response_id=response["id"])
        return sum(file.stat().st_size for file in folder.iterdir())

    assert await bytes_of(120) < 4.5 * await bytes_of(30)


_words = st.text(st.sampled_from("abc é\n<|!"), min_size=1, max_size=8).filter(
    lambda text: text.strip() != "" and not any(line.startswith("!") for line in text.splitlines())
)
_text_part = st.builds(lambda text: {"type": "input_text", "text": text}, _words)
_image_part = st.just({"type": "input_image", "image_url": PIXEL, "detail": "low"})
_file_part = st.just({"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="})
_parts = st.lists(_text_part | _image_part | _file_part, min_size=1, max_size=3)
_output = _words | st.lists(_text_part | _image_part, min_size=1, max_size=3)
_status = st.sampled_from(["completed", "incomplete"])


def _call(name: str, text: str, status: str, output: Any, answered: bool) -> list[dict[str, Any]]:
    identity = f"call_{name}_{abs(hash((text, status))) % 1000}"
    if name == "note":
        call = {"type": "custom_tool_call", "name": name, "input": text}
    else:
        call = {"type": "function_call", "name": name, "arguments": msgspec.json.encode({"q": text}).decode()}
    call |= {"call_id": identity, "status": status}
    return [call, {"type": call["type"] + "_output", "call_id": identity, "output": output}][: 1 + answered]


_passages = st.one_of(
    st.builds(lambda content: [user(content)], _words | _parts),
    st.builds(lambda text: [{"role": "assistant", "content": text}], _words),
    st.builds(
        lambda text: [{"role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}],
        _words,
    ),
    st.builds(lambda role, text: [{"role": role, "content": text}], st.sampled_from(["developer", "system"]), _words),
    st.builds(
        lambda texts: [
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": text} for text in texts],
            }
        ],
        st.lists(_words, min_size=1, max_size=2),
    ),
    st.just([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "zz"}]),
    st.builds(_call, st.sampled_from(["look_up", "note"]), _words, _status, _output, st.booleans()),
    st.just([{"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}]),
)
_directive = st.sampled_from(
    [
        "Hello.",
        "!TEXT one two three",
        "!REASON so it is",
        "!REASON so it is\n!TEXT four",
        '!REASON so\n!CALL look_up {"q": "x"}',
        '!CALL look_up {}\n!CALL ns::look_up {"q": [1]}',
        "!TEXT wait\n!CUSTOM note some text",
        "!REFUSE",
        "!INCOMPLETE",
        "!FAIL",
        "!COUNT 4",
    ]
)
_turns = st.lists(
    st.builds(
        lambda passages, directive, output, limit: Turn(
            [item for passage in passages for item in passage] + ([] if directive is None else [user(directive)]),
            output,
            limit,
        ),
        st.lists(_passages, max_size=3),
        _directive | st.none(),
        _output,
        st.none() | st.integers(1, 4),
    ),
    min_size=1,
    max_size=5,
)


@requirement("law:3:chain")
@both_stores
@given(turns=_turns, instructions=st.none() | _words)
@settings(max_examples=60, deadline=None)
def test_a_chain_gives_the_same_prompt_as_its_items_sent_inline(
    store: str, turns: list[Turn], instructions: str | None
) -> None:
    asyncio.run(_same_prompt(store, turns, instructions))


async def _same_prompt(store: str, turns: list[Turn], instructions: str | None) -> None:
    tools = [{"type": "function", "name": "look_up"}, {"type": "custom", "name": "note"}]
    with tempfile.TemporaryDirectory() as folder:
        async with inprocess_app(store=store, tmp_path=Path(folder), settings=Settings()) as app:
            sent: list[dict[str, Any]] = []
            previous: str | None = None
            opened: list[dict[str, Any]] = []
            for turn in turns:
                items = answers(opened, turn.output) + list(turn.items) or [user("Hello.")]
                response = await app.create(
                    items,
                    tools=tools,
                    previous_response_id=previous,
                    max_output_tokens=turn.limit,
                    instructions=f"Rule of {turn.limit}.",
                )
                previous, opened = response["id"], response["output"]
                sent += items + opened
            last = [*answers(opened, "done"), ECHO]
            chained = await _prompt(app, last, previous_response_id=previous, instructions=instructions)
            inline = await _prompt(app, sent + last, instructions=instructions)
            assert inline == chained
            listed = (
                await app.client.get(f"/responses/{previous}/input_items", params={"order": "asc", "limit": 100})
            ).json()
            assert not listed["has_more"]
            replayed = await _prompt(app, listed["data"] + opened + last, instructions=instructions)
            assert replayed == chained


async def _prompt(app: InProcess, items: Sequence[dict[str, Any]], **fields: Any) -> str:
    return (await app.create(list(items), **fields))["output_text"]

"""Summaries of thinking, written by the model itself when they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from antiphon.engines.base import PreparedTurn
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta
from antiphon.prompt.thoughts import is_thought_prompt
from support.inprocess import InProcess

requirement = pytest.mark.requirement

THINK = "!REASON one two three four five six\n!TEXT a b c"
SHORT = "SUMMARY: one two three four five"


def engine(api: InProcess) -> ScriptedEngine:
    (found,) = api.service.registry.engines
    assert isinstance(found, ScriptedEngine)
    return found


@requirement("reasoning:summary")
@pytest.mark.parametrize("wanted", ["auto", "concise", "detailed"])
async def test_a_summary_is_part_of_the_reasoning_item(api: InProcess, wanted: str):
    answer = await api.create(THINK, reasoning={"summary": wanted})
    thought, message = answer["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": SHORT}]
    assert thought["content"] == [{"type": "reasoning_text", "text": "one two three four five six"}]
    assert message["content"][0]["text"] == "a b c"
    assert answer["reasoning"]["summary"] == wanted


@requirement("reasoning:summary")
@pytest.mark.parametrize("reasoning", [None, {}, {"summary": None}, {"summary": "other"}, {"effort": "low"}])
async def test_there_is_none_where_none_is_asked_for(api: InProcess, reasoning: Any):
    answer = await api.create(THINK, reasoning=reasoning)
    assert answer["output"][0]["summary"] == []
    plain = await api.create("!TEXT a", reasoning={"summary": "auto"})
    assert [item["type"] for item in plain["output"]] == ["message"]


@requirement("reasoning:summary:events")
async def test_its_events_come_before_the_item_ends_and_before_what_follows(api: InProcess):
    events = await api.stream(THINK, reasoning={"summary": "auto"})
    kinds = [event["type"].removeprefix("response.") for event in events]
    first = kinds.index("reasoning_text.done")
    assert kinds[first : first + 8] == [
        "reasoning_text.done",
        "content_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
    ]
    assert all(event["summary_index"] == 0 for event in events if "summary" in event["type"])
    stored = await api.client.get(f"/responses/{events[-1]['response']['id']}")
    assert stored.json() == events[-1]["response"]


@requirement("reasoning:summary")
async def test_thinking_before_a_call_and_thinking_alone_are_summarized_too(api: InProcess):
    answer = await api.create("!REASON one two\n!CALL f {}", reasoning={"summary": "auto"})
    assert [item["type"] for item in answer["output"]] == ["reasoning", "function_call"]
    assert answer["output"][0]["summary"][0]["text"] == "SUMMARY: one two"
    twice = await api.create("!REASON one\n!TEXT a\n!REASON two\n!TEXT b", reasoning={"summary": "auto"})
    summaries = [item["summary"][0]["text"] for item in twice["output"] if item["type"] == "reasoning"]
    assert summaries == ["SUMMARY: one", "SUMMARY: two"]
    assert twice["output_text"] == "ab"


@requirement("reasoning:summary:limit")
async def test_thinking_that_a_limit_cut_has_none(api: InProcess):
    cut = await api.create(THINK, reasoning={"summary": "auto"}, max_output_tokens=3)
    assert (cut["status"], cut["output"][0]["status"], cut["output"][0]["summary"]) == ("incomplete", "incomplete", [])


@requirement("reasoning:summary:limit")
async def test_a_response_has_a_bounded_number_of_them(api: InProcess):
    text = "\n".join(f"!REASON thought {n}\n!TEXT t" for n in range(12))
    answer = await api.create(text, reasoning={"summary": "auto"})
    summaries = [bool(item["summary"]) for item in answer["output"] if item["type"] == "reasoning"]
    assert summaries == [True] * 8 + [False] * 4


@requirement("reasoning:summary:usage")
async def test_its_tokens_count_as_output(api: InProcess):
    plain = (await api.create(THINK))["usage"]
    told = (await api.create(THINK, reasoning={"summary": "auto"}))["usage"]
    assert told["output_tokens"] == plain["output_tokens"] + len(SHORT.split())
    assert told["input_tokens"] == plain["input_tokens"]
    assert told["output_tokens_details"] == plain["output_tokens_details"]


@requirement("reasoning:summary:beside")
async def test_an_answer_is_not_lost_where_its_thinking_cannot_be_summarized(
    api: InProcess, monkeypatch: pytest.MonkeyPatch
):
    generate = ScriptedEngine.generate

    async def failing(self: ScriptedEngine, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        if is_thought_prompt(turn.prompt.messages):
            raise EngineError("The engine failed.")
        async for deltas in generate(self, turn):
            yield deltas

    monkeypatch.setattr(ScriptedEngine, "generate", failing)
    answer = await api.create(THINK, reasoning={"summary": "auto"})
    assert (answer["status"], answer["output_text"], answer["output"][0]["summary"]) == ("completed", "a b c", [])


@requirement("reasoning:summary:beside")
async def test_a_summary_that_must_wait_for_the_answer_is_told_before_it_all_the_same(
    api: InProcess, monkeypatch: pytest.MonkeyPatch
):
    """As on an engine that generates one turn at a time: the summary gets its place when the answer has left it."""
    place = asyncio.Lock()
    generate = ScriptedEngine.generate

    async def one_at_a_time(self: ScriptedEngine, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        async with place:
            async for deltas in generate(self, turn):
                yield deltas

    monkeypatch.setattr(ScriptedEngine, "generate", one_at_a_time)
    events = await api.stream("!SLOW 5\n" + THINK, reasoning={"summary": "auto"})
    final = events[-1]["response"]
    assert (final["status"], final["output_text"]) == ("completed", "a b c")
    assert final["output"][0]["summary"][0]["text"] == SHORT
    kinds = [event["type"] for event in events]
    assert kinds.index("response.reasoning_summary_part.done") < kinds.index("response.output_text.delta")


@requirement("reasoning:summary:beside")
async def test_the_answer_streams_on_once_the_summary_is_written(api: InProcess, monkeypatch: pytest.MonkeyPatch):
    written = asyncio.Event()
    generate = ScriptedEngine.generate

    async def told(self: ScriptedEngine, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        thought = is_thought_prompt(turn.prompt.messages)
        count = 0
        async for deltas in generate(self, turn):
            yield deltas
            count += 1
            if not thought and count == 4:
                # The answer goes on only after its summary was written: they run beside each other.
                await asyncio.wait_for(written.wait(), 10)
        if thought:
            written.set()

    monkeypatch.setattr(ScriptedEngine, "generate", told)
    answer = await api.create("!SLOW 1\n!REASON one two\n!TEXT a b c d e f", reasoning={"summary": "auto"})
    assert (answer["output_text"], answer["output"][0]["summary"][0]["text"]) == ("a b c d e f", "SUMMARY: one two")


@requirement("reasoning:summary:beside")
async def test_a_client_that_leaves_ends_the_summary_too(api: InProcess, monkeypatch: pytest.MonkeyPatch):
    begun, ended = asyncio.Event(), asyncio.Event()
    generate = ScriptedEngine.generate

    async def endless(self: ScriptedEngine, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        if is_thought_prompt(turn.prompt.messages):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        async for deltas in generate(self, turn):
            yield deltas

    monkeypatch.setattr(ScriptedEngine, "generate", endless)
    asking = asyncio.create_task(api.create("!SLOW 1\n" + THINK, reasoning={"summary": "auto"}, store=True))
    await asyncio.wait_for(begun.wait(), 10)
    (run,) = api.service._runs.values()
    run.leave()
    await asyncio.wait_for(ended.wait(), 10)
    await asyncio.gather(asking, return_exceptions=True)
    kept = (await api.client.get(f"/responses/{run.id}")).json()
    assert kept["status"] == "cancelled"
    assert kept["output"][0]["summary"] == []


@requirement("reasoning:summary:encrypted")
async def test_a_summary_and_sealed_thinking_go_together(api: InProcess):
    answer = await api.create(
        THINK, reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"], store=False
    )
    thought = answer["output"][0]
    assert thought["summary"][0]["text"] == SHORT
    assert thought["encrypted_content"]
    again = [{"role": "user", "content": "x"}, thought, *answer["output"][1:]]
    assert "one two three four five six" in await api.echo(again, store=False)

"""The scripted engine does exactly what its directives say."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from antiphon.engines.base import Sampled
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import APIError, ContextOverflowError, EngineError
from antiphon.machine.deltas import (
    ReasoningDelta,
    RefusalDelta,
    Stop,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.prompt.dialects.base import CUSTOM_INPUT
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice, ToolCall
from antiphon.prompt.thoughts import summary_prompt
from antiphon.prompt.toolbox import toolbox
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import CustomTool, FunctionTool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = FunctionTool("weather", SCHEMA)
CLOCK = FunctionTool("clock")
SHELL = CustomTool("shell")
TOOLS = [WEATHER, CLOCK, SHELL]
NAMES = ("weather", "clock", "shell")


async def collect(messages: Any, **fields: Any) -> tuple[list[Any], Stop]:
    if isinstance(messages, str):
        messages = [ChatMessage("user", messages)]
    engine = ScriptedEngine()
    await engine.start()
    turn = await engine.prepare(Prompt(messages, **fields))
    deltas = [delta async for burst in engine.generate(turn) for delta in burst]
    return deltas[:-1], deltas[-1]


def text(deltas: list[Any]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def calls(deltas: list[Any]) -> list[tuple[str, str]]:
    made: list[tuple[str, str]] = []
    for delta in deltas:
        if isinstance(delta, ToolCallStart):
            made.append((delta.name, ""))
        elif isinstance(delta, ToolCallDelta):
            made[-1] = (made[-1][0], made[-1][1] + delta.text)
    return made


@pytest.mark.requirement("scripted:greeting")
async def test_without_a_directive_it_greets():
    deltas, stop = await collect("hi")
    assert text(deltas) == "Hello from scripted."
    assert stop.reason == "stop"
    assert stop.usage.output_tokens == len(deltas)


@pytest.mark.requirement("scripted:directives")
async def test_directives_run_in_order_and_each_delta_is_a_token():
    deltas, stop = await collect('!REASON two words\n!TEXT a b\n!CALL weather {"city":"Oslo"}\n!CUSTOM shell ls -l')
    assert [delta.text for delta in deltas if isinstance(delta, ReasoningDelta)] == ["two ", "words"]
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["a ", "b"]
    assert calls(deltas) == [("weather", '{"city":"Oslo"}'), ("shell", "ls -l")]
    assert sum(isinstance(delta, ToolCallDelta) for delta in deltas) > 3
    assert stop.usage.output_tokens == sum(not isinstance(delta, ToolCallStart) for delta in deltas)
    assert stop.usage.reasoning_tokens == 2


@pytest.mark.requirement("scripted:directives")
async def test_count_goes_from_one_to_n_with_a_delta_each():
    deltas, _ = await collect("!COUNT 5")
    assert [delta.text for delta in deltas] == ["1 ", "2 ", "3 ", "4 ", "5"]


@pytest.mark.requirement("scripted:directives")
async def test_a_namespaced_call_keeps_its_namespace():
    deltas, _ = await collect("!CALL ns::go {}")
    assert (deltas[0].namespace, deltas[0].name) == ("ns", "go")


CRM = {
    "type": "namespace",
    "name": "ns",
    "tools": [{"type": "function", "name": "go"}, {"type": "custom", "name": "n"}],
}


@pytest.mark.requirement("scripted:namespaces")
async def test_a_call_of_a_declared_namespace_is_made_by_its_flat_name_and_of_no_other():
    box = toolbox([CRM, WEATHER])
    fields: dict[str, Any] = {"tools": box.shown, "toolbox": box}
    fields["choice"] = ResolvedChoice("auto", tuple(tool.name for tool in box.shown))
    deltas, _ = await collect("!CALL ns::go {}\n!CUSTOM ns::n text\n!CALL ns::n more", **fields)
    starts = [delta for delta in deltas if isinstance(delta, ToolCallStart)]
    assert starts == [ToolCallStart("ns__go"), ToolCallStart("ns__n", custom=True), ToolCallStart("ns__n", custom=True)]
    for name in ("ns::stop", "other::go", "other::weather"):
        assert text((await collect(f"!CALL {name} {{}}", **fields))[0]) == "Hello from scripted."


@pytest.mark.requirement("scripted:namespaces", "scripted:directives")
async def test_tools_as_a_server_in_front_declares_them_are_called_by_the_same_directives():
    tools: list[Any] = [FunctionTool("ns__go"), FunctionTool("n", CUSTOM_INPUT), FunctionTool("ns__n", CUSTOM_INPUT)]
    choice = ResolvedChoice("auto", ("ns__go", "n", "ns__n"))
    said = '!CALL ns::go {}\n!CUSTOM n {text\n!CUSTOM ns::n "more"'
    deltas, _ = await collect(said, tools=tools, choice=choice)
    assert not any(delta.custom for delta in deltas if isinstance(delta, ToolCallStart))
    made = [(name, json.loads(arguments)) for name, arguments in calls(deltas)]
    assert made == [("ns__go", {}), ("n", {"input": "{text"}), ("ns__n", {"input": '"more"'})]


@pytest.mark.requirement("scripted:then")
async def test_what_comes_after_then_is_for_the_turns_after_the_outputs_of_calls():
    said = "!CALL weather {}\n!THEN\n!TEXT two\n!CALL clock {}\n!THEN\n!TEXT three"
    history = [ChatMessage("user", said)]
    assert calls((await collect(history))[0]) == [("weather", "{}")]
    history += [ChatMessage("assistant", "", tool_calls=(ToolCall("c", "weather", "{}"),))]
    history += [ChatMessage("tool", "12C", tool_call_id="c")]
    deltas, _ = await collect(history)
    assert (text(deltas), calls(deltas)) == ("two", [("clock", "{}")])
    history += [ChatMessage("assistant", "two", tool_calls=(ToolCall("d", "clock", "{}"),))]
    history += [ChatMessage("tool", "noon", tool_call_id="d")]
    assert text((await collect(history))[0]) == "three"
    history += [ChatMessage("assistant", "three"), ChatMessage("tool", "late", tool_call_id="e")]
    assert text((await collect(history))[0]) == "FINAL: late"
    assert text((await collect([*history, ChatMessage("user", "thanks")]))[0]) == "Hello from scripted."


@pytest.mark.requirement("scripted:budget")
@pytest.mark.parametrize(("budget", "thought"), [(None, "a b c"), (-1, "a b c"), (3, "a b c"), (2, "a b "), (0, "")])
async def test_it_thinks_within_its_budget_and_answers_all_the_same(budget: int | None, thought: str):
    for said in ("!REASON a b c\n!TEXT so", "!REASON a b c\n!CALL clock {}"):
        deltas, stop = await collect(said, thinking_budget=budget, tools=TOOLS, choice=ResolvedChoice("auto", NAMES))
        assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == thought
        assert (text(deltas), calls(deltas)) in (("so", []), ("", [("clock", "{}")]))
        assert stop.usage.reasoning_tokens == len(thought.split())


@pytest.mark.requirement("scripted:budget")
async def test_the_servers_budget_holds_where_the_request_names_none():
    engine = ScriptedEngine(reasoning_budget=1)
    await engine.start()
    for budget, count in ((None, 1), (2, 2), (-1, 3)):
        turn = await engine.prepare(Prompt([ChatMessage("user", "!REASON a b c")], thinking_budget=budget))
        deltas = [delta async for burst in engine.generate(turn) for delta in burst]
        assert sum(isinstance(delta, ReasoningDelta) for delta in deltas) == count


@pytest.mark.requirement("scripted:thought")
async def test_thinking_is_summed_up_by_its_first_words():
    prompt = summary_prompt("!TEXT one two three four five", 128, 1000)
    assert text((await collect(list(prompt.messages)))[0]) == "SUMMARY: !TEXT one two three four"


@pytest.mark.requirement("scripted:directives")
async def test_refusals_and_cuts_come_with_a_little_text_of_their_own():
    deltas, stop = await collect("!REFUSE")
    assert all(isinstance(delta, RefusalDelta) for delta in deltas)
    assert stop.reason == "stop"
    deltas, stop = await collect("!INCOMPLETE")
    assert text(deltas)
    assert stop.reason == "length"


@pytest.mark.requirement("scripted:limit")
@pytest.mark.parametrize("limit", [1, 2, 5, 6])
async def test_the_token_limit_cuts_after_that_many_deltas(limit):
    deltas, stop = await collect("!COUNT 5", max_output_tokens=limit)
    assert len(deltas) == min(limit, 5)
    assert stop.reason == ("length" if limit < 5 else "stop")


@pytest.mark.requirement("scripted:tool-output")
async def test_after_the_output_of_a_tool_it_repeats_the_output_and_obeys_no_older_directive():
    history = [
        ChatMessage("user", "!CALL weather {}"),
        ChatMessage("assistant", "", tool_calls=(ToolCall("c", "weather", "{}"),)),
        ChatMessage("tool", "12C\nsunny", tool_call_id="c"),
    ]
    deltas, _ = await collect(history)
    assert text(deltas) == "FINAL: 12C\nsunny"
    image = ChatMessage("user", [{"type": "image_url", "image_url": {"url": "x"}}])
    assert text((await collect([*history, image]))[0]) == "FINAL: 12C\nsunny"
    assert text((await collect([*history, ChatMessage("user", "thanks")]))[0]) == "Hello from scripted."


@pytest.mark.requirement("scripted:tool-output")
async def test_after_the_output_of_a_tool_a_format_and_a_forced_choice_still_hold():
    history = [ChatMessage("user", "!TEXT a"), ChatMessage("tool", "12C", tool_call_id="c")]
    form = TextFormat("json_schema", schema=SCHEMA)
    assert text((await collect(history, format=form))[0]) == '{"city":""}'
    forced = ResolvedChoice("required", ("clock",))
    assert calls((await collect(history, tools=TOOLS, choice=forced))[0]) == [("clock", "{}")]


@pytest.mark.requirement("scripted:directives")
@pytest.mark.parametrize(("said", "before"), [("!TEXT one\n!INCOMPLETE", "one"), ("!INCOMPLETE two", "two")])
async def test_a_cut_adds_text_of_its_own_only_where_there_is_none(said, before):
    deltas, stop = await collect(said)
    assert text(deltas) == before
    assert stop.reason == "length"


@pytest.mark.requirement("scripted:directives")
@pytest.mark.parametrize("said", ["!COUNT x", "!SLOW x", "!COUNT -1", "!NONSENSE", "text !TEXT a"])
async def test_what_is_no_directive_is_not_obeyed(said):
    assert text((await collect(said))[0]) == "Hello from scripted."


@pytest.mark.requirement("scripted:directives")
async def test_a_directive_is_bounded():
    deltas, _ = await collect("!COUNT 999999999999", max_output_tokens=3)
    assert text(deltas) == "1 2 3 "


@pytest.mark.requirement("scripted:directives")
async def test_a_call_of_a_declared_custom_tool_is_a_custom_call():
    deltas, _ = await collect("!CALL shell ls", tools=TOOLS, choice=ResolvedChoice("auto", NAMES))
    assert deltas[0] == ToolCallStart("shell", custom=True)


@pytest.mark.requirement("scripted:echo")
async def test_echo_shows_the_whole_prompt_as_chatml():
    history = [
        ChatMessage("system", "be brief"),
        ChatMessage("user", [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]),
        ChatMessage("assistant", "I see", "hm", (ToolCall("c", "f", '{"a":1}'),)),
        ChatMessage("tool", "r", tool_call_id="c"),
        ChatMessage("user", "!ECHO"),
    ]
    deltas, _ = await collect(history)
    assert text(deltas) == (
        "<|im_start|>system\nbe brief<|im_end|>\n"
        '<|im_start|>user\nsee\n{"type":"image_url","image_url":{"url":"x"}}<|im_end|>\n'
        "<|im_start|>assistant\n<think>hm</think>\nI see\n"
        '<tool_call>{"name":"f","arguments":"{\\"a\\":1}"}</tool_call><|im_end|>\n'
        "<|im_start|>tool\nr<|im_end|>\n"
        "<|im_start|>user\n!ECHO<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.requirement("scripted:choice")
@pytest.mark.parametrize(
    ("said", "choice", "expected"),
    [
        ("hi", ResolvedChoice("required", NAMES), [("weather", '{"city":""}')]),
        ("hi", ResolvedChoice("required", ("clock",)), [("clock", "{}")]),
        ("hi", ResolvedChoice("required", ("shell",)), [("shell", "a")]),
        ("!TEXT no", ResolvedChoice("required", ("clock",)), [("clock", "{}")]),
        ('!CALL clock {"a":1}', ResolvedChoice("required", NAMES), [("clock", '{"a":1}')]),
        ('!CALL weather {"a":1}', ResolvedChoice("required", ("clock",)), [("clock", "{}")]),
        ("!CALL weather {}", ResolvedChoice("none", ()), []),
        ("!CALL weather {}", ResolvedChoice("auto", ("clock",)), []),
        ("!CALL clock {}", ResolvedChoice("auto", ("clock",)), [("clock", "{}")]),
        ("hi", ResolvedChoice("auto", NAMES), []),
    ],
)
async def test_every_tool_choice_is_honoured(said, choice, expected):
    deltas, _ = await collect(said, tools=TOOLS, choice=choice)
    assert calls(deltas) == expected
    assert bool(text(deltas)) == (not expected)


@pytest.mark.requirement("scripted:choice")
async def test_thinking_stays_before_a_forced_call():
    deltas, _ = await collect("!REASON hm", tools=TOOLS, choice=ResolvedChoice("required", ("clock",)))
    assert isinstance(deltas[0], ReasoningDelta)
    assert calls(deltas) == [("clock", "{}")]


@pytest.mark.requirement("scripted:format")
@pytest.mark.parametrize(
    ("said", "form", "expected"),
    [
        ("hi", TextFormat("json_schema", schema=SCHEMA), '{"city":""}'),
        ("!TEXT prose", TextFormat("json_schema", schema=SCHEMA), '{"city":""}'),
        ("hi", TextFormat("json_object"), "{}"),
        ("hi", TextFormat("text"), "Hello from scripted."),
    ],
)
async def test_every_format_is_honoured(said, form, expected):
    assert text((await collect(said, format=form))[0]) == expected


@pytest.mark.requirement("scripted:format")
async def test_a_call_or_a_refusal_stands_beside_a_format():
    form = TextFormat("json_schema", schema=SCHEMA)
    assert calls((await collect("!CALL clock {}", format=form, tools=TOOLS, choice=ResolvedChoice("auto", NAMES)))[0])
    assert isinstance((await collect("!REFUSE", format=form))[0][0], RefusalDelta)


@pytest.mark.requirement("scripted:faults")
@pytest.mark.parametrize(("said", "before"), [("!FAIL", "This fails"), ("!CUT", "This breaks"), ("!STREAMERR", "")])
async def test_a_fault_comes_where_the_directive_says(said, before):
    engine = ScriptedEngine()
    turn = await engine.prepare(Prompt([ChatMessage("user", said)]))
    seen: list[Any] = []
    with pytest.raises(EngineError):
        async for burst in engine.generate(turn):
            seen += burst
    assert text(seen) == before


@pytest.mark.requirement("scripted:faults")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 429, 500, 502, 503])
async def test_an_http_error_is_raised_before_anything_is_generated(status):
    with pytest.raises(APIError) as caught:
        await collect(f"!ERR{status}")
    assert caught.value.http_status == status


@pytest.mark.requirement("scripted:faults")
@pytest.mark.parametrize("status", ["", "42", "204", "999"])
async def test_a_number_that_is_no_error_status_is_a_500(status):
    with pytest.raises(APIError) as caught:
        await collect(f"!ERR{status}")
    assert caught.value.http_status == 500


@pytest.mark.requirement("scripted:slow")
async def test_slow_pauses_between_deltas(monkeypatch):
    pauses: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    monkeypatch.setattr("antiphon.engines.scripted.asyncio.sleep", sleep)
    deltas, _ = await collect("!SLOW 5\n!COUNT 3")
    assert len(deltas) == 3
    assert pauses == [0.005] * 3


@pytest.mark.requirement("scripted:overflow")
async def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers():
    engine = ScriptedEngine(context_length=10)
    with pytest.raises(ContextOverflowError) as caught:
        await engine.prepare(Prompt([ChatMessage("user", "x" * 100)]))
    assert (caught.value.input_tokens, caught.value.context_length) == (26, 10)


@pytest.mark.requirement("scripted:overflow")
async def test_a_context_that_fills_up_ends_the_turn_by_length():
    engine = ScriptedEngine(context_length=10)
    turn = await engine.prepare(Prompt([ChatMessage("user", "!COUNT 30")]))
    deltas = [delta async for burst in engine.generate(turn) for delta in burst]
    assert deltas[-1].reason == "length"
    assert len(deltas) - 1 == 10 - turn.input_tokens


EVERYTHING = '!REASON two words\n!TEXT a b\n!CALL weather {"city":"Oslo"}\n!COUNT 80'


def sampled_after(bursts: list[list[Any]]) -> Sampled:
    """What was drawn when these bursts were yielded."""
    drawn = [delta for burst in bursts for delta in burst if not isinstance(delta, ToolCallStart | Stop)]
    thinking = sum(isinstance(delta, ReasoningDelta) for delta in drawn)
    return Sampled(list(range(len(drawn))), [delta.text for delta in drawn], len(drawn), thinking)


@pytest.mark.requirement("resume:scripted")
@pytest.mark.parametrize("said", [EVERYTHING, "!SLOW 0\n!COUNT 3", "!SLOW 1\n!COUNT 3"])
async def test_what_was_drawn_is_known_before_it_is_yielded(said):
    engine = ScriptedEngine()
    turn = await engine.prepare(Prompt([ChatMessage("user", said)]))
    bursts: list[list[Any]] = []
    async for burst in engine.generate(turn):
        bursts.append(list(burst))
        assert turn.sampled == sampled_after(bursts)


@pytest.mark.requirement("resume:scripted")
@pytest.mark.parametrize("limit", [None, 70])
async def test_a_turn_goes_on_from_what_was_drawn(limit):
    whole, stop = await collect(EVERYTHING, max_output_tokens=limit)
    engine = ScriptedEngine()
    for count in (0, 1, 5, 64, 65, stop.usage.output_tokens):
        turn = await engine.prepare(Prompt([ChatMessage("user", EVERYTHING)], max_output_tokens=limit))
        drawn = [delta for delta in whole if not isinstance(delta, ToolCallStart)][:count]
        turn.sampled = sampled_after([drawn])
        deltas = [delta async for burst in engine.generate(turn) for delta in burst]
        assert deltas == [*whole, stop]
        assert turn.sampled == sampled_after([whole])


@pytest.mark.requirement("resume:scripted")
async def test_what_was_drawn_comes_without_pauses(monkeypatch):
    pauses: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    monkeypatch.setattr("antiphon.engines.scripted.asyncio.sleep", sleep)
    engine = ScriptedEngine()
    turn = await engine.prepare(Prompt([ChatMessage("user", "!SLOW 5\n!COUNT 5")]))
    turn.sampled = Sampled([0, 1, 2], ["1 ", "2 ", "3 "], 3)
    bursts = [[delta.text for delta in burst if isinstance(delta, TextDelta)] async for burst in engine.generate(turn)]
    assert bursts == [["1 ", "2 ", "3 "], ["4 "], ["5"], []]
    assert pauses == [0.005] * 3


@pytest.mark.requirement("resume:constrained")
@pytest.mark.parametrize(
    ("fields", "constrained"),
    [
        ({}, False),
        ({"format": TextFormat("text")}, False),
        ({"format": TextFormat("json_schema", schema=SCHEMA)}, True),
        ({"tools": TOOLS, "choice": ResolvedChoice("required", ("clock",))}, True),
    ],
)
async def test_a_constrained_turn_starts_anew(fields, constrained):
    engine = ScriptedEngine()
    turn = await engine.prepare(Prompt([ChatMessage("user", "hi")], **fields))
    assert turn.constrained == constrained
    turn.sampled = Sampled([99], ["other"], 1)
    stop = [delta async for burst in engine.generate(turn) for delta in burst][-1]
    assert (turn.sampled.tokens == list(range(stop.usage.output_tokens))) == constrained


@pytest.mark.requirement("resume:scripted")
@pytest.mark.parametrize("said", ["!FAIL", "!CUT"])
async def test_a_fault_comes_again_in_the_turn_that_goes_on(said):
    engine = ScriptedEngine()
    turn = await engine.prepare(Prompt([ChatMessage("user", said)]))
    turn.sampled = Sampled([0], ["This "], 1)
    seen: list[Any] = []
    with pytest.raises(EngineError):
        async for burst in engine.generate(turn):
            seen += burst
    assert len(seen) == 2

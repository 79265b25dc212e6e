"""Turns under grammars over the real llama.cpp, with tiny models of random weights at temperature 1.

Such a model has no sense: what is valid is valid by the grammar alone.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from antiphon.engines.base import Sampled
from antiphon.engines.llamacpp.client import Client
from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.engines.llamacpp.wire import Chunk
from antiphon.errors import APIError, EngineError
from antiphon.machine.deltas import Delta, TextDelta, ToolCallStart
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice, Sampling
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import CustomTool, FunctionTool
from antiphon.settings import Settings
from support.grammars import accepts
from support.local_engine import GREEDY, ask, calls_of, collect, reasoning_of, running, stop_of, text_of
from support.tiny_gguf import HERMES

Make = Callable[..., Path]
Tool = FunctionTool | CustomTool

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "unit": {"enum": ["C", "F"]},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["city", "unit", "day"],
    "additionalProperties": False,
}
SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "queries": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 3},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "within": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
    },
    "required": ["queries", "limit", "within"],
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"path": {"type": "string", "pattern": "^/[a-z]{1,6}$"}},
            "required": ["path"],
        }
    },
}
LARK = 'start: N (("+" | "*") N){1,3}\nN: /[1-9][0-9]{0,2}/'
TOOLS: list[Tool] = [
    FunctionTool("get_weather", WEATHER),
    FunctionTool("search", SEARCH),
    FunctionTool("noop"),
    CustomTool("number", format={"type": "grammar", "syntax": "regex", "definition": "[0-9]{1,6}|0x[a-f]{1,4}"}),
    CustomTool("sum", format={"type": "grammar", "syntax": "lark", "definition": LARK}),
]
SCHEMAS = {tool.name: tool.parameters or {} for tool in TOOLS if isinstance(tool, FunctionTool)}


def hot(seed: int, text: str = "Hi", **fields: Any) -> Prompt:
    """A prompt at temperature 1."""
    sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
    return Prompt(**{"messages": [ChatMessage("user", text)], "sampling": sampling, **fields})


def forced(seed: int, tools: Sequence[Tool] = TOOLS, **fields: Any) -> Prompt:
    choice = ResolvedChoice("required", tuple(tool.name for tool in tools))
    return hot(seed, **{"tools": tools, "choice": choice, "parallel_tool_calls": False, **fields})


def check_call(name: str, text: str) -> None:
    """The input of a call is valid by what its tool declares."""
    if name in SCHEMAS:
        jsonschema_rs.validate(SCHEMAS[name], json.loads(text), validate_formats=True)
    elif name == "number":
        assert accepts("start: /[0-9]{1,6}|0x[a-f]{1,4}/", text)
    else:
        assert name == "sum"
        assert accepts(LARK, text)


@pytest.fixture
async def noise(tiny: Make) -> AsyncIterator[LlamaCppEngine]:
    async with running(tiny(template=HERMES)) as engine:
        yield engine


@pytest.mark.requirement("constrain:forced")
@pytest.mark.parametrize(("dialect", "control"), [("hermes", False), ("hermes", True), ("generic", False)])
async def test_every_forced_call_is_valid_at_temperature_1(tiny: Make, dialect: str, control: bool) -> None:
    names: Counter[str] = Counter()
    async with running(tiny(template=HERMES, control=control), dialect=dialect) as engine:
        for seed in range(40):
            deltas = await collect(engine, forced(seed))
            [(name, text)] = calls_of(deltas)
            assert (text_of(deltas), stop_of(deltas).reason) == ("", "stop")
            check_call(name, text)
            names[name] += 1
    assert len(names) > 2


@pytest.mark.requirement("constrain:forced")
async def test_a_named_choice_is_that_tool_and_several_calls_are_valid(noise: LlamaCppEngine) -> None:
    for name in ("search", "number", "sum"):
        prompt = forced(3, choice=ResolvedChoice("required", (name,)))
        [(called, text)] = calls_of(await collect(noise, prompt))
        assert called == name
        check_call(called, text)
    several = 0
    for seed in range(8):
        calls = calls_of(await collect(noise, forced(seed, parallel_tool_calls=True)))
        several += len(calls) > 1
        for name, text in calls:
            check_call(name, text)
    assert several


@pytest.mark.requirement("constrain:forced")
async def test_thinking_comes_before_a_forced_call(tiny: Make) -> None:
    script = ["<think>", "Hmm, ", "well.", "</think>", "\n\n"]
    async with running(tiny(script=script, template=HERMES)) as engine:
        turn = await engine.prepare(forced(1, TOOLS[2:3]))
        assert turn.constrained
        assert "You must call the 'noop' function." in turn.rendered
        deltas = await collect(engine, ask("Hi", tools=TOOLS[2:3], choice=ResolvedChoice("required", ("noop",))))
        assert reasoning_of(deltas) == "Hmm, well."
        assert calls_of(deltas)[0] == ("noop", "{}")
        assert text_of(deltas) == ""
        assert stop_of(deltas).usage.reasoning_tokens == 4
    open_template = HERMES.replace("assistant\n' }}", "assistant\n<think>\n' }}")
    async with running(tiny(script=script[1:], template=open_template)) as engine:
        deltas = await collect(engine, ask("Hi", tools=TOOLS[2:3], choice=ResolvedChoice("required", ("noop",))))
        assert (reasoning_of(deltas), calls_of(deltas)[0]) == ("Hmm, well.", ("noop", "{}"))


@pytest.mark.requirement("constrain:format")
async def test_a_format_is_held_to(noise: LlamaCppEngine) -> None:
    form = TextFormat("json_schema", name="search", schema=SEARCH)
    for seed in range(15):
        turn = await noise.prepare(hot(seed, format=form))
        assert turn.constrained
        text = text_of([delta async for deltas in noise.generate(turn) for delta in deltas])
        jsonschema_rs.validate(SEARCH, json.loads(text), validate_formats=True)
    anything = {"type": "object", "maxProperties": 3}
    for seed in range(5):
        deltas = await collect(noise, hot(seed, format=TextFormat("json_object"), max_output_tokens=400))
        if stop_of(deltas).reason == "stop":
            jsonschema_rs.validate({**anything, "maxProperties": 99}, json.loads(text_of(deltas)))


@pytest.mark.requirement("constrain:format")
async def test_the_schema_is_shown_to_the_model_and_nowhere_else(noise: LlamaCppEngine) -> None:
    form = TextFormat("json_schema", schema={"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})
    prompt = hot(1, format=form)
    turn = await noise.prepare(prompt)
    assert turn.rendered.startswith("<|im_start|>system\nAnswer with JSON of this schema")
    assert '"const":1' in turn.rendered
    assert turn.prompt.messages == prompt.messages
    with_tools = await noise.prepare(hot(1, format=form, tools=TOOLS, choice=ResolvedChoice("auto", ("noop",))))
    assert "If you call no function, answer with JSON" in with_tools.rendered


@pytest.mark.requirement("constrain:format")
async def test_a_format_with_tools_is_a_call_or_the_object(noise: LlamaCppEngine) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"]}
    form, seen = TextFormat("json_schema", schema=schema), Counter[str]()
    for seed in range(30):
        prompt = hot(seed, format=form, tools=TOOLS, choice=ResolvedChoice("auto", tuple(t.name for t in TOOLS)))
        deltas = await collect(noise, prompt)
        for name, text in calls_of(deltas):
            check_call(name, text)
        if not calls_of(deltas):
            jsonschema_rs.validate(schema, json.loads(text_of(deltas)))
        seen["call" if calls_of(deltas) else "object"] += 1
    assert set(seen) == {"call", "object"}


async def written(tiny: Make, script: Sequence[str], tools: Sequence[Tool], **fields: Any) -> list[Delta]:
    async with running(tiny(script=script, template=HERMES)) as engine:
        names = tuple(tool.name for tool in tools)
        return await collect(engine, ask("Hi", **{"tools": tools, "choice": ResolvedChoice("auto", names), **fields}))


@pytest.mark.requirement("constrain:auto")
async def test_a_free_call_is_bound_from_its_opening_and_text_goes_on_behind_it(tiny: Make) -> None:
    script = ["Let me see", ".\n", "<tool_call>", "</tool_call>", " Done", "."]
    tools = [FunctionTool("f", {"type": "object", "properties": {"a": {"const": "x"}}, "required": ["a"]})]
    deltas = await written(tiny, script, tools)
    assert (text_of(deltas), calls_of(deltas)) == ("Let me see.Done.", [("f", '{"a": "x"}')])
    kinds = [type(delta) for delta in deltas]
    assert kinds.index(TextDelta) < kinds.index(ToolCallStart) < len(kinds) - 1 - kinds[::-1].index(TextDelta)
    assert stop_of(deltas).reason == "stop"
    limited = await written(tiny, script, [FunctionTool("g"), *tools], choice=ResolvedChoice("auto", ("g",)))
    assert calls_of(limited) == [("g", "{}")]


@pytest.mark.requirement("constrain:auto")
async def test_free_calls_of_a_senseless_model_are_valid(tiny: Make) -> None:
    calls = 0
    async with running(tiny(script=["So", ":", "<tool_call>"], template=HERMES)) as engine:
        for seed in range(20):
            prompt = hot(seed, tools=TOOLS, choice=ResolvedChoice("auto", tuple(tool.name for tool in TOOLS)))
            deltas = await collect(engine, prompt)
            assert "<tool_call>" not in text_of(deltas)
            for name, text in calls_of(deltas):
                calls += 1
                check_call(name, text)
    assert calls >= 20


@pytest.mark.requirement("constrain:auto")
@pytest.mark.parametrize(
    ("script", "reasoning", "text"),
    [
        (["<think>", "I could ", "<tool_call>", " it.", "</think>", "No."], "I could <tool_call> it.", "No."),
        (["The tag `", "<tool_call>", "` begins", " a call."], "", "The tag `` begins a call."),
    ],
)
async def test_an_opening_in_thinking_or_in_quotes_opens_nothing(
    tiny: Make, script: list[str], reasoning: str, text: str
) -> None:
    deltas = await written(tiny, script, TOOLS[2:3])
    assert (reasoning_of(deltas), text_of(deltas), calls_of(deltas)) == (reasoning, text, [])


@pytest.mark.requirement("constrain:auto")
async def test_a_model_that_does_nothing_but_call_comes_to_an_end(tiny: Make) -> None:
    deltas = await written(tiny, ["<tool_call>", "</tool_call>"], TOOLS[2:3])
    assert len(calls_of(deltas)) == 1
    async with running(tiny(script=["<tool_call>", "</tool_call>"], endless=True, template=HERMES)) as engine:
        names = ResolvedChoice("auto", ("noop",))
        deltas = await collect(engine, ask("Hi", tools=TOOLS[2:3], choice=names))
        assert 16 <= len(calls_of(deltas)) < 24
        assert stop_of(deltas).reason == "stop"


@pytest.mark.requirement("constrain:auto")
async def test_what_is_told_of_text_before_an_opening_is_all_of_it(tiny: Make) -> None:
    # The opening begins in the middle of a token, and llama.cpp does not tell what stands before it there.
    script = ["On it.", "!\n<tool", "_call>", "</tool_", "call>", " ok"]
    tools = [FunctionTool("f", {"type": "object", "properties": {"a": {"const": "x"}}, "required": ["a"]})]
    deltas = await written(tiny, script, tools)
    assert text_of(deltas).startswith("On it.!")
    assert calls_of(deltas)[0] == ("f", '{"a": "x"}')


@pytest.mark.requirement("constrain:stop-words")
async def test_a_stop_word_cuts_text_and_no_call(tiny: Make) -> None:
    sampling = Sampling(temperature=0.0, stop=["{", "END"])
    script = ["A", "<tool_call>", "</tool_call>", " B", " END", " C"]
    deltas = await written(tiny, script, TOOLS[2:3], sampling=sampling)
    assert (text_of(deltas), calls_of(deltas)) == ("AB ", [("noop", "{}")])
    named = ResolvedChoice("required", ("noop",))
    deltas = await written(tiny, script[1:], TOOLS[2:3], sampling=sampling, choice=named, parallel_tool_calls=False)
    assert calls_of(deltas) == [("noop", "{}")]


@pytest.mark.requirement("constrain:cut")
async def test_a_limit_cuts_a_bound_turn_and_says_so(noise: LlamaCppEngine) -> None:
    for count in (1, 5, 9):
        deltas = await collect(noise, forced(1, max_output_tokens=count))
        assert (stop_of(deltas).reason, stop_of(deltas).usage.output_tokens) == ("length", count)


UNIQUE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2, "uniqueItems": True}
    },
    "required": ["n"],
}


@pytest.mark.requirement("constrain:retry")
@pytest.mark.parametrize("form", [False, True])
async def test_what_a_grammar_cannot_express_is_checked_and_drawn_once_more(noise: LlamaCppEngine, form: bool) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(24):
        prompt = (
            hot(seed, format=TextFormat("json_schema", schema=UNIQUE))
            if form
            else forced(seed, [FunctionTool("f", UNIQUE)])
        )
        turn = await noise.prepare(prompt)
        told: list[Delta] = []
        try:
            async for deltas in noise.generate(turn):
                told += deltas
        except EngineError as error:
            assert error.code == ("invalid_output" if form else "invalid_tool_call")
            assert told == []
            outcomes["failed"] += 1
        else:
            text = text_of(told) if form else calls_of(told)[0][1]
            jsonschema_rs.validate(UNIQUE, json.loads(text))
            outcomes["valid"] += 1
    # Half of all draws are valid, so three of four are with a second one.
    assert outcomes["valid"] > 12
    assert outcomes["failed"]


@pytest.mark.requirement("constrain:retry")
async def test_a_second_draw_differs_also_without_chance(
    noise: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: list[dict[str, Any]] = []
    completion = Client.completion

    async def seen(client: Client, body: dict[str, Any]) -> AsyncGenerator[Sequence[Chunk]]:
        bodies.append(body)
        async for chunks in completion(client, body):
            yield chunks

    monkeypatch.setattr(Client, "completion", seen)
    never = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "not": {"required": ["a"]}}
    with pytest.raises(EngineError) as caught:
        await collect(noise, ask("Hi", format=TextFormat("json_schema", schema=never)))
    assert caught.value.code == "invalid_output"
    assert len(bodies) == 2
    assert bodies[0]["temperature"] == 0.0
    assert bodies[1]["temperature"] > 0.5
    assert bodies[0]["seed"] != bodies[1]["seed"]


@pytest.mark.requirement("constrain:unbound")
@pytest.mark.parametrize("form", [False, True])
async def test_an_engine_that_forgets_its_grammar_is_found_out(
    noise: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch, form: bool
) -> None:
    completion = Client.completion

    def unbound(client: Client, body: dict[str, Any]) -> AsyncGenerator[Sequence[Chunk]]:
        return completion(client, {key: value for key, value in body.items() if key != "grammar"})

    monkeypatch.setattr(Client, "completion", unbound)
    prompt = hot(1, format=TextFormat("json_schema", schema=SEARCH)) if form else forced(1)
    turn = await noise.prepare(prompt)
    with pytest.raises(EngineError) as caught:
        async for _ in noise.generate(turn):
            pass
    assert caught.value.code == ("invalid_output" if form else "invalid_tool_call")


@pytest.mark.requirement("constrain:resume")
async def test_another_life_goes_on_behind_an_opening_and_draws_the_call_again(
    tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = [FunctionTool("f", {"type": "object", "properties": {"a": {"const": "x"}}, "required": ["a"]})]
    script = ["Well", ", ", "<tool_call>", "</tool_call>", " so", " be", " it."]
    completion = Client.completion
    async with running(tiny(script=script, template=HERMES)) as engine:
        prompt = ask("Hi", tools=tools, choice=ResolvedChoice("auto", ("f",)))
        turn = await engine.prepare(prompt)
        states: list[Sampled] = []

        async def one_by_one(client: Client, body: dict[str, Any]) -> AsyncGenerator[Sequence[Chunk]]:
            async for chunks in completion(client, body):
                for chunk in chunks:
                    yield [chunk]
                    drawn = turn.sampled
                    states.append(Sampled(list(drawn.tokens), list(drawn.text), drawn.generated, drawn.thinking))

        with monkeypatch.context() as patch:
            patch.setattr(Client, "completion", one_by_one)
            told = [delta async for some in engine.generate(turn) for delta in some]
        assert calls_of(told) == [("f", '{"a": "x"}')]
        assert text_of(told) == "Well,so be it."
        ends = {"".join(state.text) for state in states}
        assert "Well, <tool_call>" in ends
        assert not any("<tool_call>" in end and "</tool_call>" not in end for end in ends - {"Well, <tool_call>"})
        for state in states:
            again = await engine.prepare(prompt)
            again.sampled = state
            deltas = [delta async for some in engine.generate(again) for delta in some]
            assert (calls_of(deltas), text_of(deltas)) == (calls_of(told), text_of(told))
            assert stop_of(deltas).usage.output_tokens == stop_of(told).usage.output_tokens


@pytest.mark.requirement("constrain:resume")
async def test_bound_turns_that_have_to_make_room_are_whole_all_the_same(tiny: Make) -> None:
    long = {"type": "object", "properties": {"t": {"type": "string", "minLength": 250}}, "required": ["t"]}
    settings = Settings(threads=1, slots=4, context_length=512)
    async with running(tiny(template=HERMES), settings=settings) as engine:
        prompts = [forced(seed, [FunctionTool("f", long)], max_output_tokens=220, sampling=GREEDY) for seed in range(6)]
        alone = [await collect(engine, prompt) for prompt in prompts[:1]]
        together = await asyncio.gather(*(collect(engine, prompt) for prompt in prompts))
        assert calls_of(together[0])[0][0] == calls_of(alone[0])[0][0] == "f"
        for deltas in together:
            name, text = calls_of(deltas)[0]
            assert name == "f"
            if stop_of(deltas).reason == "stop":
                jsonschema_rs.validate(long, json.loads(text))


@pytest.mark.requirement("constrain:attack:engine")
@pytest.mark.parametrize(
    "definition",
    [
        'start: "a" start',
        "start: /((a{1,1000}){1,1000}){1,1000}/",
        "start: /(x+x+)+y/",
        "start: /(.*a.{1,200})+/",
        'start: "<tool_call>" start | "<|im_end|>"',
        "start: x0\n" + "\n".join(f"x{n}: x{n + 1} x{n + 1}" for n in range(20)) + '\nx20: "a"',
    ],
    ids=("endless", "repeats", "nested", "ambiguous", "markers", "doubling"),
)
async def test_a_grammar_that_is_read_but_hostile_harms_only_its_own_turn(
    noise: LlamaCppEngine, definition: str
) -> None:
    tool = CustomTool("c", format={"type": "grammar", "syntax": "lark", "definition": definition})
    outcome = ""
    try:
        deltas = await asyncio.wait_for(collect(noise, forced(1, [tool], max_output_tokens=60)), 30)
        outcome = stop_of(deltas).reason
    except APIError as error:
        outcome = error.code or ""
    assert outcome in ("stop", "length", "invalid_tool_call", "invalid_grammar")
    assert noise.restarts == 0
    assert calls_of(await collect(noise, forced(1, TOOLS[2:3]))) == [("noop", "{}")]

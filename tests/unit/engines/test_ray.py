"""Engines on other nodes, with the actors in this process: what travels, and what happens when one is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, get_args

import msgspec
import pytest

from antiphon.engines.base import Capabilities, Engine, PreparedTurn, Sampled
from antiphon.engines.ray import actor as actor_module
from antiphon.engines.ray import wire
from antiphon.engines.ray.engine import Actor, Group, RayEngine
from antiphon.engines.replicas.engine import ReplicatedEngine
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import (
    APIError,
    ConfigurationError,
    ContextOverflowError,
    DivergedError,
    EngineError,
    EngineUnavailableError,
    InvalidRequestError,
    UnsupportedError,
)
from antiphon.machine import deltas as kinds
from antiphon.machine.deltas import Delta, Stop, TextDelta, TokenUsage
from antiphon.prompt.growing import Chained
from antiphon.prompt.prompt import Affinity, ChatMessage, Prompt, ResolvedChoice, Sampling, ToolCall
from antiphon.prompt.toolbox import toolbox
from antiphon.protocol.parts import Logprob, TopLogprob
from antiphon.protocol.request import TextFormat
from antiphon.protocol.sampling import Samplers
from antiphon.protocol.tools import CustomTool, FunctionTool
from support.near_actor import NearActor

OPTIONS = wire.EngineOptions(path="/models/tiny.gguf", name="tiny", seconds=0.05)
WORDS = [f"{number} " for number in range(1, 21)]


class Counting(Engine):
    """Writes numbers, each a token; goes on from what was drawn, and can be held or broken."""

    name = "counting"

    def __init__(self, mark: str = "counting") -> None:
        self.mark = mark
        self.loaded = self.closed = False
        self.fault: Exception | None = None
        self.go = asyncio.Event()
        self.go.set()
        self.holds_at = 0
        self.ended = asyncio.Event()
        self.begun: list[int] = []

    @property
    def ready(self) -> bool:
        return self.loaded

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(4096, logprobs=True)

    @property
    def fingerprint(self) -> str:
        return self.mark

    async def start(self) -> None:
        if self.fault is not None:
            raise self.fault
        self.loaded = True

    async def close(self) -> None:
        self.closed = True

    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        if self.fault is not None:
            raise self.fault
        return PreparedTurn(prompt, len(prompt.messages))

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        drawn = turn.sampled
        self.begun.append(drawn.generated)
        try:
            if drawn.text:
                yield [TextDelta("".join(drawn.text))]
            while drawn.generated < len(WORDS):
                if drawn.generated == self.holds_at:
                    await self.go.wait()
                word = WORDS[drawn.generated]
                drawn.tokens.append(drawn.generated)
                drawn.text.append(word)
                drawn.generated += 1
                yield [TextDelta(word)]
                await asyncio.sleep(0)
            yield [Stop("stop", TokenUsage(turn.input_tokens, drawn.generated))]
        finally:
            self.ended.set()


def near(engine: Engine) -> NearActor:
    return NearActor(OPTIONS, engine)


def engine_over(actor: Actor, group: Group | None = None, number: int = 0, **options: Any) -> RayEngine:
    return RayEngine("tiny", actor, group or Group("tiny", 1), number, load_timeout=5.0, **options)


def prompt(text: str = "!TEXT one two three", **fields: Any) -> Prompt:
    return Prompt(messages=[ChatMessage("user", text)], **fields)


def logged() -> list[Any]:
    """The errors that the loop is told of, which it logs where nobody asks for them."""
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context.get("exception")))
    return told


async def collected(engine: Engine, turn: PreparedTurn) -> list[Delta]:
    async with aclosing(engine.generate(turn)) as stream:
        return [delta async for deltas in stream for delta in deltas]


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def until(condition: Callable[[], bool]) -> Any:
    async def wait() -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)

    return wait()


@pytest.mark.requirement("ray:wire")
def test_a_prompt_travels_whole() -> None:
    tools = [
        FunctionTool("f", {"type": "object"}, defer_loading=False),
        CustomTool("c", format={"type": "text"}),
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "x", "parameters": {}}]},
        {"type": "web_search"},
    ]
    box = toolbox(tools)
    messages = [
        ChatMessage("user", [{"type": "text", "text": "look"}, {"type": "input_image", "image_url": "data:,"}]),
        ChatMessage("assistant", "", "thought", (ToolCall("a", "f", "{}", made=True),)),
        ChatMessage("tool", "out", tool_call_id="a", name="f"),
    ]
    given = Prompt(
        messages=Chained([messages[:1], messages[1:]]),
        tools=box.shown,
        toolbox=box,
        choice=ResolvedChoice("required", ("f",)),
        parallel_tool_calls=False,
        format=TextFormat("json_schema", name="s", schema={"type": "object"}),
        sampling=Sampling(temperature=0.5, seed=3, stop=("x",), samplers=Samplers(logit_bias=((5, -1.0),))),
        max_output_tokens=7,
        reasoning_effort="low",
        thinking_budget=9,
        template_kwargs={"a": [1, None]},
        template_defaults={"b": True},
        media=frozenset({"image"}),
        affinity=Affinity("k", "s"),
    )
    read = wire.decode_prompt(wire.encode_prompt(given))
    assert read.toolbox == box
    assert msgspec.json.encode(list(read.messages)) == msgspec.json.encode(messages)
    assert wire.encode_prompt(read) == wire.encode_prompt(given)
    # A field that a prompt gets later travels too.
    assert wire._Prompt.__struct_fields__ == Prompt.__struct_fields__


@pytest.mark.requirement("ray:wire")
def test_deltas_of_every_kind_travel() -> None:
    logprob = Logprob(
        token="a", logprob=-0.5, bytes=[97], top_logprobs=[TopLogprob(token="b", logprob=-1.0, bytes=[98])]
    )
    given: list[Delta] = [
        TextDelta("text", [logprob]),
        TextDelta("plain"),
        kinds.ReasoningDelta("thought"),
        kinds.RefusalDelta("no"),
        kinds.ToolCallStart("f", custom=True, namespace="n"),
        kinds.ToolCallDelta("{}"),
        kinds.RawItemDelta({"type": "x", "list": [1, None]}, begins=True),
        Stop("length", TokenUsage(1, 2, 3, 4)),
    ]
    assert set(wire._DELTAS.values()) == set(get_args(Delta))
    batch = wire.Batch(wire.packed(given), wire.Drawn([1], ["a"], 1, 0))
    assert wire.deltas_of(wire.answered(wire.answer(batch), wire.Batch)) == given


@pytest.mark.requirement("ray:wire")
@pytest.mark.parametrize(
    "error",
    [
        InvalidRequestError("bad", param="input", code="template_error"),
        UnsupportedError("no", param="tools"),
        ContextOverflowError(10, 5, estimated=True),
        EngineError("broken", code="content_filter"),
        EngineUnavailableError("away", retry_after=3.0),
    ],
)
def test_an_error_travels_with_all_that_a_caller_sees(error: APIError) -> None:
    with pytest.raises(type(error)) as raised:
        wire.answered(wire.refusal(error), int)
    found = raised.value
    assert (found.body(), found.http_status, found.retry_after) == (error.body(), error.http_status, error.retry_after)


@pytest.mark.requirement("ray:wire")
def test_an_error_of_another_kind_is_one_of_the_engine() -> None:
    with pytest.raises(ConfigurationError, match="no file"):
        wire.answered(wire.refusal(ConfigurationError("no file")), int)
    with pytest.raises(EngineError, match="something else"):
        wire.answered(wire.refusal(DivergedError("it said something else")), int)
    with pytest.raises(EngineError) as raised:
        wire.answered(wire.refusal(RuntimeError("/a/path")), int)
    assert "/a/path" not in raised.value.message


@pytest.mark.requirement("ray:engine")
async def test_an_engine_elsewhere_is_asked_as_one_that_is_here() -> None:
    here = ScriptedEngine(4096, -1)
    events: list[str] = []
    engine = engine_over(near(ScriptedEngine(4096, -1)), on_event=lambda name, event, _: events.append(event))
    await engine.start()
    assert await engine.wait_ready(5)
    assert engine.capabilities == here.capabilities
    for text in ("!TEXT one two three", '!REASON hm\n!CALL f {"a": 1}'):
        asked = prompt(text, tools=[FunctionTool("f")], choice=ResolvedChoice("auto", ("f",)))
        turn, same = await engine.prepare(asked), await here.prepare(asked)
        assert turn.input_tokens == same.input_tokens
        assert await collected(engine, turn) == await collected(here, same)
    raw, same = await engine.prepare_text("go on", Sampling(), 5), await here.prepare_text("go on", Sampling(), 5)
    assert await collected(engine, raw) == await collected(here, same)
    tokens = await engine.tokenize("one two", add_special=False, parse_special=False)
    assert tokens == await here.tokenize("one two", add_special=False, parse_special=False)
    assert await engine.detokenize([token.id for token in tokens]) == "one two"
    assert not await engine.forget_prefixes()
    with pytest.raises(TypeError):
        await collected(engine, same)
    await engine.close()
    assert events == ["reachable"]
    assert not engine.ready


@pytest.mark.requirement("ray:engine")
async def test_a_refusal_and_a_fault_come_as_they_are_there() -> None:
    there = Counting()
    engine = engine_over(near(there))
    await engine.start()
    turn = await engine.prepare(prompt())
    there.fault = ContextOverflowError(9, 5)
    with pytest.raises(ContextOverflowError):
        await engine.prepare(prompt())
    with pytest.raises(UnsupportedError):
        await engine.tokenize("x", add_special=False, parse_special=False)
    there.fault = None

    async def broken(turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        yield [TextDelta("a")]
        raise EngineError("it broke")

    there.generate = broken
    deltas: list[Delta] = []
    with pytest.raises(EngineError, match="it broke"):
        async for some in engine.generate(turn):
            deltas += some
    assert deltas == [TextDelta("a")]
    await engine.close()


@pytest.mark.requirement("ray:engine")
async def test_what_was_drawn_is_known_here_as_it_comes() -> None:
    there = Counting()
    there.holds_at = 5
    there.go.clear()
    actor = near(there)
    engine = engine_over(actor)
    await engine.start()
    turn = await engine.prepare(prompt())
    stream = engine.generate(turn)
    text = ""
    while len(text.split()) < 5:
        text += text_of(await anext(stream))
    assert turn.sampled == Sampled(list(range(5)), WORDS[:5], 5)
    there.go.set()
    async for deltas in stream:
        text += text_of(deltas)
    assert text == "".join(turn.sampled.text) == "".join(WORDS)
    # It may be prepared here and generated where it was not.
    again = await engine.prepare(prompt())
    actor.actor._prepared.clear()
    assert text_of(await collected(engine, again)) == text
    await engine.close()


@pytest.mark.requirement("ray:engine")
async def test_an_engine_that_begins_a_turn_anew_says_so() -> None:
    class Anew(Counting):
        async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
            turn.sampled.clear()
            async with aclosing(super().generate(turn)) as stream:
                async for deltas in stream:
                    yield deltas

    engine = engine_over(near(Anew()))
    await engine.start()
    turn = await engine.prepare(prompt())
    turn.sampled = Sampled([7, 8], ["x", "y"], 2)
    assert text_of(await collected(engine, turn)) == "".join(WORDS)
    assert turn.sampled == Sampled(list(range(len(WORDS))), WORDS, len(WORDS))
    await engine.close()


@pytest.mark.requirement("ray:lost")
@pytest.mark.parametrize("after", [1, 2, 7])
async def test_a_turn_goes_on_at_another_engine(after: int) -> None:
    there = [Counting(), Counting()]
    actors = [near(engine) for engine in there]
    group = Group("tiny", 2)
    engine = ReplicatedEngine("tiny", [engine_over(actor, group, n) for n, actor in enumerate(actors)])
    await engine.start()
    await until(lambda: all(each.ready for each in engine.engines))
    turn = await engine.prepare(prompt(affinity=Affinity("k")))
    first = engine.placement.preferred("k", [0, 1])[0]
    actors[first].breaks_after = after
    deltas = await collected(engine, turn)
    assert text_of(deltas) == "".join(WORDS)
    assert [type(delta) for delta in deltas].count(Stop) == 1
    assert turn.sampled.generated == len(WORDS)
    assert there[1 - first].begun[0] > 0
    assert not engine.engines[first].ready
    await engine.close()


@pytest.mark.requirement("ray:lost")
async def test_a_lost_engine_is_asked_again_when_it_is_back() -> None:
    actor = near(Counting())
    events: list[str] = []
    engine = engine_over(actor, on_event=lambda name, event, _: events.append(event))
    await engine.start()
    await until(lambda: engine.ready)
    actor.lost = True
    with pytest.raises(EngineUnavailableError):
        await engine.prepare(prompt())
    assert not engine.ready
    assert not await engine.wait_ready(0.01)
    actor.lost = False
    assert await engine.wait_ready(5)
    assert events == ["reachable", "unreachable", "reachable"]
    await engine.close()


@pytest.mark.requirement("ray:leaving")
async def test_a_reader_that_leaves_ends_the_turn_there() -> None:
    there = Counting()
    there.holds_at = 5
    there.go.clear()
    actor = near(there)
    engine = engine_over(actor)
    await engine.start()
    stream = engine.generate(await engine.prepare(prompt()))
    await anext(stream)
    assert await actor.actor.working() == 1
    await stream.aclose()
    await asyncio.wait_for(there.ended.wait(), 5)
    assert await actor.actor.working() == 0
    await engine.close()


@pytest.mark.requirement("ray:server-gone", "ray:unused")
async def test_turns_of_a_server_that_is_gone_end_and_the_engine_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actor_module, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(actor_module, "AWAY_SECONDS", 0.05)
    left = asyncio.Event()
    monkeypatch.setattr(actor_module, "_end_actor", left.set)
    there = Counting()
    there.holds_at = 5
    there.go.clear()
    actor = near(there).actor
    assert not wire.answered(await actor.attend("one"), wire.Facts).ready
    asked = wire.encode(wire.Asked("t", "one", wire.encode_prompt(prompt())))
    batches = [batch async for batch in actor.generate(asked)]
    assert there.ended.is_set()
    assert text_of([delta for batch in batches for delta in wire.deltas_of(wire.answered(batch, wire.Batch))])
    await asyncio.wait_for(left.wait(), 5)
    assert there.closed


@pytest.mark.requirement("ray:start")
async def test_a_model_that_no_node_can_load_ends_the_start() -> None:
    broken = [Counting(), Counting()]
    for each in broken:
        each.fault = ConfigurationError("The model cannot be loaded: no such file.")
    group = Group("tiny", 2)
    engines = [engine_over(near(each), group, number) for number, each in enumerate(broken)]
    for result in await asyncio.gather(*(engine.start() for engine in engines), return_exceptions=True):
        assert isinstance(result, ConfigurationError)
        assert "no such file" in str(result)
    for engine in engines:
        await engine.close()


@pytest.mark.requirement("ray:start")
async def test_one_node_that_can_load_the_model_is_enough() -> None:
    broken, well = Counting(), Counting()
    broken.fault = ConfigurationError("no such file")
    group, told = Group("tiny", 2), []
    engine = ReplicatedEngine(
        "tiny",
        [
            engine_over(near(each), group, n, on_event=lambda name, event, fields: told.append((event, dict(fields))))
            for n, each in enumerate((broken, well))
        ],
    )
    await engine.start()
    await until(lambda: engine.ready)
    await until(lambda: ("load_failed", {"reason": "no such file"}) in told)
    assert engine.capabilities == well.capabilities
    assert text_of(await collected(engine, await engine.prepare(prompt()))) == "".join(WORDS)
    broken.fault = None
    await until(lambda: all(each.ready for each in engine.engines))
    assert len(told) == 3
    await engine.close()


@pytest.mark.requirement("ray:start")
async def test_an_engine_whose_start_breaks_in_its_own_way_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.engines.ray.engine._RETRY_SECONDS", 0.001)
    logged()
    counting = Counting()
    started, faults = counting.start, [OSError("no memory"), EngineError("It broke.")]

    async def start() -> None:
        if faults:
            raise faults.pop()
        await started()

    monkeypatch.setattr(counting, "start", start)
    engine = engine_over(near(counting))
    await engine.start()
    assert await engine.wait_ready(5)
    assert not faults
    await engine.close()


@pytest.mark.requirement("ray:start")
async def test_an_error_that_nobody_expected_is_one_of_the_request_and_in_the_log_of_the_node() -> None:
    told = logged()
    counting = Counting()
    engine = engine_over(near(counting))
    await engine.start()
    assert await engine.wait_ready(5)
    counting.fault = ValueError("a secret")
    with pytest.raises(EngineError) as raised:
        await engine.prepare(prompt())
    assert type(raised.value) is EngineError
    assert "secret" not in raised.value.message
    assert engine.ready
    assert told == [counting.fault]
    await engine.close()


@pytest.mark.requirement("ray:start")
async def test_a_cluster_without_room_ends_the_start() -> None:
    actor = near(Counting())
    actor.lost = True
    engine = RayEngine("tiny", actor, Group("tiny", 1), 0, load_timeout=0.05)
    with pytest.raises(ConfigurationError, match="ray status"):
        await engine.start()
    await engine.close()

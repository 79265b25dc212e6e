"""Whether llama.cpp obeys grammars, and what holds where it does not, with tiny models and the real llama.cpp."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from antiphon.engines.llamacpp.client import Client
from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.engines.llamacpp.wire import Chunk
from antiphon.errors import EngineError, UnsupportedError
from antiphon.http.telemetry import Telemetry
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt, ResolvedChoice
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import CustomTool, FunctionTool
from antiphon.runtime.rules import check_choice
from support.families import FAMILIES, model_of
from support.local_engine import ask, calls_of, collect, running, stop_of, text_of, until
from support.tiny_gguf import HERMES

Make = Callable[..., Path]

CALL = ["<tool_call>", '\n{"name": "f', '", "arguments": {"ci', 'ty": "Os', "lo!", '"}}\n', "</tool_call>"]
REAL = Client.completion


def tool(city: str = "Oslo!") -> FunctionTool:
    return FunctionTool("f", {"type": "object", "properties": {"city": {"const": city}}, "required": ["city"]})


def free(*tools: FunctionTool | CustomTool, **fields: Any) -> Prompt:
    return ask("Hi", tools=tools, choice=ResolvedChoice("auto", tuple(tool.name for tool in tools)), **fields)


class Deaf:
    """A llama.cpp that knows no grammars, by the real one; it ignores them, or it dies of them."""

    def __init__(self, *, dies: bool = False) -> None:
        self.dies = dies
        self.grammars: list[str] = []

    def install(self, patch: pytest.MonkeyPatch) -> Deaf:
        deaf = self

        async def completion(client: Client, body: Mapping[str, Any]) -> AsyncGenerator[Sequence[Chunk]]:
            if "grammar" in body:
                deaf.grammars.append(body["grammar"])
                if deaf.dies:
                    kill_children()
            asked = {key: value for key, value in body.items() if key != "grammar"}
            async with contextlib.aclosing(REAL(client, asked)) as stream:
                async for chunks in stream:
                    yield chunks

        patch.setattr(Client, "completion", completion)
        return self


def kill_children() -> None:
    for child in psutil.Process().children():
        if "antiphon.engines.llamacpp.child" in child.cmdline():
            child.kill()
            child.wait()


class Told:
    """The events of an engine that speak of grammars."""

    def __init__(self) -> None:
        self.fields: list[Mapping[str, Any]] = []

    def __call__(self, model: str, event: str, fields: Mapping[str, Any]) -> None:
        if event == "grammars_not_obeyed":
            self.fields.append(fields)


async def assert_nothing_is_enforced(engine: LlamaCppEngine) -> None:
    capabilities = engine.capabilities
    assert not capabilities.forced_tools
    assert capabilities.formats == {"text"}
    forced = ResolvedChoice("required", ("f",))
    with pytest.raises(UnsupportedError, match="forced tool call cannot be enforced") as caught:
        check_choice(forced, capabilities)
    assert caught.value.param == "tool_choice"
    with pytest.raises(UnsupportedError, match="forced tool call cannot be enforced"):
        await engine.prepare(ask("Hi", tools=[tool()], choice=forced))
    for form in (TextFormat("json_object"), TextFormat("json_schema", schema={"type": "object"})):
        with pytest.raises(UnsupportedError, match="cannot be enforced") as caught:
            await engine.prepare(ask("Hi", format=form))
        assert caught.value.param == "text.format.type"
    grammar = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}
    with pytest.raises(UnsupportedError, match="grammar of custom tool 'c' cannot be enforced") as caught:
        await engine.prepare(free(tool(), CustomTool("c", format=grammar)))
    assert caught.value.param == "tools[1].format"


@pytest.mark.requirement("engine:grammars")
async def test_the_real_one_obeys(tiny: Make) -> None:
    told = Told()
    for options in ({"template": HERMES}, {"add_bos": True}, {"script": ["Well", ", then."], "control": True}):
        async with running(tiny(**options), on_event=told) as engine:
            assert engine.capabilities.forced_tools
            assert "json_schema" in engine.capabilities.formats
    assert told.fields == []


@pytest.mark.requirement("engine:grammars:told")
def test_an_operator_is_told() -> None:
    telemetry = Telemetry()
    with capture_logs() as logs:
        telemetry.engine_event("small", "grammars_not_obeyed", {"refused": "forced calls"})
    [line] = logs
    assert line == {
        "event": "engine grammars_not_obeyed",
        "log_level": "warning",
        "model": "small",
        "refused": "forced calls",
    }
    counted = 'antiphon:engine_events_total{event="grammars_not_obeyed",model_name="small"} 1.0'
    assert counted in telemetry.exposition().decode()


@pytest.mark.requirement("engine:grammars:refused", "engine:grammars:told")
async def test_what_cannot_be_enforced_is_refused(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    told, deaf = Told(), Deaf().install(monkeypatch)
    async with running(tiny(script=["Well", ", then."], template=HERMES), on_event=told) as engine:
        await assert_nothing_is_enforced(engine)
        assert [list(fields) for fields in told.fields] == [["refused"]]
        deltas = await collect(engine, free(tool(), CustomTool("c"), format=TextFormat("text")))
        assert (text_of(deltas), stop_of(deltas).reason) == ("Well, then.", "stop")
        # Only the question itself had a grammar.
        assert len(deaf.grammars) == 1


@pytest.mark.requirement("engine:grammars:checked")
async def test_free_calls_are_checked_when_they_are_made(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    Deaf().install(monkeypatch)
    async with running(tiny(script=["On it.\n", *CALL], template=HERMES)) as engine:
        deltas = await collect(engine, free(tool()))
        assert calls_of(deltas) == [("f", '{"city": "Oslo!"}')]
        assert stop_of(deltas).reason == "stop"
        turn = await engine.prepare(free(tool("Rome")))
        told: list[Delta] = []
        with pytest.raises(EngineError, match="call of 'f' is not valid") as caught:
            async for some in engine.generate(turn):
                told += some
        assert caught.value.code == "invalid_tool_call"
        assert "On it.".startswith(text_of(told))
        cut = await collect(engine, free(tool("Rome"), max_output_tokens=stop_of(deltas).usage.output_tokens - 4))
        assert stop_of(cut).reason == "length"


@pytest.mark.requirement("engine:grammars:lives")
async def test_every_life_is_asked(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    async with running(tiny(template=HERMES), on_event=told) as engine:
        assert engine.capabilities.forced_tools
        with monkeypatch.context() as patch:
            deaf = Deaf().install(patch)
            kill_children()
            await until(lambda: engine.restarts == 1, "a new child")
            await assert_nothing_is_enforced(engine)
            assert len(deaf.grammars) == len(told.fields) == 1
        kill_children()
        await until(lambda: engine.restarts == 2, "another child")
        assert engine.capabilities.forced_tools
        forced = ask("Hi", tools=[tool()], choice=ResolvedChoice("required", ("f",)), parallel_tool_calls=False)
        [call] = calls_of(await collect(engine, forced))
        assert json.loads(call[1]) == {"city": "Oslo!"}
        assert len(told.fields) == 1


@pytest.mark.requirement("engine:grammars:lives")
async def test_one_that_dies_of_grammars_is_asked_twice_and_serves(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    told, deaf = Told(), Deaf(dies=True).install(monkeypatch)
    async with running(tiny(script=["Well", ", then."], template=HERMES), on_event=told) as engine:
        await assert_nothing_is_enforced(engine)
        assert text_of(await collect(engine, free(tool()))) == "Well, then."
        assert len(deaf.grammars) == 2
        assert len(told.fields) == 1


@pytest.mark.requirement("engine:grammars")
@pytest.mark.parametrize("family", ["harmony", "kimi", "llama3"])
async def test_a_family_that_ends_turns_in_a_way_of_its_own_obeys_too(family: str, tmp_path: Path) -> None:
    async with running(model_of(FAMILIES[family], tmp_path)) as engine:
        assert engine.capabilities.forced_tools

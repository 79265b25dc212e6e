"""One model on several engines: where turns go, and how the loss of an engine is outlived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engines.base import Capabilities, Engine, EngineLostError, PreparedTurn
from antiphon.engines.replicas import engine as replicated
from antiphon.engines.replicas.engine import ReplicatedEngine, replica_hook
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import ConfigurationError, EngineError, EngineUnavailableError
from antiphon.machine.deltas import Delta, Stop
from antiphon.prompt.prompt import Affinity, ChatMessage, Prompt
from antiphon.prompt.toolbox import NO_TOOLS

TEXT = '!REASON Let me see what this is.\n!TEXT One two three four five six.\n!CALL f {"a": "a long argument"}'


class Mortal(ScriptedEngine):
    """A scripted engine that is lost after so many lists of deltas, once for each number in `dies`."""

    def __init__(self, *, continues: bool = False, dies: Sequence[int] = (), context: int = 4096) -> None:
        super().__init__(context, -1)
        self.continues = continues
        self.dies = list(dies)
        self.begun: list[str] = []
        self.up = asyncio.Event()
        self.up.set()
        self.media = frozenset({"image"})
        self.model = "one"

    @property
    def fingerprint(self) -> str:
        return self.model

    @property
    def ready(self) -> bool:
        return self.up.is_set()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(super().capabilities.context_length, media=self.media, forced_tools=True)

    async def wait_ready(self, seconds: float) -> bool:
        return await self.up.wait()

    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        if not self.ready:
            raise EngineUnavailableError("away")
        return await super().prepare(prompt)

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        self.begun.append(turn.prompt.affinity.key)
        left = self.dies.pop(0) if self.dies else -1
        if not left:
            raise EngineLostError("lost")
        async with aclosing(super().generate(turn)) as stream:
            async for deltas in stream:
                for delta in deltas:
                    yield [delta]
                    left -= 1
                    if not left:
                        raise EngineLostError("lost")


def prompt(text: str = TEXT, key: str = "k") -> Prompt:
    return Prompt([ChatMessage("user", text)], toolbox=NO_TOOLS, affinity=Affinity(key))


async def told(engine: Engine, asked: Prompt) -> list[Delta]:
    turn = await engine.prepare(asked)
    async with aclosing(engine.generate(turn)) as stream:
        return [delta async for deltas in stream for delta in deltas]


def joined(deltas: Sequence[Delta]) -> list[Any]:
    """Deltas with their texts joined, whatever the cuts."""
    pieces: list[Any] = []
    for delta in deltas:
        text = getattr(delta, "text", None)
        if text is not None and pieces and pieces[-1][0] is type(delta):
            pieces[-1][1] += text
        else:
            pieces.append([type(delta), text if text is not None else delta])
    return pieces


def home(engine: ReplicatedEngine, key: str = "k") -> int:
    return engine.placement.preferred(key, range(len(engine.engines)))[0]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "_PAUSE", 0)


@pytest.mark.requirement("routing:sticks", "routing:keyless")
async def test_a_history_goes_to_one_engine_and_what_has_none_to_each_in_turn():
    engines = [Mortal() for _ in range(4)]
    engine = ReplicatedEngine("m", engines)
    for _ in range(8):
        await told(engine, prompt(key="one"))
    assert sorted(len(replica.begun) for replica in engines) == [0, 0, 0, 8]
    for _ in range(4):
        await told(engine, prompt(key=""))
    assert sorted(len(replica.begun) for replica in engines) == [1, 1, 1, 9]
    assert engine.placement.in_flight == [0, 0, 0, 0]


@pytest.mark.requirement("routing:failover")
async def test_a_turn_that_is_lost_before_its_first_delta_is_begun_elsewhere_once_on_each():
    events: list[tuple[str, Mapping[str, Any]]] = []
    engines = [Mortal(dies=[0]) for _ in range(3)]
    engine = ReplicatedEngine("m", engines, on_event=lambda _, event, fields: events.append((event, fields)))
    first, second, _ = engine.placement.preferred("k", range(3))
    engines[second].dies.clear()
    deltas = await told(engine, prompt())
    assert isinstance(deltas[-1], Stop)
    assert all(len(replica.begun) <= 1 for replica in engines)
    stays = home(engine)
    assert events == [("failed_over", {"replica": first}), ("moved", {"replica": stays})]
    assert stays == second
    await told(engine, prompt())
    assert len(engines[stays].begun) == 2
    for replica in engines:
        replica.dies, replica.begun = [0], []
    with pytest.raises(EngineLostError):
        await told(engine, prompt())
    assert [len(replica.begun) for replica in engines] == [1, 1, 1]
    assert engine.placement.in_flight == [0, 0, 0]


@pytest.mark.requirement("routing:failover")
async def test_a_turn_that_is_lost_later_ends_where_engines_cannot_go_on():
    engines = [Mortal(dies=[3]), Mortal(dies=[3])]
    engine = ReplicatedEngine("m", engines)
    with pytest.raises(EngineLostError):
        await told(engine, prompt())
    assert sorted(len(replica.begun) for replica in engines) == [0, 1]


@pytest.mark.requirement("routing:goes-on")
@given(st.lists(st.integers(0, 12), max_size=3), st.lists(st.integers(0, 12), max_size=3), st.booleans())
async def test_a_turn_goes_on_elsewhere_and_tells_nothing_twice(one: list[int], other: list[int], logprobs: bool):
    asked = prompt()
    whole = await told(Mortal(), asked)
    engine = ReplicatedEngine("m", [Mortal(continues=True, dies=one), Mortal(continues=True, dies=other)])
    assert joined(await told(engine, asked)) == joined(whole)
    assert engine.placement.in_flight == [0, 0]


@pytest.mark.requirement("routing:goes-on")
async def test_a_turn_that_kills_every_engine_ends():
    engine = ReplicatedEngine("m", [Mortal(continues=True, dies=[4] * 30), Mortal(continues=True, dies=[4] * 30)])
    with pytest.raises(EngineLostError):
        await told(engine, prompt("!COUNT 100"))


@pytest.mark.requirement("routing:goes-on")
async def test_a_turn_is_gone_on_with_by_no_other_model():
    engines = [Mortal(continues=True, dies=[4]), Mortal(continues=True, dies=[4])]
    engine = ReplicatedEngine("m", engines)
    turn = await engine.prepare(prompt())
    first = home(engine)
    stream = engine.generate(turn)
    await anext(stream)
    engines[1 - first].model = "another"
    with pytest.raises(EngineLostError):
        async for _ in stream:
            engines[first].up.clear()
    assert not engines[1 - first].begun


@pytest.mark.requirement("routing:goes-on", "routing:ready")
async def test_a_turn_that_has_begun_waits_for_an_engine_to_come_back():
    engines = [Mortal(continues=True, dies=[4]), Mortal(continues=True, dies=[4])]
    engine = ReplicatedEngine("m", engines)
    first = home(engine)
    engines[1 - first].up.clear()
    engines[1 - first].dies.clear()
    turn = await engine.prepare(prompt("!COUNT 9"))
    deltas: list[Delta] = []
    async with aclosing(engine.generate(turn)) as stream:
        async for some in stream:
            deltas += some
            if len(deltas) == 4:
                engines[first].up.clear()
                asyncio.get_running_loop().call_soon(engines[1 - first].up.set)
    assert joined(deltas)[0][1] == " ".join(map(str, range(1, 10)))
    assert len(engines[1 - first].begun) == 1


@pytest.mark.requirement("routing:ready")
async def test_it_is_ready_as_long_as_one_is():
    engines = [Mortal(), Mortal()]
    engine = ReplicatedEngine("m", engines)
    await engine.start()
    engines[home(engine)].up.clear()
    assert engine.ready
    assert await engine.wait_ready(0)
    assert (await engine.detokenize([104, 105])) == "hi"
    assert isinstance((await told(engine, prompt()))[-1], Stop)
    for replica in engines:
        replica.up.clear()
    assert not engine.ready
    with pytest.raises(EngineUnavailableError):
        await engine.prepare(prompt())
    turn = await Mortal().prepare(prompt())
    with pytest.raises(EngineError):
        await anext(engine.generate(turn))
    waiting = asyncio.create_task(engine.wait_ready(60))
    await asyncio.sleep(0)
    engines[1].up.set()
    assert await waiting
    await engine.close()


class Starting(Mortal):
    """One that cannot be used, and cannot be closed either, or starts for ever; `seen` is what has ended."""

    def __init__(self, fault: Exception | None, seen: list[str]) -> None:
        super().__init__()
        self.fault = fault
        self.seen = seen

    async def start(self) -> None:
        if self.fault is not None:
            raise self.fault
        try:
            await asyncio.Event().wait()
        finally:
            self.seen.append("start")

    async def close(self) -> None:
        if self.fault is not None:
            raise self.fault
        await asyncio.sleep(0.001)
        self.seen.append("close")


@pytest.mark.requirement("routing:ready")
async def test_no_replica_starts_on_where_another_cannot_be_used():
    seen: list[str] = []
    engine = ReplicatedEngine("m", [Starting(None, seen), Starting(ConfigurationError("no model"), seen)])
    with pytest.raises(ConfigurationError):
        await engine.start()
    assert seen == ["start"]
    with pytest.raises(ConfigurationError):
        await engine.close()
    assert seen == ["start", "close"]


@pytest.mark.requirement("routing:meet")
async def test_it_does_what_all_of_them_do():
    engines = [Mortal(context=4096), Mortal(context=2048)]
    engines[0].media = frozenset({"image", "audio"})
    engine = ReplicatedEngine("m", engines)
    assert engine.capabilities == Capabilities(2048, media=frozenset({"image"}), forced_tools=True)
    assert engine.fingerprint == engines[0].fingerprint
    assert not engine.continues
    assert not engine.keeps_prefixes
    assert not await engine.forget_prefixes()
    with pytest.raises(ConfigurationError):
        ReplicatedEngine("m", [Mortal(), ScriptedEngine(1, -1)])


@pytest.mark.requirement("routing:meet")
def test_what_happens_to_a_replica_is_told_with_its_number():
    events: list[tuple[str, str, Mapping[str, Any]]] = []
    hook = replica_hook(lambda *event: events.append(event), 3)
    assert hook is not None
    hook("m", "unreachable", {"a": 1})
    assert events == [("m", "unreachable", {"a": 1, "replica": 3})]
    assert replica_hook(None, 3) is None

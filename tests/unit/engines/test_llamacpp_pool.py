"""How turns share the one key-value cache of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engines.llamacpp.pool import TokenPool
from antiphon.engines.llamacpp.turn import TurnReader
from antiphon.engines.llamacpp.wire import Chunk
from antiphon.machine.deltas import Stop, TextDelta, TokenUsage
from antiphon.machine.reasoning import ReasoningSplitter
from antiphon.prompt.dialects import CallParser
from antiphon.settings import Settings
from support.local_engine import all_idle, ask, collect, running, stop_of, text_of, until

Make = Callable[..., Path]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.requirement("engine:pool:admission")
async def test_turns_start_in_order_when_they_fit() -> None:
    pool = TokenPool(100, 3, margin=5)
    first = await pool.acquire(60)
    big, small = asyncio.create_task(pool.acquire(50)), asyncio.create_task(pool.acquire(10))
    await settle()
    assert pool.waiting == 2, "the small one does not overtake"
    pool.release(first)
    assert (await big).shared
    assert (await small).tokens == 10
    assert not first.shared
    assert pool.used == 60


@pytest.mark.requirement("engine:pool:admission")
async def test_slots_are_a_limit_and_a_waiting_turn_can_leave() -> None:
    pool = TokenPool(1000, 1, margin=0)
    first = await pool.acquire(1)
    leaving, staying = asyncio.create_task(pool.acquire(1)), asyncio.create_task(pool.acquire(1))
    await settle()
    leaving.cancel()
    await settle()
    pool.release(first)
    pool.release(first)
    assert not (await staying).shared
    assert pool.waiting == 0
    late = asyncio.create_task(pool.acquire(1))
    await settle()
    pool.release(staying.result())
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert pool.used == 0, "a share that arrives at a turn that has just left is given back"


@pytest.mark.requirement("engine:pool:step-back")
async def test_the_youngest_steps_back_and_comes_first() -> None:
    pool = TokenPool(100, 3, margin=10)
    old, young = await pool.acquire(30), await pool.acquire(30)
    other = asyncio.create_task(pool.acquire(70))
    pool.grow(old, 55)
    assert not young.step_back
    pool.grow(old, 61)
    assert young.step_back
    assert not old.step_back
    pool.release(young)
    again = asyncio.create_task(pool.acquire(31, first=True))
    await settle()
    pool.grow(old, 99)
    assert not old.step_back, "alone it has the whole cache"
    pool.release(old)
    assert (await again).tokens == 31
    assert not other.done()
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


@pytest.mark.requirement("engine:pool:admission")
@given(sizes=st.lists(st.integers(1, 120), min_size=1, max_size=20), slots=st.integers(1, 4))
def test_every_turn_gets_its_share(sizes: list[int], slots: int) -> None:
    async def run() -> None:
        pool = TokenPool(100, slots, margin=3)

        async def turn(size: int) -> None:
            share = await pool.acquire(size)
            assert pool.used <= 100 or not share.shared
            await asyncio.sleep(0)
            pool.release(share)

        await asyncio.gather(*(turn(size) for size in sizes))
        assert pool.used == pool.waiting == 0

    asyncio.run(run())


@pytest.mark.requirement("engine:pool:step-back")
async def test_turns_that_outgrow_the_cache_together_all_finish(tiny: Make) -> None:
    path = tiny(script=["tick, ", "tock. "], endless=True)
    async with running(path, settings=Settings(threads=1, slots=4, context_length=1024)) as engine:
        prompts = [ask(f"{n} " * 60, max_output_tokens=701) for n in range(4)]
        for deltas in await asyncio.gather(*(collect(engine, prompt) for prompt in prompts)):
            stop = stop_of(deltas)
            assert (stop.reason, stop.usage.output_tokens) == ("length", 701)
            assert text_of(deltas) == "tick, tock. " * 350 + "tick, "
        await until(lambda: all_idle(engine), "all slots are free")


@pytest.mark.requirement("engine:pool:step-back")
def test_a_turn_goes_on_with_the_tokens_that_it_has() -> None:
    reader = TurnReader(ReasoningSplitter(), CallParser({}, "<a>", "</a>"), input_tokens=3)
    reader.read([Chunk(content="a", tokens=[5], tokens_predicted=1)])
    assert reader.resume() == ([5], "a")
    reader.read([Chunk(content="é", tokens=[7], tokens_predicted=2)])
    assert reader.resume() == (None, "aé"), "llama.cpp tells only the last token of a cut character"
    assert reader.generated == 3
    deltas = reader.read(
        [Chunk(content="b", tokens_predicted=1), Chunk(stop=True, stop_type="eos", tokens_predicted=1)]
    )
    assert deltas == [TextDelta("b"), Stop("stop", TokenUsage(3, 4))]

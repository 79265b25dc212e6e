"""Help for tests with the real llama.cpp."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.machine.deltas import Delta, ReasoningDelta, Stop, TextDelta, ToolCallDelta, ToolCallStart
from antiphon.prompt.prompt import ChatMessage, Prompt, Sampling
from antiphon.settings import Settings

DEADLINE = 30.0
"""Seconds after which a condition that did not come true fails a test."""

GREEDY = Sampling(temperature=0.0)


def ask(text: str, **fields: Any) -> Prompt:
    """A prompt of one user message, sampled without chance."""
    return Prompt(**{"messages": [ChatMessage("user", text)], "sampling": GREEDY, **fields})


async def collect(engine: LlamaCppEngine, prompt: Prompt) -> list[Delta]:
    """All deltas of one turn."""
    turn = await engine.prepare(prompt)
    return [delta async for deltas in engine.generate(turn) for delta in deltas]


def text_of(deltas: Sequence[Delta]) -> str:
    """The answer's text."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def reasoning_of(deltas: Sequence[Delta]) -> str:
    """The thinking."""
    return "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))


def calls_of(deltas: Sequence[Delta]) -> list[tuple[str, str]]:
    """Each call's name and arguments."""
    calls: list[tuple[str, str]] = []
    for delta in deltas:
        if isinstance(delta, ToolCallStart):
            calls.append((delta.name, ""))
        elif isinstance(delta, ToolCallDelta):
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.text)
    return calls


def stop_of(deltas: Sequence[Delta]) -> Stop:
    """The stop, which must be the last delta and the only one."""
    assert [type(delta) for delta in deltas].count(Stop) == 1
    last = deltas[-1]
    assert isinstance(last, Stop)
    return last


async def until(condition: Callable[[], Awaitable[bool] | bool], what: str) -> None:
    """Wait until a condition holds; fail after the deadline."""
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                held = condition()
                if held if isinstance(held, bool) else await held:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"{what}: not within {DEADLINE:g} s")


async def all_idle(engine: LlamaCppEngine) -> bool:
    """Whether no slot works."""
    return not any(slot["is_processing"] for slot in await engine.slots())


@contextlib.asynccontextmanager
async def running(path: Path, *, settings: Settings | None = None, **options: Any) -> AsyncGenerator[LlamaCppEngine]:
    """A started engine with one thread."""
    engine = LlamaCppEngine(path, settings or Settings(threads=1), **options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()

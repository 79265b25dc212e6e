"""A budget of thinking at the real llama.cpp: free turns, forced calls, resumption."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.engines.base import Sampled
from antiphon.prompt.prompt import Prompt, ResolvedChoice, Sampling
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import FunctionTool
from antiphon.settings import Settings
from support.local_engine import ask, calls_of, collect, reasoning_of, running, stop_of, text_of
from support.tiny_gguf import HERMES

Make = Callable[..., Path]
requirement = pytest.mark.requirement

PRIMED = HERMES.replace("assistant\n' }}", "assistant\n<think>\n' }}")
TOOL = FunctionTool("f", {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})
MARKER = 4
"""Tokens of an end marker with the line breaks around it, at most."""


def hot(seed: int = 3, **fields: Any) -> Prompt:
    """A question whose answer is noise, of which no end of thinking is to be hoped for."""
    sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
    return ask("Hello", **{"sampling": sampling, "max_output_tokens": 40, **fields})


@requirement("thinking:budget", "subset:M29")
@pytest.mark.parametrize("control", [False, True])
async def test_thinking_ends_where_its_budget_does(tiny: Make, control: bool) -> None:
    async with running(tiny(template=PRIMED, control=control)) as engine:
        free = await collect(engine, hot())
        assert not text_of(free)
        for budget in (1, 5, 20):
            deltas = await collect(engine, hot(thinking_budget=budget))
            usage = stop_of(deltas).usage
            # A token that ends amid a character waits for the rest of it.
            assert budget <= usage.reasoning_tokens <= budget + 3 + MARKER
            assert text_of(deltas)
            assert "</think>" not in text_of(deltas) + reasoning_of(deltas)
            assert reasoning_of(free).startswith(reasoning_of(deltas))
            assert usage.output_tokens == 40
        unlimited = await collect(engine, hot(thinking_budget=-1))
        assert reasoning_of(unlimited) == reasoning_of(free)


@requirement("thinking:budget:none")
async def test_a_budget_of_nothing_ends_thinking_at_once(tiny: Make) -> None:
    async with running(tiny(template=PRIMED)) as engine:
        deltas = await collect(engine, hot(thinking_budget=0))
        assert (reasoning_of(deltas), stop_of(deltas).usage.reasoning_tokens) == ("", 0)
        assert text_of(deltas)
        again = stop_of(await collect(engine, hot(thinking_budget=0))).usage
        assert again.cached_tokens > 0
    async with running(tiny(script=["<think>", "Hm, ", "well", "</think>", "Yes"]), settings=NONE) as engine:
        assert reasoning_of(await collect(engine, ask("Hello", max_output_tokens=12))) == ""
        deltas = await collect(engine, ask("Hello", thinking_budget=2, max_output_tokens=12))
        assert reasoning_of(deltas) == "Hm,"


NONE = Settings(threads=1, reasoning_budget=0)


@requirement("thinking:budget:bound")
@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("budget", [0, 1, 6])
async def test_a_forced_call_and_an_object_come_after_bounded_thinking(tiny: Make, control: bool, budget: int) -> None:
    forced: dict[str, Any] = {"tools": [TOOL], "choice": ResolvedChoice("required", ["f"])}
    whole = {**(TOOL.parameters or {}), "additionalProperties": False}
    schema = TextFormat(type="json_schema", schema=whole)
    async with running(tiny(template=PRIMED, control=control)) as engine:
        for seed in range(3):
            asked: dict[str, Any] = {"thinking_budget": budget, "max_output_tokens": 160, "parallel_tool_calls": False}
            deltas = await collect(engine, hot(seed, **forced, **asked))
            assert calls_of(deltas)[0] == ("f", '{"a": 1}')
            assert len(reasoning_of(deltas)) <= budget * 24
            assert stop_of(deltas).usage.reasoning_tokens <= budget + 12
            made = await collect(engine, hot(seed, format=schema, **asked))
            assert text_of(made) == '{"a": 1}'


@requirement("thinking:budget:resume")
async def test_a_turn_with_a_budget_goes_on_as_it_would_have(tiny: Make) -> None:
    script = ["one ", "two ", "three ", "four ", "five "]
    async with running(tiny(template=PRIMED, script=script, endless=True)) as engine:
        prompt = ask("Hello", thinking_budget=6, max_output_tokens=20)
        states = {0: Sampled()}
        whole: list[Any] = []
        # A busy machine hands on many tokens at once, and others in each try.
        for _ in range(10):
            turn = await engine.prepare(prompt)
            whole = []
            async for deltas in engine.generate(turn):
                whole += deltas
                states[turn.sampled.generated] = copy.deepcopy(turn.sampled)
            if len(states) > 10:
                break
        assert len(states) > 3
        assert reasoning_of(whole) == "one two three four five one"
        assert text_of(whole)
        for state in states.values():
            again = await engine.prepare(prompt)
            again.sampled = copy.deepcopy(state)
            drawn = [delta async for deltas in engine.generate(again) for delta in deltas]
            assert (text_of(drawn), reasoning_of(drawn)) == (text_of(whole), reasoning_of(whole))
            ours, theirs = stop_of(drawn).usage, stop_of(whole).usage
            assert (ours.output_tokens, ours.reasoning_tokens) == (theirs.output_tokens, theirs.reasoning_tokens)

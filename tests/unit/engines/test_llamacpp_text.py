"""Bare text on the real llama.cpp: prompts without a template, tokens both ways, and what is no token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.errors import ContextOverflowError, EngineUnavailableError, InvalidRequestError
from antiphon.machine.deltas import Delta
from antiphon.protocol.completions import RawPrompt
from antiphon.settings import Settings
from support import tiny_gguf
from support.local_engine import GREEDY, calls_of, reasoning_of, running, stop_of, text_of, until

requirement = pytest.mark.requirement


async def go_on(engine: LlamaCppEngine, prompt: RawPrompt, tokens: int = 8) -> list[Delta]:
    """The deltas of a text that goes on where the prompt ends."""
    turn = await engine.prepare_text(prompt, GREEDY, tokens)
    return [delta async for deltas in engine.generate(turn) for delta in deltas]


@requirement("engine:text")
async def test_a_text_goes_on_where_the_prompt_ends(tiny: Callable[..., Path]) -> None:
    pieces = ["\n", "Once", " upon", " a", " time"]
    async with running(tiny(script=pieces[1:])) as engine:
        turn = await engine.prepare_text("\n", GREEDY, 20)
        assert turn.input_tokens == 1
        deltas = await go_on(engine, "\n", 20)
        assert text_of(deltas) == "Once upon a time"
        assert stop_of(deltas).usage.output_tokens == 5
        cut = await go_on(engine, "\n", 2)
        assert (text_of(cut), stop_of(cut).reason) == ("Once upon", "length")
        tokens = [token.id for token in await engine.tokenize("\nOnce", add_special=True, parse_special=True)]
        assert text_of(await go_on(engine, tokens, 2)) == " upon a"


@requirement("engine:text")
async def test_nothing_of_bare_text_is_thinking_or_a_call(tiny: Callable[..., Path]) -> None:
    written = ["<think>", "hm", "</think>", "<tool_call>", '{"name":"f","arguments":{}}', "</tool_call>"]
    async with running(tiny(template=tiny_gguf.HERMES, script=written)) as engine:
        deltas = await go_on(engine, "\n", 20)
        assert text_of(deltas) == "".join(written)
        assert (reasoning_of(deltas), calls_of(deltas)) == ("", [])
        assert stop_of(deltas).usage.reasoning_tokens == 0


@requirement("engine:text:empty", "subset:M7")
@pytest.mark.parametrize("add_bos", [False, True])
async def test_an_empty_prompt_is_what_texts_begin_with(tiny: Callable[..., Path], add_bos: bool) -> None:
    async with running(tiny(add_bos=add_bos)) as engine:
        turn = await engine.prepare_text("", GREEDY, 4)
        assert await engine.detokenize(list(turn.tokens)) == "<|endoftext|>"
        assert stop_of([delta async for deltas in engine.generate(turn) for delta in deltas]).usage.output_tokens > 0


@requirement("engine:text:errors")
async def test_a_prompt_that_cannot_be_is_refused_before_anything_is_generated(tiny: Callable[..., Path]) -> None:
    async with running(tiny(), settings=Settings(threads=1, context_length=256)) as engine:
        for tokens in ([100_000], [1, 2**31 - 1]):
            with pytest.raises(InvalidRequestError) as caught:
                await engine.prepare_text(tokens, GREEDY, 4)
            assert caught.value.param == "prompt"
            with pytest.raises(InvalidRequestError) as caught:
                await engine.detokenize(tokens)
            assert caught.value.param == "tokens"
        for long in ("word " * 300, [1] * 256):
            with pytest.raises(ContextOverflowError) as overflow:
                await engine.prepare_text(long, GREEDY, 4)
            assert overflow.value.context_length == 256
        fits = await engine.prepare_text([1] * 250, GREEDY, 100)
        deltas = [delta async for deltas in engine.generate(fits) for delta in deltas]
        assert stop_of(deltas).usage.output_tokens <= 6
        assert engine.restarts == 0


@requirement("engine:tokens")
async def test_tokens_are_the_model_s_own_and_their_bytes_are_the_text(tiny: Callable[..., Path]) -> None:
    text = "Hi 🙂, 東京 <|im_end|>\n"
    async with running(tiny(add_bos=True)) as engine:
        plain = await engine.tokenize(text, add_special=False, parse_special=False)
        assert b"".join(token.piece for token in plain).decode() == text
        assert await engine.detokenize([token.id for token in plain]) == text
        special = await engine.tokenize(text, add_special=True, parse_special=True)
        pieces = [token.piece for token in special]
        assert pieces[0] == b"<|endoftext|>"
        assert b"<|im_end|>" in pieces
        assert len(special) < len(plain)
        assert await engine.tokenize("", add_special=False, parse_special=True) == []
        assert await engine.detokenize([]) == ""


@requirement("engine:text:errors")
async def test_a_dead_child_is_a_503_until_the_next_one_answers(tiny: Callable[..., Path]) -> None:
    async with running(tiny()) as engine:
        child = engine._supervisor.require()
        child.kill("a test")
        await child.wait()
        with pytest.raises(EngineUnavailableError):
            await engine.tokenize("Hi", add_special=False, parse_special=False)
        await until(lambda: engine.ready, "the restart")
        assert await engine.tokenize("Hi", add_special=False, parse_special=False)

"""A turn of the local engine goes on from what an earlier life of it has drawn."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engines.base import Sampled
from antiphon.engines.llamacpp.client import Client
from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.engines.llamacpp.identity import fingerprint
from antiphon.engines.llamacpp.turn import TurnReader
from antiphon.engines.llamacpp.wire import Candidate, Chunk
from antiphon.machine.deltas import Delta, ReasoningDelta, Stop, TextDelta, TokenUsage, ToolCallDelta
from antiphon.machine.reasoning import ReasoningSplitter
from antiphon.prompt.dialects import CallParser
from antiphon.prompt.prompt import Prompt, ResolvedChoice, Sampling
from antiphon.protocol.tools import FunctionTool
from support.local_engine import ask, calls_of, reasoning_of, running, stop_of, text_of
from support.tiny_gguf import HERMES

Make = Callable[..., Path]

COUNTED = FunctionTool("f", {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})

PIECES = st.sampled_from(
    ["", "", "word", " ", "\n", "<think>", "</think>", "<thi", "nk>", "<tool_call>", "</tool_call>", "</tool", "_call>",
     '{"name": "f", ', '"arguments": {"a": 1}}', '{"name": "f", "arguments": {}}', "```json\n", "```", "{"]
)  # fmt: skip
TURNS = st.lists(st.tuples(PIECES, st.integers(1, 3)), max_size=16)


def reader_of(sampled: Sampled, one_call: bool) -> TurnReader:
    parser = CallParser({"f": False}, "<tool_call>", "</tool_call>")
    return TurnReader(ReasoningSplitter(), parser, input_tokens=9, one_call=one_call, sampled=sampled)


def chunks_of(turn: Sequence[tuple[str, int]], after: int = 0) -> list[Chunk]:
    """The chunks of a completion that draws these texts, each of so many tokens, after so many tokens."""
    chunks = [
        Chunk(content=text, tokens=[count], tokens_predicted=count - after)
        for (text, _), count in zip(turn, accumulate(number for _, number in turn), strict=True)
        if count > after
    ]
    total = sum(number for _, number in turn) - after + 1
    return [*chunks, Chunk(stop=True, stop_type="eos", tokens_predicted=total)]


def joined(deltas: Sequence[Delta]) -> list[Delta]:
    result: list[Delta] = []
    for delta in deltas:
        last = result[-1] if result else None
        if isinstance(delta, TextDelta | ReasoningDelta | ToolCallDelta) and type(delta) is type(last):
            result[-1] = type(delta)(last.text + delta.text)
        else:
            result.append(delta)
    return result


@pytest.mark.requirement("resume:local")
@given(TURNS, st.booleans(), st.data())
def test_a_reader_that_goes_on_reads_what_one_reader_would(
    turn: list[tuple[str, int]], one_call: bool, data: st.DataObject
) -> None:
    first, drawn, states = Sampled(), [], [Sampled()]
    reader = reader_of(first, one_call)
    assert reader.replay() == []
    for chunk in chunks_of(turn):
        drawn += reader.read([chunk])
        states.append(copy.deepcopy(first))
    sampled = data.draw(st.sampled_from(states))
    known = sampled.generated
    again = reader_of(sampled, one_call)
    deltas = again.replay()
    if not again.stopped:
        tokens, text = again.resume()
        assert tokens is None or len(tokens) == known == again.generated
        assert text == "".join(piece for piece, _ in turn)[: len(text)]
        deltas += again.read(chunks_of(turn, known))
    assert joined(deltas) == joined(drawn)
    assert sampled == first


@pytest.mark.requirement("resume:local")
def test_tokens_whose_text_is_kept_back_are_drawn_again() -> None:
    sampled = Sampled()
    reader = reader_of(sampled, one_call=False)
    reader.read([Chunk("a", [1], tokens_predicted=1), Chunk("", [2], tokens_predicted=2)])
    assert (sampled, reader.generated) == (Sampled([1], ["a"], 1), 2)
    assert reader.resume() == ([1], "a")
    assert reader.generated == 1
    reader.read([Chunk("", [2], tokens_predicted=1), Chunk("bc", [3], tokens_predicted=2)])
    assert sampled == Sampled([1, 2, 3], ["a", "bc"], 3)


@pytest.mark.requirement("resume:local", "engine:usage")
def test_a_turn_that_had_ended_with_its_call_ends_again_with_its_usage() -> None:
    text = '<think>hm</think><tool_call>{"name": "f", "arguments": {}}'
    deltas = reader_of(Sampled([1, 2], [text], 2, 1), one_call=True).replay()
    assert deltas[-1] == Stop("stop", TokenUsage(9, 2, reasoning_tokens=1))


@pytest.mark.requirement("resume:local", "engine:logprobs")
def test_log_probabilities_are_of_what_is_drawn_anew() -> None:
    parser = CallParser({}, "<tool_call>", "</tool_call>")
    reader = TurnReader(ReasoningSplitter(), parser, input_tokens=9, alternatives=0, sampled=Sampled([1], ["old "], 1))
    reader.resume()
    chunk = Chunk("new", [2], tokens_predicted=1, completion_probabilities=[Candidate("new", [], -1.0)])
    deltas = [*reader.replay(), *reader.read([chunk])]
    assert [[entry.token for entry in delta.logprobs or ()] for delta in deltas] == [[], ["new"]]


async def states_of(
    engine: LlamaCppEngine, prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Delta], list[bytes]]:
    """The deltas of a turn, and what was stored of it after each chunk of its completion."""
    turn = await engine.prepare(prompt)
    states = [msgspec.json.encode(turn.sampled)]
    completion = Client.completion

    async def one_by_one(client: Client, body: dict[str, Any]) -> AsyncGenerator[Sequence[Chunk]]:
        async for chunks in completion(client, body):
            for chunk in chunks:
                yield [chunk]
                states.append(msgspec.json.encode(turn.sampled))

    with monkeypatch.context() as patch:
        patch.setattr(Client, "completion", one_by_one)
        deltas = [delta async for some in engine.generate(turn) for delta in some]
    return deltas, [msgspec.json.encode(turn.sampled), *dict.fromkeys(states)]


async def go_on(engine: LlamaCppEngine, prompt: Prompt, state: bytes) -> list[Delta]:
    """The deltas of a turn that knows what was stored of an earlier life, and nothing else."""
    turn = await engine.prepare(prompt)
    turn.sampled = msgspec.json.decode(state, type=Sampled)
    return [delta async for some in engine.generate(turn) for delta in some]


def same(deltas: Sequence[Delta], expected: Sequence[Delta]) -> None:
    assert text_of(deltas) == text_of(expected)
    assert reasoning_of(deltas) == reasoning_of(expected)
    assert calls_of(deltas) == calls_of(expected)
    (ours, theirs) = (stop_of(deltas), stop_of(expected))
    assert ours.reason == theirs.reason
    assert ours.usage.input_tokens == theirs.usage.input_tokens
    assert ours.usage.output_tokens == theirs.usage.output_tokens
    assert ours.usage.reasoning_tokens == theirs.usage.reasoning_tokens


@pytest.mark.requirement("resume:local", "engine:usage")
@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (["one ", "two ", "three ", "four ", "five "], {}),
        (["one ", "two ", "three ", "four ", "five "], {"max_output_tokens": 4}),
        (["a", " ST", "OP", " b", " S", "TART", " c"], {"sampling": Sampling(temperature=0.0, stop=("START",))}),
        (["<think>", "hm, ", "well", "</think>", "\n\n", "so", " it", " is"], {}),
        (
            ["text ", "<tool_call>", '\n{"name": "f", "ar', 'guments": {"', 'a": 1}}', "\n</tool_", "call>", " end"],
            {"tools": [COUNTED], "choice": ResolvedChoice("auto", ("f",))},
        ),
        (
            ["text ", "<tool_call>", '\n{"name": "f", "ar', 'guments": {"', 'a": 1}}', "\n</tool_", "call>", " no"],
            {"tools": [COUNTED], "choice": ResolvedChoice("auto", ("f",)), "parallel_tool_calls": False},
        ),
    ],
)
async def test_a_turn_goes_on_from_wherever_it_was(
    tiny: Make, monkeypatch: pytest.MonkeyPatch, script: list[str], fields: dict[str, Any]
) -> None:
    async with running(tiny(script=script, template=HERMES)) as engine:
        prompt = ask("Hello", **fields)
        whole, states = await states_of(engine, prompt, monkeypatch)
        assert len(states) > 2
        for state in states:
            same(await go_on(engine, prompt, state), whole)


@pytest.mark.requirement("resume:local")
async def test_a_model_with_attention_goes_on_as_if_nothing_had_happened(
    tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    async with running(tiny()) as engine:
        for text in ("Hello", "Good morning", "What is the weather like?"):
            prompt = ask(text, max_output_tokens=60)
            whole, states = await states_of(engine, prompt, monkeypatch)
            for state in states:
                sampled = msgspec.json.decode(state, type=Sampled)
                # Noise is full of broken characters, of which llama.cpp does not tell all tokens.
                if len(sampled.tokens) == sampled.generated:
                    same(await go_on(engine, prompt, state), whole)
                    compared += 1
    assert compared > 10


@pytest.mark.requirement("resume:local")
async def test_where_not_all_tokens_are_known_their_text_is_read(tiny: Make) -> None:
    script = ["eins, ", "zw", "\N{EM DASH}".encode()[:1], "\N{EM DASH}".encode()[1:], "ei, ", "drei"]
    async with running(tiny(script=script)) as engine:
        turn = await engine.prepare(ask("Hello"))
        whole = [delta async for deltas in engine.generate(turn) for delta in deltas]
        assert turn.sampled.generated > len(turn.sampled.tokens)
        assert "".join(turn.sampled.text) == text_of(whole) == "eins, zw\N{EM DASH}ei, drei"
        again = await engine.prepare(ask("Hello"))
        again.sampled = Sampled([7], ["eins, ", "zw\N{EM DASH}"], 4)
        deltas = [delta async for deltas in engine.generate(again) for delta in deltas]
        assert text_of(deltas).startswith("eins, zw\N{EM DASH}")
        assert stop_of(deltas).usage.input_tokens == stop_of(whole).usage.input_tokens


@pytest.mark.requirement("resume:local")
async def test_a_turn_that_had_reached_its_limit_only_ends(tiny: Make) -> None:
    async with running(tiny(script=["tick, ", "tock. "], endless=True)) as engine:
        turn = await engine.prepare(ask("Hello", max_output_tokens=2))
        turn.sampled = Sampled([1, 2], ["tick, ", "tock. "], 2)
        deltas = [delta async for deltas in engine.generate(turn) for delta in deltas]
        assert text_of(deltas) == "tick, tock. "
        assert (stop_of(deltas).reason, stop_of(deltas).usage.output_tokens) == ("length", 2)


@pytest.mark.requirement("resume:constrained")
async def test_a_constrained_turn_of_the_local_engine_starts_anew(tiny: Make) -> None:
    async with running(tiny(script=["one ", "two "])) as engine:
        turn = await engine.prepare(ask("Hello"))
        turn.constrained = True
        turn.sampled = Sampled([1], ["other"], 1)
        deltas = [delta async for deltas in engine.generate(turn) for delta in deltas]
        assert text_of(deltas).strip() == "one two"
        assert "".join(turn.sampled.text).strip() == "one two"


@pytest.mark.requirement("resume:fingerprint")
async def test_the_fingerprint_is_that_of_file_template_and_dialect(tiny: Make, tmp_path: Path) -> None:
    model = tiny()
    moved = tmp_path / model.name
    moved.write_bytes(model.read_bytes())
    async with running(model) as engine, running(moved) as other, running(model, dialect="hermes") as third:
        assert engine.fingerprint == other.fingerprint != third.fingerprint
        assert len(engine.fingerprint) == 64
    same_size = bytearray(model.read_bytes())
    for place in (len(same_size) - 1, 100):
        same_size[place] ^= 1
        changed = tmp_path / "other" / model.name
        changed.parent.mkdir(exist_ok=True)
        changed.write_bytes(same_size)
        assert fingerprint(changed, "t", "d") != fingerprint(model, "t", "d")
    assert fingerprint(model, "t", "d") == fingerprint(moved, "t", "d")
    assert len({fingerprint(model, *both) for both in (("t", "d"), ("td", ""), ("", "td"), ("t", "e"))}) == 4
    renamed = moved.rename(tmp_path / "renamed.gguf")
    assert fingerprint(renamed, "t", "d") != fingerprint(model, "t", "d")


@pytest.mark.requirement("resume:local")
async def test_a_real_model_goes_on_with_its_sentence(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(smollm2_path) as engine:
        prompt = ask("Tell me a story about a lighthouse.", max_output_tokens=40)
        whole, states = await states_of(engine, prompt, monkeypatch)
        assert len(text_of(whole)) > 60
        for state in states[2::9]:
            same(await go_on(engine, prompt, state), whole)

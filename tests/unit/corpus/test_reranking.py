"""A model that is served ranks passages: by the probability of its yes, or by the word that it is held to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest

from antiphon.corpus.reranking import ServedReranker
from antiphon.engines.base import Capabilities, Engine, PreparedTurn
from antiphon.errors import ContextOverflowError, EngineError, EngineUnavailableError, NotFoundError
from antiphon.machine.deltas import Delta, Stop, TextDelta, TokenUsage
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.parts import Logprob, TopLogprob

pytestmark = pytest.mark.requirement("search:rerank:served")


def told(*pairs: tuple[str, float]) -> TextDelta:
    """A token, the first of these, with the probabilities of all."""
    rows = [(word, list(word.encode()), math.log(likely)) for word, likely in pairs]
    return TextDelta(rows[0][0], [Logprob(*rows[0], [TopLogprob(*row) for row in rows])])


class Judging(Engine):
    """Answers each prompt with the deltas that `answer` has for its passage."""

    name = "judging"
    ready = True

    def __init__(self, answer: Callable[[str], Any], *, logprobs: bool = True, choice: bool = True) -> None:
        self.answer = answer
        formats = frozenset({"text", "json_schema"} if choice else {"text"})
        self.able = Capabilities(context_length=1_000, logprobs=logprobs, formats=formats)
        self.asked: list[Prompt] = []
        self.closed = self.running = self.most = 0
        self.hold: asyncio.Event | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self.able

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        self.asked.append(prompt)
        if "!LONG" in prompt.messages[1].text():
            raise ContextOverflowError(2_000, 1_000)
        return PreparedTurn(prompt, 1)

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.hold is not None:
                await self.hold.wait()
            answer = self.answer(turn.prompt.messages[1].text().split("Passage: ")[1].split("\n")[0])
            if isinstance(answer, Exception):
                raise answer
            for delta in answer:
                yield [delta]
            yield [Stop("stop", TokenUsage(1, 1))]
        finally:
            self.running -= 1
            self.closed += 1


async def scores(engine: Engine, *texts: str, **fields: Any) -> list[float]:
    return list(await ServedReranker(lambda: engine, **fields).scores("where?", texts))


async def test_the_score_is_how_likely_yes_was_and_what_follows_is_not_drawn():
    drawn: list[str] = []

    def answer(text: str) -> Any:
        yield told(("\n", 0.9), ("x", 0.1))
        yield told((" Yes", 0.6), ("yes", 0.1), ("No", 0.1), ("maybe", 0.2)) if text == "a" else told(("no", 0.75))
        drawn.append(text)
        yield TextDelta("more")

    engine = Judging(answer)
    found = await scores(engine, "a", "b")
    assert [round(score, 4) for score in found] == [0.875, 0.0]
    assert drawn == []
    assert engine.closed == 2
    prompt = engine.asked[0]
    assert (prompt.format, prompt.sampling.temperature, prompt.reasoning_effort) == (None, 0.0, "none")
    assert prompt.messages[1].text().startswith("Question: where?\n\nPassage: a\n")
    assert engine.gate.running == 0


async def test_a_model_that_tells_no_probabilities_is_held_to_one_of_two_words():
    engine = Judging(lambda text: [TextDelta('"ye'), TextDelta('s"')] if text == "a" else [TextDelta('"no"')])
    engine.able = Capabilities(context_length=1_000, formats=frozenset({"json_schema"}))
    assert await scores(engine, "b", "a") == [0.0, 1.0]
    form = engine.asked[0].format
    assert form is not None
    assert form.schema == {"enum": ["yes", "no"]}
    with pytest.raises(EngineError, match="cannot be held"):
        await scores(Judging(lambda text: [], logprobs=False, choice=False), "a")


async def test_a_passage_that_cannot_be_judged_has_nothing_and_the_others_theirs():
    engine = Judging(lambda text: [TextDelta("I think")] if text == "b" else [told(("yes", 0.5), ("no", 0.25))])
    found = await scores(engine, "!LONG", "a", "b")
    assert [round(score, 4) for score in found] == [0.0, 0.6667, 0.0]
    with pytest.raises(EngineError, match="neither yes nor no"):
        await scores(engine, "b", "b")


async def test_few_passages_are_asked_about_at_once_and_time_ends():
    engine = Judging(lambda text: [told(("yes", 1.0))])
    engine.hold = asyncio.Event()
    engine.gate.limit(4)
    with pytest.raises(EngineUnavailableError, match="too slow"):
        await scores(engine, *"abcdefgh", seconds=0.02)
    assert (engine.most, engine.running, engine.gate.running, engine.gate.waiting) == (2, 0, 0, 0)
    engine.hold.set()
    assert await scores(engine, *"abc") == [1.0, 1.0, 1.0]


async def test_a_fault_of_the_model_is_told_as_one():
    with pytest.raises(EngineUnavailableError):
        await scores(Judging(lambda text: EngineUnavailableError("gone")), "a", "b")

    def gone() -> Engine:
        raise NotFoundError("no such model")

    with pytest.raises(EngineError, match="no such model"):
        await ServedReranker(gone).scores("q", ["a"])

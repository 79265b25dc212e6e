"""Summaries of thinking, written by the model that thought (`reasoning.summary`).

The summary is a turn of its own, under a bound of tokens, beside the one that is answered: where the engine has room it
runs while the answer is generated, else after it. What is generated meanwhile waits, since the events of a summary come
before those of what follows the thinking.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import aclosing

from msgspec.structs import replace

from antiphon.engines.base import Engine
from antiphon.errors import APIError
from antiphon.machine.assembler import Assembler
from antiphon.machine.deltas import ReasoningDelta, Routed, Stop, TextDelta, TokenUsage, ToolCallDelta
from antiphon.prompt.prompt import NOWHERE, Affinity
from antiphon.prompt.thoughts import summary_prompt
from antiphon.protocol.request import ReasoningConfig
from antiphon.runtime.observer import Observer

__all__ = ["Summaries", "summary_tokens"]

BRIEF_TOKENS = 128
DETAILED_TOKENS = 384
MOST_SUMMARIES = 8
"""Summaries of one response; thinking after that has none."""

_TOKENS = {"auto": BRIEF_TOKENS, "concise": BRIEF_TOKENS, "detailed": DETAILED_TOKENS}


def summary_tokens(config: ReasoningConfig) -> int | None:
    """The most tokens of a summary that a request asks for; None where it asks for none."""
    return _TOKENS.get(config.summary or config.generate_summary or "")


class Summaries:
    """Feeds an assembler, and has what it thought summarized in at most `tokens` tokens before it goes on."""

    def __init__(
        self, engine: Engine, assembler: Assembler, observer: Observer, tokens: int, affinity: Affinity = NOWHERE
    ) -> None:
        self._engine = engine
        self._assembler = assembler
        self._observer = observer
        self._tokens = tokens
        self._affinity = Affinity(cache_salt=affinity.cache_salt)
        self._waiting: list[Routed] = []
        self._writing: asyncio.Task[str] | None = None
        self._left = MOST_SUMMARIES

    def feed(self, deltas: Sequence[Routed]) -> bool:
        """Take deltas in, as far as no summary is being written; True when the turn has ended."""
        self._waiting += deltas
        return self._advance()

    async def settle(self) -> bool:
        """Wait for the summaries, and let everything through; True when the turn has ended."""
        ended = self._advance()
        while self._writing is not None:
            await asyncio.wait({self._writing})
            ended = self._advance()
        return ended

    async def close(self) -> None:
        """Write no more."""
        if self._writing is not None:
            self._writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writing
            self._writing = None

    def _advance(self) -> bool:
        while True:
            if self._writing is not None:
                if not self._writing.done():
                    return False
                writing, self._writing = self._writing, None
                self._assembler.summarize(writing.result())
            elif self._begins():
                return False
            count = self._up_to_the_end_of_thinking()
            deltas, self._waiting = self._waiting[:count], self._waiting[count:]
            if self._assembler.feed(deltas):
                return True
            if not self._waiting:
                return False

    def _begins(self) -> bool:
        """Have what was thought summarized, where what waits ends it."""
        if not (self._waiting and self._assembler.thinking and self._left) or not _ends_thinking(self._waiting[0]):
            return False
        self._left -= 1
        self._writing = asyncio.create_task(self._write(self._assembler.thought))
        return True

    def _up_to_the_end_of_thinking(self) -> int:
        """How many deltas may pass until thinking ends that has to be summarized."""
        thinking = False
        for place, delta in enumerate(self._waiting):
            if isinstance(delta, ReasoningDelta) and delta.text:
                thinking = True
            elif thinking and _ends_thinking(delta):
                return place
        return len(self._waiting)

    async def _write(self, thought: str) -> str:
        """A summary; empty where none could be written, which must not cost the answer."""
        context = self._engine.capabilities.context_length
        text: list[str] = []
        try:
            prompt = replace(summary_prompt(thought, self._tokens, context), affinity=self._affinity)
            turn = await self._engine.prepare(prompt)
            async with aclosing(self._engine.generate(turn)) as batches:
                async for deltas in batches:
                    for delta in deltas:
                        if isinstance(delta, TextDelta):
                            text.append(delta.text)
                        elif isinstance(delta, Stop):
                            # What it read is what the answer's turn wrote, and has been counted there.
                            self._assembler.spend(TokenUsage(0, delta.usage.output_tokens))
        except APIError as error:
            self._observer.fault("thinking could not be summarized", error)
        return "".join(text).strip()


def _ends_thinking(delta: Routed) -> bool:
    if isinstance(delta, Stop):
        # Thinking that was cut is not summarized.
        return not delta.cut
    if isinstance(delta, TextDelta):
        return bool(delta.text or delta.logprobs)
    return not isinstance(delta, ReasoningDelta | ToolCallDelta)

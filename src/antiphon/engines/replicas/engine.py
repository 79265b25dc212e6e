"""One model on several engines: each turn goes to where its prefix is, and to another engine where that one is lost.

Rule 1: an engine that is lost before it told anything of a turn, or that has too much to do (429), is left out, and the
turn is begun on another; each is tried once.
Rule 2: where the engines can go on with each other's turns, one that is lost is gone on with elsewhere, from what was
drawn; what was told is not told again. Where none is left, one of them is waited for. Engines that cannot do so end the
turn.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from antiphon.engines.base import (
    RESTART_PATIENCE,
    Capabilities,
    Engine,
    EngineLostError,
    EventHook,
    PreparedTurn,
    Replica,
    Token,
)
from antiphon.engines.replicas.placement import Placement
from antiphon.engines.told import Told
from antiphon.errors import APIError, ConfigurationError, EngineError, EngineUnavailableError, RateLimitError
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt, Sampling
from antiphon.protocol.completions import RawPrompt

__all__ = ["ReplicatedEngine", "replica_hook"]

T = TypeVar("T")

_MOST_LOSSES: Final = 8
"""Engines that one turn may lose, whatever came between: it may itself be what kills them."""

_PAUSE: Final = 0.25
"""Seconds after which engines that were all lost are asked again: an end may be noticed a moment later."""

_LOST: Final = (EngineLostError, EngineUnavailableError)


class ReplicatedEngine(Engine):
    """Serves one model on several engines that take each other's turns: of one class, and one profile of upstreams.

    `identities` tell them apart for ever, as their addresses do; they are shown nowhere. Without them it is their
    numbers. `on_event` is told `moved` when the turn of a history goes elsewhere than the one before, and `failed_over`
    when one that an engine lost does.
    """

    routed = True

    def __init__(
        self,
        name: str,
        engines: Sequence[Engine],
        *,
        identities: Sequence[str] = (),
        on_event: EventHook | None = None,
    ) -> None:
        if len({type(engine) for engine in engines}) != 1:
            raise ConfigurationError(f"The replicas of the model '{name}' must be of one kind of engine.")
        self.name = name
        self.not_ready = engines[0].not_ready
        self.template_defaults = engines[0].template_defaults
        self.engines = list(engines)
        self.placement = Placement(identities or [str(number) for number in range(len(engines))])
        self._on_event = on_event

    @property
    def ready(self) -> bool:
        """Whether one of them can generate now."""
        return any(engine.ready for engine in self.engines)

    @property
    def replicas(self) -> list[Replica]:
        """The engines."""
        return [
            Replica(engine.ready, running)
            for engine, running in zip(self.engines, self.placement.in_flight, strict=True)
        ]

    @property
    def capabilities(self) -> Capabilities:
        """What all of them can do: any of them may be asked."""
        first, *others = (engine.capabilities for engine in self.engines)
        for other in others:
            if other != first:
                first = _meet(first, other)
        return first

    @property
    def keeps_prefixes(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether one of them keeps what it read of prompts."""
        return any(engine.keeps_prefixes for engine in self.engines)

    @property
    def declines(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether one of them may decline a turn while it generates."""
        return any(engine.declines for engine in self.engines)

    @property
    def continues(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether they can go on with each other's turns."""
        return all(engine.continues for engine in self.engines)

    @property
    def fingerprint(self) -> str:
        """That of those that are ready; where theirs differ, all that there are."""
        engines = [engine for engine in self.engines if engine.ready] or self.engines
        return "|".join(dict.fromkeys(engine.fingerprint for engine in engines))

    async def start(self) -> None:
        """Start all of them at the same time; one that is only away is not ready until it is there.

        Raises:
            ConfigurationError: one of them cannot be used at all.
        """
        starts = [asyncio.ensure_future(engine.start()) for engine in self.engines]
        try:
            await asyncio.gather(*starts)
        finally:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)

    def succeed(self, former: Engine) -> None:
        """Leave the histories of the former engine on the replicas that are here too."""
        if isinstance(former, ReplicatedEngine):
            self.placement.inherit(former.placement)

    async def wait_ready(self, seconds: float) -> bool:
        """Whether one of them can generate, after waiting for the first one that can."""
        if self.ready:
            return True
        waits = [asyncio.ensure_future(engine.wait_ready(seconds)) for engine in self.engines]
        try:
            for ended in asyncio.as_completed(waits):
                if await ended:
                    return True
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return False

    async def close(self) -> None:
        """Close all of them, whatever becomes of one."""
        for fault in await asyncio.gather(*(engine.close() for engine in self.engines), return_exceptions=True):
            if fault is not None:
                raise fault

    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        """Prepare it where it is best generated; see `Engine.prepare` for what it raises."""
        return await self._ask(prompt.affinity.key, lambda engine: engine.prepare(prompt))

    async def prepare_text(self, prompt: RawPrompt, sampling: Sampling, max_tokens: int) -> PreparedTurn:
        """Prepare a bare text; see `Engine.prepare_text` for what it raises."""
        return await self._ask("", lambda engine: engine.prepare_text(prompt, sampling, max_tokens))

    async def count(self, turn: PreparedTurn) -> int:
        """The input tokens of a turn, as the one counts them that is best asked."""
        return await self._ask(turn.prompt.affinity.key, lambda engine: engine.count(turn))

    async def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[Token]:
        """The tokens of a text, as one of them has them."""
        return await self._ask(
            "", lambda engine: engine.tokenize(text, add_special=add_special, parse_special=parse_special)
        )

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens, as one of them has it."""
        return await self._ask("", lambda engine: engine.detokenize(tokens))

    async def forget_prefixes(self) -> bool:
        """Have all that are ready drop what they keep of prompts."""
        return any(await asyncio.gather(*(engine.forget_prefixes() for engine in self.engines if engine.ready)))

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """The deltas of one turn, from one engine after another by the rules."""
        told = Told() if self.continues else None
        if told is not None:
            # What is drawn again has to come out the same.
            _fix_seed(turn)
        lost: set[int] = set()
        losses, began, same = 0, False, ""
        suppressor = None
        while True:
            number = await self._taken(turn, lost, same)
            fingerprint = self.engines[number].fingerprint
            try:
                async with aclosing(self.engines[number].generate(turn)) as stream:
                    async for deltas in stream:
                        if suppressor is not None:
                            deltas = cast("list[Delta]", suppressor.feed(deltas))
                            if suppressor.caught_up:
                                suppressor = None
                        if not deltas:
                            continue
                        if told is not None:
                            told.add(deltas)
                            lost.clear()
                        began, same = True, fingerprint
                        yield deltas
            except (EngineError, EngineUnavailableError) as error:
                if not (isinstance(error, _LOST) or (not began and _is_busy(error))):
                    raise
                lost.add(number)
                losses += 1
                if (began and told is None) or losses >= max(_MOST_LOSSES, len(self.engines)):
                    raise
                if told is None and not self._able(lost):
                    raise
                suppressor = told.suppressor() if told is not None and began else None
                self._tell("failed_over", number)
            else:
                return
            finally:
                self.placement.free(number)

    def abandon(self, turn: PreparedTurn) -> None:
        """Have it given up where it is kept; the others do not know it."""
        for engine in self.engines:
            engine.abandon(turn)

    async def _taken(self, turn: PreparedTurn, lost: set[int], same: str) -> int:
        """The engine for a turn, counted as one in flight; `same` is the fingerprint of the one that began it.

        A turn that others can go on with waits for the restart of an engine where none is left.

        Raises:
            EngineLostError: none can be asked now.
        """
        able = self._able(lost, same)
        if not able and self.continues:
            if lost:
                await asyncio.sleep(_PAUSE)
            await self.wait_ready(RESTART_PATIENCE)
            able = self._able((), same)
        if not able:
            raise EngineLostError(self.not_ready, code=EngineUnavailableError.default_code)
        affinity, moves = turn.prompt.affinity, self.placement.moves
        number = self.placement.take(affinity.key, able, again=affinity.again)
        if self.placement.moves > moves:
            self._tell("moved", number)
        return number

    async def _ask(self, key: str, question: Callable[[Engine], Awaitable[T]]) -> T:
        """What one of them answers, the best one for the key first.

        Raises:
            EngineUnavailableError: none can be asked now.
        """
        fault: Exception = EngineUnavailableError(self.not_ready, retry_after=2.0)
        for number in self.placement.preferred(key, self._able(())):
            try:
                return await question(self.engines[number])
            except _LOST as error:
                fault = error
        raise fault

    def _tell(self, event: str, number: int) -> None:
        if self._on_event is not None:
            self._on_event(self.name, event, {"replica": number})

    def _able(self, lost: Collection[int], same: str = "") -> list[int]:
        """The numbers of those that can be asked; where they share turns, only those of one fingerprint."""
        able = [number for number, engine in enumerate(self.engines) if number not in lost and engine.ready]
        if not able or not self.continues:
            return able
        same = same or next(engine.fingerprint for engine in self.engines if engine.ready)
        return [number for number in able if self.engines[number].fingerprint == same]


def replica_hook(on_event: EventHook | None, number: int) -> EventHook | None:
    """A hook for the engine of that replica, which says which one it is by its number and by nothing else."""
    if on_event is None:
        return None
    hook = on_event

    def told(model: str, event: str, fields: Any) -> None:
        hook(model, event, {**fields, "replica": number})

    return told


def _is_busy(error: APIError) -> bool:
    return isinstance(error, EngineError) and error.refused and error.http_status == RateLimitError.status


def _meet(one: Capabilities, other: Capabilities) -> Capabilities:
    return Capabilities(
        context_length=min(one.context_length, other.context_length),
        media=one.media & other.media,
        forced_tools=one.forced_tools and other.forced_tools,
        formats=one.formats & other.formats,
        logprobs=one.logprobs and other.logprobs,
        inline_media=one.inline_media or other.inline_media,
        hosted=one.hosted and other.hosted,
        summaries=one.summaries and other.summaries,
        fetches=one.fetches and other.fetches,
    )


def _fix_seed(turn: PreparedTurn) -> None:
    sampling = turn.prompt.sampling
    if sampling.seed is None or sampling.seed < 0:
        turn.prompt = replace(turn.prompt, sampling=replace(sampling, seed=secrets.randbelow(2**31)))

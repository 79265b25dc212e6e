"""The attempts of one turn of an upstream: what is tried again, what is told at once, and what only once checked.

Rule 1: a connection that fails before the first delta is tried once more; one that fails later ends the turn.
Rule 2: what the upstream does not enforce is told only after it was checked; where it is wrong and nothing was told of
the turn, the upstream is asked once more, and then the turn fails.
Rule 3: a conversation that it refuses is tried as a strict chat template would have it.
Rule 4: what the upstream enforces is told as it comes, and checked at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol, Self

import msgspec

from antiphon.engines.checks.judge import Answer, Judge
from antiphon.engines.upstream.client import UpstreamLostError, UpstreamRefusedError
from antiphon.engines.upstream.health import Health
from antiphon.engines.upstream.request import Hold
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta, ReasoningDelta, RefusalDelta, Stop, TextDelta, ToolCallStart
from antiphon.prompt.grammar import has_format
from antiphon.prompt.normalize import arrangements
from antiphon.prompt.prompt import ChatMessage, Prompt

__all__ = ["LAST_ATTEMPT", "Deltas", "arranged", "checked", "connected"]


class Deltas(Protocol):
    """The deltas of a turn, in lists of what came together.

    Most of these are no generators: one costs several times as much, and every delta passes through several.
    """

    def __aiter__(self) -> AsyncIterator[Sequence[Delta]]: ...

    def __anext__(self) -> Awaitable[Sequence[Delta]]: ...

    def aclose(self) -> Awaitable[None]:
        """End what they come from."""
        ...


LAST_ATTEMPT: Final = 1
"""The number of the second, and last, attempt."""

_UNJUDGED: Final[frozenset[type]] = frozenset({TextDelta, ReasoningDelta, RefusalDelta, Stop})
"""What is judged by nothing, where no format was asked for."""

_PAUSE: Final = 0.1
"""Seconds before a connection is tried once more."""


class _Holder:
    """Lets deltas through, or keeps them until they were checked."""

    def __init__(self, hold: Hold) -> None:
        self._keeps = hold is Hold.ALL
        self._from_calls = hold is Hold.CALLS
        self._kept: list[Delta] = []

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Those that may be told now."""
        if not self._keeps and self._from_calls:
            place = next((n for n, delta in enumerate(deltas) if isinstance(delta, ToolCallStart)), None)
            if place is not None:
                self._keeps = True
                self._kept += deltas[place:]
                return deltas[:place]
        if self._keeps:
            self._kept += deltas
            return ()
        return deltas

    def rest(self) -> list[Delta]:
        """Those that were kept."""
        kept, self._kept = self._kept, []
        return kept


async def checked(
    standard: Prompt, hold: Hold, judge: Judge, ask: Callable[[int], Deltas]
) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of a turn (rules 2 and 4); `ask` gives those of an attempt, `standard` is what they are checked by.

    Raises:
        EngineError: the upstream failed, or its answer is not what was asked for.
    """
    formed = has_format(standard)
    for attempt in range(LAST_ATTEMPT + 1):
        holder, answer = _Holder(hold), Answer()
        told = refused = False
        fault: EngineError | None = None
        async with contextlib.aclosing(ask(attempt)) as stream:
            async for deltas in stream:
                kinds = set(map(type, deltas))
                if formed or not kinds <= _UNJUDGED:
                    answer.add(deltas)
                refused = refused or RefusalDelta in kinds
                stop = deltas[-1]
                if not isinstance(stop, Stop):
                    leaving = holder.feed(deltas)
                else:
                    if not (stop.cut or refused):
                        fault = await judge.fault(standard, answer, whole=True)
                    leaving = holder.feed(deltas[:-1])
                    leaving = [*leaving, *holder.rest(), stop] if fault is None else leaving
                if leaving:
                    told = True
                    yield leaving
        if fault is None:
            return
        if told or attempt == LAST_ATTEMPT:
            raise fault


class _Tries:
    """Deltas of one stream after another, until one comes to its end."""

    def __init__(self) -> None:
        self._stream: Deltas | None = None

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        """Close the stream that is open."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()


class _Arranged(_Tries):
    def __init__(self, prompt: Prompt, ask: Callable[[Prompt], Deltas]) -> None:
        super().__init__()
        self._prompt = prompt
        self._ask = ask
        self._left: Iterator[Sequence[ChatMessage]] | None = None
        self._first: UpstreamRefusedError | None = None

    async def __anext__(self) -> Sequence[Delta]:
        while True:
            if self._stream is None:
                self._stream = self._ask(self._arranged())
            try:
                return await self._stream.__anext__()
            except UpstreamRefusedError as error:
                self._first = self._first or error
                await self.aclose()

    def _arranged(self) -> Prompt:
        """The prompt in the next arrangement, the first of which is the conversation as it is."""
        if self._first is None:
            return self._prompt
        if self._left is None:
            self._left = arrangements(self._prompt.messages)
            # As it is.
            next(self._left)
        messages = next(self._left, None)
        if messages is None:
            raise self._first
        return msgspec.structs.replace(self._prompt, messages=messages)


class _Connected(_Tries):
    def __init__(self, health: Health, ask: Callable[[], Deltas]) -> None:
        super().__init__()
        self._health = health
        self._ask = ask
        self._told = False
        self._attempt = 0

    async def __anext__(self) -> Sequence[Delta]:
        while True:
            if self._stream is None:
                self._stream = self._ask()
            try:
                deltas = await self._stream.__anext__()
            except UpstreamLostError:
                await self.aclose()
                self._health.failed()
                if self._told or self._attempt == LAST_ATTEMPT:
                    raise
                self._attempt += 1
                await asyncio.sleep(_PAUSE)
            else:
                if not deltas:
                    continue
                if not self._told:
                    self._told = True
                    self._health.succeeded()
                return deltas


def arranged(prompt: Prompt, ask: Callable[[Prompt], Deltas]) -> Deltas:
    """The deltas of one answer; a conversation that the upstream refuses is tried in its other arrangements (rule 3).

    Raises, while they are iterated:
        EngineError: the upstream failed, or takes none of them.
    """
    return _Arranged(prompt, ask)


def connected(health: Health, ask: Callable[[], Deltas]) -> Deltas:
    """The deltas of one answer, of a second connection where the first one fails (rule 1); no list is empty.

    Raises, while they are iterated:
        EngineError: the upstream failed, or cannot be reached.
    """
    return _Connected(health, ask)

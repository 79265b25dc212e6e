"""One turn of an upstream: asked once more where it could not be reached, or where its answer is not what was asked.

Rule 1: a connection that fails before the first delta is tried once more; one that fails later ends the turn.
Rule 2: what the upstream does not enforce is told only after it was checked; where it is wrong and nothing was told of
the turn, the upstream is asked once more, and then the turn fails.
Rule 3: a conversation that it refuses is tried as a strict chat template would have it.
Rule 4: what the upstream enforces is told as it comes, and checked at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.engines.base import PreparedTurn
from antiphon.engines.checks.judge import Answer, Judge
from antiphon.engines.upstream.client import UpstreamClient, UpstreamLostError, UpstreamRefusedError
from antiphon.engines.upstream.decoder import ChatDecoder, Reading
from antiphon.engines.upstream.health import Health
from antiphon.engines.upstream.profiles import Profile
from antiphon.engines.upstream.request import Hold, held_back, judged, request_body
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta, RefusalDelta, Stop, ToolCallStart
from antiphon.prompt.normalize import arrangements
from antiphon.protocol.sse import ServerSentEvent

__all__ = ["ChatTurn", "Upstream", "generated"]

_LAST: Final = 1
"""The number of the second, and last, attempt."""

_PAUSE: Final = 0.1
"""Seconds before a connection is tried once more."""

_LINGER: Final = 2.0
"""Seconds that the usage may take after the end of a turn was told."""


class ChatTurn(PreparedTurn):
    """A prompt for an upstream. Nothing of it is kept over a crash: it is `constrained`, and drawn anew."""

    reading: Reading = Reading(0)


class Upstream(Struct, frozen=True):
    """What a turn is generated with; `model` is the upstream's own name for it."""

    client: UpstreamClient
    health: Health
    judge: Judge
    profile: Profile
    model: str


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


async def generated(turn: ChatTurn, upstream: Upstream) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of a turn; closing the generator closes the connection.

    Raises:
        EngineError: the upstream failed, or its answer is not what was asked for.
    """
    hold, standard = held_back(turn.prompt, upstream.profile), judged(turn.prompt)
    for attempt in range(_LAST + 1):
        holder, answer = _Holder(hold), Answer()
        told = refused = False
        fault: EngineError | None = None
        async with contextlib.aclosing(_arranged(turn, upstream, attempt)) as stream:
            async for deltas in stream:
                answer.add(deltas)
                refused = refused or any(isinstance(delta, RefusalDelta) for delta in deltas)
                stop = deltas[-1]
                if not isinstance(stop, Stop):
                    leaving = holder.feed(deltas)
                else:
                    if not (stop.cut or refused):
                        fault = await upstream.judge.fault(standard, answer, whole=True)
                    leaving = holder.feed(deltas[:-1])
                    leaving = [*leaving, *holder.rest(), stop] if fault is None else leaving
                if leaving:
                    told = True
                    yield leaving
        if fault is None:
            return
        if told or attempt == _LAST:
            raise fault


async def _arranged(turn: ChatTurn, upstream: Upstream, attempt: int) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of one answer; a conversation that the upstream refuses is tried in its other arrangements."""
    first: UpstreamRefusedError | None = None
    for messages in arrangements(turn.prompt.messages):
        prompt = msgspec.structs.replace(turn.prompt, messages=messages)
        body = request_body(prompt, upstream.profile, upstream.model, attempt=attempt)
        try:
            async with contextlib.aclosing(_asked(body, turn.reading, upstream)) as stream:
                async for deltas in stream:
                    yield deltas
        except UpstreamRefusedError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


async def _asked(body: Mapping[str, Any], reading: Reading, upstream: Upstream) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of one answer (rule 1); none of the lists is empty."""
    attempt = 0
    while True:
        told = False
        try:
            async with contextlib.aclosing(_read(body, ChatDecoder(reading), upstream)) as stream:
                async for deltas in stream:
                    if deltas:
                        if not told:
                            upstream.health.succeeded()
                        told = True
                        yield deltas
        except UpstreamLostError:
            upstream.health.failed()
            if told or attempt == _LAST:
                raise
        else:
            return
        attempt += 1
        await asyncio.sleep(_PAUSE)


async def _read(body: Mapping[str, Any], decoder: ChatDecoder, upstream: Upstream) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of one connection, up to the `Stop`."""
    came = False
    async with contextlib.aclosing(upstream.client.stream(body)) as stream:
        while True:
            try:
                events = await _next(stream, decoder)
            except UpstreamLostError:
                if not decoder.finished:
                    raise
                events = None
            if events is None:
                break
            came = True
            deltas: list[Delta] = []
            try:
                for event in events:
                    deltas += decoder.feed(event.data, event.event)
            except EngineError:
                # What came before the fault in the same read is told first.
                if deltas:
                    yield deltas
                raise
            yield deltas
            if decoder.done:
                return
    if not (came or decoder.finished):
        raise UpstreamLostError("The upstream ended before it had answered.")
    yield decoder.end()


async def _next(
    stream: AsyncGenerator[Sequence[ServerSentEvent]], decoder: ChatDecoder
) -> Sequence[ServerSentEvent] | None:
    """The events of the next read; None at the end of the stream, or where only usage could follow and does not."""
    if not decoder.finished:
        return await anext(stream, None)
    try:
        async with asyncio.timeout(_LINGER):
            return await anext(stream, None)
    except TimeoutError:
        return None

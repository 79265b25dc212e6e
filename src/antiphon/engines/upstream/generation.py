"""One turn of a chat-completions upstream: what it is asked, and how its events are read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.engines.base import PreparedTurn
from antiphon.engines.checks.judge import Judge
from antiphon.engines.upstream.attempts import Deltas, arranged, checked, connected
from antiphon.engines.upstream.client import UpstreamClient, UpstreamLostError
from antiphon.engines.upstream.decoder import ChatDecoder, Reading
from antiphon.engines.upstream.health import Health
from antiphon.engines.upstream.profiles import Profile
from antiphon.engines.upstream.request import held_back, judged, request_body, session_headers
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.sse import ServerSentEvent

__all__ = ["ChatTurn", "Upstream", "generated"]

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


def generated(turn: ChatTurn, upstream: Upstream) -> Deltas:
    """The deltas of a turn; closing the generator closes the connection. It raises what `checked` does."""
    headers = session_headers(turn.prompt, upstream.profile)

    def ask(attempt: int) -> Deltas:
        def arrangement(prompt: Prompt) -> Deltas:
            body = request_body(prompt, upstream.profile, upstream.model, attempt=attempt)
            return connected(upstream.health, lambda: _read(body, headers, ChatDecoder(turn.reading), upstream))

        return arranged(turn.prompt, arrangement)

    return checked(judged(turn.prompt), held_back(turn.prompt, upstream.profile), upstream.judge, ask)


async def _read(
    body: Mapping[str, Any], headers: Mapping[str, str], decoder: ChatDecoder, upstream: Upstream
) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of one connection, up to the `Stop`."""
    came = False
    async with contextlib.aclosing(upstream.client.stream(body, headers=headers)) as stream:
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

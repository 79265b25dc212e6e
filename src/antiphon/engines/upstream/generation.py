"""One turn of a chat-completions upstream, or a text that it goes on with: what it is asked, and how that is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Self

from msgspec import Struct

from antiphon.engines.base import PreparedTurn
from antiphon.engines.checks.judge import Judge
from antiphon.engines.upstream.attempts import Deltas, arranged, checked, connected
from antiphon.engines.upstream.client import UpstreamClient, UpstreamLostError
from antiphon.engines.upstream.decoder import ChatDecoder, Reading
from antiphon.engines.upstream.health import Health
from antiphon.engines.upstream.profiles import Profile
from antiphon.engines.upstream.request import held_back, judged, request_body, session_headers, text_body
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.completions import RawPrompt
from antiphon.protocol.sse import ServerSentEvent

__all__ = ["ChatTurn", "Upstream", "generated"]

CHATS: Final = "/chat/completions"
"""Where an upstream answers conversations, below its URL."""

TEXTS: Final = "/completions"
"""Where it goes on with texts."""

_LINGER: Final = 2.0
"""Seconds that the usage may take after the end of a turn was told."""


class ChatTurn(PreparedTurn):
    """A prompt for an upstream. Nothing of it is kept over a crash: it is `constrained`, and drawn anew.

    One with `raw` is no conversation: the upstream goes on with that text, or these tokens.
    """

    reading: Reading = Reading(0)
    raw: RawPrompt | None = None


class Upstream(Struct, frozen=True):
    """What a turn is generated with; `model` is the upstream's own name for it."""

    client: UpstreamClient
    health: Health
    judge: Judge
    profile: Profile
    model: str


def generated(turn: ChatTurn, upstream: Upstream) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of a turn; closing the generator closes the connection. It raises what `checked` does."""
    if turn.raw is not None:
        return _text(turn, turn.raw, upstream)
    headers = session_headers(turn.prompt, upstream.profile)

    def ask(attempt: int) -> Deltas:
        def arrangement(prompt: Prompt) -> Deltas:
            body = request_body(prompt, upstream.profile, upstream.model, attempt=attempt)
            return connected(upstream.health, lambda: _Read(body, headers, turn, upstream))

        return arranged(turn.prompt, arrangement)

    return checked(judged(turn.prompt), held_back(turn.prompt, upstream.profile), upstream.judge, ask)


async def _text(turn: ChatTurn, raw: RawPrompt, upstream: Upstream) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of a text: there is nothing to check of it, and no other way to say it."""
    headers = session_headers(turn.prompt, upstream.profile)
    body = text_body(raw, turn.prompt, upstream.profile, upstream.model)
    stream = connected(upstream.health, lambda: _Read(body, headers, turn, upstream, TEXTS))
    async with contextlib.aclosing(stream):
        async for deltas in stream:
            yield deltas


class _Read:
    """The deltas of one connection, up to the `Stop`."""

    def __init__(
        self,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        turn: ChatTurn,
        upstream: Upstream,
        path: str = CHATS,
    ) -> None:
        self._events = upstream.client.stream(body, path, headers, turn.taken)
        self._decoder = ChatDecoder(turn.reading)
        self._came = False
        self._fault: EngineError | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Delta]:
        decoder = self._decoder
        if self._fault is not None:
            raise self._fault
        if decoder.done:
            raise StopAsyncIteration
        try:
            events = await (self._last() if decoder.finished else self._events.__anext__())
        except StopAsyncIteration:
            return self._end()
        except UpstreamLostError:
            if not decoder.finished:
                raise
            return self._end()
        self._came = True
        deltas: list[Delta] = []
        try:
            decoder.read(events, deltas)
        except EngineError as error:
            if not deltas:
                raise
            # What came before the fault in the same read is told first.
            self._fault = error
        return deltas

    async def aclose(self) -> None:
        """Close the connection."""
        await self._events.aclose()

    def _end(self) -> Sequence[Delta]:
        if not (self._came or self._decoder.finished):
            raise UpstreamLostError("The upstream ended before it had answered.")
        return self._decoder.end()

    async def _last(self) -> Sequence[ServerSentEvent]:
        """The events of the next read, where only usage can follow; they end where it does not come."""
        try:
            async with asyncio.timeout(_LINGER):
                return await self._events.__anext__()
        except TimeoutError:
            raise StopAsyncIteration from None

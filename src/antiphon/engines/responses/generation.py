"""One turn of an upstream with a Responses endpoint: what it is asked, and how its events are read."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.engines.base import PreparedTurn
from antiphon.engines.checks.judge import Judge
from antiphon.engines.responses.decoder import Reading, ResponsesDecoder
from antiphon.engines.responses.profiles import Profile
from antiphon.engines.responses.request import request_body
from antiphon.engines.upstream.attempts import Deltas, arranged, checked, connected
from antiphon.engines.upstream.client import UpstreamClient, UpstreamLostError
from antiphon.engines.upstream.health import Health
from antiphon.engines.upstream.request import held_back, judged, session_headers
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt

__all__ = ["ResponsesTurn", "Upstream", "generated"]

_PATH: Final = "/responses"


class ResponsesTurn(PreparedTurn):
    """A prompt for an upstream."""

    reading: Reading = Reading(0)


class Upstream(Struct, frozen=True):
    """What a turn is generated with; `model` is the upstream's own name for it."""

    client: UpstreamClient
    health: Health
    judge: Judge
    profile: Profile
    model: str


def generated(turn: ResponsesTurn, upstream: Upstream) -> Deltas:
    """The deltas of a turn; closing the generator closes the connection. It raises what `checked` does."""
    profile = upstream.profile
    headers = session_headers(turn.prompt, profile.trust)

    def ask(attempt: int) -> Deltas:
        def arrangement(prompt: Prompt) -> Deltas:
            body = request_body(prompt, profile, upstream.model, attempt=attempt)
            return connected(upstream.health, lambda: _read(body, headers, ResponsesDecoder(turn.reading), upstream))

        return arranged(turn.prompt, arrangement)

    return checked(judged(turn.prompt), held_back(turn.prompt, profile.trust), upstream.judge, ask)


async def _read(
    body: Mapping[str, Any], headers: Mapping[str, str], decoder: ResponsesDecoder, upstream: Upstream
) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of one connection, up to the `Stop`."""
    came = False
    async with contextlib.aclosing(upstream.client.stream(body, _PATH, headers)) as stream:
        async for events in stream:
            came = True
            deltas: list[Delta] = []
            try:
                for event in events:
                    deltas += decoder.feed(event)
            except EngineError:
                # What came before the fault in the same read is told first.
                if deltas:
                    yield deltas
                raise
            yield deltas
            if decoder.done:
                return
    if not came:
        raise UpstreamLostError("The upstream ended before it had answered.")
    yield decoder.end()

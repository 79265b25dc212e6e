"""One turn of an upstream with a Responses endpoint: what it is asked, and how its events are read."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct

from antiphon.engines.base import PreparedTurn
from antiphon.engines.checks.judge import Judge
from antiphon.engines.responses.decoder import Reading, ResponsesDecoder
from antiphon.engines.responses.profiles import Profile
from antiphon.engines.responses.request import request_body
from antiphon.engines.upstream.attempts import Deltas, arranged, checked, connected
from antiphon.engines.upstream.client import (
    UpstreamClient,
    UpstreamLostError,
    UpstreamMissingError,
    UpstreamRefusedError,
)
from antiphon.engines.upstream.health import Health
from antiphon.engines.upstream.request import held_back, judged, session_headers
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt

__all__ = ["PATH", "Question", "ResponsesTurn", "Upstream", "generated"]

PATH: Final = "/responses"
"""Where responses are, below the URL of an upstream."""

_MOST_FAILURES: Final = 5
"""Connections in a row that bring nothing of a response that is kept, after which it counts as lost."""

_PAUSE: Final = 0.1
"""Seconds before the second of them; the others wait twice as long as those before."""


class ResponsesTurn(PreparedTurn):
    """A prompt for an upstream."""

    reading: Reading = Reading(0)


class Question(Struct, frozen=True):
    """What an upstream is asked; without a body, for what it has already."""

    body: Mapping[str, Any] | None
    headers: Mapping[str, str]
    path: str = PATH


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
    keeps = profile.keeps and turn.prompt.kept
    headers = session_headers(turn.prompt, profile.trust)

    def ask(attempt: int) -> Deltas:
        if attempt:
            # What is kept is an answer that was not what was asked for.
            turn.sampled.kept = b""

        def arrangement(prompt: Prompt) -> Deltas:
            body = request_body(prompt, profile, upstream.model, attempt=attempt, kept=keeps)
            if keeps:
                once = secrets.token_hex(16)
                return connected(upstream.health, lambda: _kept(body, headers, once, turn, upstream))
            question = Question(body, headers)
            return connected(upstream.health, lambda: _read(question, ResponsesDecoder(turn.reading), turn, upstream))

        return arranged(turn.prompt, arrangement)

    return checked(judged(turn.prompt), held_back(turn.prompt, profile.trust), upstream.judge, ask)


async def _kept(
    body: Mapping[str, Any], headers: Mapping[str, str], once: str, turn: ResponsesTurn, upstream: Upstream
) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of a response that the upstream keeps, over as many connections as it takes (ADR 11).

    One that an earlier life has begun is read from its start; one whose connection breaks is read on from its last
    event. What the upstream has lost before anything was told of it here is run again. `once` is the key by which an
    upstream knows a request that it has had already, whose answer never came.
    """
    sampled, decoder = turn.sampled, ResponsesDecoder(turn.reading)
    told, failures = False, 0
    while True:
        question, last = Question(body, {**headers, "idempotency-key": once}), decoder.last_sequence_number
        if sampled.kept:
            question = Question(None, headers, _place(sampled.kept, last))
        try:
            async with contextlib.aclosing(_read(question, decoder, turn, upstream)) as stream:
                async for deltas in stream:
                    # What is sent again, since it was not understood where to begin, is nothing new.
                    failures = 0 if decoder.last_sequence_number != last else failures
                    if "background" in body:
                        sampled.kept = (decoder.response_id or "").encode() or sampled.kept
                    told = told or bool(deltas)
                    yield deltas
        except UpstreamLostError:
            if not sampled.kept or failures == _MOST_FAILURES:
                raise
            await asyncio.sleep(_PAUSE * 2**failures)
            failures += 1
        except (UpstreamMissingError, UpstreamRefusedError):
            if question.body is not None:
                if "background" not in body:
                    raise
                # Not every account may have responses stored.
                body = {**{name: value for name, value in body.items() if name != "background"}, "store": False}
            elif told:
                raise UpstreamLostError("The upstream has lost the response that it ran.") from None
            sampled.kept, decoder, once = b"", ResponsesDecoder(turn.reading), secrets.token_hex(16)
        else:
            return


def _place(name: bytes, last: int | None) -> str:
    """Where the events of a kept response are, after the last one that came."""
    path = f"{PATH}/{quote(name.decode(), safe='')}?stream=true"
    return path if last is None else f"{path}&starting_after={last}"


async def _read(
    question: Question, decoder: ResponsesDecoder, turn: ResponsesTurn, upstream: Upstream
) -> AsyncGenerator[Sequence[Delta]]:
    """The deltas of one connection, up to the `Stop`."""
    came = False
    answer = upstream.client.stream(question.body, question.path, question.headers, turn.taken)
    async with contextlib.aclosing(answer) as stream:
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

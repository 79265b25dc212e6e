"""Answers that their clients wait for: whole or as a stream, and at an end when the client leaves.

The answer to a request for a stream begins when something of it can be seen: where a model runs elsewhere, that is when
its upstream has taken the turn, so that a refusal has the upstream's status, as it has where no stream is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol

from antiphon.errors import APIError
from antiphon.http.exchange import Exchange
from antiphon.http.leaving import ClientWatch
from antiphon.http.stream import stream_live
from antiphon.runtime.live import LiveLog

__all__ = ["HELD_SECONDS", "Foreground", "answer", "first_event"]

HELD_SECONDS: Final = 1.0
"""How long the events of a response wait for the word of its upstream.

Upstreams refuse within milliseconds what they refuse at all. Some say nothing before the first token, and until then a
client would not know the id of its response.
"""


class Foreground(Protocol):
    """What runs for a client.

    `declined` is the error that stands for the answer in any case, since nothing was generated; `refused` is the one
    that stands for a whole answer, where there is none.
    """

    live: LiveLog
    refused: APIError | None

    @property
    def declined(self) -> APIError | None:
        """See above."""
        ...

    def leave(self) -> None:
        """The client left."""
        ...

    def body(self) -> bytes:
        """The JSON of the whole answer."""
        ...


async def answer(
    exchange: Exchange,
    run: Foreground,
    work: Awaitable[None],
    keep_alive_seconds: float,
    *,
    stream: bool,
    stays: bool = False,
    held_seconds: float = HELD_SECONDS,
) -> None:
    """Send the whole answer, or its events; the work ends when the client leaves, unless it `stays`.

    Work for a stream is a task. A stream begins after `held_seconds` whether there is an event to send or not.

    Raises:
        APIError: there is no whole answer, or no stream since nothing was generated.
    """
    watch = None if stays else ClientWatch(exchange, run.leave)
    try:
        if stream and not run.live.published:
            await first_event(run.live, held_seconds)
            stream = run.declined is None
        if stream:
            await stream_live(exchange, run.live, keep_alive_seconds)
        # A task of its own goes on when this one is cancelled.
        await (asyncio.shield(work) if isinstance(work, asyncio.Task) else work)
    except BaseException:
        if not stays:
            run.leave()
        raise
    finally:
        if watch is not None:
            watch.stop()
    if not stream:
        error = run.declined or run.refused
        if error is not None:
            raise error
        await exchange.reply(run.body())


async def first_event(live: LiveLog, seconds: float) -> None:
    """Wait for what is published first, or for its end; after so many seconds all is published that there is."""
    try:
        async with asyncio.timeout(seconds):
            while not (live.published or live.closed):
                await live.wait()
    except TimeoutError:
        live.publish()

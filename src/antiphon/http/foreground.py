"""Answers that their clients wait for: whole or as a stream, and at an end when the client leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Protocol

from antiphon.errors import APIError, EngineError
from antiphon.http.exchange import Exchange
from antiphon.http.leaving import ClientWatch
from antiphon.http.stream import stream_live
from antiphon.runtime.live import LiveLog

__all__ = ["Foreground", "answer"]


class Foreground(Protocol):
    """What runs for a client; `refused` is the error that stands for the whole answer, where there is none."""

    live: LiveLog
    refused: APIError | None

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
) -> None:
    """Send the whole answer, or its events; the work ends when the client leaves, unless it `stays`.

    Work for a stream is a task.

    Raises:
        APIError: there is no whole answer, or no stream since nothing was generated.
    """
    watch = None if stays else ClientWatch(exchange, run.leave)
    try:
        if stream and not run.live.published:
            await _first_event(run.live, keep_alive_seconds)
            stream = not (isinstance(run.refused, EngineError) and run.refused.refused)
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
        if run.refused is not None:
            raise run.refused
        await exchange.reply(run.body())


async def _first_event(live: LiveLog, seconds: float) -> None:
    """Wait for what is published first, or for its end, but for no longer than a stream may be silent."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not (live.published or live.closed):
                await live.wait()

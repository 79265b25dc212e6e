"""Event streams over raw ASGI: slices of a live log, or the stored frames of a response that does not run here.

Every write holds whole events, at most 16 KiB of them unless one event is larger; a silent stream gets a comment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing

from antiphon.http.exchange import Exchange
from antiphon.http.leaving import while_client_stays
from antiphon.protocol.sse import DONE, KEEP_ALIVE
from antiphon.runtime.live import LiveLog
from antiphon.runtime.replays import Replay
from antiphon.store.base import EventBatch

__all__ = ["stream_live", "stream_replay", "whole_events"]

MAX_WRITE = 16 * 1024


class _Silence:
    """One timer a stream, however many events: wakes the reader when nothing was sent for a while.

    The reader clears `ticks` when it sends, and gives in `waiting` what to wake; both cost an event next to nothing,
    which is why the time of the last event is not kept. A comment comes at most an eighth of the time late.
    """

    TICKS = 8

    def __init__(self, seconds: float) -> None:
        self._step = seconds / self.TICKS
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._step, self._tick)
        self.ticks = 0
        self.waiting: asyncio.Future[None] | None = None

    @property
    def due(self) -> bool:
        """Whether it is time for a comment."""
        return self.ticks > self.TICKS

    def stop(self) -> None:
        """No more wakes."""
        self._timer.cancel()

    def _tick(self) -> None:
        self.ticks += 1
        if self.due and self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)
        self._timer = self._loop.call_later(self._step, self._tick)


async def stream_live(exchange: Exchange, live: LiveLog, keep_alive_seconds: float) -> None:
    """Send a whole stream from a live log, as its events are published."""
    await exchange.start_stream()
    await _send_live(exchange, live, 0, keep_alive_seconds)
    await _finish(exchange)


async def stream_replay(exchange: Exchange, replay: Replay, after: int, keep_alive_seconds: float) -> None:
    """Send the events after a number: from the live log as far as it goes, else from the store, byte for byte.

    It ends when the client leaves: the response may go on for long, or say nothing for as long.
    """
    await exchange.start_stream()
    async with while_client_stays(exchange):
        await _send_replay(exchange, replay, after, keep_alive_seconds)


async def _send_replay(exchange: Exchange, replay: Replay, after: int, keep_alive_seconds: float) -> None:
    live = replay.live
    if live is not None:
        sent = await _send_live(exchange, live, after + 1, keep_alive_seconds)
        if not live.moved:
            await _finish(exchange)
            return
        after = max(after, sent - 1)
    async with aclosing(replay.tail(after)) as tail:
        async for batches in tail:
            if not batches:
                await _send(exchange, KEEP_ALIVE)
            for batch in batches:
                for body in _cut_batch(batch, after):
                    await _send(exchange, body)
                after = batch.last_sequence
    await _finish(exchange)


async def _send_live(exchange: Exchange, live: LiveLog, start: int, keep_alive_seconds: float) -> int:
    """Send from number `start` to the end of what this process publishes; the number that would come next."""
    send = exchange.send
    silence = _Silence(keep_alive_seconds)
    try:
        while True:
            if start < live.published:
                frames = live.slice(start)
                start += len(frames)
                silence.ticks = 0
                for body in frames if len(frames) == 1 else whole_events(frames):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            elif live.closed:
                return start
            else:
                silence.waiting = live.wait()
                await silence.waiting
                if silence.due:
                    silence.ticks = 0
                    await _send(exchange, KEEP_ALIVE)
    finally:
        silence.stop()


async def _send(exchange: Exchange, body: bytes | memoryview) -> None:
    await exchange.send({"type": "http.response.body", "body": body, "more_body": True})


async def _finish(exchange: Exchange) -> None:
    await exchange.send({"type": "http.response.body", "body": DONE})


def whole_events(frames: Sequence[bytes]) -> Iterator[bytes]:
    """Frames joined into writes of whole events."""
    first = size = 0
    for index, frame in enumerate(frames):
        if size and size + len(frame) > MAX_WRITE:
            yield b"".join(frames[first:index])
            first, size = index, 0
        size += len(frame)
    if first < len(frames):
        yield b"".join(frames[first:])


def _cut_batch(batch: EventBatch, after: int) -> Iterator[memoryview]:
    offsets = batch.offsets
    first = max(0, after + 1 - batch.first_sequence)
    view = memoryview(batch.body)
    while first < len(offsets):
        begin = offsets[first]
        last = first + 1
        while last < len(offsets) and _end(batch, last) - begin <= MAX_WRITE:
            last += 1
        yield view[begin : _end(batch, last - 1)]
        first = last


def _end(batch: EventBatch, index: int) -> int:
    following = index + 1
    return batch.offsets[following] if following < len(batch.offsets) else len(batch.body)

"""Event streams over raw ASGI: slices of a live log, or the stored frames of an ended response.

Every write holds whole events, at most 16 KiB of them unless one event is larger; a silent stream gets a comment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from antiphon.http.exchange import Exchange
from antiphon.protocol.sse import DONE, KEEP_ALIVE
from antiphon.runtime.live import LiveLog
from antiphon.store.base import EventBatch

__all__ = ["stream_batches", "stream_live", "whole_events"]

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


async def stream_live(exchange: Exchange, live: LiveLog, start: int, keep_alive_seconds: float) -> None:
    """Send the events of a live log from number `start` to its end, as they are published."""
    await exchange.start_stream()
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
                break
            else:
                silence.waiting = live.wait()
                await silence.waiting
                if silence.due:
                    silence.ticks = 0
                    await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
    finally:
        silence.stop()
    await send({"type": "http.response.body", "body": DONE})


async def stream_batches(exchange: Exchange, batches: Iterable[EventBatch], after: int) -> None:
    """Send stored events with a number greater than `after`, byte for byte as they were."""
    await exchange.start_stream()
    for batch in batches:
        for body in _cut_batch(batch, after):
            await exchange.send({"type": "http.response.body", "body": body, "more_body": True})
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

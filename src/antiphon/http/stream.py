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
    """One timer a stream, however many events: wakes the reader when nothing was sent for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._waiting: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(seconds, self._check)
        self.due = False

    def sent(self) -> None:
        """Something went out."""
        self._sent_at = self._loop.time()
        self.due = False

    def waiting(self, future: asyncio.Future[None]) -> None:
        """What to wake."""
        self._waiting = future

    def stop(self) -> None:
        """No more wakes."""
        self._timer.cancel()

    def _check(self) -> None:
        left = self._sent_at + self._seconds - self._loop.time()
        if left <= 0:
            self.due = True
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(None)
            left = self._seconds
        self._timer = self._loop.call_later(left, self._check)


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
                silence.sent()
                for body in frames if len(frames) == 1 else whole_events(frames):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            elif live.closed:
                break
            else:
                future = live.wait()
                silence.waiting(future)
                await future
                if silence.due:
                    silence.sent()
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

"""The live log: what a running response has published, and the readers that wait for more.

The runner publishes; a reader drains slices. A reader that lags, or a burst, gets many events at once, so that wake-ups
and writes do not grow with the number of events.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["MOST_AT_ONCE", "Frames", "LiveLog"]

MOST_AT_ONCE = 1024
"""Frames that a reader takes at once, so that one which comes late does not hold the whole log."""

LEAST_ROOM = 16
"""So many futures may lie in a log before those that nobody waits for are looked for."""


class Frames(Protocol):
    """Whatever writes frames, only ever adding to them until its end is told."""

    frames: list[bytes]


class LiveLog:
    """Readers see `log.frames[:published]`; `closed` says that no more will come from here.

    `moved` says that the response goes on elsewhere: another server has taken it over, or will.
    """

    def __init__(self, log: Frames) -> None:
        self.log = log
        self.published = 0
        self.closed = False
        self.moved = False
        self._waiting: list[asyncio.Future[None]] = []
        self._room = LEAST_ROOM

    def publish(self, upto: int | None = None) -> None:
        """Let readers see the events before number `upto`, or all of them."""
        self.published = len(self.log.frames) if upto is None else upto
        self._wake()

    def close(self) -> None:
        """Publish all and end every reader's wait."""
        self.published = len(self.log.frames)
        self.closed = True
        self._wake()

    def move(self) -> None:
        """End every reader's wait with what is published: the rest comes from the store."""
        self.moved = self.closed = True
        self._wake()

    def slice(self, start: int) -> list[bytes]:
        """The published frames from number `start` on, or the first of many."""
        return self.log.frames[start : min(self.published, start + MOST_AT_ONCE)]

    def wait(self) -> asyncio.Future[None]:
        """A future that is done at the next `publish` or `close`, or when a reader sets it itself."""
        if len(self._waiting) >= self._room:
            # Readers that left, or were woken by their own timers, in a log that stands still.
            self._waiting = [future for future in self._waiting if not future.done()]
            self._room = max(LEAST_ROOM, 2 * len(self._waiting))
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def _wake(self) -> None:
        if self._waiting:
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)
            self._waiting.clear()

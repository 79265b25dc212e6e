"""Admission: a bound on the responses that are generated or wait for a slot at the same time (M40)."""

from __future__ import annotations

import asyncio
import contextlib

from antiphon.errors import ServerBusyError

__all__ = ["Admission"]


class Admission:
    """Counts the requests that are in; more than `limit` are refused at once, with a hint when to come back."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = 0
        self._empty: asyncio.Event | None = None

    def enter(self, places: int = 1) -> None:
        """Take a place, or several.

        Raises:
            ServerBusyError: not so many are free.
        """
        if self.running + places > self.limit:
            raise ServerBusyError("All slots are busy. Please try again later.", retry_after=1.0)
        self.running += places

    def leave(self, places: int = 1) -> None:
        """Give the places back."""
        self.running -= places
        if self._empty is not None and not self.running:
            self._empty.set()

    async def empty(self, seconds: float) -> None:
        """Wait until no place is taken, at most so many seconds."""
        if self.running:
            self._empty = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)

"""How many requests one model generates at the same time, how many may wait for it, and whether any use it.

Places are taken before anything is generated, so that one request too many is a plain error; a turn then waits for one
of the slots, first come, first served. What runs in the background has a queue of its own, and waits here without a
bound. What is patient waits until nobody else does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import TracebackType
from typing import Final

from antiphon.errors import ServerBusyError

__all__ = ["DEFAULT_QUEUE", "Aside", "Gate", "Place", "Slot"]

DEFAULT_QUEUE: Final = 64
"""Requests that may wait for a model whose table sets no `max_queue`."""

_RETRY_SECONDS: Final = 1.0


class Gate:
    """The gate of one model. Without `most` nothing ever waits; it counts its users all the same."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._queue = DEFAULT_QUEUE
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._patient: deque[asyncio.Future[None]] = deque()
        self._places = 0
        self._users = 0
        self._idle: asyncio.Event | None = None

    @property
    def most(self) -> int | None:
        """How many places there are, those that wait included; None for any number."""
        return None if self._most is None else self._most + self._queue

    @property
    def running(self) -> int:
        """Turns that are generated now."""
        return self._running

    @property
    def waiting(self) -> int:
        """Turns that wait for a slot."""
        return len(self._waiting) + len(self._patient)

    @property
    def slots(self) -> int | None:
        """How many turns run at most; None for any number."""
        return self._most

    def limit(self, most: int | None, queue: int | None = None) -> None:
        """Let at most so many turns run, and so many requests beyond these wait; what runs already goes on."""
        self._most = most
        self._queue = DEFAULT_QUEUE if queue is None else queue
        self._admit()

    def enter(self, places: int = 1, *, bounded: bool = True) -> None:
        """Take places, which `leave` gives back.

        Raises:
            ServerBusyError: so many are running and waiting that these are too many.
        """
        if bounded:
            if self.most is not None and self._places + places > self.most:
                raise ServerBusyError("This model is busy. Please try again later.", retry_after=_RETRY_SECONDS)
            self._places += places
        self._users += places

    def leave(self, places: int = 1, *, bounded: bool = True) -> None:
        """Give places back."""
        if bounded:
            self._places -= places
        self._users -= places
        if not self._users and self._idle is not None:
            self._idle.set()

    def place(self, places: int = 1, *, bounded: bool = True) -> Place:
        """Places for as long as a block takes; entering it raises what `enter` does."""
        return Place(self, places, bounded)

    def slot(self, *, patient: bool = False) -> Slot:
        """One of the slots for as long as a block takes, after waiting for it; see `acquire`."""
        return Slot(self, patient)

    def aside(self) -> Aside:
        """For who holds a slot: others have it for as long as a block takes, and then one is waited for again."""
        return Aside(self)

    async def idle(self) -> None:
        """Wait until no place is taken."""
        while self._users:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()
            self._idle.clear()

    async def acquire(self, *, patient: bool = False) -> None:
        """Wait for a slot and take it; who is `patient` gets none while anyone else waits."""
        queue = self._patient if patient else self._waiting
        if self._most is None or (self._running < self._most and not self._waiting and not queue):
            self._running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            else:
                with contextlib.suppress(ValueError):
                    queue.remove(turn)
            raise

    def take_back(self) -> None:
        """Take a slot whether there is one or not, for the moment until it is given back."""
        self._running += 1

    def release(self) -> None:
        """Give a slot back to whoever has waited longest."""
        self._running -= 1
        self._admit()

    def _admit(self) -> None:
        while (queue := self._waiting or self._patient) and (self._most is None or self._running < self._most):
            turn = queue.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)


class Place:
    """See `Gate.place`."""

    def __init__(self, gate: Gate, places: int, bounded: bool) -> None:
        self._gate = gate
        self._places = places
        self._bounded = bounded

    def __enter__(self) -> None:
        self._gate.enter(self._places, bounded=self._bounded)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._gate.leave(self._places, bounded=self._bounded)


class Aside:
    """See `Gate.aside`."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __aenter__(self) -> None:
        self._gate.release()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            try:
                await self._gate.acquire()
            except BaseException:
                self._gate.take_back()
                raise
        else:
            # Who holds the slot gives it back at once, so that nothing is waited for.
            self._gate.take_back()


class Slot:
    """See `Gate.slot`."""

    def __init__(self, gate: Gate, patient: bool = False) -> None:
        self._gate = gate
        self._patient = patient

    async def __aenter__(self) -> None:
        await self._gate.acquire(patient=self._patient)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._gate.release()

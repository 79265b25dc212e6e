"""The time that a whole call may take: a line that carries out steps until it is over."""

from __future__ import annotations

import time
from typing import Any, Protocol

import anyio
import msgspec

from antiphon.client.errors import DeadlineError, TransportError
from antiphon.client.steps import Ask, Pause, Read, Step

__all__ = ["AsyncLine", "AsyncTimed", "Line", "Timed"]


class Line(Protocol):
    """What carries out the steps."""

    def perform(self, step: Step) -> Any:
        """Do it, and give what came of it."""
        ...

    def close(self) -> None:
        """The call is over."""
        ...


class AsyncLine(Protocol):
    """What carries out the steps."""

    async def perform(self, step: Step) -> Any:
        """Do it, and give what came of it."""
        ...

    async def close(self) -> None:
        """The call is over."""
        ...


class _Clock:
    """How much is left of so many seconds from now on; None are endless."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """The seconds that are left.

        Raises:
            DeadlineError: none.
        """
        left = None if self._end is None else self._end - time.monotonic()
        if left is not None and left <= 0:
            raise self.over()
        return left

    def over(self) -> DeadlineError:
        """What a caller is told."""
        return DeadlineError(f"The call has taken longer than {self._seconds:g} seconds.")


class Timed:
    """A synchronous line. No step waits for longer than what is left when it begins."""

    def __init__(self, line: Line, seconds: float | None) -> None:
        self._line = line
        self._clock = _Clock(seconds)

    def perform(self, step: Step) -> Any:
        """Do it, and give what came of it.

        Raises:
            DeadlineError: the time is over.
            DriverError: as the line has it.
        """
        left = self._clock.left()
        if left is not None and isinstance(step, Ask | Read):
            step = msgspec.structs.replace(step, seconds=left)
        elif left is not None and isinstance(step, Pause):
            step = Pause(min(step.seconds, left))
        try:
            return self._line.perform(step)
        except TransportError:
            self._clock.left()
            raise

    def close(self) -> None:
        """The call is over."""
        self._line.close()


class AsyncTimed:
    """An asynchronous line, which is left at once when the time is over."""

    def __init__(self, line: AsyncLine, seconds: float | None) -> None:
        self._line = line
        self._clock = _Clock(seconds)

    async def perform(self, step: Step) -> Any:
        """Do it, and give what came of it.

        Raises:
            DeadlineError: the time is over.
            DriverError: as the line has it.
        """
        left = self._clock.left()
        if left is None:
            return await self._line.perform(step)
        with anyio.move_on_after(left):
            return await self._line.perform(step)
        raise self._clock.over()

    async def close(self) -> None:
        """The call is over."""
        await self._line.close()

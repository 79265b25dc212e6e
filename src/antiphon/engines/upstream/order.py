"""In which order the pieces of a turn are told: one after another, although an upstream may mix them. Pure.

While a call is told, what comes beside it waits until the call is whole, or the turn ends; then all of it is told in
the order in which it began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from antiphon.machine.deltas import Delta, ToolCallDelta, ToolCallStart

__all__ = ["CustomCall", "Order", "TellableCall"]


class TellableCall(Protocol):
    """A call that is told as it comes."""

    @property
    def whole(self) -> bool:
        """Whether nothing of it is missing."""
        ...

    def take(self) -> list[Delta]:
        """What can be told of it that was not told yet."""
        ...

    def close(self, *, cut: bool = False) -> list[Delta]:
        """The rest, at its end; `cut` says that it need not be complete."""
        ...


class CustomCall:
    """A call of a custom tool whose input comes as it is; `whole` once it is said to be done."""

    def __init__(self, name: str) -> None:
        self.whole = False
        self._new: list[Delta] = [ToolCallStart(name, custom=True)]

    def add(self, text: str) -> None:
        """More of the input."""
        if text:
            self._new.append(ToolCallDelta(text))

    def take(self) -> list[Delta]:
        """What was not told yet."""
        new, self._new = self._new, []
        return new

    def close(self, *, cut: bool = False) -> list[Delta]:
        """The rest."""
        return self.take()


class Order:
    """Deltas and calls go in as they come, and deltas come out as they can be told."""

    def __init__(self) -> None:
        self._told: TellableCall | None = None
        self._waiting: deque[TellableCall | Delta] = deque()
        self._out: list[Delta] = []

    @property
    def waits(self) -> bool:
        """Whether what comes beside a call would wait for it."""
        return self._told is not None or bool(self._waiting)

    def put(self, delta: Delta) -> None:
        """A delta that is no part of a call."""
        if not self.waits:
            self._out.append(delta)
            return
        self._waiting.append(delta)
        self.advance()

    def begin(self, call: TellableCall) -> None:
        """A call begins."""
        self._waiting.append(call)
        self.advance()

    def advance(self) -> None:
        """Tell what can be told, since a call has grown.

        Raises:
            EngineError: a call that is whole cannot be read.
        """
        while True:
            call = self._told
            if call is not None:
                self._out += call.take()
                if not self._waiting or not call.whole:
                    return
                self._out += call.close()
                self._told = None
            if not self._waiting:
                return
            self._next()

    def end(self, *, cut: bool) -> None:
        """Tell all that waits, at the end of the turn; `cut` says that a call need not be complete.

        Raises:
            EngineError: a call cannot be read.
        """
        while self._told is not None or self._waiting:
            if self._told is not None:
                self._out += self._told.close(cut=cut)
                self._told = None
            if self._waiting:
                self._next()

    def taken(self, more: Iterable[Delta] = ()) -> list[Delta]:
        """What can be told now, and more behind it."""
        out, self._out = self._out, []
        out += more
        return out

    def _next(self) -> None:
        first = self._waiting.popleft()
        if isinstance(first, Delta):
            self._out.append(first)
        else:
            self._told = first

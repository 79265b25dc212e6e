"""Shares out the key-value cache, which all slots have in common.

llama.cpp fails every running turn when its unified cache is full. So a turn starts only when its prompt fits beside the
others, and when those that run have grown too large together, the youngest steps back and goes on later from the tokens
it has. Turns wait in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Share", "TokenPool"]


class Share:
    """What one running turn holds."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        """Tokens in the cache: the prompt and what was generated."""
        self.step_back = False
        """Whether the turn is to stop now and to acquire a new share."""
        self.shared = False
        """Whether another turn ran at the same time."""


class TokenPool:
    """`capacity` tokens for at most `slots` turns at once; `margin` of them is kept free while several turns run."""

    def __init__(self, capacity: int, slots: int, margin: int | None = None) -> None:
        self._capacity = capacity
        self._slots = slots
        # Between the order to step back and its effect every turn can grow by some tokens more.
        self._margin = min(capacity // 8, 32 * slots) if margin is None else margin
        self._running: list[Share] = []
        self._waiting: deque[tuple[int, asyncio.Future[Share]]] = deque()

    @property
    def used(self) -> int:
        """Tokens of all running turns."""
        return sum(share.tokens for share in self._running)

    @property
    def waiting(self) -> int:
        """Turns that wait for a share."""
        return len(self._waiting)

    async def acquire(self, tokens: int, *, first: bool = False) -> Share:
        """A share of so many tokens, when they fit; `first` is for a turn that stepped back."""
        future: asyncio.Future[Share] = asyncio.get_running_loop().create_future()
        entry = (tokens, future)
        if first:
            self._waiting.appendleft(entry)
        else:
            self._waiting.append(entry)
        self._admit()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(future.result())
            elif entry in self._waiting:
                self._waiting.remove(entry)
                self._admit()
            raise

    def grow(self, share: Share, tokens: int) -> None:
        """Note how many tokens a turn has now; where they are too many together, the youngest is to step back."""
        share.tokens = tokens
        if len(self._running) > 1 and self.used > self._capacity - self._margin:
            youngest = self._running[-1]
            if not any(other.step_back for other in self._running):
                youngest.step_back = True

    def release(self, share: Share) -> None:
        """Give a share back."""
        if share in self._running:
            self._running.remove(share)
            self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            tokens, future = self._waiting[0]
            # Room to grow for some time, so that a turn does not come in only to step back at once.
            if self._running and self.used + tokens + 2 * self._margin > self._capacity:
                return
            self._waiting.popleft()
            if future.cancelled():
                continue
            share = Share(tokens)
            self._running.append(share)
            if len(self._running) > 1:
                for other in self._running:
                    other.shared = True
            future.set_result(share)

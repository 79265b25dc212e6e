"""Whether an upstream can be asked: it is probed now and then and after a failure, and left alone until it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

__all__ = ["Health"]

_MOST_FAILURES: Final = 3
"""Failures in a row after which an upstream is left alone for a while, whatever its probe says."""

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 10.0
_CHECK_SECONDS: Final = 10.0
"""Seconds without an answer after which an upstream is probed, so that no turn has to find out that it is gone."""


class Health:
    """The circuit breaker of one upstream; `probe` asks it cheaply, `told` hears of changes.

    Where it has answered no turn for `seconds`, it is probed; after three such probes in a row that failed it is down.
    """

    def __init__(
        self, probe: Callable[[], Awaitable[bool]], told: Callable[[bool], None], *, seconds: float = _CHECK_SECONDS
    ) -> None:
        self._probe = probe
        self._told = told
        self._seconds = seconds
        self._heard = time.monotonic()
        self._checks: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._failures = 0
        self._recovery: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def up(self) -> bool:
        """Whether it can be asked."""
        return self._up.is_set()

    async def begin(self) -> None:
        """Probe it once; where it does not answer, it is probed until it does. From now on it is watched."""
        self._closed = False
        self._checks = asyncio.create_task(self._watch())
        answers = await self._probe()
        if self._closed:
            return
        if answers:
            self._up.set()
            return
        self._told(False)
        self._recovery = asyncio.create_task(self._recover())

    async def wait(self, seconds: float) -> bool:
        """Whether it can be asked, after waiting at most that long."""
        try:
            async with asyncio.timeout(seconds):
                return await self._up.wait()
        except TimeoutError:
            return False

    def succeeded(self) -> None:
        """It has answered."""
        self._failures = 0
        self._heard = time.monotonic()

    def failed(self) -> None:
        """It could not be reached, or broke off."""
        self._failures += 1
        if not self._closed and (self._recovery is None or self._recovery.done()):
            self._recovery = asyncio.create_task(self._doubt())

    async def close(self) -> None:
        """Stop probing; turns that end later are no reason to begin again."""
        self._closed = True
        self._up.clear()
        tasks = [task for task in (self._checks, self._recovery) if task is not None]
        self._checks = self._recovery = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _doubt(self) -> None:
        if self._failures < _MOST_FAILURES and await self._probe():
            return
        await self._lose()

    async def _watch(self) -> None:
        missed = 0
        while True:
            await asyncio.sleep(self._seconds)
            if not self.up or time.monotonic() - self._heard < self._seconds or await self._probe():
                missed = 0
                continue
            missed += 1
            if missed >= _MOST_FAILURES and (self._recovery is None or self._recovery.done()):
                missed = 0
                self._recovery = asyncio.create_task(self._lose())

    async def _lose(self) -> None:
        self._up.clear()
        self._told(False)
        await self._recover()

    async def _recover(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await asyncio.sleep(pause)
            if await self._probe():
                break
            pause = min(2 * pause, _LONGEST_PAUSE)
        # It is not trusted yet: one more failure, and it is left alone again.
        self._failures = _MOST_FAILURES - 1
        self._up.set()
        self._told(True)

"""Promises of time on a machine that does other things too: one of some tries keeps it, where the code does."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from support.server import wait_until

__all__ = ["TRIES", "quickest", "seconds_until"]

TRIES = 5


async def quickest(measure: Callable[[], Awaitable[float]], enough: float) -> float:
    """The least of some measures, which are made until one is less than `enough`."""
    least = await measure()
    for _ in range(TRIES - 1):
        if least < enough:
            break
        least = min(least, await measure())
    return least


def seconds_until(condition: Callable[[], object]) -> float:
    """How long it takes until a condition holds, which may be much longer than it should."""
    began = time.monotonic()
    wait_until(condition, 30)
    return time.monotonic() - began

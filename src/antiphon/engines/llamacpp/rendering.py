"""Holds a call that renders a chat template to its time, and its process to a growth of memory (faults B3 4).

llama.cpp can abort no template that runs: who takes too much has to be killed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from antiphon.errors import AntiphonError

__all__ = ["GROWTH", "TooHungryError", "held"]

T = TypeVar("T")

GROWTH: Final = 2**30 + min(2**31, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
"""Bytes that the process may grow by while a template runs; other turns may put that much into its prompt cache."""

_LOOK_SECONDS: Final = 0.1
"""Between two looks at the memory; hardly any template takes so long that there is one."""


class TooHungryError(AntiphonError):
    """The process grew too much while a template ran."""


async def held(work: Coroutine[Any, Any, T], pid: int, deadline: float, growth: int = GROWTH) -> T:
    """The result of the work, which is cancelled where that takes too much; `deadline` is in the loop's time.

    Raises:
        TimeoutError: the deadline has passed.
        TooHungryError: the process of that id has grown by more than `growth` bytes.
    """
    clock = asyncio.get_running_loop().time
    before = _resident(pid)
    task = asyncio.create_task(work)
    try:
        while not task.done():
            left = deadline - clock()
            if left <= 0:
                raise TimeoutError
            await asyncio.wait((task,), timeout=min(left, _LOOK_SECONDS))
            if not task.done() and before and _resident(pid) - before > growth:
                raise TooHungryError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


def _resident(pid: int) -> int:
    """Bytes of main memory that a process has; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0

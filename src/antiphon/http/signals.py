"""The signals of a server: to end, where the first lets it finish what runs and the second does not, and to reload."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Signals"]

LAST_SECONDS = 5.0
"""How long the store and the engines may take to close after the second signal."""

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Takes SIGINT and SIGTERM while it is entered, which must be in a running loop; `stop` is the first of them.

    At a SIGHUP, where the system has it, `reload` is called in the loop. Where the terminal of the server is gone, that
    is what it says, and it is one to end.
    """

    def __init__(self, reload: Callable[[], None]) -> None:
        self.stop = asyncio.Event()
        self._reload = reload
        self._on_terminal = os.isatty(0)
        self._hurry = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Only the main thread may: a server in another one is stopped by other means.
        if threading.current_thread() is threading.main_thread():
            for number in _NUMBERS:
                self._before[number] = signal.getsignal(number)
                try:
                    self._loop.add_signal_handler(number, self._told)
                except NotImplementedError:  # Windows
                    signal.signal(number, self._told_outside)
            if hasattr(signal, "SIGHUP"):
                self._before[signal.SIGHUP] = signal.getsignal(signal.SIGHUP)
                self._loop.add_signal_handler(signal.SIGHUP, self._told_of_hangup)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            with contextlib.suppress(NotImplementedError):
                self._loop.remove_signal_handler(number)
            signal.signal(number, handler)

    async def unless_hurried(self, task: asyncio.Task[None], seconds: float | None = None) -> None:
        """Wait until the task is done, the second signal has come, or so many seconds have passed."""
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({task, hurried}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()

    def _told(self) -> None:
        if not self.stop.is_set():
            self.stop.set()
        elif not self._hurry.is_set():
            self._hurry.set()
            # The one who asks twice does not wait for a disk or an engine that hangs.
            self._loop.call_later(LAST_SECONDS, os._exit, 1)

    def _told_of_hangup(self) -> None:
        if self._on_terminal and not os.isatty(0):
            self._told()
        else:
            self._reload()

    def _told_outside(self, _number: int, _frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._told)

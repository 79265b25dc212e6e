"""The workers of background responses: so many run at a time, and a bounded number waits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable

from msgspec import Struct

from antiphon.errors import ServerBusyError
from antiphon.runtime.observer import Observer

__all__ = ["Job", "Workers"]

Job = Callable[[], Awaitable[None]]
"""What a worker does."""


class _Waiting(Struct, frozen=True, eq=False):
    """A job that waits, and the monotonic time since when."""

    job: Job
    since: float


class Workers:
    """Runs jobs in the order they came, those that were running before a restart first.

    A place is reserved before the response is stored, so that what was accepted always has one.
    """

    def __init__(self, workers: int, queue: int, observer: Observer) -> None:
        self._workers = workers
        self._queue = queue
        self._observer = observer
        self._waiting: deque[_Waiting] = deque()
        self._resumed: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = 0
        self._idle: asyncio.Event | None = None
        self._stopped = False

    @property
    def waiting(self) -> int:
        """Jobs that wait for a worker."""
        return len(self._waiting) + len(self._resumed)

    @property
    def running(self) -> int:
        """Jobs that run."""
        return len(self._tasks)

    def reserve(self) -> None:
        """Take a place for a job that will be submitted, or given back.

        Raises:
            ServerBusyError: all workers are busy and the queue is full.
        """
        if len(self._tasks) + self.waiting + self._reserved >= self._workers + self._queue:
            raise ServerBusyError("The queue of background responses is full. Please try again later.", retry_after=5.0)
        self._reserved += 1

    def give_back(self) -> None:
        """Give a reserved place back."""
        self._reserved -= 1

    def submit(self, job: Job) -> None:
        """Run a job in the place that was reserved for it."""
        self._reserved -= 1
        self._waiting.append(_Waiting(job, time.monotonic()))
        self._next()

    def withdraw(self, job: Job) -> None:
        """Give a job's place back, if it still waits: whoever submitted it has run it otherwise."""
        found = next((waiting for waiting in self._waiting if waiting.job == job), None)
        if found is not None:
            self._waiting.remove(found)
        self._told()

    def resume(self, job: Job) -> None:
        """Run a job that was accepted by an earlier process: it comes before those that wait, and needs no place."""
        self._resumed.append(_Waiting(job, time.monotonic()))
        self._next()

    async def idle(self, seconds: float) -> None:
        """Wait until nothing runs or waits, at most so many seconds."""
        if self._tasks or self.waiting:
            self._idle = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)

    async def stop(self) -> None:
        """Begin no job any more, and wait for those that run; whoever calls has told them to end."""
        self._stopped = True
        self._waiting.clear()
        self._resumed.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._observe()

    def _next(self) -> None:
        while self.waiting and len(self._tasks) < self._workers and not self._stopped:
            job = (self._resumed or self._waiting).popleft().job
            task = asyncio.create_task(self._run(job))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        self._observe()

    async def _run(self, job: Job) -> None:
        try:
            await job()
        except Exception as error:  # noqa: BLE001 - one job must not take a worker with it
            self._observer.fault("a background response could not be run", error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._next()
        self._told()

    def _told(self) -> None:
        self._observe()
        if self._idle is not None and not self._tasks and not self.waiting:
            self._idle.set()

    def _observe(self) -> None:
        first = [queue[0].since for queue in (self._resumed, self._waiting) if queue]
        self._observer.background(len(self._tasks), self.waiting, min(first, default=None))

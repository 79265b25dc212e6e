"""Clients that leave before their answer has ended: who watches for it, and what ends then.

An application that writes to a client who has gone is not told so (uvicorn drops what it writes).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from antiphon.http.exchange import ClientDisconnectedError, Exchange

__all__ = ["ClientWatch", "unless_left", "while_client_stays"]

T = TypeVar("T")

WATCH_AFTER_SECONDS = 0.02


class ClientWatch:
    """Calls `left` when the client goes away, until `stop`.

    Watching takes a task, so it begins a moment late: most short answers have gone out by then.
    """

    def __init__(self, exchange: Exchange, left: Callable[[], object]) -> None:
        self._exchange = exchange
        self._left = left
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_SECONDS, self._begin)

    def stop(self) -> None:
        """Watch no longer."""
        self._timer.cancel()
        # Not kept: how it was cancelled refers to this again.
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._exchange.receive())["type"] != "http.disconnect":
            pass
        self._left()


@asynccontextmanager
async def while_client_stays(exchange: Exchange) -> AsyncGenerator[None]:
    """Ends what is inside, wherever it waits and without an error, when the client goes away."""
    end = asyncio.timeout(None)
    watch = ClientWatch(exchange, lambda: end.reschedule(0))
    try:
        async with end:
            yield
    except TimeoutError:
        if not end.expired():
            raise
    finally:
        watch.stop()


async def unless_left(exchange: Exchange, work: Coroutine[Any, Any, T]) -> T:
    """The result of work, which ends when the client goes away.

    Raises:
        ClientDisconnectedError: the client went away before it was done.
    """
    task = asyncio.ensure_future(work)
    watch = ClientWatch(exchange, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        raise ClientDisconnectedError from None
    finally:
        watch.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

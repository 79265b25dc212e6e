"""Strays: responses that are this process's own in the store, and run nowhere. They are seen to when the store lets it.

It comes to that where something failed half-way: a response began, and its client had left or was told that it did not;
or it was taken over, and its end could not be written. Nobody else sees to what a living process owns. The idempotency
key of one that no client was told of is given free first, so that the request can be sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from antiphon.errors import UnavailableError
from antiphon.protocol.response import TERMINAL_STATUSES, ResponseError
from antiphon.runtime.observer import Observer
from antiphon.store.base import Scope, Store

__all__ = ["Strays"]

PAUSE_SECONDS = 0.5
LATE_SECONDS = 10.0
"""How long a row may take to appear whose writer did not wait for it, or was not told of it."""

MOST = 10_000


class _Stray(Struct):
    scope: Scope
    error: ResponseError | None
    until: float
    key: str | None


TakeOver = Callable[[Scope, str, int, ResponseError | None], Awaitable[object]]


class Strays:
    """Has them taken over one by one, by scope, id, fence and the error to end with, until that is done.

    What is too much is left to the next start.
    """

    def __init__(self, store: Store, observer: Observer, owner: str, take_over: TakeOver) -> None:
        self._store = store
        self._observer = observer
        self._owner = owner
        self._take_over = take_over
        self._found: dict[tuple[str, str], _Stray] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def add(self, scope: Scope, response_id: str, error: ResponseError | None, key: str | None = None) -> None:
        """See to a response soon; it ends, if it does, as failed, or without an error as cancelled.

        `key` is its idempotency key where no client was told of it.
        """
        if self._stopped or len(self._found) >= MOST:
            return
        stray = _Stray(scope, error, time.monotonic() + LATE_SECONDS, key)
        self._found.setdefault((scope.tenant, response_id), stray)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def unanswered(self, scope: Scope, response_id: str) -> bool:
        """Whether no client was told of a response, and its idempotency key may not be free yet."""
        found = self._found.get((scope.tenant, response_id))
        return found is not None and found.key is not None

    async def stop(self) -> None:
        """Stop; what is left is seen to by the next owner."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._found:
                for (tenant, response_id), stray in list(self._found.items()):
                    try:
                        over = await self._see_to(stray, response_id)
                    except UnavailableError:
                        break
                    except Exception as error:  # noqa: BLE001 - one that cannot be ended must not keep the others back
                        self._observer.fault("a response that runs nowhere could not be taken over", error)
                        over = time.monotonic() >= stray.until
                    if over:
                        del self._found[tenant, response_id]
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._task = None

    async def _see_to(self, stray: _Stray, response_id: str) -> bool:
        """Whether nothing is left to do."""
        row = await self._store.get_response(stray.scope, response_id)
        if row is None:
            return time.monotonic() >= stray.until
        if stray.key is not None:
            await self._store.free_idempotent(stray.scope, stray.key, response_id)
        if row.status in TERMINAL_STATUSES or row.owner != self._owner:
            return True
        await self._take_over(stray.scope, response_id, row.fence, stray.error)
        return True

"""What a store needs beside requests: ends that are still owed to it, and sweeps.

The end of a foreground stream that could not be written is told to its client all the same, kept here, and written when
the store takes it: what a client was told is what a later look-up gives (laws 1 and 4).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from msgspec import Struct
from msgspec.structs import replace

from antiphon.errors import UnavailableError
from antiphon.runtime.journal import batches_after
from antiphon.runtime.observer import Observer
from antiphon.store.base import EventBatch, FinishedResponse, Scope, Store

__all__ = ["Upkeep"]

SWEEP_SECONDS = 60.0
RETRY_SECONDS = 1.0
MAX_OWED = 1_000


class _Owed(Struct, frozen=True):
    scope: Scope
    finished: FinishedResponse
    key: str | None


class Upkeep:
    """Keeps the ends that a store would not take, tries again, and sweeps."""

    def __init__(self, store: Store, observer: Observer) -> None:
        self._store = store
        self._observer = observer
        self._owed: OrderedDict[tuple[str, str], _Owed] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; it goes on in the background."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop, after one more attempt to write what is owed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._pay()

    def owe(self, scope: Scope, finished: FinishedResponse, key: str | None = None) -> None:
        """Keep an end that the store would not take; the oldest of too many is left to the next start.

        `key` is the idempotency key of a response whose client got an error instead: it is given free first.
        """
        self._owed[scope.tenant, finished.id] = _Owed(scope, finished, key)
        while len(self._owed) > MAX_OWED:
            self._owed.popitem(last=False)

    async def settle(self, scope: Scope, response_id: str) -> None:
        """Write the end that is owed of a response, if any, before something is done that needs it.

        Raises:
            UnavailableError: the store still does not take it.
        """
        owed = self._owed.get((scope.tenant, response_id))
        if owed is not None:
            await self._finish(owed)
            self._owed.pop((scope.tenant, response_id), None)

    def owed(self, scope: Scope, response_id: str) -> FinishedResponse | None:
        """The end of a response that the store does not have yet."""
        found = self._owed.get((scope.tenant, response_id))
        return found.finished if found is not None else None

    def unanswered(self, scope: Scope, response_id: str) -> bool:
        """Whether its client got an error instead of it, and its idempotency key may not be free yet."""
        found = self._owed.get((scope.tenant, response_id))
        return found is not None and found.key is not None

    def owed_events(self, scope: Scope, response_id: str) -> list[EventBatch]:
        """The events of such a response that the store does not have either."""
        found = self.owed(scope, response_id)
        return list(found.events) if found is not None else []

    async def _run(self) -> None:
        swept = time.monotonic()
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            await self._pay()
            if time.monotonic() - swept >= SWEEP_SECONDS:
                swept = time.monotonic()
                try:
                    await self._store.sweep(time.time())
                except Exception as error:  # noqa: BLE001 - the next sweep may succeed
                    self._observer.fault("the store could not be swept", error)

    async def _pay(self) -> None:
        for key, owed in list(self._owed.items()):
            try:
                await self._finish(owed)
            except UnavailableError:
                return
            except Exception as error:  # noqa: BLE001 - one that cannot be written must not keep the others back
                self._observer.fault("an end that is owed could not be stored", error)
                continue
            self._owed.pop(key, None)

    async def _finish(self, owed: _Owed) -> None:
        finished = owed.finished
        if owed.key is not None:
            await self._store.free_idempotent(owed.scope, owed.key, finished.id)
        # A write whose outcome was not known may have left some of its events there.
        events = batches_after(finished.events, await self._store.last_sequence(owed.scope, finished.id))
        await self._store.finish_response(owed.scope, replace(finished, events=events))

"""Responses that change hands: those that a dead owner left, and those that are taken from a living one to be ended.

A foreground response has lost its client and ends; a background one goes on, after those that this process runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Set
from contextlib import ExitStack
from typing import Any, TypeVar

from antiphon.errors import ConflictError, UnavailableError
from antiphon.protocol.response import ResponseError
from antiphon.runtime.background import Workers
from antiphon.runtime.bells import Bells
from antiphon.runtime.conversations import Conversations
from antiphon.runtime.lease import Lease
from antiphon.runtime.observer import Observer
from antiphon.runtime.plans import RunPlan, Taken
from antiphon.runtime.recovery import RESTARTED, Recovery
from antiphon.runtime.runner import BROKEN
from antiphon.runtime.strays import Strays
from antiphon.settings import Settings
from antiphon.store.base import ClaimedResponse, RunningResponse, Scope, Store

__all__ = ["Takeover"]

T = TypeVar("T")


class Takeover:
    """Takes responses over for one process, whose place among the owners it keeps.

    `run` runs a background response to its end. Until `loaded` is set no model can be asked, and from `stop` on nothing
    is begun.
    """

    def __init__(
        self,
        store: Store,
        recovery: Recovery,
        conversations: Conversations | None,
        workers: Workers,
        bells: Bells,
        observer: Observer,
        settings: Settings,
        *,
        run: Callable[[RunPlan, Taken], Awaitable[None]],
        loaded: asyncio.Event,
        stop: asyncio.Event,
    ) -> None:
        self._store = store
        self._recovery = recovery
        self._conversations = conversations
        self._workers = workers
        self._bells = bells
        self._patience = settings.load_timeout
        self._run = run
        self._loaded = loaded
        self._stop = stop
        self._idle = False
        self._lease = Lease(store, observer, settings.lease_seconds, self.take)
        self.owner = self._lease.owner
        self.strays = Strays(store, observer, self.owner, self.end)

    @property
    def living(self) -> Set[str]:
        """The owners that live, this one among them."""
        return self._lease.living

    async def start(self) -> None:
        """Enter, and take over what nobody runs.

        Raises:
            UnavailableError: the store cannot be used now.
        """
        await self._lease.start()

    def rest(self) -> None:
        """Take over no more of what others left."""
        self._idle = True

    async def stop(self) -> None:
        """Leave: what this process still runs waits for the next owner."""
        await self.strays.stop()
        await self._lease.stop()

    async def take(self, orphan: RunningResponse) -> None:
        """Take an orphan over: a foreground response ends, a background one goes on."""
        if not self._idle:
            await self.end(orphan.scope, orphan.id, orphan.fence, RESTARTED)

    async def end(self, scope: Scope, response_id: str, fence: int, error: ResponseError | None) -> bytes | None:
        """Make a running response ours and end it, as failed or without an error as cancelled; the final object.

        One that a restart cut off goes on instead, if it is in the background. None also where it was not to be had.
        What fails half-way is made good later.

        Raises:
            UnavailableError: the store cannot be used now.
        """
        try:
            claimed = await self._store.claim(scope, response_id, fence, self.owner)
            if claimed is None:
                return None
            if claimed.plan and error is RESTARTED:
                self._go_on(scope, claimed)
                return None
            body = await self._recovery.end(scope, claimed, error)
        except BaseException:
            self.strays.add(scope, response_id, error)
            raise
        self._bells.ring(scope.tenant, response_id)
        return body

    def _go_on(self, scope: Scope, claimed: ClaimedResponse) -> None:
        held = ExitStack()
        conversation = claimed.response.conversation_id
        if conversation is not None and self._conversations is not None:
            # A request that has it already is refused by the store.
            with contextlib.suppress(ConflictError):
                held.enter_context(self._conversations.held(scope, conversation))
        self._workers.resume(lambda: self._resume(scope, claimed, held))

    async def _resume(self, scope: Scope, claimed: ClaimedResponse, held: ExitStack) -> None:
        name = claimed.response.id
        with held:
            if not await self._unless_stopped(self._loaded.wait()):
                return
            try:
                taken = await self._unless_stopped(self._recovery.take_up(scope, claimed, self._patience))
            except UnavailableError:
                self.strays.add(scope, name, RESTARTED)
                return
            except Exception:
                self.strays.add(scope, name, BROKEN)
                raise
            if taken is None:
                self._bells.ring(scope.tenant, name)
                return
            await self._run(*taken)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of work that may wait long; None where the server stops first."""
        task = asyncio.ensure_future(work)
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            return await task if task.done() else None
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

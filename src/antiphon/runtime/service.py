"""The Responses API as plain async methods, without HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from antiphon.corpus.library import Library
from antiphon.engines.registry import Registry
from antiphon.errors import InvalidRequestError, NotFoundError, UnavailableError
from antiphon.protocol.ids import is_id
from antiphon.protocol.json import loads, quoted
from antiphon.protocol.response import TERMINAL_STATUSES, decode_response
from antiphon.runtime.beside import Beside
from antiphon.runtime.included import shown_items, with_included
from antiphon.runtime.observer import Observer
from antiphon.runtime.paging import page_after
from antiphon.runtime.planner import require_store
from antiphon.runtime.recovery import stored_response
from antiphon.runtime.replays import Replay, Replays
from antiphon.runtime.rules import persistence_off
from antiphon.runtime.runner import Run
from antiphon.runtime.runs import Runs
from antiphon.settings import Settings
from antiphon.store.base import Scope, Store, StoredResponse
from antiphon.tools.base import Provider

__all__ = ["Service", "response_not_found"]

PATIENCE_SECONDS = 5.0
"""How long a cancellation waits for a store that does not answer."""


class Service(Runs):
    """Creates, finds, cancels, deletes and lists responses. One per process."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        store: Store | None,
        observer: Observer | None = None,
        tools: Sequence[Provider] | None = None,
    ) -> None:
        super().__init__(settings, registry, store, observer, tools)
        self.beside = Beside(self.admission, self.limits, lambda: self.draining)
        self._replays = (
            Replays(store, self._bells, self._upkeep, settings.keep_alive_seconds, self._stop.is_set)
            if store is not None and self._upkeep is not None
            else None
        )
        self.library: Library | None = self.corpora.library
        self.started = False

    def wake_ingestion(self) -> None:
        """Files have come into a vector store."""
        self.corpora.ring()

    @property
    def ready(self) -> bool:
        """Whether a request could be generated now, and its response stored."""
        return self.started and not self.draining and self.registry.ready and self.store_reachable

    @property
    def store_reachable(self) -> bool:
        """Whether the store can be asked now; true where there is none."""
        return self.store is None or self.store.reachable

    @property
    def running(self) -> int:
        """Responses that are generated or wait for it."""
        return self.admission.running + self.workers.running + self.workers.waiting

    async def start(
        self, loading: Callable[[str], None] | None = None, loaded: Callable[[str], None] | None = None
    ) -> None:
        """Open the store, take over what an earlier process left running, and load the models.

        Raises:
            ConfigurationError: the store or a model cannot be used.
        """
        if self.store is not None:
            await self.store.open()
            self.store.listen(self._rung)
        await self.codec.load()
        await self.planner.affinities.load()
        if self._takeover is not None and self._upkeep is not None:
            await self._takeover.start()
            self._upkeep.start()
            self.webhooks.start()
        await self.registry.start(loading, loaded)
        if self._takeover is not None:
            takeover = self._takeover
            # A model that is served may make the vectors.
            self.corpora.start(takeover.owner, lambda: takeover.living)
        self.started = True
        self._loaded.set()

    async def drain(self, seconds: float) -> None:
        """Take no new responses, and wait for those that run, at most so many seconds; look-ups go on."""
        self._take_nothing_new()
        until = time.monotonic() + seconds
        await self.admission.empty(seconds)
        await self.workers.idle(max(0.0, until - time.monotonic()))

    async def end_runs(self) -> None:
        """Stop what runs: foreground responses are kept as cancelled; background ones wait for the next owner."""
        self._take_nothing_new()
        self._stop.set()
        for run in list(self._runs.values()):
            if run.plan.background:
                run.detach()
                self._end_waiting(run)
            else:
                run.leave()
        await self.beside.end()
        await self.workers.stop()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._bells.ring_all()

    async def close(self) -> None:
        """Stop what runs, and close engines and store."""
        self.started = False
        await self.end_runs()
        await self.corpora.stop()
        await self.webhooks.stop()
        await self.planner.media.close()
        await self.hosting.close()
        await self.close_containers()
        if self._upkeep is not None:
            await self._upkeep.stop()
        if self._takeover is not None:
            await self._takeover.stop()
        await self.corpora.close()
        await self.registry.close()
        if self.store is not None:
            await self.store.close()

    async def retrieve(self, scope: Scope, response_id: str, include: Collection[str] = ()) -> bytes:
        """The JSON of a response: as it stands if it runs, else as it ended, and what is included of its items.

        What a background response shows is what is durable of it.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        run = self.live_run(scope, response_id)
        body = await self._retrieve(scope, response_id)

        async def full(ids: Sequence[str]) -> Mapping[str, Any]:
            hosted = run.plan.hosted if run is not None else None
            if hosted is not None:
                return hosted.full
            found = await require_store(self.store).get_items(scope, ids)
            return {name: loads(item) for name, item in found.items()}

        return await with_included(body, include, full) if include else body

    async def _retrieve(self, scope: Scope, response_id: str) -> bytes:
        store = require_store(self.store)
        run = self.live_run(scope, response_id)
        # Where others may write too, only the store knows whether a background response is still this server's.
        if run is not None and run.plan.background and not store.shared and run.all_durable and not run.committing:
            return run.body()
        if run is not None and not run.plan.background:
            if not run.committing:
                return run.body()
            # What has ended is told only once it is in the store (law 4).
            await run.closed()
        owed = self._upkeep.owed(scope, response_id) if self._upkeep is not None else None
        if owed is not None:
            return owed.snapshot
        row = await self._row(store, scope, response_id)
        if row.status in TERMINAL_STATUSES:
            return row.snapshot
        return await stored_response(store, scope, response_id, row.snapshot)

    async def delete(self, scope: Scope, response_id: str, *, chain: bool = False) -> None:
        """Delete a response, or with `chain` all that it descends from and all that descend from those (B22).

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: it, or with `chain` one of them, is still running.
            UnavailableError: the store cannot be written now.
        """
        store = require_store(self.store)
        if self.live_run(scope, response_id) is not None:
            raise InvalidRequestError("Cannot delete an in-flight response.", code="response_in_progress")
        if not is_id("resp", response_id):
            raise response_not_found(response_id)
        if self._upkeep is not None:
            await self._upkeep.settle(scope, response_id)
        if chain or self.settings.delete_chain:
            deleted = await store.delete_chain(scope, response_id)
        else:
            deleted = [response_id] if await store.delete_response(scope, response_id) else []
        if not deleted:
            raise response_not_found(response_id)
        for name in deleted:
            if self._history is not None:
                self._history.forget(scope, name)

    async def cancel(self, scope: Scope, response_id: str) -> bytes:
        """Cancel a background response, wherever it runs; one that has ended stays as it is. The JSON of it then.

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: it was not created in the background.
            UnavailableError: the store cannot take its end now.
        """
        store = require_store(self.store)
        while True:
            row = await self._row(store, scope, response_id)
            if not decode_response(row.snapshot).background:
                raise InvalidRequestError("Cannot cancel a synchronous response.", code="response_not_cancellable")
            if row.status in TERMINAL_STATUSES:
                return row.snapshot
            run = self._runs.get((scope.tenant, response_id))
            if run is not None and run.fence == row.fence:
                body = await self._cancel_here(run)
            else:
                # Taken away from whoever runs it, or from nobody.
                body = await self._takeover.end(scope, row.id, row.fence, None) if self._takeover is not None else None
            if body is not None:
                return body

    async def replay(self, scope: Scope, response_id: str, after: int) -> Replay:
        """Where to read the events of a response after that number (-1: all of them).

        Raises:
            NotFoundError: there is none by that id in this scope.
            GoneError: `event_log_expired`, its log was removed after its time.
            InvalidRequestError: the number is past the durable end of a stream that a restart has ended.
        """
        if self._replays is None:
            raise persistence_off()
        run = self.live_run(scope, response_id)
        if run is not None:
            return self._replays.live(scope, run)
        return await self._replays.stored(scope, await self._row(require_store(self.store), scope, response_id), after)

    async def input_items(
        self,
        scope: Scope,
        response_id: str,
        *,
        newest_first: bool,
        after: str | None,
        limit: int,
        include: Collection[str] = (),
    ) -> tuple[list[bytes], bool]:
        """A page of the items that a response was made from, its history and its own input, and whether more follow.

        An item that was sent again is listed once, where it came first, since pages go by item id.

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: `after` is not the id of an item of this list.
        """
        store = require_store(self.store)
        await self._row(store, scope, response_id)
        ids = await store.input_item_ids(scope, response_id)
        page, more = page_after(ids, newest_first=newest_first, after=after, limit=limit)
        bodies = await store.get_items(scope, page)
        return shown_items((bodies[identity] for identity in page if identity in bodies), include), more

    async def _cancel_here(self, run: Run) -> bytes | None:
        run.cancel()
        self._end_waiting(run)
        try:
            await asyncio.wait_for(run.closed(), PATIENCE_SECONDS)
        except TimeoutError:
            raise UnavailableError("The response is being cancelled, but its end cannot be stored yet.") from None
        return None if run.moved else run.body()

    async def _row(self, store: Store, scope: Scope, response_id: str) -> StoredResponse:
        found = await store.get_response(scope, response_id) if is_id("resp", response_id) else None
        if found is None:
            raise response_not_found(response_id)
        return found


def response_not_found(response_id: str) -> NotFoundError:
    """The one answer for missing, malformed and foreign response ids."""
    return NotFoundError(f"Response with id '{quoted(response_id)}' not found.", code="response_not_found")

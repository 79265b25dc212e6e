"""The Responses API as plain async methods, without HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from antiphon.engines.base import RESTART_PATIENCE
from antiphon.engines.registry import Registry
from antiphon.errors import EngineUnavailableError, InvalidRequestError, NotFoundError, UnavailableError
from antiphon.machine.opening import open_response
from antiphon.prompt.messages import EMPTY
from antiphon.protocol.ids import is_id, new_id
from antiphon.protocol.items import Item
from antiphon.protocol.json import quoted
from antiphon.protocol.request import CreateResponse, decode_create_response
from antiphon.protocol.response import TERMINAL_STATUSES
from antiphon.runtime.admission import Admission
from antiphon.runtime.history import History, Turn, convert, open_calls
from antiphon.runtime.inputs import answered_calls, resolve_items, stored_items
from antiphon.runtime.observer import Observer
from antiphon.runtime.planning import build_prompt, prepare
from antiphon.runtime.rules import LOGPROBS, check_media, check_request, check_substance
from antiphon.runtime.runner import Run, RunPlan, output_items
from antiphon.runtime.upkeep import Upkeep
from antiphon.settings import Settings
from antiphon.store.base import EventBatch, Scope, Store, StoredResponse

__all__ = ["Service"]

PERSISTENCE_OFF = (
    "Response storage is disabled on this server (--responses-store-max-entries 0), "
    "so responses cannot be looked up or chained."
)


class Service:
    """Creates, finds, deletes and lists responses. One per process."""

    def __init__(
        self, settings: Settings, registry: Registry, store: Store | None, observer: Observer | None = None
    ) -> None:
        self.settings = settings
        self.registry = registry
        self.store = store
        self.observer = observer or Observer()
        self.admission = Admission(settings.max_concurrent_requests)
        self._history = History(store) if store is not None else None
        self._runs: dict[tuple[str, str], Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._upkeep = Upkeep(store, self.observer, settings.dialect) if store is not None else None
        self.started = False
        self.draining = False
        self._ending = False

    @property
    def ready(self) -> bool:
        """Whether a request could be generated now."""
        return self.started and not self.draining and self.registry.ready

    async def start(
        self, loading: Callable[[str], None] | None = None, loaded: Callable[[str], None] | None = None
    ) -> None:
        """Open the store, end what an earlier process left running, and load the models.

        Raises:
            ConfigurationError: the store or a model cannot be used.
        """
        if self.store is not None:
            await self.store.open()
        if self._upkeep is not None:
            await self._upkeep.start()
        await self.registry.start(loading, loaded)
        self.started = True

    async def drain(self, seconds: float) -> None:
        """Take no new responses, and wait for those that run, at most so many seconds; look-ups go on."""
        self.draining = True
        await self.admission.empty(seconds)

    async def end_runs(self) -> None:
        """Stop what runs; its terminal events go out, and it is kept as cancelled."""
        self.draining = self._ending = True
        for run in list(self._runs.values()):
            run.leave()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Stop what runs, keep it as cancelled, and close engines and store."""
        self.started = False
        await self.end_runs()
        if self._upkeep is not None:
            await self._upkeep.stop()
        await self.registry.close()
        if self.store is not None:
            await self.store.close()

    async def create(self, scope: Scope, body: bytes) -> Run:
        """Check a request and begin its response; `launch` starts it.

        Raises:
            APIError: the request is refused; nothing of it is kept.
        """
        if self.draining:
            raise UnavailableError("The server is shutting down. Please try again later.", retry_after=5.0)
        request = decode_create_response(body)
        self.admission.enter()
        held = ExitStack()
        try:
            parent_id = request.previous_response_id
            if self.store is not None and parent_id is not None and _is_response_id(parent_id):
                held.enter_context(self.store.retain(scope, parent_id))
            run = Run(await self._plan(scope, request), self.observer)
            await run.begin()
        except BaseException:
            held.close()
            self.admission.leave()
            raise
        run.held = held
        self._runs[scope.tenant, run.id] = run
        self.observer.response_started(run.plan.engine.name)
        return run

    def launch(self, run: Run) -> asyncio.Task[None]:
        """Start a run that `create` gave; the task ends when the response has ended."""
        if self._ending:
            run.leave()
        task = asyncio.create_task(self._drive(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def retrieve(self, scope: Scope, response_id: str) -> bytes:
        """The JSON of a response: as it stands if it runs, else as it ended.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        store = self._require_store()
        run = self._runs.get((scope.tenant, response_id))
        if run is not None and run.plan.store is not None:
            if not run.committing:
                return run.body()
            # What has ended is told only once it is in the store (law 4).
            await run.closed()
        owed = self._upkeep.owed(scope, response_id) if self._upkeep is not None else None
        if owed is not None:
            return owed.snapshot
        return (await self._stored(store, scope, response_id)).snapshot

    async def delete(self, scope: Scope, response_id: str) -> None:
        """Delete a response; one that still runs is refused.

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: it is still running.
        """
        store = self._require_store()
        run = self._runs.get((scope.tenant, response_id))
        if run is not None and run.plan.store is not None:
            raise InvalidRequestError("Cannot delete an in-flight response.", code="response_in_progress")
        if not _is_response_id(response_id) or not await store.delete_response(scope, response_id):
            raise response_not_found(response_id)
        if self._history is not None:
            self._history.forget(scope, response_id)
        if self._upkeep is not None:
            self._upkeep.forget(scope, response_id)

    async def cancel(self, scope: Scope, response_id: str) -> bytes:
        """Cancel a background response; there are none yet, so a known id is refused.

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: it was not created in the background.
        """
        await self.retrieve(scope, response_id)
        raise InvalidRequestError("Cannot cancel a synchronous response.", code="response_not_cancellable")

    async def input_items(
        self, scope: Scope, response_id: str, *, newest_first: bool, after: str | None, limit: int
    ) -> tuple[list[bytes], bool]:
        """A page of the items that a response was made from, its history and its own input, and whether more follow.

        An item that was sent again is listed once, where it came first, since pages go by item id.

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: `after` is not the id of an item of this list.
        """
        store = self._require_store()
        await self._stored(store, scope, response_id)
        ids = await store.input_item_ids(scope, response_id)
        if newest_first:
            ids.reverse()
        if after is not None:
            if after not in ids:
                raise InvalidRequestError(
                    "Invalid 'after': no item of this list has that id.", param="after", code="invalid_value"
                )
            ids = ids[ids.index(after) + 1 :]
        page = ids[:limit]
        bodies = await store.get_items(scope, page)
        return [bodies[identity] for identity in page if identity in bodies], len(ids) > limit

    def live_run(self, scope: Scope, response_id: str) -> Run | None:
        """The run of a stored response that is being generated here."""
        run = self._runs.get((scope.tenant, response_id))
        return run if run is not None and run.plan.store is not None else None

    async def events(self, scope: Scope, response_id: str, after: int) -> list[EventBatch]:
        """The stored batches of an ended response that hold events after that number.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        store = self._require_store()
        await self._stored(store, scope, response_id)
        owed = self._upkeep.owed_events(scope, response_id) if self._upkeep is not None else []
        return owed or await store.events(scope, response_id, after)

    async def _plan(self, scope: Scope, request: CreateResponse) -> RunPlan:
        check_request(request, self.settings)
        model, engine = self.registry.resolve(request.model)
        if not engine.ready and not await engine.wait_ready(RESTART_PATIENCE):
            raise EngineUnavailableError("The model is being loaded. Please try again later.", retry_after=2.0)
        history = await self._load_history(scope, request)
        limit = self.settings.max_body_bytes
        own = await resolve_items(self.store, scope, request.items, limit)
        _check_outputs(history, own)
        new = convert(own, history.conversation if history is not None else EMPTY)
        parts = [new] if history is None else [history.conversation, new]
        if request.instruction_items:
            standing = await resolve_items(self.store, scope, request.instruction_items, limit)
            parts.insert(0, convert(standing, EMPTY, whole=True))
        check_substance(parts, request.instructions)
        check_media(request, parts, engine.capabilities)
        turn = await prepare(engine, build_prompt(request, parts, engine), request.truncation)
        store = self.store if request.store else None
        return RunPlan(
            scope=scope,
            engine=engine,
            turn=turn,
            response=open_response(
                request, stored=store is not None, response_id=new_id("resp"), model=model, created_at=int(time.time())
            ),
            own=new,
            input_items=stored_items(own) if store is not None else [],
            stream=request.stream,
            dialect=self.settings.dialect,
            logprobs=LOGPROBS in request.include,
            store=store,
        )

    async def _load_history(self, scope: Scope, request: CreateResponse) -> Turn | None:
        identity = request.previous_response_id
        if identity is None:
            return None
        store = self._require_store("previous_response_id")
        parent = await store.get_response(scope, identity) if _is_response_id(identity) else None
        if parent is None or self._history is None:
            raise previous_not_found(identity)
        if parent.status not in TERMINAL_STATUSES:
            raise InvalidRequestError(
                f"Previous response '{identity}' has not ended yet.",
                param="previous_response_id",
                code="response_in_progress",
            )
        history = await self._history.upto(scope, identity)
        if history is None:
            raise previous_not_found(identity)
        return history

    async def _drive(self, run: Run) -> None:
        plan = run.plan
        began = time.monotonic()
        try:
            await run.run()
            self._keep(run)
        finally:
            run.held.close()
            self._runs.pop((plan.scope.tenant, run.id), None)
            self.admission.leave()
            response = plan.response
            details, error = response.incomplete_details, response.error
            reason = details.reason if details is not None else error.code if error is not None else None
            self.observer.response_ended(
                plan.engine.name, response.status, reason, response.usage, time.monotonic() - began
            )

    def _keep(self, run: Run) -> None:
        """What has ended is ready to be chained to; an end that the store would not take is tried again."""
        plan = run.plan
        if plan.store is None:
            return
        if run.refused is None:
            if self._history is not None:
                self._history.remember(plan.scope, _turn(run))
        elif plan.stream and self._upkeep is not None:
            self._upkeep.owe(plan.scope, run.finished_row())

    async def _stored(self, store: Store, scope: Scope, response_id: str) -> StoredResponse:
        found = await store.get_response(scope, response_id) if _is_response_id(response_id) else None
        if found is None:
            raise response_not_found(response_id)
        return found

    def _require_store(self, param: str | None = None) -> Store:
        if self.store is None:
            raise InvalidRequestError(PERSISTENCE_OFF, param=param, code="response_storage_disabled")
        return self.store


def _turn(run: Run) -> Turn:
    plan = run.plan
    output = output_items(plan.response)
    size = sum(len(row.body) for row in plan.input_items) + len(run.body())
    return Turn(run.id, plan.response.previous_response_id, plan.own, output, open_calls(output), size)


def _check_outputs(history: Turn | None, own: Sequence[Item]) -> None:
    if history is None or not history.open_calls:
        return
    answered = answered_calls(own)
    for call_id in history.open_calls:
        if call_id not in answered:
            raise InvalidRequestError(
                f"No tool output found for function call {call_id}.", param="input", code="missing_tool_output"
            )


def _is_response_id(value: str) -> bool:
    return is_id("resp", value)


def response_not_found(response_id: str) -> NotFoundError:
    """The one answer for missing, malformed and foreign response ids."""
    return NotFoundError(f"Response with id '{quoted(response_id)}' not found.", code="response_not_found")


def previous_not_found(response_id: str) -> NotFoundError:
    """The same for the id to chain to."""
    return NotFoundError(
        f"Previous response with id '{quoted(response_id)}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )

"""The part of the service that runs responses: how they begin, who drives them, and how they end.

A response that runs in this process is found by its tenant and id. Its row in the store says whose it is: another
server may have taken it over, and then it ends here without a word.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

from antiphon.engines.registry import Registry
from antiphon.errors import APIError, ConflictError, UnavailableError
from antiphon.protocol.ids import is_id
from antiphon.protocol.request import CreateResponse, decode_create_response
from antiphon.protocol.response import TERMINAL_STATUSES, ResponseError
from antiphon.runtime.admission import Admission
from antiphon.runtime.background import Workers
from antiphon.runtime.bells import Bells
from antiphon.runtime.codec import Codec
from antiphon.runtime.conversations import Conversations, conversation_id
from antiphon.runtime.corpora import Corpora
from antiphon.runtime.files import Files
from antiphon.runtime.history import History, Turn
from antiphon.runtime.hosting import Hosting, providers
from antiphon.runtime.limits import KeyLimits
from antiphon.runtime.observer import Observer
from antiphon.runtime.outputs import response_error
from antiphon.runtime.planner import Planner, require_store
from antiphon.runtime.plans import RunPlan, Taken
from antiphon.runtime.recovery import Recovery
from antiphon.runtime.rules import persistence_off
from antiphon.runtime.runner import BROKEN, Run
from antiphon.runtime.takeover import Takeover
from antiphon.runtime.upkeep import Upkeep
from antiphon.runtime.webhooks import Webhooks
from antiphon.settings import Settings
from antiphon.store.base import IdempotencyRecord, Scope, Store
from antiphon.tools.base import Provider

if TYPE_CHECKING:
    from antiphon.tools.code.containers import Containers

__all__ = ["Runs"]

IDEMPOTENCY_SECONDS = 24 * 3600.0


class Runs:
    """Begins responses and runs them. One per process; `tools` stand for the providers of hosted tools that are set."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        store: Store | None,
        observer: Observer | None = None,
        tools: Sequence[Provider] | None = None,
    ) -> None:
        self.settings = settings
        self.registry = registry
        self.store = store
        self.observer = observer or Observer()
        self.admission = Admission(settings.max_concurrent_requests)
        self.limits = KeyLimits(registry)
        self.workers = Workers(settings.background_workers, settings.background_queue, self.observer)
        self.codec = Codec(store)
        self.conversations = Conversations(store, settings, self.codec) if store is not None else None
        self.webhooks = Webhooks(settings, store, self.observer)
        self._history = History(store, self.codec) if store is not None else None
        self.corpora = Corpora(settings, registry, store, self.observer)
        self._containers: Containers | None = None
        if tools is None:
            tools = providers(settings, store, registry, self.corpora.library, lambda: self.containers)
        self.hosting = Hosting(tools, self.observer)
        self.planner = Planner(
            settings,
            self.limits,
            store,
            self._history,
            self.conversations,
            self.codec,
            self.observer,
            self.hosting,
        )
        self._bells = Bells()
        self._stop = asyncio.Event()
        self._runs: dict[tuple[str, str], Run] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._upkeep = Upkeep(store, self.observer) if store is not None else None
        self._loaded = asyncio.Event()
        self._takeover = self._make_takeover(store) if store is not None else None
        self.draining = False

    @property
    def containers(self) -> Containers:
        """Where code runs; made when it is first asked for."""
        if self._containers is None:
            # Only here: most servers never run any.
            from antiphon.tools.code.containers import Containers

            read_file = Files(self.store, self.settings).content if self.store is not None else None
            self._containers = Containers(self.settings, read_file)
        return self._containers

    async def close_containers(self) -> None:
        """End what runs in containers, if there are any."""
        if self._containers is not None:
            await self._containers.close()

    async def create(
        self,
        scope: Scope,
        body: bytes | CreateResponse,
        *,
        parent: Turn | None = None,
        idempotency: tuple[str, bytes] | None = None,
        dialect: str | None = None,
    ) -> Run:
        """Check a request and begin its response; `launch` starts it.

        `parent` stands for the history that the request names, `dialect` for that of the settings. `idempotency` is an
        idempotency key and the digest of what it came with.

        Raises:
            APIError: the request is refused; nothing of it is kept.
        """
        if self.draining:
            raise UnavailableError("The server is shutting down. Please try again later.", retry_after=5.0)
        request = decode_create_response(body) if isinstance(body, bytes) else body
        self.limits.admit(scope)
        give_back = self._enter(request)
        held = ExitStack()
        try:
            parent_id = request.previous_response_id if parent is None or parent.stored else parent.base
            if self.store is not None and parent_id is not None and is_id("resp", parent_id):
                held.enter_context(self.store.retain(scope, parent_id))
            named = conversation_id(request)
            if named is not None and self.conversations is not None and (request.store or request.background):
                held.enter_context(self.conversations.held(scope, named))
            extent = await self._extent(scope, named)
            plan = await self.planner.plan(scope, request, sent=body, parent=parent, dialect=dialect)
            held.enter_context(plan.engine.gate.place(bounded=not request.background))
            if idempotency is not None and plan.store is not None:
                expires_at = time.time() + IDEMPOTENCY_SECONDS
                plan.idempotency = IdempotencyRecord(*idempotency, plan.response.id, expires_at)
                plan.begun = True
            run = self._run(plan)
            await self._begin(run, named, extent)
        except BaseException:
            held.close()
            give_back()
            raise
        run.held = held
        self._runs[scope.tenant, run.id] = run
        self.observer.response_started(plan.engine.name)
        return run

    def submit(self, run: Run) -> None:
        """Give a background run to the workers."""
        run.job = lambda: self._drive(run)
        self.workers.submit(run.job)
        if self._stop.is_set():
            run.detach()
            self._end_waiting(run)

    def launch(self, run: Run) -> asyncio.Task[None]:
        """Start a foreground run that `create` gave; the task ends when the response has ended."""
        if self._stop.is_set():
            run.leave()
        task = asyncio.create_task(self._drive_foreground(run))
        self._keep_task(task)
        return task

    async def carry_out(self, run: Run) -> None:
        """Run a foreground response that `create` gave in the task of who waits for its end.

        It needs no task of its own then, and ends as if its client had left where that task is cancelled.
        """
        if self._stop.is_set():
            run.leave()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.add(ended)
        try:
            run.alone = False
            await self._drive_foreground(run)
        finally:
            ended.set_result(None)
            self._tasks.discard(ended)

    def unanswered(self, scope: Scope, response_id: str) -> bool:
        """Whether the request for a response was answered with an error, and its idempotency key is not free yet."""
        strays = self._takeover.strays if self._takeover is not None else None
        return (strays is not None and strays.unanswered(scope, response_id)) or (
            self._upkeep is not None and self._upkeep.unanswered(scope, response_id)
        )

    def live_run(self, scope: Scope, response_id: str) -> Run | None:
        """The run of a stored response that is being generated here."""
        run = self._runs.get((scope.tenant, response_id))
        return run if run is not None and run.plan.store is not None and not run.moved else None

    # How responses run

    def _make_takeover(self, store: Store) -> Takeover:
        return Takeover(
            store,
            Recovery(store, self.planner, self.settings.dialect, self.webhooks.deliveries),
            self.conversations,
            self.workers,
            self._bells,
            self.observer,
            self.settings,
            run=self._go_on,
            loaded=self._loaded,
            stop=self._stop,
        )

    def _take_nothing_new(self) -> None:
        self.draining = True
        if self._takeover is not None:
            self._takeover.rest()

    def _enter(self, request: CreateResponse) -> Callable[[], None]:
        """Take a place for a response; what gives it back."""
        if not request.background:
            self.admission.enter()
            return self.admission.leave
        if self.store is None:
            raise persistence_off("background")
        self.workers.reserve()
        return self.workers.give_back

    def _run(self, plan: RunPlan, taken: Taken | None = None) -> Run:
        if plan.background:
            plan.deliveries = self.webhooks.deliveries
        owner = self._takeover.owner if self._takeover is not None else ""
        return Run(plan, self.observer, owner=owner, ring=self._bells.ring, taken=taken)

    async def _begin(self, run: Run, named: str | None, extent: int | None) -> None:
        """Begin a run on the conversation that it names, which had so many items when it was read.

        If the store may have begun it although that failed, it is ended there: nobody knows of it.

        Raises:
            ConflictError: the conversation is another one by now, or the store did not begin it.
        """
        try:
            await run.begin()
        except ConflictError:
            raise
        except BaseException as error:
            self._take_back(run, error)
            raise
        try:
            extended = run.plan.begun and await self._extent(run.plan.scope, named) != extent
        except BaseException as error:
            self._take_back(run, error)
            raise
        if extended:
            self._give_up(run)

    def _take_back(self, run: Run, error: BaseException) -> None:
        self._see_to(run, response_error(error) if isinstance(error, APIError) else None, answered=False)

    async def _extent(self, scope: Scope, named: str | None) -> int | None:
        """How many items a conversation has that other servers may extend too, until a response in it has begun."""
        if named is None or self.store is None or not self.store.shared:
            return None
        return len(await self.store.conversation_item_ids(scope, named) or ())

    def _give_up(self, run: Run) -> NoReturn:
        """Take a response back that has begun on a conversation which is another one by now."""
        self._see_to(run, None, answered=False)
        raise ConflictError(
            "The conversation was extended while it was read. Please try again.",
            param="conversation",
            code="conversation_locked",
            retry=True,
        )

    def _see_to(self, run: Run, error: ResponseError | None, *, answered: bool) -> None:
        """Have a row ended that runs nowhere any more."""
        if run.plan.begun and self._takeover is not None:
            self._takeover.strays.add(run.plan.scope, run.id, error, None if answered else _key(run))

    async def _drive_foreground(self, run: Run) -> None:
        try:
            await self._drive(run)
        finally:
            self.admission.leave()

    async def _drive(self, run: Run) -> None:
        """Run a response to its end, once, whoever asks first."""
        if run.started:
            return
        plan = run.plan
        began = time.monotonic()
        try:
            await run.run()
            self._keep(run)
        finally:
            run.held.close()
            if self._runs.get((plan.scope.tenant, run.id)) is run:
                del self._runs[plan.scope.tenant, run.id]
            response = plan.response
            details, error = response.incomplete_details, response.error
            reason = details.reason if details is not None else error.code if error is not None else None
            status = "moved" if run.moved else response.status
            self.observer.response_ended(plan.engine.name, status, reason, response.usage, time.monotonic() - began)
            if response.usage is not None:
                self.limits.spent(plan.scope, response.usage.total_tokens)

    def _keep(self, run: Run) -> None:
        """What has ended is ready to be chained to; an end that the store would not take is tried again."""
        plan = run.plan
        # Events and what is in the background were told; of the rest the client is told nothing but the error.
        answered = plan.stream or plan.background
        if run.broken:
            self._see_to(run, BROKEN, answered=answered)
        if plan.store is None or run.moved:
            return
        if run.refused is None:
            # The turns of a chain follow each other as its rows do.
            chained = plan.parent_id == plan.response.previous_response_id
            if self._history is not None and plan.response.store and chained:
                self._history.remember(plan.scope, run.own_turn())
        elif plan.begun and self._upkeep is not None:
            self._upkeep.owe(plan.scope, run.finished_row(), None if answered else _key(run))

    def _keep_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end_waiting(self, run: Run) -> None:
        """A run that was told to stop while it waits for a worker needs none to come to its end."""
        if run.job is not None and not run.started:
            self.workers.withdraw(run.job)
            self._keep_task(asyncio.create_task(self._drive(run)))

    # What others run, or left running

    async def _go_on(self, plan: RunPlan, taken: Taken) -> None:
        """Run a background response that was taken over."""
        run = self._run(plan, taken)
        run.held.enter_context(plan.engine.gate.place(bounded=False))
        if self._stop.is_set():
            run.detach()
        self._runs[plan.scope.tenant, run.id] = run
        self.observer.response_started(plan.engine.name)
        await self._drive(run)

    def _rung(self, tenant: str, response_id: str) -> None:
        """Another server wrote to a response: wake its readers, and look whether one that runs here is still ours."""
        self._bells.ring(tenant, response_id)
        run = self._runs.get((tenant, response_id))
        if run is not None and run.plan.begun:
            self._keep_task(asyncio.create_task(self._verify(run)))

    async def _verify(self, run: Run) -> None:
        store = require_store(self.store)
        try:
            row = await store.get_response(run.plan.scope, run.id)
        except APIError:
            # The next write will tell.
            return
        if row is None or row.fence != run.fence or row.status in TERMINAL_STATUSES:
            run.lose()
            self._end_waiting(run)


def _key(run: Run) -> str | None:
    record = run.plan.idempotency
    return record.key if record is not None else None

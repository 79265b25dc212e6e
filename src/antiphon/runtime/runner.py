"""Runs one response: engine deltas to events, events to readers and to the store, and an end in every case.

A response that is stored while it runs is begun in the store before its first event is seen, and its end is committed
before its terminal event is seen (law 4); a foreground answer that is not streamed is one commit, before it is sent.
Readers of a background response see what is durable and nothing else; those of a foreground stream see each event at
once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from contextlib import ExitStack

from antiphon.errors import APIError, DivergedError, EngineError, InternalError, UnavailableError
from antiphon.machine.assembler import Assembler
from antiphon.machine.log import EventLog
from antiphon.machine.suppressor import Suppressor
from antiphon.machine.turn import Progress
from antiphon.protocol.hosted import HOSTED_ITEMS
from antiphon.protocol.items import Item
from antiphon.protocol.json import encode
from antiphon.protocol.response import ResponseError
from antiphon.runtime.background import Job
from antiphon.runtime.generation import Generation
from antiphon.runtime.history import Turn, joined_turn, open_calls, unstored_turn
from antiphon.runtime.inputs import stored_items
from antiphon.runtime.journal import Journal, batch_of
from antiphon.runtime.keeper import Keeper
from antiphon.runtime.live import LiveLog
from antiphon.runtime.observer import Observer
from antiphon.runtime.outputs import items_of, output_items, response_error
from antiphon.runtime.plans import RunPlan, Taken
from antiphon.runtime.titles import title
from antiphon.runtime.unseal import unseal_known
from antiphon.store.base import FinishedResponse, NewResponse, Store

__all__ = ["APPENDED", "BROKEN", "Run"]

BACKGROUND_DELAY = 0.02
"""Seconds that an event of a background response may wait for its batch."""

FOREGROUND_DELAY = 0.5
"""The same for a foreground stream, which nobody reads from the store while it runs but after a crash."""

FINISH_AGAIN_SECONDS = 1.0

APPENDED = frozenset({"completed", "incomplete"})
"""The ends after which a conversation gets the items of a response (issue 3, Conversations)."""

CANCELLED, STEERED, DETACHED, MOVED = "cancelled", "steered", "detached", "moved"

TAKEN = "Another server took this one for dead, and ended the response."
BROKEN = ResponseError("server_error", "The server had an error while generating.")


class Run:
    """One response while it is generated. Its task ends when the response has its terminal state, or is not ours."""

    def __init__(
        self,
        plan: RunPlan,
        observer: Observer,
        *,
        owner: str = "",
        ring: Callable[[str, str], None] | None = None,
        taken: Taken | None = None,
    ) -> None:
        self.plan = plan
        self.refused: APIError | None = None
        self.declined: APIError | None = None
        """Why the engine did not take a turn of which nobody has seen anything: the answer is this error."""
        self.held = ExitStack()
        """What is given back when the run has ended: the hold on the history that it continues."""
        self.committing = False
        self.broken = False
        """Its log could not be ended: what is durable of it has to be."""
        self.job: Job | None = None
        """What a worker was given to run it."""
        self._observer = observer
        self._owner = owner
        self._ring = ring
        self._stopping: str | None = None
        self._hurry = asyncio.Event()
        self._generating = False
        self._task: asyncio.Task[None] | None = None
        self.alone = True
        """Whether it has a task of its own, which nobody cancels but who tells it why."""
        self.started = False
        """Whether `run` has been called."""
        self._stored_body: bytes | None = None
        self.log, self._assembler = self._begin_log(taken)
        self.live = LiveLog(self.log)
        self._unseen = plan.engine.declines and not plan.background and plan.idempotency is None and taken is None
        if self._unseen:
            plan.turn.taken = self.live.publish
        self.journal = self._begin_journal(taken)
        begun = Progress() if taken is None else taken.begun
        self._generation: Generation | None = Generation(
            plan,
            self.log,
            self._assembler,
            begun=begun,
            suppressor=None if taken is None else self._suppressor(taken),
            kept=() if taken is None else taken.kept,
            keeper=self._keeper(),
            journal=self.journal,
            observer=observer,
            published=self._published,
        )

    def _suppressor(self, taken: Taken) -> Suppressor | None:
        """What holds back what the turn that is run again has told; a turn whose calls are there is not."""
        if any(call.turn == taken.begun.rounds for call in taken.kept):
            return None
        return taken.restored.suppressor(taken.begun.first_item, HOSTED_ITEMS if self.plan.hosted is not None else ())

    def _keeper(self) -> Keeper | None:
        """What keeps the calls of hosted tools, where another process may go on with them."""
        plan, journal = self.plan, self.journal
        if plan.hosted is None or plan.store is None or journal is None or not plan.background:
            return None
        return Keeper(
            plan.store,
            plan.scope,
            plan.response.id,
            journal.fence,
            self._observer,
            settled=journal.caught_up,
            lost=journal.lose,
        )

    def _begin_log(self, taken: Taken | None) -> tuple[EventLog, Assembler]:
        plan = self.plan
        if taken is not None:
            plan.turn.sampled = taken.sampled
            return taken.restored.log, taken.restored.assembler
        log = EventLog(plan.response, plan.dialect, diffs=plan.diffs)
        assembler = Assembler(
            log,
            logprobs=plan.logprobs,
            parallel_tool_calls=plan.turn.prompt.parallel_tool_calls,
            input_tokens=plan.turn.input_tokens,
            whole_parts=not plan.stream and not plan.background,
            seal=plan.seal,
        )
        return log, assembler

    def _begin_journal(self, taken: Taken | None) -> Journal | None:
        plan = self.plan
        if plan.store is None or not plan.begun:
            return None
        journal = Journal(
            plan.store,
            plan.scope,
            plan.response.id,
            self.log.frames,
            fence=1 if taken is None else taken.fence,
            delay=BACKGROUND_DELAY if plan.background else FOREGROUND_DELAY,
            flush=plan.background,
            durable=0 if taken is None else len(self.log.frames),
            told=self._durable,
            failed=lambda error: self._observer.fault("events could not be stored yet", error),
        )
        if taken is None:
            journal.begin_turn(plan.turn.sampled)
        else:
            journal.begin_turn(plan.turn.sampled, taken.begun.rounds, taken.spent)
            self.live.publish()
        return journal

    @property
    def id(self) -> str:
        """The id of the response."""
        return self.plan.response.id

    @property
    def fence(self) -> int:
        """The fence that its writes carry."""
        return self.journal.fence if self.journal is not None else 1

    @property
    def moved(self) -> bool:
        """Whether the response goes on, or has ended, elsewhere."""
        return self.live.moved

    async def begin(self) -> None:
        """Open the log; a response that has a row while it runs is durable when this returns.

        Raises:
            UnavailableError: the store cannot take it; nothing was sent.
            ConflictError: another response runs in its conversation, or its idempotency key is taken.
        """
        self.log.open(queued=self.plan.background)
        if self.plan.store is not None and self.journal is not None:
            began = time.monotonic()
            row = self._new_row(encode(self.plan.response))
            # Others count on what is more than one client's stream, which a power cut ends in any case.
            flush = self.plan.background or row.idempotency is not None or row.conversation_id is not None
            # An engine elsewhere is asked meanwhile: nothing of that is seen before this returns.
            early = self._generation if self._unseen else None
            if early is not None:
                early.ask()
            try:
                await self.plan.store.create_response(self.plan.scope, row, flush=flush)
            except BaseException:
                if early is not None:
                    await early.close()
                raise
            self.journal.durable = len(self.log.frames)
            self._observer.store_commit(time.monotonic() - began)
        if not self._unseen:
            self.live.publish()

    async def run(self) -> None:
        """Generate to the end and commit it."""
        self.started = True
        self._task = asyncio.current_task()
        try:
            if self._stopping is None:
                await self._generate()
            elif self._stopping not in (DETACHED, MOVED):
                self._end_stopped()
            if self._generation is not None:
                await self._generation.close()
            if self._stopping == DETACHED and self.journal is not None and not self.log.ended:
                await self.journal.flush()
                self.live.move()
            elif self._stopping != MOVED and self.refused is None:
                self.committing = True
                await self._commit()
            if self._stopping == MOVED and not self.plan.background:
                # Its client has no other stream: it is told an end to what it has seen. The stored log is another's.
                self._refuse(InternalError(TAKEN, code="server_restarted"))
                self.live.publish()
        except Exception as error:  # noqa: BLE001 - what is durable of it can be ended all the same
            self._observer.fault("a response broke", error)
            self.broken, self._stopping, self.refused = True, MOVED, InternalError(BROKEN.message)
        finally:
            if self._stopping == MOVED:
                self.live.move()
            elif not self.live.closed:
                self.live.close()
            self._tell()
            self._let_go()

    def _let_go(self) -> None:
        """Refer to nothing that refers to the run: it would wait for the garbage collector, with all that was read."""
        self._task = self._generation = self.job = None
        if self.journal is not None:
            self.journal.tell_nobody()

    def leave(self) -> None:
        """The client left a foreground response: stop; it is kept as cancelled, with what was generated."""
        self._stop(CANCELLED)

    def cancel(self) -> None:
        """Stop, and end as cancelled."""
        self._stop(CANCELLED)

    def steer(self) -> None:
        """Stop, and end as `incomplete` with the reason `steered` (responses-api 7)."""
        self._stop(STEERED)

    def detach(self) -> None:
        """Stop without an end: a background response goes on at the next start, or on another server."""
        self._hurry.set()
        self._stop(DETACHED)

    def lose(self) -> None:
        """Another server has taken the response over: write and publish nothing more."""
        if not self.committing:
            self._stopping = None
            self._stop(MOVED)

    def _stop(self, reason: str) -> None:
        if self._stopping is not None or self.committing:
            return
        self._stopping = reason
        if self._generating and self._task is not None:
            self._task.cancel()

    async def closed(self) -> None:
        """Wait until the end is in the store, or is known not to be."""
        while not self.live.closed:
            await self.live.wait()

    @property
    def all_durable(self) -> bool:
        """Whether all that has been logged is in the store."""
        return self.journal is not None and self.journal.durable == len(self.log.frames)

    def body(self) -> bytes:
        """The JSON of the response as it stands."""
        return self._stored_body or encode(self.log.snapshot())

    def _output(self) -> list[Item]:
        """All items of the response, in order; those of hosted tools in full, wherever they stand in it."""
        hosted = self.plan.hosted
        if hosted is None:
            return output_items(self.plan.response)
        return items_of(hosted.in_full(self.log.items()))

    def own_turn(self) -> Turn:
        """The response as a turn of a history, once it has ended."""
        plan = self.plan
        output = unseal_known(plan.codec, plan.scope, self._output())
        size = sum(len(row.body) for row in plan.input_items) + len(self.body())
        if plan.hosted is not None:
            size += plan.hosted.size
        return Turn(self.id, plan.response.previous_response_id, plan.own, output, open_calls(output), size)

    def ended_turn(self) -> Turn:
        """The whole history up to this response, which must have ended, as the one to continue."""
        plan = self.plan
        before, own = plan.before, self.own_turn()
        turn = own if before is None else joined_turn([before, own])
        if plan.store is None:
            rows = stored_items([*plan.items, *self._output()])
            return unstored_turn(turn, before, rows, title(plan.items))
        return turn

    def finished_row(self) -> FinishedResponse:
        """The end of the response as the store takes it."""
        plan, response, journal = self.plan, self.plan.response, self.journal
        events = [batch_of(self.log.frames)] if journal is None else journal.rest()
        return FinishedResponse(
            id=response.id,
            status=response.status,
            completed_at=int(time.time()),
            snapshot=encode(response),
            output_items=stored_items(self._output()),
            events=events,
            fence=self.fence,
            to_conversation=bool(response.conversation) and response.status in APPENDED,
            deliveries=plan.deliveries(response) if plan.deliveries is not None else (),
        )

    async def _generate(self) -> None:
        self._generating = True
        try:
            async with self.plan.engine.gate.slot():
                if self.plan.background and self.plan.response.status == "queued":
                    self.log.start()
                    if self.journal is not None:
                        self.journal.status = "in_progress"
                    self._published()
                if self._generation is not None:
                    await self._generation.run()
        except asyncio.CancelledError:
            if self._stopping is None:
                if self.alone:
                    raise
                self._stopping = CANCELLED
            if self._task is not None:
                self._task.uncancel()
            self._end_stopped()
        except DivergedError:
            self._assembler.fail(
                ResponseError("resume_diverged", "The response could not be continued as it began after a restart.")
            )
        except APIError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - a client must never wait for an end that cannot be kept
            self._observer.fault("a response failed", error)
            self._assembler.fail(BROKEN)
        else:
            return
        finally:
            self._generating = False
        if self._stopping not in (DETACHED, MOVED) and self._generation is not None:
            self._generation.abandon()

    def _fail(self, error: APIError) -> None:
        self._assembler.fail(response_error(error))
        if self._is_declined(error):
            self.declined = error
            # What has no row so far needs none.
            self.refused = error if self.journal is None else None

    def _is_declined(self, error: APIError) -> bool:
        """Whether the engine did not take a turn of which nobody has seen anything yet: then the answer is an error."""
        if self.log.items() or not (isinstance(error, EngineError) and error.refused):
            return False
        # Nobody sees what is not streamed before its end.
        return (self._unseen and not self.live.published) or (self.journal is None and not self.plan.stream)

    def _end_stopped(self) -> None:
        if self._stopping == CANCELLED:
            self._assembler.cancel()
        elif self._stopping == STEERED:
            self._assembler.steer()

    def _published(self) -> None:
        if self.journal is not None:
            self.journal.note()
        if not self.plan.background:
            self.live.publish()

    def _durable(self, durable: int | None) -> None:
        """The journal's word: so many events are in the store, or (None) the response is not ours any more."""
        if durable is None:
            self.lose()
            return
        if self.plan.background:
            self.live.publish(durable)
        self._tell()

    def _tell(self) -> None:
        if self._ring is not None and self.journal is not None:
            self._ring(self.plan.scope.tenant, self.id)

    async def _commit(self) -> None:
        store = self.plan.store
        if store is None:
            return
        began = time.monotonic()
        try:
            if self.journal is None:
                # Nobody saw it begin: the one snapshot that is kept is the final one.
                finished = self.finished_row()
                await store.create_finished_response(self.plan.scope, self._new_row(finished.snapshot), finished)
                self._stored_body = finished.snapshot
            elif not await self._finish(store, self.journal):
                self._stopping = MOVED
        except Exception as error:  # noqa: BLE001 - a client must never wait for an end that cannot be kept
            self._refuse(self._told(error))
        self._observer.store_commit(time.monotonic() - began)

    async def _finish(self, store: Store, journal: Journal) -> bool:
        """End the row; whether the end is ours.

        What a background response did is shown only once it is durable, so its end waits for the store as long as the
        server runs; a foreground client is told at once.
        """
        finished: FinishedResponse | None = None
        while True:
            try:
                if not await journal.settle():
                    return False
                finished = finished or self.finished_row()
                ours = await store.finish_response(self.plan.scope, finished)
            except Exception as error:
                if not self.plan.background:
                    raise
                if not isinstance(error, UnavailableError):
                    self._refuse(self._told(error))
                    finished = None
            else:
                self.refused = None
                self._stored_body = finished.snapshot
                return ours
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), FINISH_AGAIN_SECONDS)
            if self._hurry.is_set():
                return False

    def _told(self, error: Exception) -> APIError:
        """What a fault of the store is to a client."""
        if isinstance(error, APIError):
            return error
        self._observer.fault("a response could not be stored", error)
        return InternalError("The server could not store the response.")

    def _refuse(self, error: APIError) -> None:
        """The end could not be stored, or is not ours: who waits for the answer gets the error, a stream fails."""
        self.refused = error
        if self.log.ended:
            self.log.retract_end()
        self._assembler.fail(response_error(error))

    def _new_row(self, snapshot: bytes) -> NewResponse:
        plan, response = self.plan, self.plan.response
        begun = self.journal is not None
        return NewResponse(
            id=response.id,
            parent_id=plan.parent_id,
            status="queued" if plan.background else "in_progress",
            created_at=response.created_at,
            snapshot=snapshot,
            input_items=plan.input_items,
            events=[batch_of(self.log.frames)] if begun else (),
            conversation_id=response.conversation["id"] if response.conversation else None,
            owner=self._owner if begun else "",
            plan=plan.resume,
            keep_seconds=plan.keep_seconds,
            idempotency=plan.idempotency,
        )

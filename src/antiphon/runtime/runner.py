"""Runs one response: engine deltas to events, events to readers and to the store, and an end in every case.

A stored stream is begun in the store before its first event is seen, and its end is committed before its terminal
event is seen (law 4); an answer that is not streamed is one commit, before it is sent.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, aclosing
from itertools import accumulate
from typing import Any

from msgspec import Struct

from antiphon.engines.base import Engine, PreparedTurn
from antiphon.errors import APIError, EngineError, InternalError
from antiphon.machine.assembler import Assembler
from antiphon.machine.log import EventLog
from antiphon.prompt.messages import Conversation
from antiphon.protocol.items import Item, RawItem
from antiphon.protocol.json import encode
from antiphon.protocol.response import ERROR_CODES, Response, ResponseError
from antiphon.runtime.inputs import stored_items
from antiphon.runtime.live import LiveLog
from antiphon.runtime.observer import Observer
from antiphon.store.base import EventBatch, FinishedResponse, NewResponse, Scope, Store, StoredItem

__all__ = ["Run", "RunPlan", "output_items"]


class RunPlan(Struct):
    """All that a run needs, after every check.

    `own` are the request's items as messages, after what the history left open, and `input_items` their rows. `store`
    is None where the response is not kept.
    """

    scope: Scope
    engine: Engine
    turn: PreparedTurn
    response: Response
    own: Conversation
    input_items: list[StoredItem]
    stream: bool
    dialect: str
    logprobs: bool
    store: Store | None


class Run:
    """One response while it is generated. Its task ends only when the response has its terminal state."""

    def __init__(self, plan: RunPlan, observer: Observer) -> None:
        self.plan = plan
        self.log = EventLog(plan.response, plan.dialect)
        self.live = LiveLog(self.log)
        self.refused: APIError | None = None
        self.held = ExitStack()
        """What is given back when the run has ended: the hold on the history that it continues."""
        self._observer = observer
        self._assembler = Assembler(
            self.log,
            logprobs=plan.logprobs,
            parallel_tool_calls=plan.turn.prompt.parallel_tool_calls,
            input_tokens=plan.turn.input_tokens,
            whole_parts=not plan.stream,
        )
        self._started_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._generating = False
        self._left = False
        self._stored_body: bytes | None = None
        self.committing = False

    @property
    def id(self) -> str:
        """The id of the response."""
        return self.plan.response.id

    async def begin(self) -> None:
        """Open the log; a stored stream is durable when this returns.

        Raises:
            UnavailableError: the store cannot take it; nothing was sent.
        """
        self.log.open()
        if self.plan.stream and self.plan.store is not None:
            began = time.monotonic()
            await self.plan.store.create_response(self.plan.scope, self._new_row(encode(self.plan.response)))
            self._observer.store_commit(time.monotonic() - began)
        self.live.publish()

    async def run(self) -> None:
        """Generate to the end and commit it."""
        self._task = asyncio.current_task()
        try:
            if self._left:
                self._assembler.cancel()
            else:
                await self._generate()
            self.committing = True
            await self._commit()
        finally:
            self.live.close()

    def leave(self) -> None:
        """The client left: stop the engine; the response is kept as cancelled, with what was generated."""
        self._left = True
        if self._generating and self._task is not None:
            self._task.cancel()

    async def closed(self) -> None:
        """Wait until the end is in the store, or is known not to be."""
        while not self.live.closed:
            await self.live.wait()

    def body(self) -> bytes:
        """The JSON of the response as it stands."""
        return self._stored_body or encode(self.log.snapshot())

    async def _generate(self) -> None:
        self._generating = True
        try:
            await self._consume()
        except asyncio.CancelledError:
            if self._task is not None:
                self._task.uncancel()
            self._assembler.cancel()
        except APIError as error:
            self._assembler.fail(_response_error(error))
        except Exception as error:  # noqa: BLE001 - a client must never wait for an end that cannot be kept
            self._observer.fault("a response failed", error)
            self._assembler.fail(ResponseError("server_error", "The server had an error while generating."))
        finally:
            self._generating = False

    async def _consume(self) -> None:
        plan, assembler = self.plan, self._assembler
        first = True
        async with aclosing(plan.engine.generate(plan.turn)) as batches:
            async for deltas in batches:
                if first:
                    first = False
                    self._observer.first_token(plan.engine.name, time.monotonic() - self._started_at)
                if assembler.feed(deltas):
                    break
                self.live.publish()
        if assembler.stopped is None:
            raise EngineError("The engine ended without saying why.")
        assembler.finish(int(time.time()))

    async def _commit(self) -> None:
        store = self.plan.store
        if store is None:
            return
        began = time.monotonic()
        try:
            finished = self.finished_row()
            if self.plan.stream:
                await self._finish(store, finished)
            else:
                # Nobody saw it begin: the one snapshot that is kept is the final one.
                await store.create_finished_response(self.plan.scope, self._new_row(finished.snapshot), finished)
            self._stored_body = finished.snapshot
        except APIError as error:
            self._refuse(error)
        except Exception as error:  # noqa: BLE001 - a client must never wait for an end that cannot be kept
            self._observer.fault("a response could not be stored", error)
            self._refuse(InternalError("The server could not store the response."))
        self._observer.store_commit(time.monotonic() - began)

    async def _finish(self, store: Store, finished: FinishedResponse) -> None:
        if not await store.finish_response(self.plan.scope, finished):
            raise InternalError("The response was ended by another server.")

    def _refuse(self, error: APIError) -> None:
        """The end could not be stored: whoever waits for the answer gets the error, a stream ends as failed."""
        self.refused = error
        self.log.retract_end()
        self.log.fail(_response_error(error))

    def _new_row(self, snapshot: bytes) -> NewResponse:
        response = self.plan.response
        return NewResponse(
            id=response.id,
            parent_id=response.previous_response_id,
            status="in_progress",
            created_at=response.created_at,
            snapshot=snapshot,
            input_items=self.plan.input_items,
        )

    def finished_row(self) -> FinishedResponse:
        """The end of the response as the store takes it."""
        response = self.plan.response
        return FinishedResponse(
            id=response.id,
            status=response.status,
            completed_at=int(time.time()),
            snapshot=encode(response),
            output_items=stored_items(output_items(response)),
            events=[whole_batch(self.log.frames)],
        )


def output_items(response: Response) -> list[Item]:
    """The output as items; plain objects are raw items."""
    return [_raw_item(item) if isinstance(item, dict) else item for item in response.output]


def _raw_item(body: Any) -> RawItem:
    return RawItem(body["type"], body["id"], body)


def whole_batch(frames: list[bytes]) -> EventBatch:
    """All frames of a log as one batch."""
    ends = accumulate(map(len, frames))
    return EventBatch(0, b"".join(frames), [0, *ends][:-1])


def _response_error(error: APIError) -> ResponseError:
    code = error.code if error.code in ERROR_CODES else None
    return ResponseError(code or "server_error", error.message, error.type)

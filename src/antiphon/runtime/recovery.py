"""What becomes of a response that another process left running (architecture, "half-made turn after a crash").

A background response goes on from what is durable of it: the engine continues from its logged tokens, and nothing that
was told is told again or contradicted. A foreground one has lost its client; it ends as failed after its durable
prefix. One that was queued begins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec

from antiphon.errors import APIError, EngineUnavailableError, UnavailableError
from antiphon.machine.log import EventLog, dialect_of, tells_diffs
from antiphon.machine.restore import FrameFold, fold_frames, restore
from antiphon.machine.transitions import IllegalTransitionError
from antiphon.protocol.json import encode
from antiphon.protocol.request import decode_create_response
from antiphon.protocol.response import TERMINAL_STATUSES, Response, ResponseError, decode_response
from antiphon.runtime.credentials import revealed
from antiphon.runtime.inputs import stored_items
from antiphon.runtime.journal import batch_of, frames_of, sampled_of
from antiphon.runtime.keeper import kept_calls, overlaid, standing
from antiphon.runtime.outputs import items_of, response_error
from antiphon.runtime.planner import Planner, ResumePlan
from antiphon.runtime.plans import RunPlan, Taken
from antiphon.runtime.runner import APPENDED
from antiphon.runtime.tail import stored_batches
from antiphon.store.base import ClaimedResponse, EventBatch, FinishedResponse, NewDelivery, Scope, Store

__all__ = ["RESTARTED", "Recovery", "stored_response"]

RESTARTED = ResponseError("server_restarted", "The server was restarted while it generated.")
UNREADABLE = ResponseError("server_error", "The events of the response cannot be read.")
CHANGED = ResponseError("model_changed", "The model that began the response is not served any more.")

_decode_plan = msgspec.msgpack.Decoder(ResumePlan).decode


def opened_frames(batches: list[EventBatch], snapshot: bytes, dialect: str) -> list[bytes]:
    """The durable frames; of a row that began before events were durable from the start, those that opened it."""
    frames = frames_of(batches)
    if not frames:
        log = EventLog(decode_response(snapshot), dialect)
        log.open()
        frames = log.frames
    return frames


async def stored_response(store: Store, scope: Scope, response_id: str, snapshot: bytes) -> bytes:
    """The JSON of a running response: the fold of its durable events, in steps; `snapshot` where there are none."""
    fold = FrameFold()
    async with aclosing(stored_batches(store, scope, response_id, -1)) as found:
        async for batches in found:
            fold.take(frames_of(batches))
            await asyncio.sleep(0)
    return snapshot if fold.empty else encode(fold.response())


class Recovery:
    """Ends or goes on with what was left running; `webhooks` gives the deliveries of a background response's end."""

    def __init__(
        self,
        store: Store,
        planner: Planner,
        dialect: str,
        webhooks: Callable[[Response], list[NewDelivery]],
    ) -> None:
        self._store = store
        self._planner = planner
        self._dialect = dialect
        self._webhooks = webhooks

    async def end(self, scope: Scope, claimed: ClaimedResponse, error: ResponseError | None) -> bytes | None:
        """End a claimed response after its durable prefix: as failed, or without an error as cancelled.

        The final object, or None where the response was taken over or ended in between. One whose log cannot be gone
        on with ends without a terminal event, as failed, with what it began with.
        """
        row = claimed.response
        batches = await self._store.events(scope, row.id)
        # What its tools gave is in their rows, which go with it.
        kept = kept_calls(await self._store.tool_runs(scope, row.id)) if claimed.plan else []
        try:
            response, events, items = self._ended(claimed, batches, error)
        except (ValueError, IllegalTransitionError):
            response, events = decode_response(row.snapshot), []
            response.status, response.error = "failed", UNREADABLE
            items = response.output
        finished = FinishedResponse(
            id=row.id,
            status=response.status,
            completed_at=int(time.time()),
            snapshot=encode(response),
            output_items=stored_items(items_of(overlaid(items, kept))),
            events=events,
            fence=row.fence,
            to_conversation=bool(response.conversation) and response.status in APPENDED,
            deliveries=self._webhooks(response) if response.background else (),
        )
        return finished.snapshot if await self._store.finish_response(scope, finished) else None

    def _ended(
        self, claimed: ClaimedResponse, batches: list[EventBatch], error: ResponseError | None
    ) -> tuple[Response, list[EventBatch], list[Any]]:
        """The final object, the events that are missing, and all items.

        Raises:
            ValueError: what is durable is no beginning of a log that can be gone on with.
            IllegalTransitionError: as above.
        """
        frames = opened_frames(batches, claimed.response.snapshot, self._dialect)
        dialect = _decode_plan(claimed.plan).dialect if claimed.plan else dialect_of(frames, self._dialect)
        restored = restore(frames, dialect, diffs=tells_diffs(frames))
        log, durable = restored.log, sum(len(batch.offsets) for batch in batches)
        if error is None:
            restored.assembler.cancel()
        else:
            restored.assembler.fail(error)
        return log.response, [batch_of(log.frames[durable:], durable)], log.items()

    async def take_up(self, scope: Scope, claimed: ClaimedResponse, patience: float) -> tuple[RunPlan, Taken] | None:
        """What is needed to go on with a claimed background response; None where it was ended, here or elsewhere.

        Raises:
            UnavailableError: the store cannot be asked now.
        """
        row = claimed.response
        resumed = _decode_plan(claimed.plan)
        batches = await self._store.events(scope, row.id)
        now = await self._store.get_response(scope, row.id)
        if now is None or now.fence != row.fence or now.status in TERMINAL_STATUSES:
            return None
        request = decode_create_response(await revealed(self._planner.codec, scope, resumed.request))
        begun = fold_frames(frames_of(batches))
        try:
            plan = await self._planner.plan(scope, request, begun=begun, resumed=resumed, patience=patience)
        except APIError as error:
            if isinstance(error, UnavailableError) and not isinstance(error, EngineUnavailableError):
                raise
            unknown = error.code == "model_not_found"
            await self.end(scope, claimed, CHANGED if unknown else response_error(error))
            return None
        restored = restore(
            frames_of(batches),
            resumed.dialect,
            diffs=plan.diffs,
            logprobs=plan.logprobs,
            parallel_tool_calls=plan.turn.prompt.parallel_tool_calls,
            input_tokens=plan.turn.input_tokens,
            seal=plan.seal,
        )
        kept = kept_calls(await self._store.tool_runs(scope, row.id)) if plan.hosted is not None else []
        stood = standing(restored.log.items(), kept)
        sampled, spent = sampled_of(batches, stood.rounds)
        if kept and kept[-1].turn in (stood.rounds, stood.rounds - 1):
            spent = kept[-1].spent
        if plan.engine.fingerprint != resumed.fingerprint and (sampled.generated or stood.rounds):
            await self.end(scope, claimed, CHANGED)
            return None
        plan.response = restored.log.response
        restored.assembler.spend(spent)
        return plan, Taken(restored, sampled, row.fence, stood, spent, kept)

"""Where a reader gets the events of a response: from a run in this process as far as it goes, then from the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from msgspec import Struct

from antiphon.errors import GoneError, InvalidRequestError
from antiphon.protocol.response import TERMINAL_STATUSES, decode_response
from antiphon.runtime.bells import Bells
from antiphon.runtime.live import LiveLog
from antiphon.runtime.recovery import RESTARTED
from antiphon.runtime.runner import Run
from antiphon.runtime.tail import stored_batches, stored_tail
from antiphon.runtime.upkeep import Upkeep
from antiphon.store.base import EventBatch, Scope, Store, StoredResponse

__all__ = ["Replay", "Replays"]

Tail = Callable[[int], AsyncGenerator[list[EventBatch]]]


class Replay(Struct, frozen=True):
    """A live log, where the response runs here, and the stored batches with events after a number.

    An empty list of batches says that nothing came for a while.
    """

    live: LiveLog | None
    tail: Tail


class Replays:
    """Replays over one store; `stopped` says that the server is about to end, and readers with it."""

    def __init__(
        self, store: Store, bells: Bells, upkeep: Upkeep, silence_seconds: float, stopped: Callable[[], bool]
    ) -> None:
        self._store = store
        self._bells = bells
        self._upkeep = upkeep
        self._silence_seconds = silence_seconds
        self._stopped = stopped

    def live(self, scope: Scope, run: Run) -> Replay:
        """The replay of a response that runs here."""
        return Replay(run.live, self._tail(scope, run.id))

    async def stored(self, scope: Scope, row: StoredResponse, after: int) -> Replay:
        """The replay of one that does not.

        Raises:
            GoneError: `event_log_expired`, its log was removed after its time.
            InvalidRequestError: the number is past the durable end of a stream that a restart has ended.
        """
        if row.events_expired:
            raise GoneError(
                "The event log of this response has expired; the response itself can still be retrieved.",
                code="event_log_expired",
            )
        owed = self._upkeep.owed_events(scope, row.id)
        if owed:
            return Replay(None, lambda start: self._with_owed(scope, row.id, start, owed))
        if row.status in TERMINAL_STATUSES:
            await self._check_number(scope, row, after)
        return Replay(None, self._tail(scope, row.id))

    def _tail(self, scope: Scope, response_id: str) -> Tail:
        return lambda start: stored_tail(
            self._store,
            self._bells,
            scope,
            response_id,
            start,
            silence_seconds=self._silence_seconds,
            stopped=self._stopped,
        )

    async def _check_number(self, scope: Scope, row: StoredResponse, after: int) -> None:
        """Refuse a number that is past the durable end of a foreground stream which a restart ended.

        Its client saw events that are no more, and what has those numbers now is something else.
        """
        response = decode_response(row.snapshot)
        if response.background or response.error is None or response.error.code != RESTARTED.code:
            return
        last = await self._store.last_sequence(scope, row.id)
        # What a restart adds is one batch: what closes the open item, the error, and the end.
        added = await self._store.events(scope, row.id, last - 1)
        durable = added[-1].first_sequence - 1
        if durable < after != last:
            raise InvalidRequestError(
                f"The stream was lost when the server was restarted; its events are known up to number {durable}.",
                param="starting_after",
                code="events_lost",
            )

    async def _with_owed(
        self, scope: Scope, response_id: str, after: int, owed: list[EventBatch]
    ) -> AsyncGenerator[list[EventBatch]]:
        """The stored batches, then those that the store does not have yet."""
        async with aclosing(stored_batches(self._store, scope, response_id, after)) as found:
            async for batches in found:
                after = batches[-1].last_sequence
                yield batches
        yield [batch for batch in owed if batch.last_sequence > after]

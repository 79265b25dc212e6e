"""Group commit of events: what many streams append in one turn of the event loop shares a statement and its fsync.

Two statements are on their way at a time, one of which can run while the other one waits for the disk; what comes
meanwhile makes the next one. So a stream alone waits for nobody, and many streams cost little more than one. A
statement that fails is tried again batch by batch: the one at fault harms only itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from copy import copy

from antiphon.errors import APIError, InternalError, UnavailableError
from antiphon.store.postgres_database import Connection, Database, fetch
from antiphon.store.postgres_errors import violated
from antiphon.store.postgres_session import Bell
from antiphon.store.refusals import events_out_of_order, store_closed
from antiphon.store.rows import EventBatch
from antiphon.store.sqlite_ledger import pack_offsets

__all__ = ["Appender"]

_MOST_BATCHES = 256
_MOST_BYTES = 4 * 1024 * 1024
_AT_ONCE = 2


class _Append:
    """A batch, and the caller who awaits its outcome."""

    __slots__ = ("batch", "future", "key", "status")

    def __init__(
        self, key: tuple[str, str, int], batch: EventBatch, status: str | None, future: asyncio.Future[bool]
    ) -> None:
        self.key = key
        self.batch = batch
        self.status = status
        self.future = future


class _Stream:
    """Batches of one response that follow each other."""

    def __init__(self, first: _Append) -> None:
        self.key = first.key
        self.appends = [first]
        self.status = first.status

    @property
    def first(self) -> EventBatch:
        """The first one."""
        return self.appends[0].batch

    def take(self, append: _Append) -> bool:
        """Add one, if it comes right after the last."""
        if append.batch.first_sequence != self.appends[-1].batch.last_sequence + 1:
            return False
        self.appends.append(append)
        self.status = append.status or self.status
        return True

    def settle(self, outcome: bool | APIError) -> None:
        """Tell the callers."""
        for append in self.appends:
            if append.future.done():
                continue
            if isinstance(outcome, APIError):
                append.future.set_exception(copy(outcome))
            else:
                append.future.set_result(outcome)


class Appender:
    """Appends batches for all callers; made and used on the event loop's thread."""

    def __init__(self, database: Database, bell: Bell, form: int) -> None:
        self._database = database
        self._bell = bell
        self._form = form
        self._waiting: deque[_Append] = deque()
        self._streams: set[tuple[str, str, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._due = False
        self._closed = False

    def append(
        self, tenant: str, response_id: str, batch: EventBatch, fence: int, status: str | None
    ) -> asyncio.Future[bool]:
        """Whether the batch is durable; False where the response has another fence, has ended or is gone.

        Raises:
            ConflictError: it does not come right after the events that are there.
            UnavailableError: it cannot be written now.
        """
        if self._closed:
            raise store_closed()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(_Append((tenant, response_id, fence), batch, status, future))
        if not self._due:
            self._due = True
            # Not at once, so that callers of the same turn of the loop share the statement.
            loop.call_soon(self._begin)
        return future

    async def close(self) -> None:
        """Finish what waits."""
        self._closed = True
        while self._tasks or self._waiting:
            self._begin()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _begin(self) -> None:
        self._due = False
        while self._waiting and len(self._tasks) < _AT_ONCE:
            streams = self._take()
            if not streams:
                return
            task = asyncio.get_running_loop().create_task(self._write(streams))
            self._tasks.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._waiting and not self._due:
            # Callers that the results wake may have more to write: let them join.
            self._due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _take(self) -> list[_Stream]:
        """What goes into the next statement; batches of one response keep their order, and are never in two of them."""
        streams: dict[tuple[str, str, int], _Stream] = {}
        left: list[_Append] = []
        passed: set[tuple[str, str, int]] = set()
        count = size = 0
        while self._waiting and count < _MOST_BATCHES and size < _MOST_BYTES:
            append = self._waiting.popleft()
            stream = streams.get(append.key)
            if append.key in self._streams or append.key in passed or (stream and not stream.take(append)):
                passed.add(append.key)
                left.append(append)
                continue
            if stream is None:
                streams[append.key] = _Stream(append)
            count += 1
            size += len(append.batch.body)
        self._waiting.extendleft(reversed(left))
        self._streams |= streams.keys()
        # In one order, so that two servers do not wait for each other's rows crosswise.
        return [streams[key] for key in sorted(streams)]

    async def _write(self, streams: list[_Stream]) -> None:
        try:
            await self._try(streams)
        finally:
            for stream in streams:
                self._streams.discard(stream.key)
                stream.settle(InternalError("The store failed."))

    async def _try(self, streams: Sequence[_Stream]) -> None:
        try:
            outcomes = await self._database.run(lambda connection, again: self._statement(connection, streams, again))
        except UnavailableError as error:
            for stream in streams:
                stream.settle(error)
        except APIError as error:
            await self._try_alone(streams, error)
        else:
            for stream, outcome in zip(streams, outcomes, strict=True):
                if outcome is None:
                    await self._try_alone([stream], events_out_of_order())
                    continue
                if outcome:
                    self._bell.ring(stream.key[0], stream.key[1])
                stream.settle(outcome)

    async def _try_alone(self, streams: Sequence[_Stream], error: APIError) -> None:
        """Try every batch by itself, where there were several."""
        appends = [append for stream in streams for append in stream.appends]
        if len(appends) == 1:
            streams[0].settle(error)
            return
        for append in appends:
            await self._try([_Stream(append)])

    async def _statement(self, connection: Connection, streams: Sequence[_Stream], again: bool) -> list[bool | None]:
        """Of each stream whether it was written; None where its first batch does not come next."""
        batches = [(place, one.batch) for place, stream in enumerate(streams, 1) for one in stream.appends]
        sampled = [(place, batch) for place, batch in batches if batch.sampled]
        try:
            rows = await fetch(
                connection,
                "append_events",
                format=self._form,
                tenants=[stream.key[0] for stream in streams],
                ids=[stream.key[1] for stream in streams],
                fences=[stream.key[2] for stream in streams],
                stream_firsts=[stream.first.first_sequence for stream in streams],
                statuses=[stream.status for stream in streams],
                places=[place for place, _ in batches],
                firsts=[batch.first_sequence for _, batch in batches],
                lasts=[batch.last_sequence for _, batch in batches],
                offsets=[pack_offsets(batch.offsets) for _, batch in batches],
                batches=[batch.body for _, batch in batches],
                sample_places=[place for place, _ in sampled],
                sample_firsts=[batch.first_sequence for _, batch in sampled],
                samples=[batch.sampled for _, batch in sampled],
            )
        except Exception as error:
            # Someone else has just written a batch with that number.
            if violated(error) == "event_batches_pkey":
                raise events_out_of_order() from None
            raise
        found: dict[int, int] = {row[0]: row[1] for row in rows}
        outcomes: list[bool | None] = []
        for place, stream in enumerate(streams, 1):
            written = place in found
            if written and found[place] != stream.first.first_sequence:
                written = True if again and await self._is_there(connection, stream) else None
            outcomes.append(written)
        return outcomes

    async def _is_there(self, connection: Connection, stream: _Stream) -> bool:
        """Whether an earlier attempt has got through, although its connection was lost before it said so."""
        tenant, name, fence = stream.key
        first = stream.first.first_sequence
        rows = await fetch(connection, "find_batch", tenant=tenant, id=name, fence=fence, first_seq=first)
        return bool(rows) and tuple(rows[0]) == (stream.first.last_sequence, stream.first.body)

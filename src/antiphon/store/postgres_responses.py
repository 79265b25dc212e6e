"""Responses in PostgreSQL: each write is one statement, and so one round trip and one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from antiphon.store.base import ResponseStore
from antiphon.store.memory_rows import check_order
from antiphon.store.postgres_core import FORMAT, refuse_unstorable, storable
from antiphon.store.postgres_database import Connection, execute, fetch
from antiphon.store.postgres_errors import violated
from antiphon.store.postgres_limits import PostgresLimits
from antiphon.store.refusals import (
    conversation_locked,
    events_out_of_order,
    idempotency_key_in_use,
    response_exists,
)
from antiphon.store.rows import (
    ChainTurn,
    EventBatch,
    FinishedResponse,
    NewDelivery,
    NewResponse,
    Scope,
    StoredItem,
    StoredResponse,
)
from antiphon.store.sqlite_ledger import pack_offsets, unpack_offsets

__all__ = ["PostgresResponses"]

_REFUSALS = {
    "responses_by_id": response_exists,
    "responses_running_in_conversation": conversation_locked,
    "status": conversation_locked,
    "first_seq": events_out_of_order,
    "event_batches_pkey": events_out_of_order,
}


class PostgresResponses(PostgresLimits, ResponseStore):
    """Writes and reads responses, their items and their events."""

    async def create_response(self, scope: Scope, response: NewResponse, *, flush: bool = True) -> None:
        """Begin a response.

        Raises:
            ConflictError: there is one by that id, its conversation is locked, or its idempotency key is in use.
            UnavailableError: it cannot be written now.
        """
        await self._create(scope.tenant, response, None)

    async def create_finished_response(self, scope: Scope, response: NewResponse, finished: FinishedResponse) -> None:
        """Begin and end a response in one transaction.

        Raises:
            ConflictError: as `create_response`.
            UnavailableError: it cannot be written now.
        """
        await self._create(scope.tenant, response, finished)

    async def append_events(
        self,
        scope: Scope,
        response_id: str,
        batch: EventBatch,
        *,
        fence: int = 1,
        status: str | None = None,
        flush: bool = True,
    ) -> bool:
        """Append a batch to a running response, and set its status where one is given.

        Raises:
            ConflictError: the batch does not come right after the events that are there.
            UnavailableError: it cannot be written now.
        """
        if not storable(response_id):
            return False
        written = await self._open().appender.append(scope.tenant, response_id, batch, fence, status)
        if written:
            await self._enforce_limits(size=len(batch.body))
        return written

    async def finish_response(self, scope: Scope, finished: FinishedResponse) -> bool:
        """End a response; False where it has ended already, is gone, or has another fence.

        Raises:
            ConflictError: the events do not come right after those that are there.
            UnavailableError: it cannot be written now.
        """
        if not storable(finished.id):
            return False
        refuse_unstorable(finished.output_items)
        parameters: dict[str, object] = {
            "tenant": scope.tenant,
            "id": finished.id,
            "fence": finished.fence,
            "format": FORMAT,
            "status": finished.status,
            "completed_at": finished.completed_at,
            "snapshot": finished.snapshot,
            "now": self._clock(),
            "used_at": self._tick(),
            "oldest": self._oldest,
            "in_order": _in_order(finished.events),
            "item_ids": [item.id for item in finished.output_items],
            "item_bodies": [item.body for item in finished.output_items],
            "to_conversation": finished.to_conversation,
            **_events(finished.events),
            **_deliveries(finished.deliveries),
        }

        async def job(connection: Connection, again: bool) -> Sequence[Any] | None:
            try:
                rows = await fetch(connection, "finish_response", **parameters)
            except Exception as error:
                raise _refusal(error) from error
            if rows:
                return rows[0]
            return (0, None) if again and await self._is_ended(connection, scope.tenant, finished) else None

        ended = await self._run(job)
        if ended is None:
            return False
        self._open().bell.ring(scope.tenant, finished.id)
        if finished.to_conversation and ended[1] is not None:
            await self._enforce_conversation_limits(size=_size(finished.output_items))
        await self._enforce_limits(entries=1, size=_end_size(finished))
        return True

    async def get_response(self, scope: Scope, response_id: str) -> StoredResponse | None:
        """A response by id; counts as a use of it."""
        if not storable(response_id):
            return None
        rows = await self._fetch("get_response", tenant=scope.tenant, id=response_id, now=self._clock())
        if not rows:
            return None
        await self._use((scope.tenant, response_id))
        return StoredResponse(*rows[0])

    async def chain(self, scope: Scope, response_id: str) -> list[ChainTurn]:
        """The turns from the oldest ancestor to this response."""
        turns: list[ChainTurn] = []
        if not storable(response_id):
            return turns
        inputs: list[bytes] = []
        outputs: list[bytes] = []
        rows = await self._fetch("chain", tenant=scope.tenant, id=response_id, now=self._clock())
        for turn_id, parent_id, status, role, body in rows:
            if not turns or turns[-1].id != turn_id:
                inputs, outputs = [], []
                turns.append(ChainTurn(turn_id, parent_id, status, inputs, outputs))
            if role is not None:
                (outputs if role else inputs).append(body)
        return turns

    async def input_item_ids(self, scope: Scope, response_id: str) -> list[str]:
        """The ids of the items that a response was made from, oldest first, each where it comes first."""
        if not storable(response_id):
            return []
        rows = await self._fetch("chain_item_ids", tenant=scope.tenant, id=response_id, now=self._clock())
        return list(dict.fromkeys(row[0] for row in rows))

    async def events(
        self, scope: Scope, response_id: str, after: int = -1, most: int | None = None
    ) -> list[EventBatch]:
        """The batches of a response that hold events after that number."""
        if not storable(response_id):
            return []
        names: dict[str, object] = {"tenant": scope.tenant, "id": response_id, "after": after, "most": most}
        rows = await self._fetch("events", **names, now=self._clock())
        return [EventBatch(first, body, unpack_offsets(offsets), drawn or b"") for first, body, offsets, drawn in rows]

    async def last_sequence(self, scope: Scope, response_id: str) -> int:
        """The number of the last stored event of a response; -1 where there is none."""
        if not storable(response_id):
            return -1
        rows = await self._fetch("last_sequence", tenant=scope.tenant, id=response_id, now=self._clock())
        return rows[0][0] if rows else -1

    async def get_items(self, scope: Scope, item_ids: Sequence[str]) -> dict[str, bytes]:
        """The JSON of those items that are kept, by id."""
        wanted = [name for name in item_ids if storable(name)]
        if not wanted:
            return {}
        rows = await self._fetch("get_items", tenant=scope.tenant, ids=wanted)
        bodies: dict[str, bytes] = {row[0]: row[1] for row in rows}
        return {name: bodies[name] for name in wanted if name in bodies}

    async def _create(self, tenant: str, response: NewResponse, finished: FinishedResponse | None) -> None:
        check_order(-1, [*response.events, *(finished.events if finished is not None else ())])
        refuse_unstorable([*response.input_items, *(finished.output_items if finished is not None else ())])
        # The parent was used before its child was, although that is only noted once the child is there.
        chained_at = self._tick()
        parameters = self._new_row(tenant, response, finished)

        async def job(connection: Connection, again: bool) -> None:
            try:
                await self._insert(connection, parameters)
            except Exception as error:
                final = response if finished is None else finished
                if again and violated(error) in _REFUSALS and await self._is_stored(connection, tenant, final):
                    return
                raise _refusal(error) from error

        await self._run(job)
        if response.parent_id is not None:
            await self._use((tenant, response.parent_id), chained_at)
        size = len(response.snapshot) + _size(response.input_items) + _size(response.events)
        if finished is not None:
            size += _end_size(finished)
            if finished.to_conversation and response.conversation_id is not None:
                await self._enforce_conversation_limits(size=size)
        await self._enforce_limits(entries=1, size=size)

    async def _insert(self, connection: Connection, parameters: dict[str, object]) -> None:
        """Add the row of a response.

        Raises:
            ConflictError: its idempotency key is in use.
            Exception: the database refuses it.
        """
        tenant, parent_id = str(parameters["tenant"]), parameters["parent_id"]
        without_parent = parent_id is None
        ((added, has_parent),) = await fetch(connection, "create_response", **parameters, without_parent=without_parent)
        if not added and not has_parent and not without_parent:
            async with connection.transaction():
                if (tenant, parent_id) in self._retained:
                    # Another server has removed it while this response was made on top of it.
                    await _bring_back(connection, tenant, str(parent_id))
                ((added, _),) = await fetch(connection, "create_response", **parameters, without_parent=True)
        if not added:
            raise idempotency_key_in_use()

    def _new_row(self, tenant: str, response: NewResponse, finished: FinishedResponse | None) -> dict[str, object]:
        final = response if finished is None else finished
        now = self._clock()
        lives = self.limits.ttl_seconds
        if response.keep_seconds is not None:
            lives = None if finished is None else response.keep_seconds
        record = response.idempotency
        inputs, outputs = response.input_items, () if finished is None else finished.output_items
        events = response.events if finished is None else [*response.events, *finished.events]
        return {
            "tenant": tenant,
            "id": response.id,
            "parent_id": response.parent_id,
            "conversation_id": response.conversation_id,
            "status": final.status,
            "owner": response.owner,
            "format": FORMAT,
            "created_at": response.created_at,
            "completed_at": None if finished is None else finished.completed_at,
            "expires_at": float("inf") if lives is None else now + lives,
            "keep_seconds": response.keep_seconds,
            "now": now,
            "used_at": self._tick(),
            "oldest": self._oldest,
            "log_ended_at": now if finished is not None and events else None,
            "snapshot": final.snapshot,
            "plan": response.plan if finished is None else b"",
            "key": None if record is None else record.key,
            "digest": None if record is None else record.digest,
            "key_expires_at": None if record is None else record.expires_at,
            "item_ids": [item.id for item in (*inputs, *outputs)],
            "item_bodies": [item.body for item in (*inputs, *outputs)],
            "item_roles": [0] * len(inputs) + [1] * len(outputs),
            "item_places": [*range(len(inputs)), *range(len(outputs))],
            "to_conversation": finished is not None and finished.to_conversation,
            **_events(events),
            **_samples(events if finished is None else ()),
            **_deliveries(() if finished is None else finished.deliveries),
        }

    async def _is_stored(self, connection: Connection, tenant: str, response: NewResponse | FinishedResponse) -> bool:
        """Whether an earlier attempt to begin it has got through."""
        rows = await fetch(connection, "find_end", tenant=tenant, id=response.id)
        return bool(rows) and tuple(rows[0]) == (response.status, 1, response.snapshot)

    async def _is_ended(self, connection: Connection, tenant: str, finished: FinishedResponse) -> bool:
        """Whether an earlier attempt to end it has got through."""
        rows = await fetch(connection, "find_end", tenant=tenant, id=finished.id)
        return bool(rows) and tuple(rows[0]) == (finished.status, finished.fence, finished.snapshot)


async def _bring_back(connection: Connection, tenant: str, response_id: str) -> None:
    """Take the mark from a hidden response, and from its ancestors as far as they have one; inside a transaction."""
    found = await fetch(connection, "find_hidden", tenant=tenant, id=response_id)
    number = found[0][0] if found else None
    # One by one, each locked before it is looked at: someone may be hiding the next one at this moment.
    while number is not None:
        rows = await fetch(connection, "lock_response", number=number)
        if not rows or not rows[0][1]:
            return
        await execute(connection, "unhide", number=number)
        number = rows[0][0]


def _refusal(error: Exception) -> Exception:
    refusal = _REFUSALS.get(violated(error) or "")
    return error if refusal is None else refusal()


def _in_order(batches: Sequence[EventBatch]) -> bool:
    return all(after.first_sequence == before.last_sequence + 1 for before, after in pairwise(batches))


def _events(batches: Sequence[EventBatch]) -> dict[str, object]:
    return {
        "firsts": [batch.first_sequence for batch in batches],
        "lasts": [batch.last_sequence for batch in batches],
        "offsets": [pack_offsets(batch.offsets) for batch in batches],
        "batches": [batch.body for batch in batches],
    }


def _samples(batches: Sequence[EventBatch]) -> dict[str, object]:
    sampled = [batch for batch in batches if batch.sampled]
    return {
        "sample_firsts": [batch.first_sequence for batch in sampled],
        "samples": [batch.sampled for batch in sampled],
    }


def _deliveries(deliveries: Sequence[NewDelivery]) -> dict[str, object]:
    return {
        "delivery_ids": [delivery.id for delivery in deliveries],
        "endpoints": [delivery.endpoint for delivery in deliveries],
        "deliveries_at": [delivery.created_at for delivery in deliveries],
        "deliveries": [delivery.body for delivery in deliveries],
    }


def _size(rows: Sequence[StoredItem | EventBatch]) -> int:
    return sum([len(row.body) for row in rows])


def _end_size(finished: FinishedResponse) -> int:
    return len(finished.snapshot) + _size(finished.output_items) + _size(finished.events)

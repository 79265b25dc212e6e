"""What the writer of the SQLite store does to responses.

Everything here runs inside a transaction, one thread at a time. A job that is refused before it has written anything
returns the error, so that the jobs that share its transaction need not be done again; one that finds out later raises
it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from antiphon.errors import APIError
from antiphon.store.queries import QUERIES
from antiphon.store.refusals import (
    conversation_locked,
    events_out_of_order,
    idempotency_key_in_use,
    response_exists,
)
from antiphon.store.rows import ClaimedResponse, EventBatch, FinishedResponse, NewResponse, StoredResponse, StoreLimits
from antiphon.store.sqlite_conversation_rows import ConversationRows
from antiphon.store.sqlite_ledger import Key, Ledger, pack_offsets
from antiphon.store.sqlite_removal import Removal

__all__ = ["FORMAT", "IN", "OUT", "Rows", "stored_response"]

_INSERT_RESPONSE = QUERIES["insert_response"]
_INSERT_BATCH = QUERIES["insert_batch"]
_INSERT_SAMPLE = QUERIES["insert_sample"]
_APPEND_BATCH = QUERIES["append_batch"]
_FIND_RUNNING = QUERIES["find_running"]
_FINISH_RESPONSE = QUERIES["finish_response"]

IN, OUT = 0, 1
"""The roles of a response's items."""

FORMAT = 1
"""The newest form of a response's rows that this version can go on with."""


def stored_response(response_id: str, row: Sequence[object]) -> StoredResponse:
    """A response from a row of `get_response`."""
    *plain, temporary, events_expired = row
    return StoredResponse(response_id, *plain, bool(temporary), bool(events_expired))  # type: ignore[arg-type]


class Rows:
    """The rows of one database, as its only writer sees them."""

    def __init__(self, connection: sqlite3.Connection, limits: StoreLimits, clock: Callable[[], float]) -> None:
        self.ledger = ledger = Ledger(connection, limits, clock)
        self.removal = Removal(ledger)
        self.conversations = ConversationRows(ledger)
        self._execute = ledger.execute
        self._clock = clock
        self._ttl = limits.ttl_seconds

    # Around a transaction

    def settle(self) -> None:
        """Evict what the limits do not allow, and note the totals."""
        if self.ledger.uses.bounded:
            self.removal.enforce_limits()
        if self.ledger.conversation_uses.bounded:
            self.conversations.enforce_limits()
        self.ledger.settle()

    def committed(self) -> None:
        """Take over what the transaction did."""
        self.ledger.committed()
        self.removal.committed()

    def rolled_back(self) -> None:
        """Undo what the transaction did in memory."""
        self.ledger.rolled_back()
        self.removal.rolled_back()

    # Jobs

    def create(self, tenant: str, response: NewResponse, finished: FinishedResponse | None = None) -> APIError | None:
        """Add a response, running or finished at once."""
        final = response if finished is None else finished
        events = response.events if finished is None else [*response.events, *finished.events]
        refusal = self._refusal(tenant, response, -1, events, ends=finished is not None)
        if refusal is not None:
            return refusal
        ledger = self.ledger
        if response.parent_id is not None:
            ledger.uses.use((tenant, response.parent_id))
        expires_at, log_ended_at = self._times(response.keep_seconds, finished is not None, bool(events))
        try:
            number = self._execute(
                _INSERT_RESPONSE,
                (
                    tenant,
                    response.parent_id,
                    tenant,
                    response.id,
                    response.parent_id,
                    final.status,
                    response.created_at,
                    None if finished is None else finished.completed_at,
                    expires_at,
                    ledger.uses.tick(),
                    response.conversation_id,
                    response.owner,
                    response.keep_seconds,
                    log_ended_at,
                    final.snapshot,
                ),
            ).lastrowid
        except sqlite3.IntegrityError:
            return self._why_not((tenant, response.id))
        assert number is not None  # noqa: S101 - an INSERT that did not raise has added a row
        ledger.responses += 1
        ledger.bytes += len(final.snapshot)
        ledger.add_items(tenant, number, IN, response.input_items)
        if response.idempotency is not None:
            record = response.idempotency
            values = (tenant, record.key, record.digest, record.response_id, record.expires_at)
            self._execute(QUERIES["set_idempotent"], values)
        if events:
            self._add_batches(number, events, sampled=finished is None)
        if finished is None:
            if response.plan:
                self._execute(QUERIES["insert_plan"], (number, response.plan))
        else:
            self._add_end((tenant, response.id), number, finished, response.conversation_id)
        return None

    def append(
        self, tenant: str, response_id: str, batch: EventBatch, fence: int, status: str | None
    ) -> bool | APIError:
        """Add a batch to a response that still runs under that fence."""
        first = batch.first_sequence
        offsets = pack_offsets(batch.offsets)
        cursor = self._execute(
            _APPEND_BATCH, (first, batch.last_sequence, offsets, batch.body, tenant, response_id, fence, first)
        )
        if cursor.rowcount != 1:
            running = self._execute(_FIND_RUNNING, (tenant, response_id, fence)).fetchone() is not None
            return events_out_of_order() if running else False
        self.ledger.bytes += len(batch.body)
        if batch.sampled:
            self._execute(_INSERT_SAMPLE, (cursor.lastrowid, batch.sampled))
        if status is not None:
            self._execute(QUERIES["set_status"], (status, tenant, response_id))
        return True

    def finish(self, tenant: str, finished: FinishedResponse) -> bool | APIError:
        """End a response that still runs under that fence."""
        found = self._execute(_FIND_RUNNING, (tenant, finished.id, finished.fence)).fetchone()
        if found is None:
            return False
        number, size, expires_at, keep_seconds, conversation_id, last = found
        if not _in_order(last, finished.events):
            return events_out_of_order()
        new_expiry, log_ended_at = self._times(keep_seconds, True, last >= 0 or bool(finished.events))
        if keep_seconds is not None:
            expires_at = new_expiry
        self._execute(
            _FINISH_RESPONSE,
            (
                finished.status,
                finished.completed_at,
                expires_at,
                self.ledger.uses.tick(),
                log_ended_at,
                finished.snapshot,
                number,
            ),
        )
        self.ledger.bytes += len(finished.snapshot) - size
        self._execute(QUERIES["delete_plan"], (number,))
        if last >= 0:
            self._execute(QUERIES["delete_samples"], (number,))
        if finished.events:
            self._add_batches(number, finished.events, sampled=False)
        self._add_end((tenant, finished.id), number, finished, conversation_id)
        if expires_at is not None and expires_at <= self._clock():
            self.removal.set_gone((tenant, finished.id), number)
        return True

    def claim(self, key: Key, fence: int, owner: str) -> ClaimedResponse | None:
        """Give a running response to a new owner."""
        if not self._execute(QUERIES["claim"], (owner, *key, fence, FORMAT)).rowcount:
            return None
        values = {"tenant": key[0], "id": key[1], "now": self._clock()}
        row = self._execute(QUERIES["get_response"], values).fetchone()
        plan = self._execute(QUERIES["get_plan"], {"tenant": key[0], "id": key[1]}).fetchone()
        return ClaimedResponse(stored_response(key[1], row), b"" if plan is None else plan[0])

    # Parts of jobs

    def _refusal(
        self, tenant: str, response: NewResponse, last: int, events: Sequence[EventBatch], *, ends: bool
    ) -> APIError | None:
        """Why a response cannot begin, as far as that is known before it is tried."""
        if events and not _in_order(last, events):
            return events_out_of_order()
        if response.idempotency is not None:
            values = {"tenant": tenant, "key": response.idempotency.key, "now": self._clock()}
            found = self._execute(QUERIES["find_idempotent"], values).fetchone()
            if found is not None and found[1] != response.idempotency.response_id:
                return idempotency_key_in_use()
        if ends and response.conversation_id is not None:
            # One that does not end at once is refused by the index, as the row of a running response.
            locked = self._execute(QUERIES["runs_in_conversation"], (tenant, response.conversation_id)).fetchone()
            return None if locked is None else conversation_locked()
        return None

    def _why_not(self, key: Key) -> APIError:
        taken = self._execute(QUERIES["find_response"], key).fetchone() is not None
        return response_exists() if taken else conversation_locked()

    def _times(self, keep_seconds: float | None, ended: bool, logged: bool) -> tuple[float | None, float | None]:
        """When a response expires, and since when its event log has been whole."""
        now = self._clock()
        log_ended_at = now if ended and logged else None
        if keep_seconds is not None:
            return now + keep_seconds if ended else None, log_ended_at
        return None if self._ttl is None else now + self._ttl, log_ended_at

    def _add_batches(self, number: int, batches: Sequence[EventBatch], *, sampled: bool) -> None:
        for batch in batches:
            cursor = self._execute(
                _INSERT_BATCH,
                (number, batch.first_sequence, batch.last_sequence, pack_offsets(batch.offsets), batch.body),
            )
            self.ledger.bytes += len(batch.body)
            if sampled and batch.sampled:
                self._execute(_INSERT_SAMPLE, (cursor.lastrowid, batch.sampled))

    def _add_end(self, key: Key, number: int, finished: FinishedResponse, conversation_id: str | None) -> None:
        self.ledger.add_items(key[0], number, OUT, finished.output_items)
        if finished.to_conversation and conversation_id is not None:
            self.conversations.add_items_of_response((key[0], conversation_id), number)
        for new in finished.deliveries:
            values = (key[0], new.id, new.endpoint, new.created_at, new.created_at, new.body)
            self._execute(QUERIES["insert_delivery"], values)
        self.ledger.uses.join(key)


def _in_order(last: int, batches: Sequence[EventBatch]) -> bool:
    """Whether batches follow the event of that number, and each other, without a gap."""
    for batch in batches:
        if batch.first_sequence != last + 1:
            return False
        last = batch.last_sequence
    return True

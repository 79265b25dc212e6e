"""What goes from PostgreSQL: expired, evicted and deleted responses, and at last what nothing needs.

A row that nothing needs is hidden at once and erased ten minutes later, since another server may be making a turn on
top of it at that moment: its child then brings it back (`retain` works between servers that way). A server that makes
such a turn for longer than that begins the time anew at each sweep.

Limits on entries and bytes are not counted with each request, since that would read whole tables or make all writers
wait for one row. They are enforced whenever a server has added a hundredth of what is allowed, and at each sweep: so
each server may be over them by that much, and small limits are exact.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from antiphon.errors import APIError
from antiphon.store.postgres_core import Key, PostgresCore, Uses
from antiphon.store.postgres_database import Connection, execute, fetch

__all__ = ["GRACE_SECONDS", "PostgresLimits"]

_log = logging.getLogger(__name__)

GRACE_SECONDS = 600.0
"""How long a removed row can be brought back by a child that another server stores."""

_STEP = 200
_SHARE = 0.01


class _Added:
    """What this server has added since the limits were enforced last."""

    def __init__(self, most_entries: int | None, most_bytes: int | None) -> None:
        self.most_entries = most_entries
        self.most_bytes = most_bytes
        self.entries = 0
        self.bytes = 0
        self.busy = asyncio.Lock()

    @property
    def bounded(self) -> bool:
        """Whether there is any limit."""
        return self.most_entries is not None or self.most_bytes is not None

    def count(self, entries: int, size: int) -> bool:
        """Note more; whether it is time to enforce the limits."""
        self.entries += entries
        self.bytes += size
        return (self.most_entries is not None and self.entries > self.most_entries * _SHARE) or (
            self.most_bytes is not None and self.bytes > self.most_bytes * _SHARE
        )

    def reset(self) -> None:
        """They have been enforced."""
        self.entries = self.bytes = 0


class PostgresLimits(PostgresCore):
    """Makes rows gone, and enforces the limits."""

    _responses_added: _Added | None = None
    _conversations_added: _Added | None = None

    # What was used

    async def _use(self, key: Key, when: float | None = None) -> None:
        if self._uses.note(key, self._tick() if when is None else when):
            await self._write_uses(self._uses, "set_used")

    async def _use_conversation(self, key: Key) -> None:
        if self._conversation_uses.note(key, self._tick()):
            await self._write_uses(self._conversation_uses, "set_conversations_used")

    async def _write_uses(self, uses: Uses, query: str) -> None:
        """Write when rows were used. It is a help, not a promise: what cannot be written is forgotten."""
        tenants, ids, times = uses.take()
        if tenants:
            try:
                await self._execute(query, tenants=tenants, ids=ids, times=times)
            except APIError as error:
                _log.debug("the order of use could not be written", exc_info=error)

    # Limits

    async def _enforce_limits(self, *, entries: int = 0, size: int = 0, now: bool = False) -> int:
        """Evict responses where it is time to; the number of rows removed. What was stored before is not at risk."""
        added = self._responses_added
        if added is None:
            added = self._responses_added = _Added(self.limits.max_entries, self.limits.max_bytes)
        if not added.bounded or not (added.count(entries, size) or now):
            return 0
        removed = 0
        async with added.busy:
            added.reset()
            try:
                await self._write_uses(self._uses, "set_used")
                removed += await self._expire(self._clock())
                if added.most_entries is not None:
                    removed += await self._limit_entries(added.most_entries)
                if added.most_bytes is not None:
                    removed += await self._limit_bytes(added.most_bytes)
            except APIError as error:
                _log.warning("the limits of the store could not be enforced: %s", error.message)
        return removed

    async def _expire(self, now: float) -> int:
        """Make gone what has expired, in steps so that requests need not wait; the number of rows removed."""

        async def job(connection: Connection, _: bool) -> tuple[int, int]:
            async with connection.transaction():
                expired = [row[0] for row in await fetch(connection, "find_expired", now=now, most=_STEP)]
                return len(expired), await self._make_gone(connection, expired)

        removed = 0
        while True:
            expired, gone = await self._run(job)
            removed += gone
            if expired < _STEP:
                return removed

    async def _limit_entries(self, most: int) -> int:
        removed = 0
        while (excess := (await self._fetch("count_responses"))[0][0] - most) > 0:
            evicted, _, gone = await self._evict(min(excess, _STEP), None)
            removed += gone
            if not evicted:
                break
        return removed

    async def _limit_bytes(self, most: int) -> int:
        removed = 0
        while (excess := (await self._totals())[3] - most) > 0:
            # What each holds is only about what its removal gives back, since items and ancestors are shared. So it is
            # added up to what is needed, and then all is counted again.
            while excess > 0:
                evicted, freed, gone = await self._evict(_STEP, excess)
                removed += gone
                excess -= freed
                if not evicted:
                    return removed
        return removed

    async def _evict(self, most: int, size: int | None) -> tuple[int, int, int]:
        """Make gone at most so many responses that hold about so many bytes: how many, their bytes, rows hidden."""

        async def job(connection: Connection, _: bool) -> tuple[int, int, int]:
            async with connection.transaction():
                chosen: list[int] = []
                freed = 0
                for number, held in await fetch(connection, "find_least_used", most=most):
                    if size is not None and freed >= size:
                        break
                    chosen.append(number)
                    freed += held
                return len(chosen), freed, await self._make_gone(connection, chosen)

        return await self._run(job)

    async def _totals(self) -> Sequence[int]:
        async def job(connection: Connection, _: bool) -> Sequence[int]:
            async with connection.transaction():
                # The one statement that does read whole tables.
                await connection.execute("SET LOCAL enable_seqscan = on")
                return (await fetch(connection, "totals"))[0]

        return await self._run(job)

    async def _enforce_conversation_limits(self, *, entries: int = 0, size: int = 0, now: bool = False) -> int:
        """Remove conversations where it is time to; how many."""
        added = self._conversations_added
        if added is None:
            added = self._conversations_added = _Added(
                self.limits.max_conversations, self.limits.max_conversation_bytes
            )
        if not added.bounded or not (added.count(entries, size) or now):
            return 0
        removed = 0
        async with added.busy:
            added.reset()
            try:
                await self._write_uses(self._conversation_uses, "set_conversations_used")
                while evicted := await self._run(lambda connection, _: self._evict_conversations(connection, added)):
                    removed += evicted
            except APIError as error:
                _log.warning("the limits of conversations could not be enforced: %s", error.message)
        return removed

    async def _evict_conversations(self, connection: Connection, added: _Added) -> int:
        count, size = (await fetch(connection, "conversation_totals"))[0]
        excess = 0 if added.most_entries is None else count - added.most_entries
        over = 0 if added.most_bytes is None else size - added.most_bytes
        if excess <= 0 and over <= 0:
            return 0
        async with connection.transaction():
            chosen: list[int] = []
            for number, held in await fetch(connection, "find_least_used_conversations", most=_STEP):
                if excess <= 0 and over <= 0:
                    break
                chosen.append(number)
                excess, over = excess - 1, over - held
            await self._remove_conversations(connection, chosen)
        return len(chosen)

    async def _remove_conversations(self, connection: Connection, numbers: Sequence[int]) -> None:
        """Remove locked conversations, and those of their items that nothing else has; inside a transaction."""
        if numbers:
            items = await fetch(connection, "delete_conversations", numbers=numbers)
            await self._remove_items(connection, [row[0] for row in items])

    # Removal, inside a transaction

    async def _make_gone(self, connection: Connection, numbers: Sequence[int]) -> int:
        """Make responses gone that do not run; the number of rows that nothing needs any more."""
        if not numbers:
            return 0
        now = self._clock()
        gone = [row[0] for row in await fetch(connection, "set_gone", numbers=numbers, now=now)]
        return await self._let_go(connection, gone)

    async def _let_go(self, connection: Connection, gone: Sequence[int]) -> int:
        """Remove the events of responses that have just gone, and hide what nothing needs; how many rows that is."""
        if not gone:
            return 0
        await execute(connection, "delete_events", numbers=gone)
        return await self._hide(connection, gone)

    async def _hide(self, connection: Connection, numbers: Sequence[int]) -> int:
        """Hide those of gone responses that nothing needs, and the ancestors that were kept for them alone."""
        hidden: set[int] = set()
        candidates = list(numbers)
        while candidates:
            # First the locks, then a statement that sees what those wrote who had them before.
            locked = [row[0] for row in await fetch(connection, "lock_line", numbers=candidates)]
            # What is retained is noted under the locks: `_hide_gone` waits for them, and so sees what is done here.
            self._held_back.update(dict.fromkeys(self._retained))
            marked = await fetch(
                connection,
                "mark_removed",
                numbers=locked,
                tenants=[tenant for tenant, _ in self._retained],
                ids=[name for _, name in self._retained],
                now=self._clock(),
            )
            hidden.update(row[0] for row in marked)
            candidates = sorted({row[1] for row in marked if row[1] is not None} - hidden)
        return len(hidden)

    async def _erase(self, connection: Connection, now: float) -> int:
        """Erase some of the rows whose time of grace is over; how many were looked at."""
        async with connection.transaction():
            before = now - GRACE_SECONDS
            numbers = [row[0] for row in await fetch(connection, "find_erasable", before=before, most=_STEP)]
            if numbers:
                items = await fetch(connection, "erase_responses", numbers=numbers, before=before)
                await self._remove_items(connection, [row[0] for row in items])
        return len(numbers)

    async def _remove_items(self, connection: Connection, numbers: Sequence[int]) -> None:
        """Remove those items that nothing has."""
        if numbers:
            numbers = list(set(numbers))
            await fetch(connection, "lock_items", numbers=numbers)
            await execute(connection, "delete_items", numbers=numbers)

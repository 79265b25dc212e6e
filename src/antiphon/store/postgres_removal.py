"""Deleting in PostgreSQL, and the sweep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from antiphon.store.postgres_core import Key, storable
from antiphon.store.postgres_database import Connection, execute, fetch
from antiphon.store.postgres_limits import PostgresLimits
from antiphon.store.postgres_points import PostgresPoints
from antiphon.store.refusals import response_in_progress
from antiphon.store.rows import Scope

__all__ = ["PostgresRemoval"]

_STEP = 200
_RECORDS = 1000
_MOST_HELD_BACK = 10_000


class PostgresRemoval(PostgresLimits, PostgresPoints):
    """Deletes responses, chains and tenants, and sweeps."""

    async def delete_response(self, scope: Scope, response_id: str) -> bool:
        """Make a response gone; False where there is none by that id.

        Raises:
            InvalidRequestError: `response_in_progress`.
            UnavailableError: it cannot be written now.
        """
        if not storable(response_id):
            return False
        tenant, now = scope.tenant, self._clock()

        async def job(connection: Connection, again: bool) -> bool:
            async with connection.transaction():
                gone = await fetch(connection, "set_gone_by_id", tenant=tenant, id=response_id, now=now)
                await self._let_go(connection, [row[0] for row in gone])
            if gone:
                return True
            if await fetch(connection, "find_live", tenant=tenant, id=response_id, now=now):
                raise response_in_progress()
            return again and response_id in await self._gone_then(connection, tenant, response_id, now)

        return await self._run(job)

    async def delete_chain(self, scope: Scope, response_id: str) -> list[str]:
        """Make gone a response, its ancestors and all that descend from them; those that were not, oldest first.

        Raises:
            InvalidRequestError: `response_in_progress`; nothing is deleted.
            UnavailableError: it cannot be written now.
        """
        if not storable(response_id):
            return []
        now = self._clock()

        async def job(connection: Connection, again: bool) -> list[str]:
            async with connection.transaction():
                deleted = await self._delete_kin(connection, scope.tenant, response_id, now)
            if again and not deleted:
                earlier = await self._gone_then(connection, scope.tenant, response_id, now)
                return earlier if response_id in earlier else []
            return deleted

        return await self._run(job)

    async def _delete_kin(self, connection: Connection, tenant: str, response_id: str, now: float) -> list[str]:
        found = await fetch(connection, "find_live", tenant=tenant, id=response_id, now=now)
        if not found:
            return []
        kin: Sequence[Sequence[object]] = []
        count = -1
        # Once all are locked, no more can be added; those that came before the locks are found by another look.
        while len(kin) != count:
            count = len(kin)
            kin = await fetch(connection, "find_kin", number=found[0][0], now=now)
        if any(running for _, _, there, running, _ in kin if there):
            raise response_in_progress()
        numbers = [number for number, *_ in kin]
        await fetch(connection, "set_gone", numbers=numbers, now=now)
        await execute(connection, "delete_events", numbers=numbers)
        await self._hide(connection, [int(str(number)) for number in numbers])
        return [str(name) for _, name, _, _, live in kin if live]

    async def _gone_then(self, connection: Connection, tenant: str, response_id: str, now: float) -> list[str]:
        """The responses that an earlier attempt has made gone, whose connection was lost before it said so."""
        return [row[0] for row in await fetch(connection, "gone_then", tenant=tenant, id=response_id, now=now)]

    async def delete_tenant(self, tenant: str) -> None:
        """Remove a tenant's keys and all its rows, running responses included.

        Raises:
            UnavailableError: it cannot be written now; what was removed stays so.
        """
        # The key first: without it, the rest can be read by nobody.
        await self._execute("delete_tenant", tenant=tenant)
        for key in [key for key in self._retained if key[0] == tenant]:
            del self._retained[key]

        async def responses(connection: Connection, _: bool) -> int:
            async with connection.transaction():
                numbers = [row[0] for row in await fetch(connection, "lock_tenant", tenant=tenant, most=_STEP)]
                items = await fetch(connection, "delete_responses", numbers=numbers)
                await self._remove_items(connection, [row[0] for row in items])
            return len(numbers)

        async def conversations(connection: Connection, _: bool) -> int:
            async with connection.transaction():
                rows = await fetch(connection, "lock_conversations_of", tenant=tenant, most=_STEP)
                await self._remove_conversations(connection, [row[0] for row in rows])
            return len(rows)

        await self._repeat(responses)
        await self._repeat(conversations)
        await self._remove_corpora_of(tenant)
        await self._remove_files_of(tenant)

    async def sweep(self, now: float) -> int:
        """Make gone what has expired by `now`, enforce the limits, and remove what nothing needs.

        Returns the number of responses, conversations, idempotency records, files and vector stores that nobody
        will find any more.

        Raises:
            UnavailableError: it cannot be written now.
        """
        removed = await self._settle_retained(now)
        removed += await self._expire(now)
        if self.limits.event_ttl_seconds is not None:
            before = now - self.limits.event_ttl_seconds
            while (await self._fetch("expire_logs", before=before, most=_STEP))[0][0] >= _STEP:
                pass
        removed += await self._enforce_limits(now=True)
        if self.limits.conversation_ttl_seconds is not None:
            oldest = now - self.limits.conversation_ttl_seconds

            async def expire(connection: Connection, _: bool) -> int:
                async with connection.transaction():
                    rows = await fetch(connection, "find_expired_conversations", oldest=oldest, most=_STEP)
                    await self._remove_conversations(connection, [row[0] for row in rows])
                return len(rows)

            removed += await self._repeat(expire)
        removed += await self._enforce_conversation_limits(now=True)
        while records := await self._execute("expire_idempotent", now=now, most=_RECORDS):
            removed += records
        removed += await self._remove_due_files(now)
        removed += await self._expire_corpora(now)
        await self._repeat(lambda connection, _: self._erase(connection, now))
        return removed

    async def hide_unneeded(self) -> int:
        """Hide gone rows that an earlier server had retained; how many."""

        async def job(connection: Connection, _: bool) -> int:
            async with connection.transaction():
                return await self._hide(connection, [row[0] for row in await fetch(connection, "find_unmarked")])

        return await self._run(job)

    async def _settle_retained(self, now: float) -> int:
        """Hide what was retained here and is not any more; keep what is, if another server has hidden it."""
        if self._retained:
            tenants, ids = zip(*self._retained, strict=True)
            await self._execute("refresh_removed", tenants=list(tenants), ids=list(ids), now=now)
        held_back = [key for key in self._held_back if key not in self._retained]
        if not held_back:
            return 0
        # Before it is looked at: what is retained again by then is noted anew.
        for key in held_back:
            del self._held_back[key]
        try:
            return await self._hide_gone(held_back)
        except BaseException:
            self._held_back.update(dict.fromkeys(held_back))
            raise

    async def _hide_gone(self, held_back: Sequence[Key]) -> int:
        """Hide those of these responses that are gone and that nothing needs; how many rows that is."""
        if len(held_back) > _MOST_HELD_BACK:
            return await self.hide_unneeded()
        tenants, ids = zip(*held_back, strict=True)

        async def job(connection: Connection, _: bool) -> int:
            async with connection.transaction():
                rows = await fetch(connection, "lock_retained", tenants=list(tenants), ids=list(ids))
                return await self._hide(connection, [number for number, gone in rows if gone])

        return await self._run(job)

    async def _repeat(self, job: Callable[[Connection, bool], Awaitable[int]]) -> int:
        """Run a step that says how many rows it found until it finds fewer than it would take; how many in all."""
        total = 0
        while True:
            found = await self._run(job)
            total += found
            if found < _STEP:
                return total

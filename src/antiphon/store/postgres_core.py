"""What the parts of the PostgreSQL store share: its connections, its clock, what was used and is retained."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from antiphon.errors import InvalidRequestError
from antiphon.store.postgres_append import Appender
from antiphon.store.postgres_database import Connection, Database, execute, fetch
from antiphon.store.postgres_session import Bell, Session
from antiphon.store.refusals import store_closed
from antiphon.store.rows import Scope, StoredItem, StoreLimits

__all__ = ["FORMAT", "Key", "Opened", "PostgresCore", "Uses", "storable"]

T = TypeVar("T")
Key = tuple[str, str]
"""A tenant and an id."""

FORMAT = 1
"""The form of the bodies in this version's rows; rows of a later form are left to those who know it."""


def storable(*texts: str) -> bool:
    """Whether PostgreSQL can hold these as text; no row has a name that it cannot hold."""
    return not any("\0" in text for text in texts)


class Opened:
    """What exists while the store is open."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.session = Session(url, self.database)
        self.bell = Bell(self.database)
        self.appender = Appender(self.database, self.bell, FORMAT)

    async def close(self) -> None:
        """Finish what is under way, and close all connections."""
        await self.appender.close()
        await self.bell.close()
        await self.session.close()
        await self.database.close()


class Uses:
    """When rows were last used, as far as the database does not know it yet; noted only where limits need it."""

    MOST = 1000

    def __init__(self, *, bounded: bool) -> None:
        self._noted: dict[Key, float] = {}
        self.bounded = bounded

    def note(self, key: Key, when: float) -> bool:
        """Note a use; whether there are so many now that they should be written."""
        if self.bounded:
            self._noted[key] = when
        return len(self._noted) >= self.MOST

    def take(self) -> tuple[list[str], list[str], list[float]]:
        """What was noted since the last time: tenants, ids and times."""
        noted, self._noted = self._noted, {}
        return [tenant for tenant, _ in noted], [name for _, name in noted], list(noted.values())


class PostgresCore:
    """Runs statements.

    `clock` gives the time in seconds since the epoch; servers that share a database should agree on it to the second.
    """

    def __init__(self, url: str, limits: StoreLimits, clock: Callable[[], float] = time.time) -> None:
        self.url = url
        self.limits = limits
        self._clock = clock
        self._opened: Opened | None = None
        self._last_tick = 0.0
        self._uses = Uses(bounded=limits.max_entries is not None or limits.max_bytes is not None)
        self._conversation_uses = Uses(
            bounded=limits.max_conversations is not None or limits.max_conversation_bytes is not None
        )
        self._retained: dict[Key, int] = {}
        self._held_back: dict[Key, None] = {}

    @contextmanager
    def retain(self, scope: Scope, response_id: str) -> Generator[None, None, None]:
        """Keep the turns up to a response while one that descends from it is made but not stored yet."""
        key = (scope.tenant, response_id)
        self._retained[key] = self._retained.get(key, 0) + 1
        try:
            yield
        finally:
            # The tenant may have been deleted in between.
            if self._retained.get(key, 0) > 1:
                self._retained[key] -= 1
            else:
                self._retained.pop(key, None)

    def _open(self) -> Opened:
        if self._opened is None:
            raise store_closed()
        return self._opened

    async def _run(self, job: Callable[[Connection, bool], Awaitable[T]]) -> T:
        return await self._open().database.run(job)

    async def _delete_found(self, delete: Callable[[Connection], Awaitable[bool]]) -> bool:
        """Delete something in a transaction; whether there was anything, as `delete` says.

        Where the answer to the commit was lost, another attempt finds nothing. What the first one found is known all
        the same, since it was told before the commit.
        """
        seen = False

        async def job(connection: Connection, again: bool) -> bool:
            nonlocal seen
            async with connection.transaction():
                found = await delete(connection)
                seen = seen or found
            return found or (again and seen)

        return await self._run(job)

    async def _fetch(self, query: str, **parameters: object) -> Sequence[Sequence[Any]]:
        """The rows of a statement that may be run again."""
        return await self._run(lambda connection, _: fetch(connection, query, **parameters))

    async def _execute(self, query: str, **parameters: object) -> int:
        """The number of rows that a statement wrote that may be run again."""
        return await self._run(lambda connection, _: execute(connection, query, **parameters))

    def _tick(self) -> float:
        """The time, but always later than the last one, so that uses keep their order."""
        self._last_tick = max(self._clock(), self._last_tick + 1e-6)
        return self._last_tick

    @property
    def _oldest(self) -> float:
        """Conversations that were not added to since then have expired."""
        ttl = self.limits.conversation_ttl_seconds
        return float("-inf") if ttl is None else self._clock() - ttl


def refuse_unstorable(items: Sequence[StoredItem]) -> None:
    """Refuse items whose ids PostgreSQL cannot hold.

    Raises:
        InvalidRequestError: an id has a U+0000 in it.
    """
    if not storable(*(item.id for item in items)):
        raise InvalidRequestError("The id of an item holds U+0000, which this server cannot store.", param="input")

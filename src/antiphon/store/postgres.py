"""The store in PostgreSQL: for any number of servers over one database.

A method that writes returns when the database has flushed it, and every server sees it from then on. What a server
writes it rings for with NOTIFY, after the transaction and in one of its own (`postgres_session.py`); the ring is a help
only. While the database is away, requests wait for at most five seconds, and a write whose outcome was not known is
looked up instead of being made twice; then they are answered 503.

Who runs what is kept in `owners`: each server raises a counter, and holds a lock that goes with its connection. An
owner without its lock is gone, unless it may not have had the time to take it again: after a restart of the database
ten seconds, after the loss of a connection a moment.

Servers need connections of their own, or a pooler that gives each client a session of its own: locks, LISTEN and
prepared statements belong to one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from antiphon.errors import APIError, ConfigurationError
from antiphon.store.addresses import location
from antiphon.store.base import Doorbell, Store
from antiphon.store.postgres_conversations import PostgresConversations
from antiphon.store.postgres_core import FORMAT, Opened, storable
from antiphon.store.postgres_database import PATIENCE_SECONDS, Connection, fetch
from antiphon.store.postgres_errors import is_lost, startup_error
from antiphon.store.postgres_registers import PostgresRegisters
from antiphon.store.postgres_removal import PostgresRemoval
from antiphon.store.postgres_responses import PostgresResponses
from antiphon.store.postgres_schema import check_server, migrate
from antiphon.store.postgres_session import RELOCK_SECONDS, lock_key
from antiphon.store.postgres_toolruns import PostgresToolRuns
from antiphon.store.rows import ClaimedResponse, RunningResponse, Scope, StoredResponse, StoreStatus

__all__ = ["PostgresStore"]

_SECOND_LOOK_SECONDS = 0.3
_START_PAUSE = 0.1


class PostgresStore(
    PostgresResponses, PostgresToolRuns, PostgresRemoval, PostgresConversations, PostgresRegisters, Store
):
    """Keeps everything in a PostgreSQL database; `url` is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`."""

    shared = True

    _bells: tuple[Doorbell, ...] = ()
    _seen: frozenset[str] = frozenset()
    _owners: frozenset[str] = frozenset()

    @property
    def reachable(self) -> bool:
        """Whether the database is there; it is missed within a moment."""
        return self._opened is not None and self._opened.session.connected

    @property
    def missed_rings(self) -> int:
        """How many rings of the doorbell did not get through."""
        return self._opened.bell.missed if self._opened is not None else 0

    async def open(self) -> None:
        """Connect to the database, and create or migrate its schema as needed.

        Raises:
            ConfigurationError: it cannot be used; the message says why and what to do, and shows no password.
        """
        opened = Opened(self.url)
        for bell in self._bells:
            opened.session.listen(bell)
        try:
            await self._connect(opened)
            await opened.database.run(lambda connection, _: self._prepare(connection))
            self._opened = opened
            await self.hide_unneeded()
            await self.refuse_sealed()
        except BaseException as error:
            self._opened = None
            await opened.close()
            if isinstance(error, APIError):
                raise ConfigurationError(f"The store {location(self.url)} cannot be used. {error.message}") from None
            raise

    async def close(self) -> None:
        """Finish what is under way and close all connections."""
        if self._opened is None:
            return
        await self._end_points()
        await self._write_uses(self._uses, "set_used")
        await self._write_uses(self._conversation_uses, "set_conversations_used")
        opened, self._opened = self._opened, None
        await opened.close()

    async def status(self) -> StoreStatus:
        """Where it lies and what it holds; what has expired counts until it is swept. Reads whole tables."""
        responses, items, size, _, conversations = await self._totals()
        files = (await self._fetch("count_files"))[0][0]
        corpora = (await self._fetch("count_all_vector_stores"))[0][0]
        return StoreStatus(location(self.url), True, responses, items, size, conversations, files, corpora)

    def listen(self, doorbell: Doorbell) -> None:
        """Ring for what other servers write; a help only."""
        self._bells = (*self._bells, doorbell)
        if self._opened is not None:
            self._opened.session.listen(doorbell)

    async def join(self, owner: str) -> None:
        """Enter a process as an owner of running responses, beside those that are there."""
        # Entered before it has the lock: until then it is one that has only just lost its connection.
        await self._execute("join", owner=owner, lock_key=lock_key(owner))
        self._owners |= {owner}
        await self._open().session.hold(owner)

    async def beat(self, owner: str) -> dict[str, int]:
        """Raise an owner's counter; the counters of all owners that are not known to be gone.

        Owners without a lock get a second look a moment later before they are known to be gone, and are then taken out.
        """
        await self._fetch("beat", owner=owner, lock_key=lock_key(owner))
        counters, doubtful = await self._look()
        if doubtful:
            await asyncio.sleep(_SECOND_LOOK_SECONDS)
            counters, still = await self._look()
            gone = sorted(doubtful & still)
            if gone:
                await self._execute("leave", owners=gone)
            for name in gone:
                del counters[name]
        return counters

    async def leave(self, owner: str) -> None:
        """Take an owner out; what it ran waits for another one."""
        self._owners -= {owner}
        await self._open().session.release(owner)
        await self._execute("leave", owners=[owner])

    async def orphans(self, owners: Collection[str]) -> list[RunningResponse]:
        """Of every tenant, the running responses that none of these owners runs, oldest first.

        Owners that entered after the last `beat` are left alone: whoever asks cannot know them yet.
        """
        rows = await self._fetch("orphans", format=FORMAT, owners=list(owners), seen=list(self._seen))
        return [RunningResponse(Scope(tenant), *rest) for tenant, *rest in rows]

    async def claim(self, scope: Scope, response_id: str, fence: int, owner: str) -> ClaimedResponse | None:
        """Take a running response over: its fence is raised by one."""
        if not storable(response_id):
            return None
        names: dict[str, object] = {"tenant": scope.tenant, "id": response_id, "fence": fence, "owner": owner}

        async def job(connection: Connection, again: bool) -> ClaimedResponse | None:
            rows = await fetch(connection, "claim", **names, format=FORMAT)
            if not rows and again:
                rows = await fetch(connection, "find_claim", **names)
            if not rows:
                return None
            *row, plan = rows[0]
            return ClaimedResponse(StoredResponse(*row), plan or b"")

        claimed = await self._run(job)
        if claimed is not None:
            self._open().bell.ring(scope.tenant, response_id)
        return claimed

    async def _look(self) -> tuple[dict[str, int], set[str]]:
        """The counters of all owners, and those owners that seem to be gone."""
        session = self._open().session
        rows = await self._fetch("owners")
        settled = session.connected and asyncio.get_running_loop().time() - session.since >= RELOCK_SECONDS
        doubtful = {
            name
            for name, _, locked, of_this_run in rows
            if not locked and name not in self._owners and session.connected and (of_this_run or settled)
        }
        self._seen = frozenset(row[0] for row in rows)
        return {row[0]: row[1] for row in rows}, doubtful

    async def _connect(self, opened: Opened) -> None:
        """Connect, with some patience: a database that starts at the same time may not be ready yet.

        Raises:
            ConfigurationError: it cannot be connected.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await opened.session.open()
            except Exception as error:  # noqa: BLE001 - every kind of fault is told in its own words
                if not is_lost(error) or loop.time() >= deadline:
                    raise startup_error(error, location(self.url)) from None
            await asyncio.sleep(_START_PAUSE)

    async def _prepare(self, connection: Connection) -> None:
        try:
            await check_server(connection, self.url)
            await migrate(connection, self.url)
        except Exception as error:
            if is_lost(error):
                raise
            raise startup_error(error, location(self.url)) from None

"""How the PostgreSQL store removes vector stores and their files: nobody finds them at once, and rows go in steps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from antiphon.store.postgres_database import Connection, execute, fetch
from antiphon.store.postgres_files import PostgresFiles
from antiphon.store.rows import Scope

__all__ = ["PostgresCorpusRemoval"]

_CHUNKS_A_STEP = 500
_FILES_A_STEP = 200
_TERMS_A_STEP = 5_000
_REMOVE_SECONDS = 1.0
"""How long a call removes before it leaves the rest to the sweep."""


class PostgresCorpusRemoval(PostgresFiles):
    """Removes vector stores and their files."""

    async def delete_file(self, scope: Scope, file_id: str) -> bool:
        """Remove a file and its content, whole or not, and take it out of all vector stores; False where there is none.

        Raises:
            UnavailableError: it cannot be written now.
        """
        deleted = await super().delete_file(scope, file_id)
        if deleted:
            await self._remove_lost()
        return deleted

    async def _remove_lost(self, seconds: float = _REMOVE_SECONDS) -> int:
        """Remove what nobody finds any more, for so many seconds; the number of files and vector stores.

        The sweep goes on with what is left then. What another server removes is left to it.
        """
        removed, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            found, gone = await self._run(self._remove_step)
            removed += gone
            if not found:
                break
        return removed

    async def _expire_corpora(self, now: float) -> int:
        """Remove the vector stores whose time is up, and all that is left of others; the number of rows removed."""
        while await self._execute("lose_expired_stores", now=now, most=_FILES_A_STEP) >= _FILES_A_STEP:
            pass
        return await self._remove_lost(math.inf)

    async def _remove_corpora_of(self, tenant: str) -> None:
        await self._execute("lose_stores_of", tenant=tenant)
        await self._remove_lost(math.inf)

    async def _lose_files(self, connection: Connection, numbers: Sequence[int]) -> bool:
        """Let nobody find files of vector stores any more; whether there were any."""
        return bool(await fetch(connection, "lose_store_files", numbers=numbers))

    async def _renew_file(self, connection: Connection, number: int, status: str) -> int:
        """Put a row without chunks in the place of one that has some; its number."""
        await self._lose_files(connection, [number])
        return (await fetch(connection, "renew_store_file", n=number, status=status))[0][0]

    async def _remove_step(self, connection: Connection, _: bool) -> tuple[bool, int]:
        """Remove some rows: whether there was anything, and how many vector stores and files went with it."""
        async with connection.transaction():
            files = await fetch(connection, "removed_file")
            if files:
                return True, await self._remove_chunks(connection, *files[0])
            if await execute(connection, "lose_files_of_gone", most=_FILES_A_STEP):
                return True, 0
            stores = await fetch(connection, "gone_store")
            if not stores:
                return False, 0
            store = stores[0][0]
            if await execute(connection, "delete_terms_of", store=store, most=_TERMS_A_STEP) >= _TERMS_A_STEP:
                return True, 0
            await execute(connection, "delete_batches_of", store=store)
            await execute(connection, "delete_vector_store", store=store)
            return True, 1

    async def _remove_chunks(self, connection: Connection, number: int, store: int, counted: bool) -> int:
        """Remove some of the chunks of a file, and its row with the last of them; whether that is gone."""
        rows = await fetch(connection, "some_places", file=number, most=_CHUNKS_A_STEP)
        places = [row[0] for row in rows]
        # Of one that is gone itself the words need not be counted.
        if counted and places and await fetch(connection, "lock_store", n=store):
            await execute(connection, "uncount_terms", file=number, places=places, store=store)
            await execute(connection, "uncount_texts", file=number, places=places, store=store)
        if places:
            await execute(connection, "delete_corpus_chunks", file=number, places=places)
        if len(places) == _CHUNKS_A_STEP:
            return 0
        await execute(connection, "delete_store_file", n=number)
        return 1

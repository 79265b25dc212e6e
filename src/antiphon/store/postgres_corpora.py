"""Vector stores in PostgreSQL: their rows, their files and their batches."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from antiphon.errors import InvalidRequestError
from antiphon.store.corpora import (
    CorpusLimits,
    CorpusStore,
    NewStoreFile,
    StoredBatch,
    StoredVectorStore,
    StoreFile,
    StoreFilePage,
    VectorStorePage,
    arranged,
    check_store_room,
    named_like,
    window_of,
)
from antiphon.store.corpus_rows import expires_at, file_batch, store_file, vector_store
from antiphon.store.postgres_core import storable
from antiphon.store.postgres_corpus_removal import PostgresCorpusRemoval
from antiphon.store.postgres_database import Connection, execute, fetch
from antiphon.store.rows import Scope

__all__ = ["PostgresCorpora"]


class PostgresCorpora(PostgresCorpusRemoval, CorpusStore):
    """Keeps vector stores, their files and their batches."""

    async def create_vector_store(self, scope: Scope, row: StoredVectorStore, limits: CorpusLimits) -> None:
        """Create one, without files.

        Raises:
            InvalidRequestError: the tenant has no room for it, or its name cannot be kept.
            UnavailableError: it cannot be written now.
        """
        _refuse_unstorable(row.name)
        key: dict[str, object] = {"tenant": scope.tenant, "id": row.id, "now": self._clock()}

        async def job(connection: Connection, _: bool) -> None:
            async with connection.transaction():
                # One at a time of a tenant: two that each fit may not fit together.
                await fetch(connection, "lock_corpora_of", tenant=scope.tenant)
                refusal = check_store_room(limits, (await fetch(connection, "count_vector_stores", **key))[0][0])
                if refusal is not None:
                    raise refusal
                await execute(connection, "lose_expired_store", **key)
                await execute(
                    connection,
                    "insert_vector_store",
                    tenant=scope.tenant,
                    id=row.id,
                    name=row.name,
                    created_at=row.created_at,
                    last_active_at=row.last_active_at,
                    days=row.expires_after_days,
                    expires_at=expires_at(row),
                    detail=row.detail,
                )

        await self._run(job)

    async def find_vector_store(self, scope: Scope, vector_store_id: str) -> StoredVectorStore | None:
        """One by id, that has not expired."""
        if not storable(vector_store_id):
            return None
        rows = await self._fetch("find_vector_store", **self._of_corpus(scope, vector_store_id))
        return vector_store(rows[0]) if rows else None

    async def find_vector_store_named(self, scope: Scope, name: str) -> StoredVectorStore | None:
        """The newest one of that name that has not expired."""
        if not storable(name):
            return None
        rows = await self._fetch("find_vector_store_named", tenant=scope.tenant, name=name, now=self._clock())
        return vector_store(rows[0]) if rows else None

    async def list_vector_stores(self, scope: Scope, page: VectorStorePage) -> Sequence[StoredVectorStore]:
        """Those of a tenant that have not expired."""
        if not storable(page.after, page.before):
            return []
        if page.query:
            return await named_like(self.list_vector_stores, scope, page)
        window = window_of(page)
        rows = await self._fetch(
            "vector_stores_down" if window.down else "vector_stores_up",
            tenant=scope.tenant,
            low=window.low,
            high=window.high,
            most=page.limit,
            now=self._clock(),
        )
        listed = [vector_store(row) for row in rows]
        return listed[::-1] if window.turned else listed

    async def change_vector_store(
        self, scope: Scope, vector_store_id: str, *, name: str, expires_after_days: int | None, detail: bytes, now: int
    ) -> StoredVectorStore | None:
        """Change one, which counts as a use; None where there is none by that id.

        Raises:
            InvalidRequestError: its name cannot be kept.
            UnavailableError: it cannot be written now.
        """
        _refuse_unstorable(name)
        if not storable(vector_store_id):
            return None
        key = self._of_corpus(scope, vector_store_id)
        rows = await self._fetch(
            "change_vector_store", **key, name=name, days=expires_after_days, detail=detail, when=now
        )
        # With a shorter life it may be over.
        return await self.find_vector_store(scope, vector_store_id) if rows else None

    async def use_vector_store(self, scope: Scope, vector_store_id: str, now: int) -> None:
        """Note that it was used.

        Raises:
            UnavailableError: it cannot be written now.
        """
        known = await self.find_vector_store(scope, vector_store_id)
        if known is not None and known.last_active_at < now:
            await self._execute("use_vector_store", **self._of_corpus(scope, vector_store_id), when=now)

    async def delete_vector_store(self, scope: Scope, vector_store_id: str) -> bool:
        """Remove one with its files' rows, chunks and index; False where there is none.

        It is gone at once. What is large is removed in steps, and what is left after some of them by the sweep.

        Raises:
            UnavailableError: it cannot be written now.
        """
        if not storable(vector_store_id):
            return False
        key = self._of_corpus(scope, vector_store_id)

        async def lose(connection: Connection) -> bool:
            return bool(await fetch(connection, "lose_vector_store", **key))

        lost = await self._delete_found(lose)
        if lost:
            await self._remove_lost()
        return lost

    async def add_store_files(
        self,
        scope: Scope,
        vector_store_id: str,
        files: Sequence[NewStoreFile],
        limits: CorpusLimits,
        batch: StoredBatch | None = None,
    ) -> Sequence[str] | None:
        """Put uploaded files into a vector store; the ids that are no whole files, None where there is no such store.

        Raises:
            InvalidRequestError: the vector store has no room for them, or an external id cannot be kept.
            UnavailableError: it cannot be written now.
        """
        _refuse_unstorable(*(new.external_id or "" for new in files))
        if not storable(vector_store_id):
            return None
        unknown = [new.file_id for new in files if not storable(new.file_id)]
        if unknown:
            return list(dict.fromkeys(unknown))

        async def job(connection: Connection, _: bool) -> Sequence[str] | None:
            async with connection.transaction():
                return await self._add_files(connection, scope, vector_store_id, files, limits, batch)

        added = await self._run(job)
        await self._remove_lost()
        return added

    async def find_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> StoreFile | None:
        """A file of a vector store, by its id or its external id."""
        if not storable(vector_store_id, file_id):
            return None
        rows = await self._fetch("find_store_file", **self._of_corpus(scope, vector_store_id), file=file_id)
        return store_file(rows[0]) if rows else None

    async def list_store_files(self, scope: Scope, vector_store_id: str, page: StoreFilePage) -> Sequence[StoreFile]:
        """Files of a vector store, by id."""
        if not storable(vector_store_id, page.after, page.before, page.batch_id or ""):
            return []
        window = window_of(page)
        rows = await self._fetch(
            "store_files_down" if window.down else "store_files_up",
            **self._of_corpus(scope, vector_store_id),
            low=window.low,
            high=window.high,
            most=page.limit,
            statuses=list(page.statuses) or None,
            batch=page.batch_id,
        )
        listed = [store_file(row) for row in rows]
        return listed[::-1] if window.turned else listed

    async def change_store_file(
        self, scope: Scope, vector_store_id: str, file_id: str, attributes: bytes
    ) -> StoreFile | None:
        """Give a file other attributes; None where there is none.

        Raises:
            UnavailableError: it cannot be written now.
        """
        if not storable(vector_store_id, file_id):
            return None
        key = self._of_corpus(scope, vector_store_id)

        async def job(connection: Connection, _: bool) -> StoreFile | None:
            async with connection.transaction():
                rows = await fetch(connection, "find_store_file", **key, file=file_id)
                changed = rows and await fetch(connection, "change_store_file", n=rows[0][14], attributes=attributes)
                if not changed:
                    return None
                if changed[0][0]:
                    await execute(connection, "note_change", n=rows[0][14])
                return replace(store_file(rows[0]), attributes=attributes)

        return await self._run(job)

    async def remove_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> bool:
        """Take a file out of a vector store, with its chunks; False where there is none.

        Raises:
            UnavailableError: it cannot be written now.
        """
        if not storable(vector_store_id, file_id):
            return False
        key = self._of_corpus(scope, vector_store_id)

        async def lose(connection: Connection) -> bool:
            rows = await fetch(connection, "find_store_file", **key, file=file_id)
            return bool(rows) and await self._lose_files(connection, [rows[0][14]])

        removed = await self._delete_found(lose)
        if removed:
            await self._remove_lost()
        return removed

    async def find_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """A batch of a vector store."""
        if not storable(vector_store_id, batch_id):
            return None
        rows = await self._fetch("find_file_batch", **self._of_corpus(scope, vector_store_id), batch=batch_id)
        return file_batch(vector_store_id, rows[0]) if rows else None

    async def cancel_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """Cancel the files of a batch that have not been ingested; None where there is no such batch.

        Raises:
            UnavailableError: it cannot be written now.
        """
        if not storable(vector_store_id, batch_id):
            return None
        key = self._of_corpus(scope, vector_store_id)

        async def job(connection: Connection, _: bool) -> StoredBatch | None:
            async with connection.transaction():
                found = await fetch(connection, "find_file_batch", **key, batch=batch_id)
                if not found:
                    return None
                number = found[0][8]
                waiting = await fetch(connection, "waiting_of_batch", batch=number)
                for file, chunks in waiting:
                    if chunks:
                        await self._renew_file(connection, file, "cancelled")
                empty = [file for file, chunks in waiting if not chunks]
                await execute(connection, "cancel_store_files", numbers=empty)
                await execute(connection, "cancel_batch", batch=number)
                return file_batch(
                    vector_store_id, (await fetch(connection, "find_file_batch", **key, batch=batch_id))[0]
                )

        cancelled = await self._run(job)
        await self._remove_lost()
        return cancelled

    async def _add_files(
        self,
        connection: Connection,
        scope: Scope,
        vector_store_id: str,
        files: Sequence[NewStoreFile],
        limits: CorpusLimits,
        batch: StoredBatch | None,
    ) -> Sequence[str] | None:
        found = await fetch(connection, "number_of_store", **self._of_corpus(scope, vector_store_id))
        if not found:
            return None
        store = found[0][0]
        await fetch(connection, "lock_adding", store=str(store))
        ids = [new.file_id for new in files]
        rows = await fetch(connection, "lock_uploads", tenant=scope.tenant, ids=ids, now=self._clock())
        uploads: dict[str, int] = {row[0]: row[1] for row in rows}
        missing = [file_id for file_id in dict.fromkeys(ids) if file_id not in uploads]
        if missing:
            return missing
        names = [new.external_id for new in files if new.external_id is not None]
        known = await fetch(connection, "known_store_files", store=store, ids=ids, names=names)
        counted = await fetch(connection, "lock_store", n=store)
        if not counted:
            return None
        arrangement = arranged(files, {name: external for name, _, external in known}, counted[0][0], limits)
        if isinstance(arrangement, InvalidRequestError):
            raise arrangement
        added, replaced = arrangement
        numbers = {name: number for name, number, _ in known}
        lost = {*replaced, *(new.file_id for new in added)} & numbers.keys()
        await self._lose_files(connection, [numbers[name] for name in lost])
        number = None
        if batch is not None:
            rows = await fetch(connection, "insert_file_batch", store=store, id=batch.id, created_at=batch.created_at)
            number = rows[0][0]
        await execute(
            connection,
            "insert_store_files",
            store=store,
            batch=number,
            uploads=[uploads[new.file_id] for new in added],
            ids=[new.file_id for new in added],
            times=[new.created_at for new in added],
            attributes=[new.attributes for new in added],
            details=[new.detail for new in added],
            names=[new.external_id for new in added],
        )
        await execute(connection, "use_store", n=store, when=max((new.created_at for new in files), default=0))
        return []

    def _of_corpus(self, scope: Scope, vector_store_id: str) -> dict[str, object]:
        return {"tenant": scope.tenant, "id": vector_store_id, "now": self._clock()}


def _refuse_unstorable(*names: str) -> None:
    if not storable(*names):
        raise InvalidRequestError("A name holds U+0000, which this server cannot store.")

"""The vector stores of the SQLite store: their rows, their files and their batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from antiphon.errors import APIError, InvalidRequestError
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
from antiphon.store.queries import QUERIES
from antiphon.store.rows import Scope
from antiphon.store.sqlite_corpus_removal import SQLiteCorpusRemoval

__all__ = ["SQLiteCorpora"]


class SQLiteCorpora(SQLiteCorpusRemoval, CorpusStore):
    """Keeps vector stores, their files and their batches in the store's file."""

    async def create_vector_store(self, scope: Scope, row: StoredVectorStore, limits: CorpusLimits) -> None:
        """Create one, without files.

        Raises:
            InvalidRequestError: the tenant has no room for it.
            UnavailableError: it cannot be written now.
        """
        values = (row.created_at, row.last_active_at, row.expires_after_days, expires_at(row), row.detail)

        def create() -> APIError | None:
            execute, now = self._open().connection.execute, self._clock()
            count = execute(QUERIES["vector_stores_held_of_tenant"], (scope.tenant, now)).fetchone()[0]
            refusal = check_store_room(limits, count)
            if refusal is None:
                execute(QUERIES["lose_expired_store"], (scope.tenant, row.id, now))
                execute(QUERIES["insert_vector_store"], (scope.tenant, row.id, row.name, *values))
            return refusal

        await self._write(create)

    async def find_vector_store(self, scope: Scope, vector_store_id: str) -> StoredVectorStore | None:
        """One by id, that has not expired."""
        found = self._read("find_vector_store", self._of_corpus(scope, vector_store_id))
        return vector_store(found[0]) if found else None

    async def find_vector_store_named(self, scope: Scope, name: str) -> StoredVectorStore | None:
        """The newest one of that name that has not expired."""
        values: dict[str, object] = {"tenant": scope.tenant, "name": name, "now": self._clock()}
        found = self._read("find_vector_store_named", values)
        return vector_store(found[0]) if found else None

    async def list_vector_stores(self, scope: Scope, page: VectorStorePage) -> Sequence[StoredVectorStore]:
        """Those of a tenant that have not expired."""
        if page.query:
            return await named_like(self.list_vector_stores, scope, page)
        window = window_of(page)
        values: dict[str, object] = {"tenant": scope.tenant, "now": self._clock(), "most": page.limit}
        values.update(low=window.low, high=window.high)
        rows = self._read("vector_stores_down" if window.down else "vector_stores_up", values)
        listed = [vector_store(row) for row in rows]
        return listed[::-1] if window.turned else listed

    async def change_vector_store(
        self, scope: Scope, vector_store_id: str, *, name: str, expires_after_days: int | None, detail: bytes, now: int
    ) -> StoredVectorStore | None:
        """Change one, which counts as a use; None where there is none by that id.

        Raises:
            UnavailableError: it cannot be written now.
        """
        values = {"name": name, "days": expires_after_days, "detail": detail, "when": now}

        def change() -> StoredVectorStore | None:
            key = self._of_corpus(scope, vector_store_id)
            found = self._one("number_of_store", key)
            if found is None:
                return None
            self._open().connection.execute(QUERIES["change_vector_store"], {**values, "n": found[0]})
            changed = self._one("find_vector_store", key)
            # With a shorter life it may be over.
            return None if changed is None else vector_store(changed)

        return await self._write(change)

    async def use_vector_store(self, scope: Scope, vector_store_id: str, now: int) -> None:
        """Note that it was used; durable with the next write.

        Raises:
            UnavailableError: it cannot be written now.
        """
        known = await self.find_vector_store(scope, vector_store_id)
        if known is None or known.last_active_at >= now:
            return
        await self._write(lambda: self._use(scope, vector_store_id, now), flush=False)

    async def delete_vector_store(self, scope: Scope, vector_store_id: str) -> bool:
        """Remove one with its files' rows, chunks and index; False where there is none.

        It is gone at once. What is large is removed in steps, and what is left after some of them by the sweep.

        Raises:
            UnavailableError: it cannot be written now.
        """
        key = self._of_corpus(scope, vector_store_id)
        lost = await self._write(
            lambda: self._open().connection.execute(QUERIES["lose_vector_store"], key).rowcount > 0
        )
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
            InvalidRequestError: the vector store has no room for them.
            UnavailableError: it cannot be written now.
        """
        added = await self._write(lambda: self._add_files(scope, vector_store_id, files, limits, batch), heavy=True)
        await self._remove_lost()
        return added

    async def find_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> StoreFile | None:
        """A file of a vector store, by its id or its external id."""
        found = self._read("find_store_file", {**self._of_corpus(scope, vector_store_id), "file": file_id})
        return store_file(found[0]) if found else None

    async def list_store_files(self, scope: Scope, vector_store_id: str, page: StoreFilePage) -> Sequence[StoreFile]:
        """Files of a vector store, by id."""
        window = window_of(page)
        values = self._of_corpus(scope, vector_store_id)
        values.update(low=window.low, high=window.high, most=page.limit, batch=page.batch_id)
        values.update(statuses=json.dumps(page.statuses) if page.statuses else None)
        rows = self._read("store_files_down" if window.down else "store_files_up", values)
        listed = [store_file(row) for row in rows]
        return listed[::-1] if window.turned else listed

    async def change_store_file(
        self, scope: Scope, vector_store_id: str, file_id: str, attributes: bytes
    ) -> StoreFile | None:
        """Give a file other attributes; None where there is none.

        Raises:
            UnavailableError: it cannot be written now.
        """
        key = {**self._of_corpus(scope, vector_store_id), "file": file_id}

        def change() -> StoreFile | None:
            found = self._one("find_store_file", key)
            if found is None:
                return None
            execute = self._open().connection.execute
            execute(QUERIES["change_store_file"], (attributes, found[14]))
            execute(QUERIES["note_change"], (found[14],))
            return replace(store_file(found), attributes=attributes)

        return await self._write(change)

    async def remove_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> bool:
        """Take a file out of a vector store, with its chunks; False where there is none.

        Raises:
            UnavailableError: it cannot be written now.
        """
        key = {**self._of_corpus(scope, vector_store_id), "file": file_id}

        def remove() -> bool:
            found = self._one("find_store_file", key)
            return found is not None and self._lose_file(found[14])

        removed = await self._write(remove)
        if removed:
            await self._remove_lost()
        return removed

    async def find_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """A batch of a vector store."""
        found = self._read("find_batch", {**self._of_corpus(scope, vector_store_id), "batch": batch_id})
        return file_batch(vector_store_id, found[0]) if found else None

    async def cancel_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """Cancel the files of a batch that have not been ingested; None where there is no such batch.

        Raises:
            UnavailableError: it cannot be written now.
        """
        key = {**self._of_corpus(scope, vector_store_id), "batch": batch_id}

        def cancel() -> StoredBatch | None:
            found = self._one("find_batch", key)
            if found is None:
                return None
            execute = self._open().connection.execute
            execute(QUERIES["cancel_batch"], (found[8],))
            for number, chunks in execute(QUERIES["waiting_of_batch"], (found[8],)).fetchall():
                if chunks:
                    self._renew_file(number, "cancelled")
                else:
                    execute(QUERIES["set_store_file_status"], ("cancelled", number))
            return file_batch(vector_store_id, self._one("find_batch", key) or found)

        cancelled = await self._write(cancel, heavy=True)
        await self._remove_lost()
        return cancelled

    # Inside a job of the writer

    def _add_files(
        self,
        scope: Scope,
        vector_store_id: str,
        files: Sequence[NewStoreFile],
        limits: CorpusLimits,
        batch: StoredBatch | None,
    ) -> Sequence[str] | APIError | None:
        found = self._one("number_of_store", self._of_corpus(scope, vector_store_id))
        if found is None:
            return None
        store, count = found
        execute = self._open().connection.execute
        ids = json.dumps([new.file_id for new in files])
        values = {"tenant": scope.tenant, "ids": ids, "now": self._clock()}
        uploads: dict[str, int] = dict(execute(QUERIES["uploads_of"], values).fetchall())
        missing = dict.fromkeys(new.file_id for new in files if new.file_id not in uploads)
        if missing:
            return list(missing)
        names = json.dumps([new.external_id for new in files if new.external_id is not None])
        known = execute(QUERIES["known_store_files"], {"store": store, "ids": ids, "names": names}).fetchall()
        arrangement = arranged(files, {name: external for name, _, external in known}, count, limits)
        if isinstance(arrangement, InvalidRequestError):
            return arrangement
        added, replaced = arrangement
        numbers = {name: number for name, number, _ in known}
        for name in dict.fromkeys([*replaced, *(new.file_id for new in added if new.file_id in numbers)]):
            self._lose_file(numbers[name])
        batch_number = None
        if batch is not None:
            batch_number = execute(QUERIES["insert_file_batch"], (store, batch.id, batch.created_at)).lastrowid
        for new in added:
            row = (new.created_at, new.attributes, new.detail, new.external_id, batch_number)
            execute(QUERIES["insert_store_file"], (store, uploads[new.file_id], new.file_id, *row))
        self._use(scope, vector_store_id, max((new.created_at for new in files), default=0))
        return []

    def _use(self, scope: Scope, vector_store_id: str, now: int) -> None:
        found = self._one("number_of_store", self._of_corpus(scope, vector_store_id))
        if found is not None:
            self._open().connection.execute(QUERIES["use_vector_store"], {"n": found[0], "when": now})

    def _one(self, query: str, values: Mapping[str, object]) -> Any:
        """The first row that a statement finds, inside a job."""
        return self._open().connection.execute(QUERIES[query], values).fetchone()

    def _of_corpus(self, scope: Scope, vector_store_id: str) -> dict[str, object]:
        return {"tenant": scope.tenant, "id": vector_store_id, "now": self._clock()}

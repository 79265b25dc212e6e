"""The part of the SQLite store that keeps uploaded files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from antiphon.errors import APIError
from antiphon.store.files import UPLOAD_SECONDS, FileLimits, FilePage, FileStore, StoredFile, check_room
from antiphon.store.queries import QUERIES
from antiphon.store.rows import Scope
from antiphon.store.sqlite_core import SQLiteCore

__all__ = ["SQLiteFiles"]

_CHUNKS_A_STEP = 16
"""Chunks that are removed in one transaction, which a write may have to wait for."""

_LISTS = {
    (False, False): "files_up",
    (False, True): "files_down",
    (True, False): "files_of_purpose_up",
    (True, True): "files_of_purpose_down",
}
"""The statement of a page by whether it is of one purpose, and whether it begins with the newest."""


class SQLiteFiles(SQLiteCore, FileStore):
    """Keeps files and their chunks in the store's file."""

    async def begin_file(self, scope: Scope, file: StoredFile, limits: FileLimits) -> None:
        """Begin a file, of so many bytes as it will have.

        Raises:
            InvalidRequestError: the tenant has no room for it.
            UnavailableError: it cannot be written now.
        """
        values = (scope.tenant, file.id, file.created_at, file.expires_at, self._clock() + UPLOAD_SECONDS)

        def begin() -> APIError | None:
            connection = self._open().connection
            count, size = connection.execute(QUERIES["held_of_tenant"], (scope.tenant,)).fetchone()
            refusal = check_room(file, limits, count, size)
            if refusal is None:
                connection.execute(QUERIES["insert_file"], (*values, file.bytes, file.purpose, file.filename))
            return refusal

        await self._write(begin)

    async def add_file_chunk(self, scope: Scope, file_id: str, position: int, body: bytes) -> bool:
        """Add a chunk; False where no file by that id is coming in.

        Raises:
            UnavailableError: it cannot be written now.
        """
        return await self._write(
            lambda: self._changed_file("insert_file_chunk", position, body, scope.tenant, file_id), heavy=True
        )

    async def finish_file(self, scope: Scope, file_id: str) -> bool:
        """Make a file whole; False where none by that id is coming in.

        Raises:
            UnavailableError: it cannot be written now.
        """
        return await self._write(lambda: self._changed_file("finish_file", scope.tenant, file_id))

    async def find_file(self, scope: Scope, file_id: str) -> StoredFile | None:
        """A whole file by id that has not expired."""
        found = self._read("find_file", self._of_file(scope, file_id))
        return StoredFile(*found[0]) if found else None

    async def list_files(self, scope: Scope, page: FilePage) -> Sequence[StoredFile]:
        """The whole files of a tenant that have not expired, by id."""
        parameters: dict[str, object] = {"tenant": scope.tenant, "now": self._clock()}
        parameters.update(after=page.bound, most=page.limit)
        if page.purpose is not None:
            parameters.update(purpose=page.purpose)
        return [StoredFile(*row) for row in self._read(_LISTS[page.purpose is not None, page.newest_first], parameters)]

    async def file_chunks(self, scope: Scope, file_id: str, first: int, most: int) -> Sequence[bytes]:
        """At most so many chunks of a whole file, in order, from that position on."""
        parameters = self._of_file(scope, file_id)
        parameters.update(first=first, most=most)
        return [row[0] for row in self._read("file_chunks", parameters)]

    async def delete_file(self, scope: Scope, file_id: str) -> bool:
        """Remove a file and its content, whole or not; False where there is none by that id.

        Raises:
            UnavailableError: it cannot be written now.
        """

        def delete() -> tuple[bool, int | None]:
            connection = self._open().connection
            values = (self._clock(), scope.tenant, file_id)
            found = connection.execute(QUERIES["find_any_file"], values).fetchone()
            if found is None:
                return False, None
            number, visible = found
            connection.execute(QUERIES["condemn_file"], (number,))
            return bool(visible), None if self._remove_some(number) else number

        began = time.monotonic()
        visible, left = await self._write(delete, heavy=True)
        if left is not None:
            await asyncio.sleep(time.monotonic() - began)
            await self._remove_files("condemned_file", file=left)
        return visible

    async def _remove_files(self, query: str, **parameters: object) -> int:
        """Remove the files that a statement finds, one after the other and in steps of some chunks; how many."""
        removed = 0
        # Asked before each step: where there is none, which is the usual case, that costs no transaction.
        while self._read(query, parameters):
            began = time.monotonic()
            removed += await self._write(lambda: self._remove_some_of(query, parameters), heavy=True)
            # For as long as the step took: what came meanwhile is not to share a transaction with the next one.
            await asyncio.sleep(time.monotonic() - began)
        return removed

    def _remove_some_of(self, query: str, parameters: dict[str, object]) -> int:
        found = self._open().connection.execute(QUERIES[query], parameters).fetchone()
        return 0 if found is None else int(self._remove_some(found[0]))

    def _remove_some(self, number: int) -> bool:
        """Remove some of the chunks of a file, and its row with the last of them; whether that is gone."""
        connection = self._open().connection
        if connection.execute(QUERIES["delete_some_chunks"], (number, _CHUNKS_A_STEP)).rowcount == _CHUNKS_A_STEP:
            return False
        connection.execute(QUERIES["delete_file"], (number,))
        return True

    def _of_file(self, scope: Scope, file_id: str) -> dict[str, object]:
        return {"tenant": scope.tenant, "id": file_id, "now": self._clock()}

    def _changed_file(self, query: str, *values: object) -> bool:
        return self._open().connection.execute(QUERIES[query], values).rowcount > 0

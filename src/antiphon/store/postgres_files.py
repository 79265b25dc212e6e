"""Uploaded files in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.store.files import UPLOAD_SECONDS, FileLimits, FilePage, FileStore, StoredFile, check_room
from antiphon.store.postgres_core import PostgresCore, storable
from antiphon.store.postgres_database import Connection, execute, fetch
from antiphon.store.rows import Scope

__all__ = ["PostgresFiles"]

_FILES_A_STEP = 4

_LISTS = {
    (False, False): "files_up",
    (False, True): "files_down",
    (True, False): "files_of_purpose_up",
    (True, True): "files_of_purpose_down",
}
"""The statement of a page by whether it is of one purpose, and whether it begins with the newest."""


class PostgresFiles(PostgresCore, FileStore):
    """Keeps files and their chunks."""

    async def begin_file(self, scope: Scope, file: StoredFile, limits: FileLimits) -> None:
        """Begin a file, of so many bytes as it will have.

        Raises:
            InvalidRequestError: the tenant has no room for it.
            UnavailableError: it cannot be written now.
        """
        due_at = self._clock() + UPLOAD_SECONDS

        async def job(connection: Connection, _: bool) -> None:
            async with connection.transaction():
                # One at a time of a tenant: two that each fit may not fit together.
                await fetch(connection, "lock_files_of", tenant=scope.tenant)
                count, size = (await fetch(connection, "files_held", tenant=scope.tenant, id=file.id))[0]
                refusal = check_room(file, limits, count, size)
                if refusal is not None:
                    raise refusal
                await execute(
                    connection,
                    "insert_file",
                    tenant=scope.tenant,
                    id=file.id,
                    created_at=file.created_at,
                    expires_at=file.expires_at,
                    due_at=due_at,
                    bytes=file.bytes,
                    purpose=file.purpose,
                    filename=file.filename,
                )

        await self._run(job)

    async def add_file_chunk(self, scope: Scope, file_id: str, position: int, body: bytes) -> bool:
        """Add a chunk; False where no file by that id is coming in."""
        names: dict[str, object] = {"tenant": scope.tenant, "id": file_id}
        return storable(file_id) and bool(await self._fetch("insert_file_chunk", **names, pos=position, body=body))

    async def finish_file(self, scope: Scope, file_id: str) -> bool:
        """Make a file whole; False where none by that id is coming in."""
        if not storable(file_id):
            return False

        async def job(connection: Connection, again: bool) -> bool:
            if await fetch(connection, "finish_file", tenant=scope.tenant, id=file_id):
                return True
            names: dict[str, object] = {"tenant": scope.tenant, "id": file_id, "now": self._clock()}
            return again and bool(await fetch(connection, "find_file", **names))

        return await self._run(job)

    async def find_file(self, scope: Scope, file_id: str) -> StoredFile | None:
        """A whole file by id that has not expired."""
        if not storable(file_id):
            return None
        rows = await self._fetch("find_file", tenant=scope.tenant, id=file_id, now=self._clock())
        return StoredFile(*rows[0]) if rows else None

    async def list_files(self, scope: Scope, page: FilePage) -> Sequence[StoredFile]:
        """The whole files of a tenant that have not expired, by id."""
        if not storable(page.after, page.purpose or ""):
            return []
        names: dict[str, object] = {"tenant": scope.tenant, "after": page.bound, "most": page.limit}
        if page.purpose is not None:
            names["purpose"] = page.purpose
        return [
            StoredFile(*row)
            for row in await self._fetch(
                _LISTS[page.purpose is not None, page.newest_first], **names, now=self._clock()
            )
        ]

    async def file_chunks(self, scope: Scope, file_id: str, first: int, most: int) -> Sequence[bytes]:
        """At most so many chunks of a whole file, in order, from that position on."""
        if not storable(file_id):
            return []
        names: dict[str, object] = {"tenant": scope.tenant, "id": file_id, "first": first, "most": most}
        return [row[0] for row in await self._fetch("file_chunks", **names, now=self._clock())]

    async def delete_file(self, scope: Scope, file_id: str) -> bool:
        """Remove a file and its content, whole or not; False where there is none by that id."""
        if not storable(file_id):
            return False

        async def delete(connection: Connection) -> bool:
            rows = await fetch(connection, "delete_file", tenant=scope.tenant, id=file_id, now=self._clock())
            return bool(rows) and rows[0][0]

        return await self._delete_found(delete)

    async def _remove_due_files(self, now: float) -> int:
        """Remove the files whose time is up, and those that did not come in whole; the number removed."""
        removed = 0
        while rows := await self._fetch("delete_due_files", now=now, most=_FILES_A_STEP):
            removed += len(rows)
        return removed

    async def _remove_files_of(self, tenant: str) -> None:
        while await self._fetch("delete_files_of", tenant=tenant, most=_FILES_A_STEP):
            pass

"""The uploaded files of a sealed store: their names and their chunks are sealed, each chunk for its own place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.store.files import FileLimits, FilePage, FileStore, StoredFile
from antiphon.store.rows import Scope
from antiphon.store.sealed_keys import TenantKeys, open_sealed
from antiphon.store.sealing import DataKey

if TYPE_CHECKING:
    from antiphon.store.base import Store

__all__ = ["SealedFiles"]

FILE, CHUNK = "file", "file chunk"


class SealedFiles(FileStore):
    """Seals what goes into the files of `inner` and opens what comes out."""

    inner: Store
    _keys: TenantKeys

    async def begin_file(self, scope: Scope, file: StoredFile, limits: FileLimits) -> None:
        """Begin a file, of so many bytes as it will have."""
        key = await self._keys.make(scope.tenant)
        sealed = replace(file, filename=key.seal(FILE, file.id, file.filename))
        await self.inner.begin_file(scope, sealed, limits)

    async def add_file_chunk(self, scope: Scope, file_id: str, position: int, body: bytes) -> bool:
        """Add a chunk; False where no file by that id is coming in."""
        key = await self._keys.make(scope.tenant)
        sealed = key.seal(CHUNK, _chunk_id(file_id, position), body)
        return await self.inner.add_file_chunk(scope, file_id, position, sealed)

    async def finish_file(self, scope: Scope, file_id: str) -> bool:
        """Make a file whole; False where none by that id is coming in."""
        return await self.inner.finish_file(scope, file_id)

    async def find_file(self, scope: Scope, file_id: str) -> StoredFile | None:
        """A whole file by id that has not expired."""
        found = await self.inner.find_file(scope, file_id)
        return None if found is None else _open_file(await self._keys.find(scope.tenant), found)

    async def list_files(self, scope: Scope, page: FilePage) -> Sequence[StoredFile]:
        """The whole files of a tenant that have not expired, by id."""
        found = await self.inner.list_files(scope, page)
        if not found:
            return found
        key = await self._keys.find(scope.tenant)
        return [_open_file(key, file) for file in found]

    async def file_chunks(self, scope: Scope, file_id: str, first: int, most: int) -> Sequence[bytes]:
        """At most so many chunks of a whole file, in order, from that position on."""
        found = await self.inner.file_chunks(scope, file_id, first, most)
        if not found:
            return found
        key = await self._keys.find(scope.tenant)
        return [
            open_sealed(key, CHUNK, _chunk_id(file_id, position), body) for position, body in enumerate(found, first)
        ]

    async def delete_file(self, scope: Scope, file_id: str) -> bool:
        """Remove a file and its content, whole or not; False where there is none by that id."""
        return await self.inner.delete_file(scope, file_id)


def _chunk_id(file_id: str, position: int) -> str:
    return f"{file_id} {position}"


def _open_file(key: DataKey, found: StoredFile) -> StoredFile:
    return replace(found, filename=open_sealed(key, FILE, found.id, found.filename))

"""Uploaded files as plain async methods: in by steps, out whole or in chunks, for the tenant whose they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from msgspec import Struct

from antiphon.errors import InternalError, InvalidRequestError, NotFoundError
from antiphon.protocol.files import DeletedFile, FileObject, is_file_id, new_file_id
from antiphon.protocol.json import quoted
from antiphon.runtime.rules import persistence_off
from antiphon.settings import Settings
from antiphon.store.base import Scope, Store
from antiphon.store.files import CHUNK_BYTES, FileLimits, FilePage, StoredFile

__all__ = ["FileContent", "Files", "Upload", "file_limits", "file_not_found"]

MEMORY_BYTES = 256 * 1024 * 1024
STORED_BYTES = 10 * 1024 * 1024 * 1024
_CHUNKS_A_READ = 4
_FILES_A_READ = 200


class Upload(Struct, frozen=True):
    """A file that was received: `read` gives at most so many bytes more of it, and none at its end."""

    filename: str
    purpose: str
    size: int
    expires_seconds: int | None
    read: Callable[[int], Awaitable[bytes]]


class FileContent(Struct, frozen=True):
    """A file with its content in memory; `bytes` is the length of `data`."""

    id: str
    filename: str
    bytes: int
    data: bytes


class Files:
    """Files of one store; `store` is None where persistence is off."""

    def __init__(self, store: Store | None, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._kept = store
        self._limits = file_limits(settings)
        self._clock = clock

    async def create(self, scope: Scope, upload: Upload) -> FileObject:
        """Keep a file; where that fails, or the caller is cancelled, nothing of it stays.

        Raises:
            InvalidRequestError: it is empty, or the tenant has no room for it.
            UnavailableError: it cannot be written now.
        """
        store = self._store()
        if upload.size == 0:
            raise InvalidRequestError(
                "The file is empty. Send a file that has content.", param="file", code="empty_file"
            )
        created_at = int(self._clock())
        expires_at = None if upload.expires_seconds is None else created_at + upload.expires_seconds
        name = upload.filename.encode()
        file = StoredFile(new_file_id(), created_at, expires_at, upload.size, upload.purpose, name)
        try:
            await store.begin_file(scope, file, self._limits)
            await _write(store, scope, file, upload)
        except BaseException:
            # Shielded: the caller may be cancelled again, and what is left would fill the tenant's room for an hour.
            await asyncio.shield(store.delete_file(scope, file.id))
            raise
        return _shown(file)

    async def list(self, scope: Scope, page: FilePage) -> tuple[list[FileObject], bool]:
        """At most `page.limit` files, and whether more follow.

        Raises:
            InvalidRequestError: `after` is no id of a file.
        """
        if page.after and not is_file_id(page.after):
            raise InvalidRequestError(
                "Invalid 'after': the id of a file is expected.", param="after", code="invalid_value"
            )
        store = self._store()
        found: list[FileObject] = []
        after = page.after
        while (left := page.limit + 1 - len(found)) > 0:
            some = min(left, _FILES_A_READ)
            more = await store.list_files(scope, FilePage(some, page.newest_first, after, page.purpose))
            found += map(_shown, more)
            if len(more) < some:
                break
            after = found[-1].id
            # A store may answer without waiting for anything, and others want their turn.
            await asyncio.sleep(0)
        return found[: page.limit], len(found) > page.limit

    async def retrieve(self, scope: Scope, file_id: str) -> FileObject:
        """A file without its content.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        return _shown(await self._find(scope, file_id))

    async def content(self, scope: Scope, file_id: str, limit: int) -> FileContent:
        """A file with its content, of at most `limit` bytes.

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: `file_too_large`, it has more bytes.
        """
        found = await self.retrieve(scope, file_id)
        if found.bytes > limit:
            raise InvalidRequestError(
                f"The file '{file_id}' has {found.bytes} bytes, and at most {limit} can be read here.",
                code="file_too_large",
            )
        data = b"".join([chunk async for chunk in self.chunks(scope, found)])
        return FileContent(found.id, found.filename, len(data), data)

    async def chunks(self, scope: Scope, file: FileObject) -> AsyncGenerator[bytes]:
        """The content of a file, piece by piece and never more than a few in memory.

        Raises:
            InternalError: less is there than there was: it was deleted meanwhile.
        """
        store = self._store()
        position, left = 0, file.bytes
        while left > 0:
            found = await store.file_chunks(scope, file.id, position, _CHUNKS_A_READ)
            if not found:
                raise InternalError("The file was deleted while it was read.")
            position += len(found)
            for chunk in found:
                left -= len(chunk)
                yield chunk
            # Neither a store nor whoever takes the pieces need wait for anything, and others want their turn.
            await asyncio.sleep(0)

    async def delete(self, scope: Scope, file_id: str) -> DeletedFile:
        """Remove a file and its content.

        Raises:
            NotFoundError: there is none by that id in this scope.
            UnavailableError: it cannot be written now.
        """
        if not is_file_id(file_id) or not await self._store().delete_file(scope, file_id):
            raise file_not_found(file_id)
        return DeletedFile(file_id)

    async def _find(self, scope: Scope, file_id: str) -> StoredFile:
        store = self._store()
        found = await store.find_file(scope, file_id) if is_file_id(file_id) else None
        if found is None:
            raise file_not_found(file_id)
        return found

    def _store(self) -> Store:
        if self._kept is None:
            raise persistence_off()
        return self._kept


async def _write(store: Store, scope: Scope, file: StoredFile, upload: Upload) -> None:
    position = size = 0
    while chunk := await upload.read(CHUNK_BYTES):
        size += len(chunk)
        if not await store.add_file_chunk(scope, file.id, position, chunk):
            break
        position += 1
    # The size is what the tenant's room was reckoned with.
    if size != file.bytes or not await store.finish_file(scope, file.id):
        raise InternalError("The file could not be kept. Please send it again.")


def file_limits(settings: Settings) -> FileLimits:
    """How much of files one tenant may have."""
    size = settings.max_files_bytes
    default = MEMORY_BYTES if settings.store == "memory" else STORED_BYTES
    return FileLimits(settings.max_files, default if size is None else size)


def file_not_found(file_id: str) -> NotFoundError:
    """The one answer for a file that is missing, expired, malformed or another tenant's."""
    return NotFoundError(f"No such File object: {quoted(file_id)}", param="id")


def _shown(file: StoredFile) -> FileObject:
    name = file.filename.decode()
    return FileObject(file.id, file.bytes, file.created_at, file.expires_at, name, file.purpose)

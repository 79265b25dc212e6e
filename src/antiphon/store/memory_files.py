"""The uploaded files of the memory store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antiphon.store.files import UPLOAD_SECONDS, FileLimits, FilePage, FileStore, StoredFile, check_room
from antiphon.store.memory_rows import Key
from antiphon.store.rows import Scope

__all__ = ["MemoryFiles"]


class _File:
    """A file with its chunks; `due_at` is when the sweep removes it."""

    __slots__ = ("chunks", "due_at", "file", "whole")

    def __init__(self, file: StoredFile, due_at: float) -> None:
        self.file = file
        self.due_at: float | None = due_at
        self.chunks: list[bytes] = []
        self.whole = False

    def expired(self, now: float) -> bool:
        return self.file.expires_at is not None and self.file.expires_at <= now


class MemoryFiles(FileStore):
    """Keeps files; `file_clock` gives the time in seconds since the epoch."""

    def __init__(self, file_clock: Callable[[], float]) -> None:
        self._file_clock = file_clock
        self._files: dict[Key, _File] = {}

    async def begin_file(self, scope: Scope, file: StoredFile, limits: FileLimits) -> None:
        """Begin a file, of so many bytes as it will have.

        Raises:
            InvalidRequestError: the tenant has no room for it.
        """
        others = [row.file.bytes for key, row in self._files.items() if key[0] == scope.tenant]
        refusal = check_room(file, limits, len(others), sum(others))
        if refusal is not None:
            raise refusal
        self._files[scope.tenant, file.id] = _File(file, self._file_clock() + UPLOAD_SECONDS)

    async def add_file_chunk(self, scope: Scope, file_id: str, position: int, body: bytes) -> bool:
        """Add a chunk; False where no file by that id is coming in."""
        row = self._files.get((scope.tenant, file_id))
        if row is None or row.whole or position != len(row.chunks):
            return False
        row.chunks.append(body)
        return True

    async def finish_file(self, scope: Scope, file_id: str) -> bool:
        """Make a file whole; False where none by that id is coming in."""
        row = self._files.get((scope.tenant, file_id))
        if row is None or row.whole:
            return False
        row.whole = True
        row.due_at = row.file.expires_at
        return True

    async def find_file(self, scope: Scope, file_id: str) -> StoredFile | None:
        """A whole file by id that has not expired."""
        row = self._found(scope, file_id)
        return None if row is None else row.file

    async def list_files(self, scope: Scope, page: FilePage) -> Sequence[StoredFile]:
        """The whole files of a tenant that have not expired, by id."""
        now = self._file_clock()
        found = [
            row.file
            for key, row in self._files.items()
            if key[0] == scope.tenant
            and row.whole
            and not row.expired(now)
            and page.purpose in (None, row.file.purpose)
            and (key[1] < page.bound if page.newest_first else key[1] > page.bound)
        ]
        found.sort(key=lambda file: file.id, reverse=page.newest_first)
        return found[: page.limit]

    async def file_chunks(self, scope: Scope, file_id: str, first: int, most: int) -> Sequence[bytes]:
        """At most so many chunks of a whole file, in order, from that position on."""
        row = self._found(scope, file_id)
        return [] if row is None else row.chunks[first : first + most]

    async def delete_file(self, scope: Scope, file_id: str) -> bool:
        """Remove a file and its content, whole or not; False where there is none by that id."""
        row = self._files.pop((scope.tenant, file_id), None)
        self._file_went((scope.tenant, file_id))
        return row is not None and not (row.whole and row.expired(self._file_clock()))

    def _found(self, scope: Scope, file_id: str) -> _File | None:
        row = self._files.get((scope.tenant, file_id))
        return None if row is None or not row.whole or row.expired(self._file_clock()) else row

    def _expire_files(self) -> int:
        """Remove the files whose time is up, and those that did not come in whole; the number removed."""
        now = self._file_clock()
        due = [key for key, row in self._files.items() if row.due_at is not None and row.due_at <= now]
        for key in due:
            del self._files[key]
            self._file_went(key)
        return len(due)

    def _file_went(self, key: Key) -> None:
        """For the parts of the store that point to files: that one is not there any more."""

    def _delete_files_of(self, tenant: str) -> None:
        for key in [key for key in self._files if key[0] == tenant]:
            del self._files[key]

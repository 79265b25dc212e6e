"""The part of a store's interface that keeps uploaded files (issue 4, section 7).

A file comes in by steps: it is begun, which holds its place and its bytes for its tenant, then its chunks are added in
order, and then it is made whole. Until then nobody finds it, and the sweep removes one that was left half done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.store.rows import Scope

__all__ = ["CHUNK_BYTES", "UPLOAD_SECONDS", "FileLimits", "FilePage", "FileStore", "StoredFile", "check_room"]

CHUNK_BYTES = 256 * 1024
"""Bytes of a chunk; the last one of a file may be shorter."""

UPLOAD_SECONDS = 3600.0
"""How long a file may take from its beginning until it is whole; then the sweep removes it."""


class FileLimits(Struct, frozen=True):
    """How many files one tenant may have, and how many bytes of them; those that are coming in count."""

    most_files: int
    most_bytes: int


class StoredFile(Struct, frozen=True):
    """A file without its content. Times in seconds since the epoch; `bytes` counts the content."""

    id: str
    created_at: int
    expires_at: int | None
    bytes: int
    purpose: str
    filename: bytes


class FilePage(Struct, frozen=True):
    """Which files of a list: at most `limit` of those that come after an id, and of one purpose where it is given."""

    limit: int
    newest_first: bool = True
    after: str = ""
    purpose: str | None = None

    @property
    def bound(self) -> str:
        """The id that those of the page lie beyond; without `after` one that no id reaches."""
        return self.after or ("~" if self.newest_first else "")


class FileStore(ABC):
    """Files and their chunks. Ids sort by the time at which they were made, and lists by ids."""

    @abstractmethod
    async def begin_file(self, scope: Scope, file: StoredFile, limits: FileLimits) -> None:
        """Begin a file, of so many bytes as it will have.

        Raises:
            InvalidRequestError: `file_limit_reached`, the tenant has no room for it.
        """

    @abstractmethod
    async def add_file_chunk(self, scope: Scope, file_id: str, position: int, body: bytes) -> bool:
        """Add a chunk; positions count from 0. False where no file by that id is coming in."""

    @abstractmethod
    async def finish_file(self, scope: Scope, file_id: str) -> bool:
        """Make a file whole: it is found from now on. False where none by that id is coming in."""

    @abstractmethod
    async def find_file(self, scope: Scope, file_id: str) -> StoredFile | None:
        """A whole file by id that has not expired."""

    @abstractmethod
    async def list_files(self, scope: Scope, page: FilePage) -> Sequence[StoredFile]:
        """The whole files of a tenant that have not expired, by id; `after` need not be there any more."""

    @abstractmethod
    async def file_chunks(self, scope: Scope, file_id: str, first: int, most: int) -> Sequence[bytes]:
        """At most so many chunks of a whole file, in order, from that position on."""

    @abstractmethod
    async def delete_file(self, scope: Scope, file_id: str) -> bool:
        """Remove a file and its content, whole or not; False where there is none by that id."""


def check_room(file: StoredFile, limits: FileLimits, count: int, size: int) -> InvalidRequestError | None:
    """The refusal of a file for which there is no room beside `count` others of `size` bytes; None where there is."""
    if count >= limits.most_files:
        return InvalidRequestError(
            f"There are {count} files already, which is the most that this server keeps. Delete some of them.",
            code="file_limit_reached",
        )
    if size + file.bytes > limits.most_bytes:
        return InvalidRequestError(
            f"The file has {file.bytes} bytes, but this server keeps at most {limits.most_bytes} bytes of files, of "
            f"which {size} are taken. Delete some files.",
            code="file_limit_reached",
        )
    return None

"""The files of vector stores that can be found, with their attributes, kept while a store's version is the same.

A file's attributes are read once for a version, however many searches filter by them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import Struct

from antiphon.corpus.filters import Filter
from antiphon.corpus.library import FoundChunk
from antiphon.protocol.json import loads
from antiphon.protocol.stores import FILE_KEY
from antiphon.store.base import Scope
from antiphon.store.corpora import CorpusStore, StoredChunk, StoredVectorStore, StoreFile, StoreFilePage

__all__ = ["MOST_BYTES", "Shelf", "ShelvedFile", "Shelves"]

MOST_BYTES: Final = 128 * 2**20
"""About how much the files of all vector stores may take that are kept; the last one stays whatever it takes."""

_FILE: Final = 1_000
_ATTRIBUTES: Final = 4
"""How many times the bytes of their JSON attributes take as values."""

_PAGE: Final = 1_000


class ShelvedFile(Struct, frozen=True):
    """A file, and its attributes as values."""

    row: StoreFile
    attributes: Mapping[str, Any]


class Shelf(Struct, frozen=True, eq=False):
    """The completed files of one vector store by id, in the order of their ids."""

    store: StoredVectorStore
    files: Mapping[str, ShelvedFile]

    @property
    def chunks(self) -> int:
        """How many chunks they have."""
        return sum(file.row.chunks for file in self.files.values())

    @property
    def nbytes(self) -> int:
        """About how much memory they take; one without files takes some too."""
        return (
            _FILE
            + len(self.store.detail)
            + sum(_FILE + _ATTRIBUTES * len(file.row.attributes) + len(file.row.detail) for file in self.files.values())
        )

    def holding(self, wanted: Filter | None) -> frozenset[str] | None:
        """The ids of the files that a filter lets through; None for all of them."""
        if wanted is None:
            return None
        return frozenset(
            file_id for file_id, file in self.files.items() if wanted({**file.attributes, FILE_KEY: file_id})
        )

    def found(self, chunk: StoredChunk, score: float | None = None) -> FoundChunk | None:
        """A chunk with what is known of its file; None where the file came after this was read."""
        file = self.files.get(chunk.file_id)
        if file is None:
            return None
        return FoundChunk(
            store=self.store,
            file=file.row,
            index=chunk.index,
            heading=chunk.heading,
            text=chunk.text,
            score=score,
            attributes=file.attributes,
            detail=_object(chunk.detail),
        )


class Shelves:
    """The files of the vector stores that were asked for last."""

    def __init__(self, store: CorpusStore, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[str, str], Shelf] = OrderedDict()
        self._sizes: dict[tuple[str, str], int] = {}
        self._bytes = 0
        self._reading: dict[tuple[str, str, int], asyncio.Task[Shelf]] = {}

    async def of(self, scope: Scope, row: StoredVectorStore) -> Shelf:
        """The files of a vector store as its row's version has them, or a later one."""
        key = (scope.tenant, row.id)
        shelf = self._kept.get(key)
        if shelf is not None and shelf.store.version == row.version:
            self._kept.move_to_end(key)
            return shelf
        reading = (*key, row.version)
        task = self._reading.get(reading)
        if task is None:
            task = self._reading[reading] = asyncio.create_task(self._read(scope, row))
            task.add_done_callback(lambda done: self._read_ended(reading, done))
        # Several wait for the same files, and one of them may leave.
        return await asyncio.shield(task)

    def _read_ended(self, reading: tuple[str, str, int], task: asyncio.Task[Shelf]) -> None:
        del self._reading[reading]
        if not task.cancelled():
            # Where all who waited have left, nobody else looks at it.
            task.exception()

    async def _read(self, scope: Scope, row: StoredVectorStore) -> Shelf:
        files: dict[str, ShelvedFile] = {}
        after = ""
        while True:
            page = StoreFilePage(_PAGE, newest_first=False, after=after, statuses=("completed",))
            rows = await self._store.list_store_files(scope, row.id, page)
            files.update((each.file_id, ShelvedFile(each, _object(each.attributes))) for each in rows)
            if len(rows) < _PAGE:
                break
            after = rows[-1].file_id
        shelf = Shelf(row, files)
        key = (scope.tenant, row.id)
        before = self._kept.get(key)
        if before is None or before.store.version <= row.version:
            self._kept[key] = shelf
            self._bytes += shelf.nbytes - self._sizes.get(key, 0)
            self._sizes[key] = shelf.nbytes
            self._kept.move_to_end(key)
        while len(self._kept) > 1 and self._bytes > self._most_bytes:
            gone, _ = self._kept.popitem(last=False)
            self._bytes -= self._sizes.pop(gone)
        return shelf


def _object(data: bytes) -> Mapping[str, Any]:
    value: object = loads(data) if data else {}
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}

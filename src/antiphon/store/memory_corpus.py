"""The rows of a vector store in memory: its files with their chunks, its batches, and its text index."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from antiphon.store.corpora import FileCounts, NewChunk, Place, StoredBatch, StoredVectorStore, StoreFile, expiry
from antiphon.store.text_index import TextIndex

__all__ = ["WAITING", "Corpus", "CorpusFile", "texts_of"]

_STATUSES = FileCounts.__struct_fields__

WAITING = frozenset({"pending", "in_progress"})
"""The states of a file that has not been ingested."""


class CorpusFile:
    """A file of a vector store, with its chunks by index and, while it is claimed, the claim."""

    __slots__ = ("attempts", "chunks", "fence", "owner", "row", "tenant")

    def __init__(self, tenant: str, row: StoreFile) -> None:
        self.tenant = tenant
        self.row = row
        self.owner = ""
        self.fence = 0
        self.attempts = 0
        self.chunks: dict[int, NewChunk] = {}

    @property
    def found(self) -> bool:
        """Whether its chunks are found."""
        return self.row.status == "completed"

    @property
    def key(self) -> tuple[str, str, str]:
        """Its tenant, its vector store and its id."""
        return self.tenant, self.row.vector_store_id, self.row.file_id


class Corpus:
    """A vector store with its files and batches."""

    __slots__ = ("_order", "batches", "files", "index", "row")

    def __init__(self, row: StoredVectorStore) -> None:
        self.row = row
        self.files: dict[str, CorpusFile] = {}
        self.batches: dict[str, StoredBatch] = {}
        self.index: TextIndex | None = None
        self._order: list[str] | None = None

    def expired(self, now: float) -> bool:
        """Whether its time is up."""
        return expiry(self.row.last_active_at, self.row.expires_after_days) <= now

    def stored(self) -> StoredVectorStore:
        """The row as callers see it."""
        usage = sum(file.row.usage_bytes for file in self.files.values() if file.found)
        return replace(self.row, files=_counts(self.files.values()), usage_bytes=usage)

    def batch(self, batch_id: str) -> StoredBatch:
        """A batch as callers see it."""
        members = [file for file in self.files.values() if file.row.batch_id == batch_id]
        return replace(self.batches[batch_id], files=_counts(members))

    def use(self, now: int) -> None:
        """Note a use; the last one counts, in whatever order they come."""
        self.row = replace(self.row, last_active_at=max(now, self.row.last_active_at))

    def put(self, file: CorpusFile) -> None:
        """Put a file in, instead of the one of its id."""
        self.drop(file.row.file_id)
        self.files[file.row.file_id] = file
        self._order = None

    def drop(self, file_id: str) -> CorpusFile | None:
        """Take a file out, if it is there."""
        file = self.files.pop(file_id, None)
        if file is not None:
            self._order = None
            self.hide(file)
        return file

    def change(self) -> None:
        """Note that a search may find something else than before."""
        self.row = replace(self.row, version=self.row.version + 1)

    def show(self, file: CorpusFile) -> None:
        """Let the chunks of a file be found."""
        self.change()
        file.row = replace(file.row, status="completed", revision=self.row.version)
        self.reindex()
        if self.index is not None:
            self.index.show(file.row.file_id)

    def hide(self, file: CorpusFile) -> None:
        """Let the chunks of a file be found no more."""
        if file.found:
            self.change()
        if self.index is not None:
            self.index.remove(file.row.file_id)
            if not any(other.chunks for other in self.files.values()):
                self.index.close()
                self.index = None

    def reindex(self) -> None:
        """Make the index anew where most of it is not found any more."""
        if self.index is None or not self.index.stale:
            return
        self.index.close()
        self.index = TextIndex()
        for file in self.files.values():
            self.index.add(file.row.file_id, texts_of(file.chunks.values()))
            if file.found:
                self.index.show(file.row.file_id)

    def external(self, external_id: str) -> CorpusFile | None:
        """The file of an external id."""
        return next((file for file in self.files.values() if file.row.external_id == external_id), None)

    def places(self, after: Place | None, files: Collection[str] | None) -> Iterator[tuple[str, NewChunk]]:
        """The chunks that are found, in the order of their places, those beyond one."""
        if self._order is None:
            self._order = sorted(self.files)
        wanted = None if files is None else frozenset(files)
        for file_id in self._order[bisect_left(self._order, after[0]) if after else 0 :]:
            file = self.files[file_id]
            if file.found and (wanted is None or file_id in wanted):
                least = after[1] if after and after[0] == file_id else -1
                yield from ((file_id, file.chunks[index]) for index in sorted(file.chunks) if index > least)


def _counts(files: Collection[CorpusFile]) -> FileCounts:
    counts = dict.fromkeys(_STATUSES, 0)
    for file in files:
        counts[file.row.status] += 1
    return FileCounts(**counts)


def texts_of(chunks: Collection[NewChunk]) -> Iterator[tuple[int, str, str]]:
    """What a text index is given of chunks."""
    return ((chunk.index, chunk.heading, chunk.text) for chunk in chunks if chunk.heading or chunk.text)

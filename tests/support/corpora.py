"""Rows of vector stores for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from antiphon.store.base import Store
from antiphon.store.corpora import CorpusLimits, CorpusStore, Ingestion, NewChunk, NewStoreFile, StoredVectorStore
from antiphon.store.files import FileLimits, StoredFile
from antiphon.store.rows import Scope
from support.stores import OURS

__all__ = ["OWNER", "ROOM", "chunk", "claimed", "fill", "new_file", "new_store", "upload"]

ROOM = CorpusLimits(most_stores=100, most_files=1_000)
OWNER = "server 1"


def new_store(name: str = "vs-1", days: int | None = None, now: int = 1_000_000, title: str = "") -> StoredVectorStore:
    """A vector store that is made now."""
    return StoredVectorStore(name, title or f"name of {name}", now, now, days, b'{"of":"%s"}' % name.encode())


def new_file(file_id: str, external_id: str | None = None, created_at: int = 1_000_000) -> NewStoreFile:
    """A file that comes into a vector store."""
    return NewStoreFile(file_id, created_at, b'{"kind":"attributes"}', b'{"kind":"detail"}', external_id)


def chunk(index: int, text: str, heading: str = "", vector: Sequence[float] = ()) -> NewChunk:
    """A chunk with these words."""
    return NewChunk(index, heading, text, b'{"page":%d}' % index, struct.pack(f"<{len(vector)}f", *vector))


async def upload(store: Store, *names: str, scope: Scope = OURS, expires_at: int | None = None) -> None:
    """Upload files of these ids."""
    for name in names:
        file = StoredFile(name, 1000, expires_at, 1, "assistants", f"{name}.md é".encode())
        await store.begin_file(scope, file, FileLimits(10_000, 1_000_000))
        assert await store.add_file_chunk(scope, name, 0, b"x")
        assert await store.finish_file(scope, name)


async def claimed(store: CorpusStore, owner: str = OWNER) -> Ingestion:
    """The next file that waits, claimed."""
    ingestion = await store.claim_ingestion(owner, [owner])
    assert ingestion is not None
    return ingestion


async def fill(store: Store, file_id: str, *texts: str, vector_store: str = "vs-1", scope: Scope = OURS) -> None:
    """Upload a file and bring it into a vector store with a chunk for each text; nothing else may wait."""
    if await store.find_file(scope, file_id) is None:
        await upload(store, file_id, scope=scope)
    assert await store.add_store_files(scope, vector_store, [new_file(file_id)], ROOM) == []
    ingestion = await claimed(store)
    assert ingestion.file.file_id == file_id
    chunks = [chunk(index, text, vector=(float(index), 1.0)) for index, text in enumerate(texts)]
    assert await store.add_chunks(ingestion, chunks)
    assert await store.finish_ingestion(ingestion, None)

"""Rows of vector stores from the columns of the SQL stores' statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.store.corpora import FileCounts, StoredBatch, StoredVectorStore, StoreFile, expiry

__all__ = ["expires_at", "file_batch", "storable_text", "store_file", "vector_store"]


def vector_store(row: Sequence[Any]) -> StoredVectorStore:
    """A vector store: its own columns, and five counts of files."""
    return StoredVectorStore(*row[:8], files=FileCounts(*row[8:13]))


def file_batch(vector_store_id: str, row: Sequence[Any]) -> StoredBatch:
    """A batch: its id, when it was made, whether it was cancelled, and five counts of files."""
    return StoredBatch(row[0], vector_store_id, row[1], bool(row[2]), FileCounts(*row[3:8]))


def store_file(row: Sequence[Any]) -> StoreFile:
    """A file of a vector store; the name of the uploaded file comes as bytes, its error as a code and a message."""
    vector_store_id, file_id, filename, created_at, status, attributes, detail, external_id, batch_id = row[:9]
    code, message, usage, chunks, revision = row[9:14]
    return StoreFile(
        vector_store_id,
        file_id,
        filename.decode("utf-8", "surrogateescape"),
        created_at,
        status,
        attributes,
        detail,
        external_id,
        batch_id,
        None if code is None else (code, message),
        usage,
        chunks,
        revision,
    )


def expires_at(row: StoredVectorStore) -> int | None:
    """When a vector store expires; None for never."""
    return None if row.expires_after_days is None else int(expiry(row.last_active_at, row.expires_after_days))


def storable_text(text: str) -> str:
    """Text as a database can hold it: halves of characters that came without the other become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()

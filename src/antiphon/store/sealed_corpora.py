"""The vector stores of a sealed store: names, external ids, attributes, details, errors, chunks and vectors are sealed.

What rows are found by, a vector store's name and a file's external id, is there as a tag instead: an HMAC under the
tenant's key, which says nothing but that two of one tenant are equal. The name itself is sealed beside the detail.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from antiphon.errors import InternalError
from antiphon.store.corpora import (
    ChunkVector,
    CorpusLimits,
    CorpusStore,
    Ingestion,
    NewChunk,
    NewStoreFile,
    Place,
    StoredBatch,
    StoredChunk,
    StoredVectorStore,
    StoreFile,
    StoreFilePage,
    TextHit,
    VectorStorePage,
    named_like,
)
from antiphon.store.rows import Scope
from antiphon.store.sealed_files import FILE
from antiphon.store.sealed_keys import TenantKeys, open_sealed
from antiphon.store.sealed_words import SealedWords
from antiphon.store.sealing import DataKey

if TYPE_CHECKING:
    from antiphon.store.base import Store

__all__ = ["SealedCorpora"]

_log = logging.getLogger(__name__)

VECTOR_STORE, STORE_FILE, ATTRIBUTES = "vector store", "vector store file", "vector store file attributes"
ERROR, CHUNK, VECTOR = "vector store file error", "corpus chunk", "corpus vector"
NAME, EXTERNAL = "vector store name", "external id"

_OPENED_A_STEP = 128


class _Named(msgspec.Struct, array_like=True):
    """A name and what is sealed beside it."""

    name: str | None
    detail: bytes


class _Words(msgspec.Struct, array_like=True):
    """What is sealed of a chunk."""

    heading: str
    text: str
    detail: bytes


_encode = msgspec.msgpack.Encoder().encode
_open_named = msgspec.msgpack.Decoder(_Named).decode
_open_words = msgspec.msgpack.Decoder(_Words).decode


class SealedCorpora(CorpusStore):
    """Seals what goes into the vector stores of `inner` and opens what comes out."""

    inner: Store
    _keys: TenantKeys
    _words: SealedWords

    # Vector stores

    async def create_vector_store(self, scope: Scope, row: StoredVectorStore, limits: CorpusLimits) -> None:
        """Create one, without files."""
        key = await self._keys.make(scope.tenant)
        detail = key.seal(VECTOR_STORE, row.id, _encode(_Named(row.name, row.detail)))
        await self.inner.create_vector_store(scope, replace(row, name=key.tag(NAME, row.name), detail=detail), limits)

    async def find_vector_store(self, scope: Scope, vector_store_id: str) -> StoredVectorStore | None:
        """One by id, that has not expired."""
        return await self._open_store(scope, await self.inner.find_vector_store(scope, vector_store_id))

    async def find_vector_store_named(self, scope: Scope, name: str) -> StoredVectorStore | None:
        """The newest one of that name that has not expired, by the name's tag."""
        key = await self._keys.get(scope.tenant)
        if key is None:
            return None
        return await self._open_store(scope, await self.inner.find_vector_store_named(scope, key.tag(NAME, name)))

    async def list_vector_stores(self, scope: Scope, page: VectorStorePage) -> Sequence[StoredVectorStore]:
        """Those of a tenant that have not expired; where a part of the name is asked for, all of them are opened."""
        if page.query:
            return await named_like(self.list_vector_stores, scope, page)
        found = await self.inner.list_vector_stores(scope, page)
        if not found:
            return found
        key = await self._keys.find(scope.tenant)
        return [_open_store(key, row) for row in found]

    async def change_vector_store(
        self, scope: Scope, vector_store_id: str, *, name: str, expires_after_days: int | None, detail: bytes, now: int
    ) -> StoredVectorStore | None:
        """Change one, which counts as a use; None where there is none by that id."""
        key = await self._keys.make(scope.tenant)
        sealed = key.seal(VECTOR_STORE, vector_store_id, _encode(_Named(name, detail)))
        changed = await self.inner.change_vector_store(
            scope,
            vector_store_id,
            name=key.tag(NAME, name),
            expires_after_days=expires_after_days,
            detail=sealed,
            now=now,
        )
        return await self._open_store(scope, changed)

    async def use_vector_store(self, scope: Scope, vector_store_id: str, now: int) -> None:
        """Note that it was used."""
        await self.inner.use_vector_store(scope, vector_store_id, now)

    async def delete_vector_store(self, scope: Scope, vector_store_id: str) -> bool:
        """Remove one with its files' rows, chunks and index; False where there is none."""
        self._words.forget(scope.tenant, vector_store_id)
        return await self.inner.delete_vector_store(scope, vector_store_id)

    # Files

    async def add_store_files(
        self,
        scope: Scope,
        vector_store_id: str,
        files: Sequence[NewStoreFile],
        limits: CorpusLimits,
        batch: StoredBatch | None = None,
    ) -> Sequence[str] | None:
        """Put uploaded files into a vector store; the ids that are none, None where there is no store."""
        key = await self._keys.make(scope.tenant)
        sealed = [
            replace(
                new,
                attributes=key.seal(ATTRIBUTES, _place(vector_store_id, new.file_id), new.attributes),
                detail=key.seal(
                    STORE_FILE, _place(vector_store_id, new.file_id), _encode(_Named(new.external_id, new.detail))
                ),
                external_id=None if new.external_id is None else key.tag(EXTERNAL, new.external_id),
            )
            for new in files
        ]
        return await self.inner.add_store_files(scope, vector_store_id, sealed, limits, batch)

    async def find_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> StoreFile | None:
        """A file of a vector store, by its id or its external id."""
        key = await self._keys.get(scope.tenant)
        if key is None:
            return None
        found = await self.inner.find_store_file(scope, vector_store_id, file_id)
        if found is None:
            found = await self.inner.find_store_file(scope, vector_store_id, key.tag(EXTERNAL, file_id))
        return None if found is None else _open_file(key, found)

    async def list_store_files(self, scope: Scope, vector_store_id: str, page: StoreFilePage) -> Sequence[StoreFile]:
        """Files of a vector store, by id."""
        found = await self.inner.list_store_files(scope, vector_store_id, page)
        if not found:
            return found
        key = await self._keys.find(scope.tenant)
        return [_open_file(key, file) for file in found]

    async def change_store_file(
        self, scope: Scope, vector_store_id: str, file_id: str, attributes: bytes
    ) -> StoreFile | None:
        """Give a file other attributes; None where there is none."""
        found = await self.find_store_file(scope, vector_store_id, file_id)
        if found is None:
            return None
        key = await self._keys.make(scope.tenant)
        sealed = key.seal(ATTRIBUTES, _place(vector_store_id, found.file_id), attributes)
        changed = await self.inner.change_store_file(scope, vector_store_id, found.file_id, sealed)
        return None if changed is None else _open_file(key, changed)

    async def remove_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> bool:
        """Take a file out of a vector store, with its chunks; False where there is none."""
        if await self.inner.remove_store_file(scope, vector_store_id, file_id):
            return True
        key = await self._keys.get(scope.tenant)
        return key is not None and await self.inner.remove_store_file(
            scope, vector_store_id, key.tag(EXTERNAL, file_id)
        )

    async def find_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """A batch of a vector store."""
        return await self.inner.find_batch(scope, vector_store_id, batch_id)

    async def cancel_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """Cancel the files of a batch that have not been ingested; None where there is no such batch."""
        return await self.inner.cancel_batch(scope, vector_store_id, batch_id)

    # Ingestion

    async def claim_ingestion(self, owner: str, owners: Collection[str]) -> Ingestion | None:
        """Claim the oldest file that waits; one that can never be read again has failed, and is logged."""
        while (claimed := await self.inner.claim_ingestion(owner, owners)) is not None:
            try:
                key = await self._keys.find(claimed.scope.tenant)
                return replace(claimed, file=_open_file(key, claimed.file))
            except InternalError as error:
                _log.error("the file %s of a vector store cannot be read", claimed.file.file_id)
                await self.inner.finish_ingestion(claimed, ("server_error", error.message))
        return None

    async def add_chunks(self, ingestion: Ingestion, chunks: Sequence[NewChunk]) -> bool:
        """Add chunks to a claimed file; False where the claim is not good any more."""
        key = await self._keys.make(ingestion.scope.tenant)
        file = _place(ingestion.file.vector_store_id, ingestion.file.file_id)
        sealed: list[NewChunk] = []
        for number, chunk in enumerate(chunks, 1):
            place = f"{file} {chunk.index}"
            words = key.seal(CHUNK, place, _encode(_Words(chunk.heading, chunk.text, chunk.detail)))
            sealed.append(NewChunk(chunk.index, "", "", words, key.seal(VECTOR, place, chunk.vector)))
            if number % _OPENED_A_STEP == 0:
                await asyncio.sleep(0)
        return await self.inner.add_chunks(ingestion, sealed)

    async def finish_ingestion(self, ingestion: Ingestion, error: tuple[str, str] | None) -> bool:
        """End a claim: the file is completed, or failed with that code and message; False as above."""
        if error is not None:
            key = await self._keys.make(ingestion.scope.tenant)
            place = _place(ingestion.file.vector_store_id, ingestion.file.file_id)
            error = error[0], base64.b64encode(key.seal(ERROR, place, error[1].encode("utf-8", "replace"))).decode()
        return await self.inner.finish_ingestion(ingestion, error)

    async def release_ingestion(self, ingestion: Ingestion) -> None:
        """Give a claim back: the server stops, and another claim begins anew."""
        await self.inner.release_ingestion(ingestion)

    # Search

    async def search_text(
        self, scope: Scope, vector_store_id: str, words: Sequence[str], most: int, files: Collection[str] | None = None
    ) -> Sequence[TextHit]:
        """The best chunks that hold some of these words, by an index in memory; of these files where given."""
        return [] if self.text_fault else await self._words.search(scope, vector_store_id, words, most, files)

    async def chunk_vectors(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[ChunkVector]:
        """The vectors of chunks that have one, in the order of their places."""
        rows = await self.inner.chunk_vectors(scope, vector_store_id, after, most, files)
        opened: list[ChunkVector] = []
        if not rows:
            return opened
        key = await self._keys.find(scope.tenant)
        for number, row in enumerate(rows, 1):
            place = f"{_place(vector_store_id, row.file_id)} {row.index}"
            opened.append(ChunkVector(row.file_id, row.index, open_sealed(key, VECTOR, place, row.vector)))
            if number % _OPENED_A_STEP == 0:
                await asyncio.sleep(0)
        return opened

    async def find_chunks(self, scope: Scope, vector_store_id: str, places: Sequence[Place]) -> Sequence[StoredChunk]:
        """The chunks at these places; those that are not there are left out."""
        return await self._open_chunks(
            scope, vector_store_id, await self.inner.find_chunks(scope, vector_store_id, places)
        )

    async def list_chunks(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[StoredChunk]:
        """Chunks in the order of their places, those beyond a place; of these files where given."""
        rows = await self.inner.list_chunks(scope, vector_store_id, after, most, files)
        return await self._open_chunks(scope, vector_store_id, rows)

    async def _open_chunks(
        self, scope: Scope, vector_store_id: str, rows: Sequence[StoredChunk]
    ) -> Sequence[StoredChunk]:
        opened: list[StoredChunk] = []
        if not rows:
            return opened
        key = await self._keys.find(scope.tenant)
        for number, row in enumerate(rows, 1):
            place = f"{_place(vector_store_id, row.file_id)} {row.index}"
            words = _open_words(open_sealed(key, CHUNK, place, row.detail))
            opened.append(StoredChunk(row.file_id, row.index, words.heading, words.text, words.detail))
            if number % _OPENED_A_STEP == 0:
                await asyncio.sleep(0)
        return opened

    async def _open_store(self, scope: Scope, found: StoredVectorStore | None) -> StoredVectorStore | None:
        return None if found is None else _open_store(await self._keys.find(scope.tenant), found)


def _place(vector_store_id: str, file_id: str) -> str:
    return f"{vector_store_id} {file_id}"


def _open_store(key: DataKey, found: StoredVectorStore) -> StoredVectorStore:
    named = _open_named(open_sealed(key, VECTOR_STORE, found.id, found.detail))
    return replace(found, name=named.name or "", detail=named.detail)


def _open_file(key: DataKey, found: StoreFile) -> StoreFile:
    place = _place(found.vector_store_id, found.file_id)
    named = _open_named(open_sealed(key, STORE_FILE, place, found.detail))
    # The store within took the sealed name of the uploaded file for UTF-8; nothing of it was lost.
    filename = open_sealed(key, FILE, found.file_id, found.filename.encode("utf-8", "surrogateescape"))
    error = found.error
    if error is not None:
        sealed = base64.b64decode(error[1])
        error = error[0], open_sealed(key, ERROR, place, sealed).decode()
    return replace(
        found,
        filename=filename.decode("utf-8", "surrogateescape"),
        attributes=open_sealed(key, ATTRIBUTES, place, found.attributes),
        detail=named.detail,
        external_id=named.name,
        error=error,
    )

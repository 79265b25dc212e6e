"""Vector stores and the files in them as plain async methods, for the tenant whose they are (hosted-tools A3).

Files come in as rows and are ingested in the background (`runtime.ingestion`); what is found in them is the library's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from antiphon.corpus.library import Found, Library
from antiphon.errors import InvalidRequestError, NotFoundError
from antiphon.protocol.bounds import check_metadata
from antiphon.protocol.files import is_file_id
from antiphon.protocol.ids import is_id, new_listed_id
from antiphon.protocol.json import encode, loads, quoted
from antiphon.protocol.vector_stores import (
    ChangeVectorStore,
    CreateVectorStore,
    DeletedVectorStore,
    ExpiresAfter,
    NewFile,
    SearchVectorStore,
    VectorStore,
    VectorStoreBatch,
    VectorStoreCounts,
    VectorStoreFile,
)
from antiphon.runtime.rules import persistence_off
from antiphon.settings import Settings
from antiphon.store.base import Scope, Store
from antiphon.store.corpora import (
    CorpusLimits,
    FileCounts,
    NewStoreFile,
    StoredBatch,
    StoredVectorStore,
    StoreFile,
    StoreFilePage,
    VectorStorePage,
)
from antiphon.tools.corpus.entries import ranking_of

__all__ = ["StoreDetail", "VectorStores", "corpus_limits", "store_detail", "vector_store_not_found"]

DAY = 86_400
_CHUNKS_A_READ = 200
_UNDER_WAY = ("pending", "in_progress")


class StoreDetail(Struct, omit_defaults=True):
    """What a row keeps of a vector store beside what is looked for."""

    description: str | None = None
    metadata: dict[str, Any] = {}
    config: dict[str, Any] | None = None


store_detail = msgspec.json.Decoder(StoreDetail)
"""Reads it."""


class VectorStores:
    """Vector stores of one store; `wake` tells the ingestion that there is work."""

    def __init__(
        self,
        store: Store | None,
        library: Library | None,
        settings: Settings,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._kept = store
        self._library = library
        self._limits = corpus_limits(settings)
        self._wake = wake
        self._clock = clock

    async def create(self, scope: Scope, body: CreateVectorStore) -> VectorStore:
        """Make a vector store, with files in it where they are named.

        Raises:
            InvalidRequestError: the tenant has no room for it.
            NotFoundError: one of the files is not there; then there is no vector store.
        """
        store = self._store()
        now = int(self._clock())
        detail = StoreDetail(body.description, check_metadata(body.metadata))
        days = body.expires_after.days if body.expires_after is not None else None
        row = StoredVectorStore(new_listed_id("vs"), body.name or "", now, now, days, encode(detail))
        await store.create_vector_store(scope, row, self._limits)
        if body.file_ids:
            files = [NewFile(identity, None, body.chunking_strategy) for identity in dict.fromkeys(body.file_ids)]
            try:
                await self._add(scope, row.id, files)
            except BaseException:
                await store.delete_vector_store(scope, row.id)
                raise
        return _shown(await self._find(scope, row.id))

    async def retrieve(self, scope: Scope, vector_store_id: str) -> VectorStore:
        """A vector store.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        return _shown(await self._find(scope, vector_store_id))

    async def list(self, scope: Scope, page: VectorStorePage) -> tuple[list[VectorStore], bool]:
        """At most `page.limit` vector stores, and whether there are more.

        Raises:
            InvalidRequestError: `after` or `before` is no id of one.
        """
        for name, value in (("after", page.after), ("before", page.before)):
            if value and not is_id("vs", value):
                raise _no_such_place(name)
        more = msgspec.structs.replace(page, limit=page.limit + 1)
        found = await self._store().list_vector_stores(scope, more)
        return _cut([_shown(row) for row in found], page.limit, before=bool(page.before))

    async def change(self, scope: Scope, vector_store_id: str, body: ChangeVectorStore) -> VectorStore:
        """Change what the body names.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        row = await self._find(scope, vector_store_id)
        detail = store_detail.decode(row.detail)
        if body.description is not UNSET:
            detail.description = body.description
        if body.metadata is not UNSET:
            detail.metadata = check_metadata(body.metadata)
        days = row.expires_after_days
        if body.expires_after is not UNSET:
            days = None if body.expires_after is None else body.expires_after.days
        changed = await self._store().change_vector_store(
            scope,
            row.id,
            name=row.name if body.name is UNSET else body.name or "",
            expires_after_days=days,
            detail=encode(detail),
            now=int(self._clock()),
        )
        if changed is None:
            raise vector_store_not_found(vector_store_id)
        return _shown(changed)

    async def delete(self, scope: Scope, vector_store_id: str) -> DeletedVectorStore:
        """Remove a vector store; the files that were uploaded stay.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        known = is_id("vs", vector_store_id)
        if not known or not await self._store().delete_vector_store(scope, vector_store_id):
            raise vector_store_not_found(vector_store_id)
        return DeletedVectorStore(vector_store_id)

    async def add_file(self, scope: Scope, vector_store_id: str, file: NewFile) -> VectorStoreFile:
        """Put an uploaded file into a vector store; it is ingested in the background.

        Raises:
            NotFoundError: there is no such vector store or file in this scope.
            InvalidRequestError: there is no room for it.
        """
        await self._find(scope, vector_store_id)
        await self._add(scope, vector_store_id, [file])
        return await self.file(scope, vector_store_id, file.file_id)

    async def file(self, scope: Scope, vector_store_id: str, file_id: str) -> VectorStoreFile:
        """A file of a vector store.

        Raises:
            NotFoundError: there is none by these ids in this scope.
        """
        return _shown_file(await self._find_file(scope, vector_store_id, file_id))

    async def files(
        self, scope: Scope, vector_store_id: str, page: StoreFilePage
    ) -> tuple[list[VectorStoreFile], bool]:
        """At most `page.limit` files of a vector store, and whether there are more.

        Raises:
            NotFoundError: there is no such vector store, or batch, in this scope.
            InvalidRequestError: `after` or `before` is no id of a file.
        """
        for name, value in (("after", page.after), ("before", page.before)):
            if value and not is_file_id(value):
                raise _no_such_place(name)
        await self._find(scope, vector_store_id)
        if page.batch_id is not None:
            await self._find_batch(scope, vector_store_id, page.batch_id)
        more = msgspec.structs.replace(page, limit=page.limit + 1)
        found = await self._store().list_store_files(scope, vector_store_id, more)
        return _cut([_shown_file(row) for row in found], page.limit, before=bool(page.before))

    async def change_file(
        self, scope: Scope, vector_store_id: str, file_id: str, attributes: dict[str, Any]
    ) -> VectorStoreFile:
        """Give a file other attributes.

        Raises:
            NotFoundError: there is none by these ids in this scope.
        """
        await self._find_file(scope, vector_store_id, file_id)
        changed = await self._store().change_store_file(scope, vector_store_id, file_id, encode(attributes))
        if changed is None:
            raise _file_not_found(file_id)
        return _shown_file(changed)

    async def content(self, scope: Scope, vector_store_id: str, file_id: str) -> list[str]:
        """The text of a file as it was read, chunk by chunk.

        Raises:
            NotFoundError: there is none by these ids in this scope.
        """
        await self._find_file(scope, vector_store_id, file_id)
        store = self._store()
        texts: list[str] = []
        after = None
        while True:
            found = await store.list_chunks(scope, vector_store_id, after, _CHUNKS_A_READ, [file_id])
            texts += [chunk.text for chunk in found]
            if len(found) < _CHUNKS_A_READ:
                return texts
            after = found[-1].file_id, found[-1].index

    async def remove_file(self, scope: Scope, vector_store_id: str, file_id: str) -> DeletedVectorStore:
        """Take a file out of a vector store; the uploaded file stays.

        Raises:
            NotFoundError: there is none by these ids in this scope.
        """
        await self._find(scope, vector_store_id)
        known = is_file_id(file_id)
        if not known or not await self._store().remove_store_file(scope, vector_store_id, file_id):
            raise _file_not_found(file_id)
        return DeletedVectorStore(file_id, "vector_store.file.deleted")

    async def add_batch(self, scope: Scope, vector_store_id: str, files: Sequence[NewFile]) -> VectorStoreBatch:
        """Put files into a vector store as a batch.

        Raises:
            NotFoundError: there is no such vector store, or one of the files is not there.
            InvalidRequestError: there is no room for them, or a file is named twice.
        """
        await self._find(scope, vector_store_id)
        if len({file.file_id for file in files}) < len(files):
            raise InvalidRequestError(
                "Invalid 'files': a file is named more than once.", param="files", code="invalid_value"
            )
        batch = StoredBatch(new_listed_id("vsfb"), vector_store_id, int(self._clock()))
        await self._add(scope, vector_store_id, files, batch)
        return await self.batch(scope, vector_store_id, batch.id)

    async def batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> VectorStoreBatch:
        """A batch.

        Raises:
            NotFoundError: there is none by these ids in this scope.
        """
        return _shown_batch(await self._find_batch(scope, vector_store_id, batch_id))

    async def cancel_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> VectorStoreBatch:
        """Cancel what of a batch has not been ingested; a second time changes nothing.

        Raises:
            NotFoundError: there is none by these ids in this scope.
        """
        await self._find_batch(scope, vector_store_id, batch_id)
        cancelled = await self._store().cancel_batch(scope, vector_store_id, batch_id)
        if cancelled is None:
            raise _batch_not_found(batch_id)
        return _shown_batch(cancelled)

    async def search(self, scope: Scope, vector_store_id: str, body: SearchVectorStore) -> Found:
        """The best chunks of a vector store, and what was not done.

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: a filter cannot be read.
        """
        row = await self._find(scope, vector_store_id)
        library = self._library
        if library is None:
            raise persistence_off()
        return await library.search(
            scope,
            [row],
            body.queries,
            most=body.max_num_results or 10,
            filters=[] if body.filters is None else [body.filters],
            ranking=ranking_of(body.ranking_options),
        )

    async def _add(
        self, scope: Scope, vector_store_id: str, files: Sequence[NewFile], batch: StoredBatch | None = None
    ) -> None:
        malformed = next((file.file_id for file in files if not is_file_id(file.file_id)), None)
        if malformed is not None:
            raise _file_not_found(malformed)
        now = int(self._clock())
        rows = [
            NewStoreFile(
                file.file_id,
                now,
                encode(file.attributes or {}),
                encode({"chunking_strategy": file.chunking_strategy} if file.chunking_strategy is not None else {}),
                batch_id=None if batch is None else batch.id,
            )
            for file in files
        ]
        missing = await self._store().add_store_files(scope, vector_store_id, rows, self._limits, batch)
        if missing is None:
            raise vector_store_not_found(vector_store_id)
        if missing:
            raise _file_not_found(missing[0])
        self._wake()

    async def _find(self, scope: Scope, vector_store_id: str) -> StoredVectorStore:
        store = self._store()
        found = await store.find_vector_store(scope, vector_store_id) if is_id("vs", vector_store_id) else None
        if found is None:
            raise vector_store_not_found(vector_store_id)
        return found

    async def _find_file(self, scope: Scope, vector_store_id: str, file_id: str) -> StoreFile:
        await self._find(scope, vector_store_id)
        store = self._store()
        found = await store.find_store_file(scope, vector_store_id, file_id) if is_file_id(file_id) else None
        if found is None:
            raise _file_not_found(file_id)
        return found

    async def _find_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch:
        await self._find(scope, vector_store_id)
        found = await self._store().find_batch(scope, vector_store_id, batch_id) if is_id("vsfb", batch_id) else None
        if found is None:
            raise _batch_not_found(batch_id)
        return found

    def _store(self) -> Store:
        if self._kept is None:
            raise persistence_off()
        return self._kept


def corpus_limits(settings: Settings) -> CorpusLimits:
    """How many vector stores a tenant may have, and files each of them."""
    return CorpusLimits(settings.max_vector_stores, settings.max_vector_store_files)


def vector_store_not_found(identity: str) -> NotFoundError:
    """The one answer for a vector store that is missing, expired, malformed or another tenant's."""
    return NotFoundError(f"No vector store found with id '{quoted(identity)}'.", param="vector_store_id")


def _file_not_found(identity: str) -> NotFoundError:
    return NotFoundError(f"No file found with id '{quoted(identity)}'.", param="file_id")


def _batch_not_found(identity: str) -> NotFoundError:
    return NotFoundError(f"No file batch found with id '{quoted(identity)}'.", param="batch_id")


def _no_such_place(name: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Invalid '{name}': no entry of this list has that id.", param=name, code="invalid_value"
    )


def _cut(found: list[Any], limit: int, *, before: bool) -> tuple[list[Any], bool]:
    """A page without the entry beyond it: where it ends before an id, that one is the first."""
    if len(found) <= limit:
        return found, False
    return (found[1:] if before else found[:limit]), True


def _counts(files: FileCounts) -> VectorStoreCounts:
    under_way = files.pending + files.in_progress
    total = under_way + files.completed + files.failed + files.cancelled
    return VectorStoreCounts(under_way, files.completed, files.failed, files.cancelled, total)


def _shown(row: StoredVectorStore) -> VectorStore:
    detail = store_detail.decode(row.detail)
    counts = _counts(row.files)
    days = row.expires_after_days
    return VectorStore(
        id=row.id,
        created_at=row.created_at,
        name=row.name or None,
        description=detail.description,
        usage_bytes=row.usage_bytes,
        file_counts=counts,
        status="in_progress" if counts.in_progress else "completed",
        expires_after=None if days is None else ExpiresAfter("last_active_at", days),
        expires_at=None if days is None else row.last_active_at + days * DAY,
        last_active_at=row.last_active_at,
        metadata={key: _text(value) for key, value in detail.metadata.items()},
    )


def _text(value: Any) -> str:
    """A value of a document store's metadata, which may be anything, as OpenAI's clients read it."""
    return value if isinstance(value, str) else encode(value).decode()


def _flat(value: Any) -> str | float | bool:
    return value if isinstance(value, str | int | float) else encode(value).decode()


def _shown_file(row: StoreFile) -> VectorStoreFile:
    strategy: dict[str, Any] | None = loads(row.detail).get("chunking_strategy")
    return VectorStoreFile(
        id=row.file_id,
        created_at=row.created_at,
        vector_store_id=row.vector_store_id,
        status="in_progress" if row.status in _UNDER_WAY else row.status,
        usage_bytes=row.usage_bytes,
        last_error=None if row.error is None else {"code": row.error[0], "message": row.error[1]},
        attributes={key: _flat(value) for key, value in loads(row.attributes).items()},
        # OpenAI's name for what goes by no sizes.
        chunking_strategy=strategy if strategy is not None and "static" in strategy else {"type": "other"},
    )


def _shown_batch(row: StoredBatch) -> VectorStoreBatch:
    counts = _counts(row.files)
    if row.cancelled:
        status = "cancelled"
    elif counts.in_progress:
        status = "in_progress"
    else:
        status = "failed" if counts.failed == counts.total and counts.total else "completed"
    return VectorStoreBatch(row.id, row.created_at, row.vector_store_id, status, counts)

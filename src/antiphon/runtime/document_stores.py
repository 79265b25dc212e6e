"""Document stores as the clients of Mixedbread know them, over the same rows as vector stores (hosted-search 3.5)."""

from __future__ import annotations

import mimetypes
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.corpus.filters import read_filters
from antiphon.corpus.library import FoundChunk, Library, Ranking
from antiphon.errors import ConflictError, InvalidRequestError, NotFoundError
from antiphon.protocol.files import is_file_id
from antiphon.protocol.ids import is_id, new_listed_id
from antiphon.protocol.json import encode, loads, quoted
from antiphon.protocol.stores import (
    ChangeStore,
    CreateStore,
    FacetsRequest,
    GrepRequest,
    ListChunksRequest,
    ListFilesRequest,
    NewStoreDocument,
    SearchOptions,
    SearchRequest,
    trees,
    when,
)
from antiphon.runtime.rules import persistence_off
from antiphon.runtime.vector_stores import DAY, StoreDetail, corpus_limits, store_detail
from antiphon.settings import Settings
from antiphon.store.base import Scope, Store
from antiphon.store.corpora import (
    NewStoreFile,
    StoredChunk,
    StoredVectorStore,
    StoreFile,
    StoreFilePage,
    VectorStorePage,
)

__all__ = ["DocumentStores"]

_FILES_A_READ = 200
_CHUNKS_A_READ = 200
_MOST_LOOKED_AT = 10_000
"""Files that one listing with a filter looks at."""


class DocumentStores:
    """Document stores of one store; `wake` tells the ingestion that there is work."""

    def __init__(
        self,
        store: Store | None,
        library: Library | None,
        settings: Settings,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._kept = store
        self._known = library
        self._limits = corpus_limits(settings)
        self._wake = wake
        self._clock = clock

    async def create(self, scope: Scope, body: CreateStore) -> dict[str, Any]:
        """Make a store, with files in it where they are named.

        Raises:
            ConflictError: there is one of that name.
            NotFoundError: one of the files is not there; then there is no store.
            InvalidRequestError: the tenant has no room for it.
        """
        store = self._store()
        now = int(self._clock())
        identity = new_listed_id("vs")
        name = body.name or identity.replace("_", "-")
        if await store.find_vector_store_named(scope, name) is not None:
            raise ConflictError(f"There is a store named '{quoted(name)}' already.", param="name")
        days = None if body.expires_after is None else body.expires_after.days
        detail = StoreDetail(body.description, body.metadata or {}, body.config)
        await store.create_vector_store(
            scope, StoredVectorStore(identity, name, now, now, days, encode(detail)), self._limits
        )
        if body.file_ids:
            rows = [NewStoreFile(file_id, now, b"{}", b"{}") for file_id in dict.fromkeys(body.file_ids)]
            try:
                await self._add(scope, identity, rows)
            except BaseException:
                await store.delete_vector_store(scope, identity)
                raise
        return _shown(await self.find(scope, identity))

    async def find(self, scope: Scope, identifier: str) -> StoredVectorStore:
        """A store by its id or its name.

        Raises:
            NotFoundError: there is none in this scope.
        """
        store = self._store()
        found = None
        if is_id("vs", identifier):
            found = await store.find_vector_store(scope, identifier)
        if found is None and 0 < len(identifier) <= 256:
            found = await store.find_vector_store_named(scope, identifier)
        if found is None:
            raise NotFoundError(f"No store found with identifier '{quoted(identifier)}'.", param="store_identifier")
        return found

    async def retrieve(self, scope: Scope, identifier: str) -> dict[str, Any]:
        """A store; raises NotFoundError where there is none in this scope."""
        return _shown(await self.find(scope, identifier))

    async def list(self, scope: Scope, page: VectorStorePage) -> dict[str, Any]:
        """A page of stores, newest first.

        Raises:
            InvalidRequestError: a cursor is none that a page gave.
        """
        for name, value in (("after", page.after), ("before", page.before)):
            if value and not is_id("vs", value):
                raise _no_cursor(name)
        more = msgspec.structs.replace(page, limit=page.limit + 1)
        found = list(await self._store().list_vector_stores(scope, more))
        return _page([_shown(row) for row in found], page.limit, before=bool(page.before))

    async def change(self, scope: Scope, identifier: str, body: ChangeStore) -> dict[str, Any]:
        """Change what the body names.

        Raises:
            NotFoundError: there is none in this scope.
            ConflictError: there is another one of the new name.
        """
        store = self._store()
        row = await self.find(scope, identifier)
        name = body.name or row.name
        if name != row.name and await store.find_vector_store_named(scope, name) is not None:
            raise ConflictError(f"There is a store named '{quoted(name)}' already.", param="name")
        detail = store_detail.decode(row.detail)
        if body.description is not UNSET:
            detail.description = body.description
        if body.metadata is not UNSET:
            detail.metadata = body.metadata or {}
        days = row.expires_after_days
        if body.expires_after is not UNSET:
            days = None if body.expires_after is None else body.expires_after.days
        changed = await store.change_vector_store(
            scope, row.id, name=name, expires_after_days=days, detail=encode(detail), now=int(self._clock())
        )
        return _shown(changed or await self.find(scope, row.id))

    async def delete(self, scope: Scope, identifier: str) -> dict[str, Any]:
        """Remove a store; raises NotFoundError where there is none in this scope."""
        row = await self.find(scope, identifier)
        await self._store().delete_vector_store(scope, row.id)
        return {"id": row.id, "deleted": True, "object": "store"}

    async def add_file(self, scope: Scope, identifier: str, body: NewStoreDocument) -> dict[str, Any]:
        """Put an uploaded file into a store.

        Raises:
            NotFoundError: there is no such store or file in this scope.
            ConflictError: another file has its external id, and is not to be overwritten.
            InvalidRequestError: there is no room for it.
        """
        row = await self.find(scope, identifier)
        if body.external_id is not None and body.overwrite is False:
            known = await self._store().find_store_file(scope, row.id, body.external_id)
            if known is not None:
                raise ConflictError("There is a file with that 'external_id' already.", param="external_id")
        file = NewStoreFile(
            body.file_id,
            int(self._clock()),
            encode(body.metadata or {}),
            encode(body.config or {}),
            external_id=body.external_id,
        )
        await self._add(scope, row.id, [file])
        return _shown_file(await self.find_file(scope, row, body.file_id))

    async def find_file(self, scope: Scope, row: StoredVectorStore, identifier: str) -> StoreFile:
        """A file of a store by its id or its external id.

        Raises:
            NotFoundError: there is none in it.
        """
        usable = 0 < len(identifier) <= 512
        found = await self._store().find_store_file(scope, row.id, identifier) if usable else None
        if found is None:
            raise _no_file(identifier)
        return found

    async def retrieve_file(
        self, scope: Scope, identifier: str, file: str, chunks: Sequence[int] | None
    ) -> dict[str, Any]:
        """A file of a store, with its chunks where they are asked for: all of them, or those of some indexes.

        Raises:
            NotFoundError: there is no such store or file in this scope.
        """
        row = await self.find(scope, identifier)
        found = await self.find_file(scope, row, file)
        shown = _shown_file(found)
        if chunks is not None:
            shown["chunks"] = [_shown_chunk(found, chunk) for chunk in await self._chunks(scope, found, chunks)]
        return shown

    async def list_files(self, scope: Scope, identifier: str, body: ListFilesRequest) -> dict[str, Any]:
        """A page of the files of a store, newest first.

        Raises:
            NotFoundError: there is no such store in this scope.
            InvalidRequestError: a cursor is none that a page gave, or the filter cannot be read.
        """
        row = await self.find(scope, identifier)
        for name, value in (("after", body.after), ("before", body.before)):
            if value and not is_file_id(value):
                raise _no_cursor(name)
        wanted = read_filters(trees(body.metadata_filter), "metadata_filter")
        query = (body.q or "").lower()
        page = StoreFilePage(
            _FILES_A_READ, after=body.after or "", before=body.before or "", statuses=tuple(body.statuses or ())
        )
        found: list[StoreFile] = []
        looked = 0
        while looked < _MOST_LOOKED_AT and len(found) <= body.limit:
            rows = await self._store().list_store_files(scope, row.id, page)
            fitting = [
                each
                for each in rows
                if query in each.filename.lower() and (wanted is None or wanted(loads(each.attributes)))
            ]
            looked += len(rows)
            if body.before:
                found = fitting + found
            else:
                found += fitting
            if len(rows) < _FILES_A_READ:
                break
            page = _next(page, rows)
        kept = found[-body.limit - 1 :] if body.before else found[: body.limit + 1]
        return _page([_shown_file(each) for each in kept], body.limit, before=bool(body.before))

    async def change_file(self, scope: Scope, identifier: str, file: str, metadata: dict[str, Any]) -> dict[str, Any]:
        """Give a file other metadata; raises NotFoundError where there is none in this scope."""
        row = await self.find(scope, identifier)
        found = await self.find_file(scope, row, file)
        changed = await self._store().change_store_file(scope, row.id, found.file_id, encode(metadata))
        if changed is None:
            raise _no_file(file)
        return _shown_file(changed)

    async def remove_file(self, scope: Scope, identifier: str, file: str) -> dict[str, Any]:
        """Take a file out of a store; raises NotFoundError where there is none in this scope."""
        row = await self.find(scope, identifier)
        found = await self.find_file(scope, row, file)
        await self._store().remove_store_file(scope, row.id, found.file_id)
        return {"id": found.file_id, "deleted": True, "object": "store.file"}

    async def search(self, scope: Scope, body: SearchRequest) -> tuple[list[dict[str, Any]], str]:
        """The best chunks of some stores, and what was not done, as `Found.note` says.

        Raises:
            NotFoundError: there is no such store in this scope.
            InvalidRequestError: a filter cannot be read.
        """
        options = body.search_options
        stores = await self._named(scope, body.store_identifiers)
        threshold = 0.0 if options is None else options.score_threshold or 0.0
        found = await self._library().search(
            scope,
            stores,
            [body.text],
            most=body.top_k or 10,
            filters=trees(body.filters, body.file_ids),
            ranking=Ranking(threshold=threshold, rerank=options is None or options.rerank is not False),
        )
        return [_scored(chunk, metadata=_with_metadata(options)) for chunk in found.chunks], found.note

    async def grep(self, scope: Scope, body: GrepRequest) -> list[dict[str, Any]]:
        """The chunks that match a pattern; raises what `search` does, and InvalidRequestError for the pattern."""
        stores = await self._named(scope, body.store_identifiers)
        if body.targets == ["generated"]:
            return []
        matches = await self._library().grep(
            scope,
            stores,
            body.pattern,
            most=body.top_k or 10,
            case_sensitive=bool(body.case_sensitive),
            filters=trees(body.filters, body.file_ids),
        )
        shown = body.return_metadata is not False
        return [{**_scored(match.chunk, metadata=shown), "text": match.text} for match in matches]

    async def chunks(self, scope: Scope, body: ListChunksRequest) -> list[dict[str, Any]]:
        """Chunks by their metadata; raises what `search` does."""
        sort = body.sort_by
        field, ascending = (sort, True) if isinstance(sort, str) or sort is None else sort
        found = await self._library().chunks(
            scope,
            await self._named(scope, body.store_identifiers),
            most=body.top_k or 10,
            filters=trees(body.filters, body.file_ids),
            rank_by=field,
            descending=not ascending,
        )
        return [_scored(chunk, metadata=_with_metadata(body.search_options)) for chunk in found.chunks]

    async def facets(self, scope: Scope, body: FacetsRequest) -> dict[str, dict[str, int]]:
        """The values of each field of the metadata, with how many chunks have them; raises what `search` does."""
        found = await self._library().facets(
            scope,
            await self._named(scope, body.store_identifiers),
            filters=trees(body.filters, body.file_ids),
            most_values=body.max_values_per_field or 32,
            most_fields=body.max_fields or 64,
        )
        return {
            facet.name: {_label(value): count for value, count in facet.values}
            for facet in found
            if body.facets is None or facet.name in body.facets
        }

    async def _named(self, scope: Scope, identifiers: Sequence[str]) -> list[StoredVectorStore]:
        return [await self.find(scope, identifier) for identifier in dict.fromkeys(identifiers)]

    async def _add(self, scope: Scope, vector_store_id: str, rows: Sequence[NewStoreFile]) -> None:
        malformed = next((row.file_id for row in rows if not is_file_id(row.file_id)), None)
        if malformed is not None:
            raise _no_file(malformed)
        missing = await self._store().add_store_files(scope, vector_store_id, rows, self._limits)
        if missing is None:
            raise NotFoundError("The store was deleted meanwhile.", param="store_identifier")
        if missing:
            raise _no_file(missing[0])
        self._wake()

    async def _chunks(self, scope: Scope, file: StoreFile, indexes: Sequence[int]) -> list[StoredChunk]:
        store = self._store()
        if indexes:
            places = [(file.file_id, index) for index in dict.fromkeys(indexes)]
            found = list(await store.find_chunks(scope, file.vector_store_id, places))
            return sorted(found, key=lambda chunk: chunk.index)
        chunks: list[StoredChunk] = []
        after = None
        while True:
            some = await store.list_chunks(scope, file.vector_store_id, after, _CHUNKS_A_READ, [file.file_id])
            chunks += some
            if len(some) < _CHUNKS_A_READ:
                return chunks
            after = some[-1].file_id, some[-1].index

    def _store(self) -> Store:
        if self._kept is None:
            raise persistence_off()
        return self._kept

    def _library(self) -> Library:
        if self._known is None:
            raise persistence_off()
        return self._known


def _next(page: StoreFilePage, rows: Sequence[StoreFile]) -> StoreFilePage:
    if page.before:
        return msgspec.structs.replace(page, before=rows[0].file_id)
    return msgspec.structs.replace(page, after=rows[-1].file_id)


def _page(data: list[dict[str, Any]], limit: int, *, before: bool) -> dict[str, Any]:
    has_more = len(data) > limit
    if has_more:
        data = data[1:] if before else data[:limit]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    pagination = {"has_more": has_more, "first_cursor": first, "last_cursor": last, "total": None}
    return {"object": "list", "data": data, "pagination": pagination}


def _no_cursor(name: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid '{name}': a cursor of a page is expected.", param=name, code="invalid_value")


def _no_file(identifier: str) -> NotFoundError:
    return NotFoundError(f"No file found with identifier '{quoted(identifier)}'.", param="file_identifier")


def _shown(row: StoredVectorStore) -> dict[str, Any]:
    detail = store_detail.decode(row.detail)
    counts: dict[str, int] = msgspec.structs.asdict(row.files)
    days = row.expires_after_days
    return {
        "id": row.id,
        "name": row.name,
        "description": detail.description,
        "is_public": False,
        "metadata": detail.metadata,
        "config": detail.config,
        "file_counts": {**counts, "total": sum(counts.values())},
        "expires_after": None if days is None else {"anchor": "last_active_at", "days": days},
        "status": "in_progress" if row.files.pending + row.files.in_progress else "completed",
        "created_at": when(row.created_at),
        "updated_at": when(row.last_active_at),
        "last_active_at": when(row.last_active_at),
        "usage_bytes": row.usage_bytes,
        "expires_at": None if days is None else when(row.last_active_at + days * DAY),
        "object": "store",
    }


def _shown_file(row: StoreFile) -> dict[str, Any]:
    config: Mapping[str, Any] = loads(row.detail)
    return {
        "id": row.file_id,
        "filename": row.filename,
        "metadata": loads(row.attributes),
        "external_id": row.external_id,
        "status": row.status,
        "last_error": None if row.error is None else {"code": row.error[0], "message": row.error[1]},
        "store_id": row.vector_store_id,
        "created_at": when(row.created_at),
        "version": 1,
        "usage_bytes": row.usage_bytes,
        "config": {"parsing_strategy": config.get("parsing_strategy") or "fast"},
        "object": "store.file",
        "chunks": None,
        "content_url": f"/v1/files/{row.file_id}/content",
    }


def _shown_chunk(file: StoreFile, chunk: StoredChunk) -> dict[str, Any]:
    return {
        "type": "text",
        "chunk_index": chunk.index,
        "mime_type": _mime_type(file),
        "text": chunk.text,
        "context": chunk.heading or None,
        "generated_metadata": _generated(file, loads(chunk.detail) if chunk.detail else {}),
    }


def _with_metadata(options: SearchOptions | None) -> bool:
    return options is None or options.return_metadata is not False


def _scored(found: FoundChunk, *, metadata: bool = True) -> dict[str, Any]:
    return {
        "type": "text",
        "chunk_index": found.index,
        "mime_type": _mime_type(found.file),
        "text": found.text,
        "context": found.heading or None,
        "score": found.score or 0.0,
        "file_id": found.file.file_id,
        "filename": found.file.filename,
        "store_id": found.store.id,
        "external_id": found.file.external_id,
        "metadata": dict(found.attributes) if metadata else None,
        "generated_metadata": _generated(found.file, found.detail),
    }


def _mime_type(file: StoreFile) -> str:
    return mimetypes.guess_type(file.filename)[0] or "text/plain"


def _generated(file: StoreFile, detail: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a chunk; `type` is one of those that the clients' types have."""
    kind = _mime_type(file)
    named = {"text/markdown": "markdown", "application/pdf": "pdf"}.get(kind, "text")
    return {**detail, "type": named, "file_type": {"text": "text/plain"}.get(named, kind)}


def _label(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()

"""The routes under `/v1/vector_stores`, and the same without `/v1` (hosted-tools A3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.errors import InvalidRequestError
from antiphon.http.exchange import Exchange, Handler
from antiphon.http.paging import read_page
from antiphon.protocol.json import encode, quoted
from antiphon.protocol.vector_stores import (
    decode_batch,
    decode_changed_store,
    decode_new_attributes,
    decode_new_file,
    decode_new_store,
    decode_search,
)
from antiphon.runtime.service import Service
from antiphon.runtime.vector_stores import VectorStores
from antiphon.store.corpora import StoreFilePage, VectorStorePage

__all__ = ["VectorStoresRoutes"]

_STATUSES: Final = {
    "in_progress": ("pending", "in_progress"),
    "completed": ("completed",),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
}
"""What a `filter` of files means."""

POLL_AFTER_MS: Final = 500
"""When a client that polls may look again: what the SDKs heed (hosted-tools A3)."""


class VectorStoresRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._stores = VectorStores(service.store, service.library, service.settings, service.wake_ingestion)

    def table(self) -> Sequence[tuple[str, str, Handler]]:
        """The routes: method, path and handler."""
        vector_store = "/vector_stores/{vector_store_id}"
        file, batch = f"{vector_store}/files/{{file_id}}", f"{vector_store}/file_batches/{{batch_id}}"
        return [
            ("POST", "/vector_stores", self.create),
            ("GET", "/vector_stores", self.list),
            ("GET", vector_store, self.retrieve),
            ("POST", vector_store, self.change),
            ("DELETE", vector_store, self.delete),
            ("POST", f"{vector_store}/search", self.search),
            ("POST", f"{vector_store}/files", self.add_file),
            ("GET", f"{vector_store}/files", self.files),
            ("GET", file, self.file),
            ("POST", file, self.change_file),
            ("DELETE", file, self.remove_file),
            ("GET", f"{file}/content", self.content),
            ("POST", f"{vector_store}/file_batches", self.add_batch),
            ("GET", batch, self.batch),
            ("POST", f"{batch}/cancel", self.cancel_batch),
            ("GET", f"{batch}/files", self.batch_files),
        ]

    async def create(self, exchange: Exchange) -> None:
        """`POST /vector_stores`."""
        body = decode_new_store(await exchange.body())
        await exchange.reply_json(await self._stores.create(exchange.scope, body))

    async def list(self, exchange: Exchange) -> None:
        """`GET /vector_stores`: newest first unless `order=asc`."""
        page = read_page(exchange)
        before = exchange.query("before") or ""
        asked = VectorStorePage(page.limit, page.newest_first, page.after or "", before)
        await exchange.reply_json(_list(*await self._stores.list(exchange.scope, asked)))

    async def retrieve(self, exchange: Exchange) -> None:
        """`GET /vector_stores/{id}`."""
        await exchange.reply_json(await self._stores.retrieve(exchange.scope, _id(exchange)))

    async def change(self, exchange: Exchange) -> None:
        """`POST /vector_stores/{id}`."""
        body = decode_changed_store(await exchange.body())
        await exchange.reply_json(await self._stores.change(exchange.scope, _id(exchange), body))

    async def delete(self, exchange: Exchange) -> None:
        """`DELETE /vector_stores/{id}`."""
        await exchange.reply_json(await self._stores.delete(exchange.scope, _id(exchange)))

    async def search(self, exchange: Exchange) -> None:
        """`POST /vector_stores/{id}/search`: one page, best first."""
        body = decode_search(await exchange.body())
        found = await self._stores.search(exchange.scope, _id(exchange), body)
        data = [
            {
                "file_id": chunk.file.file_id,
                "filename": chunk.file.filename,
                "score": chunk.score or 0.0,
                "attributes": chunk.attributes,
                "content": [{"type": "text", "text": chunk.text}],
            }
            for chunk in found.chunks
        ]
        page = {**_page("vector_store.search_results.page", data), "search_query": body.queries}
        # A field of our own: that words alone were searched, for example.
        await exchange.reply_json({**page, "note": found.note} if found.note else page)

    async def add_file(self, exchange: Exchange) -> None:
        """`POST /vector_stores/{id}/files`."""
        body = decode_new_file(await exchange.body())
        await exchange.reply_json(await self._stores.add_file(exchange.scope, _id(exchange), body))

    async def files(self, exchange: Exchange) -> None:
        """`GET /vector_stores/{id}/files`."""
        await self._list_files(exchange, None)

    async def file(self, exchange: Exchange) -> None:
        """`GET /vector_stores/{id}/files/{file_id}`: says when to look again, while it is ingested."""
        found = await self._stores.file(exchange.scope, _id(exchange), _file_id(exchange))
        await _polled(exchange, found, found.status)

    async def change_file(self, exchange: Exchange) -> None:
        """`POST /vector_stores/{id}/files/{file_id}`: its attributes are replaced."""
        attributes = decode_new_attributes(await exchange.body())
        changed = await self._stores.change_file(exchange.scope, _id(exchange), _file_id(exchange), attributes)
        await exchange.reply_json(changed)

    async def content(self, exchange: Exchange) -> None:
        """`GET /vector_stores/{id}/files/{file_id}/content`: the text that was read, as parts."""
        texts = await self._stores.content(exchange.scope, _id(exchange), _file_id(exchange))
        data = [{"type": "text", "text": text} for text in texts]
        await exchange.reply_json(_page("vector_store.file_content.page", data))

    async def remove_file(self, exchange: Exchange) -> None:
        """`DELETE /vector_stores/{id}/files/{file_id}`: the uploaded file stays."""
        await exchange.reply_json(await self._stores.remove_file(exchange.scope, _id(exchange), _file_id(exchange)))

    async def add_batch(self, exchange: Exchange) -> None:
        """`POST /vector_stores/{id}/file_batches`."""
        files = decode_batch(await exchange.body())
        await exchange.reply_json(await self._stores.add_batch(exchange.scope, _id(exchange), files))

    async def batch(self, exchange: Exchange) -> None:
        """`GET /vector_stores/{id}/file_batches/{batch_id}`: says when to look again, while it is ingested."""
        found = await self._stores.batch(exchange.scope, _id(exchange), _batch_id(exchange))
        await _polled(exchange, found, found.status)

    async def cancel_batch(self, exchange: Exchange) -> None:
        """`POST /vector_stores/{id}/file_batches/{batch_id}/cancel`."""
        cancelled = await self._stores.cancel_batch(exchange.scope, _id(exchange), _batch_id(exchange))
        await exchange.reply_json(cancelled)

    async def batch_files(self, exchange: Exchange) -> None:
        """`GET /vector_stores/{id}/file_batches/{batch_id}/files`."""
        await self._list_files(exchange, _batch_id(exchange))

    async def _list_files(self, exchange: Exchange, batch_id: str | None) -> None:
        page = read_page(exchange)
        status = exchange.query("filter")
        if status and status not in _STATUSES:
            raise InvalidRequestError(
                f"Invalid value: '{quoted(status)}'. Supported values are: {', '.join(map(repr, _STATUSES))}.",
                param="filter",
                code="invalid_value",
            )
        asked = StoreFilePage(
            page.limit,
            page.newest_first,
            page.after or "",
            exchange.query("before") or "",
            _STATUSES[status] if status else (),
            batch_id,
        )
        await exchange.reply_json(_list(*await self._stores.files(exchange.scope, _id(exchange), asked)))


async def _polled(exchange: Exchange, body: Any, status: str) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == "in_progress":
        headers.append((b"openai-poll-after-ms", str(POLL_AFTER_MS).encode()))
    await exchange.reply(encode(body), headers=tuple(headers))


def _list(data: list[Any], has_more: bool) -> dict[str, Any]:
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}


def _page(kind: str, data: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": kind, "data": data, "has_more": False, "next_page": None}


def _id(exchange: Exchange) -> str:
    return exchange.path_parameter("vector_store_id")


def _file_id(exchange: Exchange) -> str:
    return exchange.path_parameter("file_id")


def _batch_id(exchange: Exchange) -> str:
    return exchange.path_parameter("batch_id")

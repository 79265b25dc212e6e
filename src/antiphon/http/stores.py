"""The routes under `/v1/stores`, and the same without `/v1`: the store family of Mixedbread (hosted-search 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from antiphon.errors import InvalidRequestError
from antiphon.http.exchange import Exchange, Handler
from antiphon.http.paging import read_page
from antiphon.protocol.stores import (
    decode_change,
    decode_chunks,
    decode_create,
    decode_document,
    decode_facets,
    decode_grep,
    decode_listing,
    decode_metadata,
    decode_search_stores,
    refuse_questions,
)
from antiphon.runtime.document_stores import DocumentStores
from antiphon.runtime.service import Service
from antiphon.store.corpora import VectorStorePage

__all__ = ["StoresRoutes"]

_MOST_INDEXES = 1_000
_MAX_QUERY = 256


class StoresRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._stores = DocumentStores(service.store, service.library, service.settings, service.wake_ingestion)

    def table(self) -> Sequence[tuple[str, str, Handler]]:
        """The routes: method, path and handler."""
        store = "/stores/{store_identifier}"
        # A name that an owner gave a file may have slashes.
        file = f"{store}/files/{{file_identifier:path}}"
        return [
            ("POST", "/stores", self.create),
            ("GET", "/stores", self.list),
            ("POST", "/stores/search", self.search),
            ("POST", "/stores/grep", self.grep),
            ("POST", "/stores/list-chunks", self.chunks),
            ("POST", "/stores/metadata-facets", self.facets),
            ("POST", "/stores/question-answering", self.question),
            ("GET", store, self.retrieve),
            ("PUT", store, self.change),
            ("DELETE", store, self.delete),
            ("POST", f"{store}/files", self.add_file),
            ("POST", f"{store}/files/list", self.list_files),
            ("GET", file, self.retrieve_file),
            ("PATCH", file, self.change_file),
            ("DELETE", file, self.remove_file),
        ]

    async def create(self, exchange: Exchange) -> None:
        """`POST /stores`."""
        body = decode_create(await exchange.body())
        await exchange.reply_json(await self._stores.create(exchange.scope, body))

    async def list(self, exchange: Exchange) -> None:
        """`GET /stores`: newest first; `q` is a part of names."""
        page = read_page(exchange)
        query = (exchange.query("q") or "")[:_MAX_QUERY]
        asked = VectorStorePage(page.limit, after=page.after or "", before=exchange.query("before") or "", query=query)
        await exchange.reply_json(await self._stores.list(exchange.scope, asked))

    async def retrieve(self, exchange: Exchange) -> None:
        """`GET /stores/{identifier}`."""
        await exchange.reply_json(await self._stores.retrieve(exchange.scope, _store(exchange)))

    async def change(self, exchange: Exchange) -> None:
        """`PUT /stores/{identifier}`."""
        body = decode_change(await exchange.body())
        await exchange.reply_json(await self._stores.change(exchange.scope, _store(exchange), body))

    async def delete(self, exchange: Exchange) -> None:
        """`DELETE /stores/{identifier}`."""
        await exchange.reply_json(await self._stores.delete(exchange.scope, _store(exchange)))

    async def search(self, exchange: Exchange) -> None:
        """`POST /stores/search`."""
        body = decode_search_stores(await exchange.body())
        await _reply_list(exchange, *await self._stores.search(exchange.scope, body))

    async def grep(self, exchange: Exchange) -> None:
        """`POST /stores/grep`."""
        body = decode_grep(await exchange.body())
        await _reply_list(exchange, await self._stores.grep(exchange.scope, body))

    async def chunks(self, exchange: Exchange) -> None:
        """`POST /stores/list-chunks`."""
        body = decode_chunks(await exchange.body())
        await _reply_list(exchange, await self._stores.chunks(exchange.scope, body))

    async def facets(self, exchange: Exchange) -> None:
        """`POST /stores/metadata-facets`."""
        body = decode_facets(await exchange.body())
        await exchange.reply_json({"facets": await self._stores.facets(exchange.scope, body)})

    async def question(self, exchange: Exchange) -> None:
        """`POST /stores/question-answering`: not done here, which the error says."""
        await exchange.body()
        raise refuse_questions()

    async def add_file(self, exchange: Exchange) -> None:
        """`POST /stores/{identifier}/files`."""
        body = decode_document(await exchange.body())
        await exchange.reply_json(await self._stores.add_file(exchange.scope, _store(exchange), body))

    async def list_files(self, exchange: Exchange) -> None:
        """`POST /stores/{identifier}/files/list`."""
        body = decode_listing(await exchange.body())
        await exchange.reply_json(await self._stores.list_files(exchange.scope, _store(exchange), body))

    async def retrieve_file(self, exchange: Exchange) -> None:
        """`GET /stores/{identifier}/files/{file}`: with its chunks where `return_chunks` says so, or names some."""
        chunks = _return_chunks(exchange)
        found = await self._stores.retrieve_file(exchange.scope, _store(exchange), _file(exchange), chunks)
        await exchange.reply_json(found)

    async def change_file(self, exchange: Exchange) -> None:
        """`PATCH /stores/{identifier}/files/{file}`: its metadata is replaced."""
        metadata = decode_metadata(await exchange.body())
        changed = await self._stores.change_file(exchange.scope, _store(exchange), _file(exchange), metadata)
        await exchange.reply_json(changed)

    async def remove_file(self, exchange: Exchange) -> None:
        """`DELETE /stores/{identifier}/files/{file}`: the uploaded file stays."""
        await exchange.reply_json(await self._stores.remove_file(exchange.scope, _store(exchange), _file(exchange)))


async def _reply_list(exchange: Exchange, data: list[dict[str, Any]], note: str = "") -> None:
    page = {"object": "list", "data": data}
    # A field of our own, as of vector stores: that words alone were searched, for example.
    await exchange.reply_json({**page, "note": note} if note else page)


def _return_chunks(exchange: Exchange) -> list[int] | None:
    """The indexes of the chunks that are asked for: none of them means all; None where none is asked for."""
    query = parse_qs(exchange.asgi["query_string"].decode("latin-1"))
    values = [
        value
        for name in ("return_chunks", "return_chunks[]")
        for text in query.get(name, [])
        for value in text.split(",")
    ]
    if not values or values == ["false"]:
        return None
    if values == ["true"]:
        return []
    if len(values) > _MOST_INDEXES or not all(_is_index(value) for value in values):
        raise InvalidRequestError(
            f"Invalid 'return_chunks': true, false or at most {_MOST_INDEXES} indexes of chunks are expected.",
            param="return_chunks",
            code="invalid_value",
        )
    return [int(value) for value in values]


def _is_index(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= 9


def _store(exchange: Exchange) -> str:
    return exchange.path_parameter("store_identifier")


def _file(exchange: Exchange) -> str:
    return exchange.path_parameter("file_identifier")

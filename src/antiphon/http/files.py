"""The routes under `/v1/files`, and the same without `/v1` (issue 4, section 7).

An upload is parsed as it comes in. What is more than a little of it lies in a temporary file without a name, which goes
with the request, and it is in the store when all of it was received.
"""

from __future__ import annotations

from starlette.datastructures import FormData, UploadFile

from antiphon.errors import InvalidRequestError
from antiphon.http.exchange import Exchange
from antiphon.http.forms import UploadPlaces, file_too_large, receive_form
from antiphon.http.leaving import while_client_stays
from antiphon.http.paging import read_page
from antiphon.protocol.files import check_expiry, check_purpose, disposition, safe_filename
from antiphon.runtime.files import Files, Upload
from antiphon.runtime.service import Service
from antiphon.store.files import FilePage

__all__ = ["FilesRoutes"]

DEFAULT_LIMIT = 10_000
MAX_LIMIT = 10_000


class FilesRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._files = Files(service.store, service.settings)
        self._largest = service.settings.max_file_bytes
        self._places = UploadPlaces()

    async def create(self, exchange: Exchange) -> None:
        """`POST /files`: a form with `file` and `purpose`."""
        with self._places.taken(exchange.scope.tenant):
            form = await receive_form(exchange, self._largest)
            try:
                made = await self._files.create(exchange.scope, _upload(form, self._largest))
            finally:
                await form.close()
        await exchange.reply_json(made)

    async def list(self, exchange: Exchange) -> None:
        """`GET /files`: newest first unless `order=asc`, and all of them unless `limit` says less."""
        page = read_page(exchange, default=DEFAULT_LIMIT, most=MAX_LIMIT)
        asked = FilePage(page.limit, page.newest_first, page.after or "", exchange.query("purpose") or None)
        data, has_more = await self._files.list(exchange.scope, asked)
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        await exchange.reply_json(
            {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}
        )

    async def retrieve(self, exchange: Exchange) -> None:
        """`GET /files/{id}`."""
        await exchange.reply_json(await self._files.retrieve(exchange.scope, _id(exchange)))

    async def content(self, exchange: Exchange) -> None:
        """`GET /files/{id}/content`: the bytes that were sent, to be saved and not shown."""
        file = await self._files.retrieve(exchange.scope, _id(exchange))
        headers = (
            (b"content-type", b"application/octet-stream"),
            (b"content-disposition", disposition(file.filename)),
            (b"x-content-type-options", b"nosniff"),
        )
        # Nothing else tells that whoever asked has gone, and the rest would be read for nobody.
        async with while_client_stays(exchange):
            await exchange.reply_in_pieces(file.bytes, self._files.chunks(exchange.scope, file), headers)

    async def delete(self, exchange: Exchange) -> None:
        """`DELETE /files/{id}`."""
        await exchange.reply_json(await self._files.delete(exchange.scope, _id(exchange)))


def _upload(form: FormData, largest: int) -> Upload:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise InvalidRequestError(
            "Missing required parameter: 'file', as a part of the form with a filename.",
            param="file",
            code="missing_required_parameter",
        )
    size = file.size or 0
    if size > largest:
        raise file_too_large(largest)
    purpose = check_purpose(_text(form, "purpose"))
    expires = check_expiry(_text(form, "expires_after[anchor]"), _text(form, "expires_after[seconds]"))
    return Upload(safe_filename(file.filename), purpose, size, expires, file.read)


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) else None


def _id(exchange: Exchange) -> str:
    return exchange.path_parameter("file_id")

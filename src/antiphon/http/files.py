"""The routes under `/v1/files`, and the same without `/v1` (issue 4, section 7).

An upload is parsed as it comes in. What is more than a little of it lies in a temporary file without a name, which goes
with the request, and it is in the store when all of it was received.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from antiphon.errors import InvalidRequestError, PayloadTooLargeError, ServerBusyError
from antiphon.http.exchange import ClientDisconnectedError, Exchange
from antiphon.http.leaving import while_client_stays
from antiphon.http.paging import read_page
from antiphon.protocol.files import check_expiry, check_purpose, disposition, safe_filename
from antiphon.runtime.files import Files, Upload
from antiphon.runtime.service import Service
from antiphon.store.files import FilePage

__all__ = ["FilesRoutes"]

MAX_UPLOADS = 32
"""Uploads that one server receives at the same time; each may fill a temporary file."""

MAX_UPLOADS_OF_TENANT = 8
DEFAULT_LIMIT = 10_000
MAX_LIMIT = 10_000

_MOST_FIELDS = 32
_FIELD_BYTES = 64 * 1024
_MAX_BOUNDARY = 200
_BOUNDARY = frozenset(string.ascii_letters + string.digits + "'()+_,-./:=? ")
_AROUND_FILE = 256 * 1024
"""Bytes of a form beside its file."""


class FilesRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._files = Files(service.store, service.settings)
        self._largest = service.settings.max_file_bytes
        self._uploads: Counter[str] = Counter()

    async def create(self, exchange: Exchange) -> None:
        """`POST /files`: a form with `file` and `purpose`."""
        with self._place(exchange.scope.tenant):
            form = await self._form(exchange)
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

    @contextmanager
    def _place(self, tenant: str) -> Generator[None]:
        if self._uploads.total() >= MAX_UPLOADS or self._uploads[tenant] >= MAX_UPLOADS_OF_TENANT:
            raise ServerBusyError("Too many files are being received. Please try again later.")
        self._uploads[tenant] += 1
        try:
            yield
        finally:
            self._uploads[tenant] -= 1
            if not self._uploads[tenant]:
                del self._uploads[tenant]

    async def _form(self, exchange: Exchange) -> FormData:
        declared = exchange.header(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > self._largest + _AROUND_FILE:
            raise _too_large(self._largest)
        parser = _Parser(
            Headers({"content-type": f'multipart/form-data; boundary="{_boundary(exchange)}"'}),
            _received(exchange, self._largest),
            max_files=1,
            max_fields=_MOST_FIELDS,
            max_part_size=_FIELD_BYTES,
        )
        try:
            return await parser.parse_whole()
        except MultiPartException as error:
            raise InvalidRequestError(f"The form cannot be read. {error.message}", code="invalid_form") from None


class _Parser(MultiPartParser):
    """Reads a form to its end, without which its last part is no part, but may have filled a temporary file."""

    _ended = False

    def on_end(self) -> None:
        """The line that ends a form was there."""
        self._ended = True

    async def parse_whole(self) -> FormData:
        """The form.

        Raises:
            MultiPartException: it cannot be read, or breaks off.
        """
        form = await self.parse()
        if not self._ended:
            for file in self._files_to_close_on_error:
                file.close()
            raise MultiPartException("It ends before its last part does.")
        return form


def _boundary(exchange: Exchange) -> str:
    """What stands between the parts of the form; nothing else that its content type says is heeded.

    Raises:
        InvalidRequestError: the body is no form.
    """
    kind, options = parse_options_header(exchange.raw_header(b"content-type"))
    boundary = options.get(b"boundary", b"").decode("latin-1")
    if kind != b"multipart/form-data" or not _BOUNDARY.issuperset(boundary) or not 1 <= len(boundary) <= _MAX_BOUNDARY:
        raise InvalidRequestError(
            "A file is uploaded as multipart/form-data with the fields 'file' and 'purpose'.",
            code="invalid_content_type",
        )
    return boundary


async def _received(exchange: Exchange, largest: int) -> AsyncGenerator[bytes]:
    """The body piece by piece.

    Raises:
        PayloadTooLargeError: more came than a file of that size and its form can be.
        ClientDisconnectedError: the client went away.
    """
    size = 0
    while True:
        message = await exchange.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > largest + _AROUND_FILE:
            raise _too_large(largest)
        yield chunk
        if not message.get("more_body", False):
            return


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
        raise _too_large(largest)
    purpose = check_purpose(_text(form, "purpose"))
    expires = check_expiry(_text(form, "expires_after[anchor]"), _text(form, "expires_after[seconds]"))
    return Upload(safe_filename(file.filename), purpose, size, expires, file.read)


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) else None


def _too_large(largest: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f"The file is larger than {largest} bytes.", param="file", code="file_too_large")


def _id(exchange: Exchange) -> str:
    return exchange.path_parameter("file_id")

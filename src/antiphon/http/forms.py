"""Forms that bring a file, as they come in: parsed piece by piece and bounded (issue 4, section 7).

What is more than a little of a file lies in a temporary file without a name, which goes with the request.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from antiphon.errors import InvalidRequestError, PayloadTooLargeError, ServerBusyError
from antiphon.http.exchange import ClientDisconnectedError, Exchange

__all__ = ["MAX_UPLOADS", "MAX_UPLOADS_OF_TENANT", "UploadPlaces", "file_too_large", "is_form", "receive_form"]

MAX_UPLOADS = 32
"""Uploads that one server receives at the same time; each may fill a temporary file."""

MAX_UPLOADS_OF_TENANT = 8

_MOST_FIELDS = 32
_FIELD_BYTES = 64 * 1024
_MAX_BOUNDARY = 200
_BOUNDARY = frozenset(string.ascii_letters + string.digits + "'()+_,-./:=? ")
_AROUND_FILE = 256 * 1024
"""Bytes of a form beside its file."""


class UploadPlaces:
    """The places for uploads that are received at the same time."""

    def __init__(self) -> None:
        self._uploads: Counter[str] = Counter()

    @contextmanager
    def taken(self, tenant: str) -> Generator[None]:
        """Have a place, as long as the block runs.

        Raises:
            ServerBusyError: all of them are taken.
        """
        if self._uploads.total() >= MAX_UPLOADS or self._uploads[tenant] >= MAX_UPLOADS_OF_TENANT:
            raise ServerBusyError("Too many files are being received. Please try again later.")
        self._uploads[tenant] += 1
        try:
            yield
        finally:
            self._uploads[tenant] -= 1
            if not self._uploads[tenant]:
                del self._uploads[tenant]


def is_form(exchange: Exchange) -> bool:
    """Whether the body says that it is a form."""
    kind, _ = parse_options_header(exchange.raw_header(b"content-type"))
    return kind == b"multipart/form-data"


async def receive_form(exchange: Exchange, largest: int) -> FormData:
    """The form that a request brings, with a file of at most so many bytes; whoever has it closes it.

    Raises:
        InvalidRequestError: the body is no form, or cannot be read.
        PayloadTooLargeError: it is larger.
        ClientDisconnectedError: the client went away.
    """
    declared = exchange.header(b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > largest + _AROUND_FILE:
        raise file_too_large(largest)
    parser = _Parser(
        Headers({"content-type": f'multipart/form-data; boundary="{_boundary(exchange)}"'}),
        _received(exchange, largest),
        max_files=1,
        max_fields=_MOST_FIELDS,
        max_part_size=_FIELD_BYTES,
    )
    try:
        return await parser.parse_whole()
    except MultiPartException as error:
        raise InvalidRequestError(f"The form cannot be read. {error.message}", code="invalid_form") from None


def file_too_large(largest: int) -> PayloadTooLargeError:
    """The refusal of a file that has more bytes than one may have."""
    return PayloadTooLargeError(f"The file is larger than {largest} bytes.", param="file", code="file_too_large")


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
            raise file_too_large(largest)
        yield chunk
        if not message.get("more_body", False):
            return

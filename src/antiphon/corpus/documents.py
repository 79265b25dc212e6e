"""Reads documents and checks images, each in a process of its own that ends with it."""

from __future__ import annotations

import asyncio
import importlib.util
from functools import cache
from typing import Any, Final

from antiphon.child_process import ChildProcess
from antiphon.corpus.places import Places
from antiphon.errors import InvalidRequestError, UnavailableError
from antiphon.protocol.json import encode, loads

__all__ = ["DocumentReader", "documents_readable", "images_readable"]

_WALL_SECONDS: Final = 30.0
"""Seconds after which a file is given up: on a busy machine processor time passes slowly."""

_AT_ONCE: Final = 3
_OF_ONE_TENANT: Final = 2
_ANSWER_A_CHARACTER: Final = 12
"""Bytes that one character of a text takes at most in the answer."""

_ANSWER_BEYOND: Final = 1024
_TOO_MUCH: Final = "too_much"
_IMAGE_FAULTS: Final = {
    "unsupported": ("unsupported_image_media_type", "The image is in no supported format: png, jpeg, gif or webp."),
    "too_large": ("image_too_large", "The image has more pixels than the {most} that are allowed."),
    _TOO_MUCH: ("image_too_large", "The image takes more time or memory to read than there is for it."),
    "unreadable": ("image_parse_error", "The image cannot be read. Send it as a whole and undamaged file."),
}
_DOCUMENT_FAULTS: Final = {
    "unsupported": (
        "unsupported_file",
        "The file is in no supported format: text, HTML, PDF, docx, xlsx or pptx.",
    ),
    "too_long": ("file_too_large", "The file has more text than the {most} characters that are allowed."),
    "archive": ("file_too_large", "The file expands to more than is allowed, or declares what no document does."),
    _TOO_MUCH: ("file_too_large", "The file takes more time or memory to read than there is for it."),
    "no_text": ("empty_file", "The file holds no text. Send pages that are pictures as images."),
    "unreadable": ("file_parse_error", "The file cannot be read. Send it whole, undamaged and without a password."),
}


@cache
def images_readable() -> bool:
    """Whether the library that checks images is installed (extra `documents`)."""
    return importlib.util.find_spec("PIL") is not None


@cache
def documents_readable() -> bool:
    """Whether the libraries that read documents are installed (extra `documents`)."""
    names = ("pypdfium2", "mammoth", "openpyxl", "pptx", "markdownify", "bs4")
    return images_readable() and all(importlib.util.find_spec(name) is not None for name in names)


class DocumentReader:
    """Reads files in processes that may take so much time and memory; a few at once, and fewer for one tenant."""

    def __init__(self) -> None:
        self._places = Places(_AT_ONCE, _OF_ONE_TENANT)

    async def image(self, data: bytes, most_pixels: int, tenant: str) -> str:
        """The format of an image: png, jpeg, gif or webp. Its header is held against the limit before it is decoded.

        Raises:
            InvalidRequestError: it is none of these, too large or damaged.
            UnavailableError: the process cannot be started.
        """
        answer = await self._done(tenant, {"kind": "image", "most": most_pixels}, data, _ANSWER_BEYOND)
        if "format" in answer:
            return answer["format"]
        raise _refusal(_IMAGE_FAULTS, answer, most_pixels)

    async def text(self, data: bytes, name: str, most: int, tenant: str) -> str:
        """The text of a document, of at most so many characters; `name` is that of the file.

        Raises:
            InvalidRequestError: it cannot be read, holds no text, or more than that.
            UnavailableError: the process cannot be started.
        """
        job = {"kind": "document", "name": name, "most": most}
        answer = await self._done(tenant, job, data, most * _ANSWER_A_CHARACTER + _ANSWER_BEYOND)
        if "text" in answer:
            return answer["text"]
        raise _refusal(_DOCUMENT_FAULTS, answer, most)

    async def _done(self, tenant: str, job: dict[str, Any], data: bytes, most: int) -> dict[str, Any]:
        async with self._places.taken(tenant):
            try:
                process = await ChildProcess.start("antiphon.corpus.child")
            except OSError:
                raise UnavailableError("What reads files could not be started; try again.") from None
            try:
                async with asyncio.timeout(_WALL_SECONDS):
                    answer = await process.ask_all(encode(job) + b"\n" + data, most)
            except TimeoutError:
                answer = b""
            finally:
                await process.end()
        return loads(answer) if answer.endswith(b"\n") else {"fault": _TOO_MUCH}


def _refusal(faults: dict[str, tuple[str, str]], answer: dict[str, Any], most: int) -> InvalidRequestError:
    code, message = faults[answer["fault"]]
    return InvalidRequestError(message.format(most=most), code=code)

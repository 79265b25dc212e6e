"""Uploaded files on the wire: the object, its purposes, and names that are safe to write (issue 4, section 7).

A name comes from whoever uploads and goes into a header and perhaps a path of whoever downloads (faults B3 31). So what
is kept of it is one part of a path, without a character that is not seen, and a header gets only letters that cannot
end it.
"""

from __future__ import annotations

import unicodedata
from urllib.parse import quote

from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.ids import is_id, new_listed_id
from antiphon.protocol.json import quoted

__all__ = [
    "PURPOSES",
    "DeletedFile",
    "FileObject",
    "check_expiry",
    "check_purpose",
    "disposition",
    "is_file_id",
    "new_file_id",
    "safe_filename",
]

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
"""What a file may be uploaded for; a purpose is kept, listed and changes nothing."""

DEFAULT_PURPOSE = "user_data"
MIN_EXPIRY_SECONDS = 3600
MAX_EXPIRY_SECONDS = 30 * 24 * 3600
MAX_FILENAME = 255
NAMELESS = "file"

_PREFIX = "file"
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._- ")


class FileObject(Struct, omit_defaults=False):
    """A file without its content. Times in seconds since the epoch; `bytes` is the size of the content."""

    id: str
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    object: str = "file"
    status: str = "processed"
    status_details: str | None = None


class DeletedFile(Struct):
    """What the deletion of a file answers."""

    id: str
    object: str = "file"
    deleted: bool = True


def new_file_id() -> str:
    """A new id such as `file-0199…`."""
    return new_listed_id(_PREFIX).replace("_", "-")


def is_file_id(value: str) -> bool:
    """Whether the value has the form that `new_file_id` gives, so that a look-up is worth making."""
    return "_" not in value and is_id(_PREFIX, value.replace("-", "_", 1))


def check_purpose(purpose: str | None) -> str:
    """The purpose of an upload; clients of Mixedbread name none (hosted-search 3.5).

    Raises:
        InvalidRequestError: it is unknown.
    """
    if not purpose:
        return DEFAULT_PURPOSE
    if purpose not in PURPOSES:
        known = ", ".join(f"'{name}'" for name in PURPOSES)
        raise InvalidRequestError(
            f"Invalid value: '{quoted(purpose)}'. Supported values are: {known}.", param="purpose", code="invalid_value"
        )
    return purpose


def check_expiry(anchor: str | None, seconds: str | None) -> int | None:
    """The seconds after its creation at which an upload expires; None where it does not.

    Raises:
        InvalidRequestError: only one of the two is there, or one cannot be used.
    """
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise InvalidRequestError(
            "Invalid 'expires_after[anchor]': 'created_at' is expected.",
            param="expires_after[anchor]",
            code="invalid_value",
        )
    given = seconds or ""
    number = int(given) if given.isascii() and given.isdigit() and len(given) <= 9 else 0
    if not MIN_EXPIRY_SECONDS <= number <= MAX_EXPIRY_SECONDS:
        raise InvalidRequestError(
            f"Invalid 'expires_after[seconds]': an integer from {MIN_EXPIRY_SECONDS} to {MAX_EXPIRY_SECONDS} is "
            f"expected, but got '{quoted(given)}'.",
            param="expires_after[seconds]",
            code="invalid_value",
        )
    return number


def safe_filename(given: str | None) -> str:
    """What is kept of an uploader's name: the last part of a path, without control and direction characters."""
    last = (given or "").replace("\\", "/").rpartition("/")[2]
    seen = "".join(letter for letter in last if unicodedata.category(letter) not in _UNSEEN).strip()
    if not seen.strip("."):
        return NAMELESS
    if len(seen) <= MAX_FILENAME:
        return seen
    stem, dot, ending = seen.rpartition(".")
    ending = f"{dot}{ending}" if stem and len(ending) < MAX_FILENAME // 4 else ""
    return seen[: MAX_FILENAME - len(ending)] + ending


def disposition(filename: str) -> bytes:
    """The `Content-Disposition` of a download (RFC 6266): a plain name, and the whole one where that is another.

    Always `attachment`: no browser shows what was uploaded as if it were this server's own page.
    """
    plain = "".join(letter if letter in _PLAIN else "_" for letter in filename)
    header = f'attachment; filename="{plain}"'
    if plain != filename:
        header += f"; filename*=UTF-8''{quote(filename, safe='')}"
    return header.encode("ascii")

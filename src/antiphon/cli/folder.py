"""Which files of a folder are documents: no hidden ones, none behind links, none that are no text or too large."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.corpus.formats import ARCHIVED, suffix_of

__all__ = ["Candidate", "NotTakenError", "Skipped", "candidates", "read_document"]

_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "CVS", "site-packages"})
_LONGEST_NAME: Final = 512
"""Characters of a path: what an attribute of a file may have (hosted-tools A3)."""

_HEAD: Final = 8192
_LINK: Final = "a link"
_TEMPORARY: Final = (".swp", ".tmp", ".lock", ".pyc")


class Candidate(NamedTuple):
    """A file that may be a document, and the name that it is known by: its path from the folder's own name on."""

    path: Path
    name: str


class Skipped(NamedTuple):
    """A file that is left out, and why."""

    name: str
    reason: str


class NotTakenError(Exception):
    """A file that is left out when it is looked at; its argument says why."""


def candidates(roots: Sequence[Path]) -> Iterator[Candidate | Skipped]:
    """The files of folders, and files that are named themselves, in the order of their names."""
    for root in roots:
        if root.is_dir():
            found = root.resolve()
            yield from _folder(found, found.name)
        else:
            plain = not root.is_absolute() and ".." not in root.parts
            yield Candidate(root, root.as_posix() if plain else root.name)


def read_document(candidate: Candidate, most: int) -> bytes:
    """The content of a file, of at most so many bytes.

    Raises:
        NotTakenError: it is no document, or cannot be read.
    """
    try:
        descriptor = os.open(candidate.path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK)
    except OSError as error:
        raise NotTakenError(_LINK if candidate.path.is_symlink() else _reason(error)) from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotTakenError("no plain file")
        if status.st_size > most:
            raise NotTakenError(f"larger than {most} bytes")
        try:
            data = file.read(most + 1)
        except OSError as error:
            raise NotTakenError(_reason(error)) from None
    if len(data) > most:
        raise NotTakenError(f"larger than {most} bytes")
    if not data.strip():
        raise NotTakenError("empty")
    if suffix_of(candidate.name) not in ARCHIVED and not _is_text(data[:_HEAD]):
        raise NotTakenError("neither text nor a document that can be read")
    return data


def _folder(folder: Path, name: str) -> Iterator[Candidate | Skipped]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Skipped(name, _reason(error))
        return
    for entry in entries:
        inner = f"{name}/{entry.name}"
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            yield Skipped(inner, _LINK)
        elif entry.is_dir(follow_symlinks=False):
            if entry.name not in _FOLDERS:
                yield from _folder(folder / entry.name, inner)
        elif not _utf8(inner) or len(inner) > _LONGEST_NAME:
            yield Skipped(inner.encode("utf-8", "replace").decode(), "a name that cannot be kept")
        elif entry.name.endswith((*_TEMPORARY, "~")):
            yield Skipped(inner, "a temporary file")
        else:
            yield Candidate(folder / entry.name, inner)


def _is_text(head: bytes) -> bool:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    if b"\0" in head:
        return False
    # A head that is not all may end in the middle of a letter.
    for cut in range(4 if len(head) == _HEAD else 1):
        try:
            head[: len(head) - cut].decode()
        except UnicodeDecodeError:
            continue
        return True
    return False


def _utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reason(error: OSError) -> str:
    return (error.strerror or "it cannot be read").lower()

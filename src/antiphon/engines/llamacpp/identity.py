"""What makes a model what it is, so that a half-made turn is gone on with by no other."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

__all__ = ["fingerprint"]

_SAMPLE: Final = 2**20
"""Bytes of either end of a model file that are read: its header, and the last of its weights."""


def fingerprint(path: Path, chat_template: str, dialect: str) -> str:
    """A digest of the file's name, size and both ends, of the template and of the dialect; cheap for any size.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = file.seek(0, 2)
        for start in (0, max(0, size - _SAMPLE)):
            file.seek(start)
            digest.update(file.read(_SAMPLE))
    # Each text ends in a byte that is in none of them, so that no two lists of them look the same.
    for text in (path.name, str(size), chat_template, dialect):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()

"""Bytes of media: base64 in pieces, and the room for what all requests hold of them together.

A library that reads or writes base64 does so in one go, and no other thread gets its turn before it has ended: with an
image of 20 MB the event loop would stand still for more than 100 ms. Between two pieces it gets its turn.
"""

from __future__ import annotations

import binascii
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from antiphon.errors import ServerBusyError

__all__ = ["PIECE", "HeldPart", "MediaRoom", "decoded", "encoded"]

PIECE: Final = 192 * 1024
"""Characters or bytes of a piece: whole groups of base64 either way."""


def decoded(text: str, first: int = 0) -> bytes:
    """The bytes that base64 stands for, which begins at a place of the text: a copy of what is behind takes time too.

    Raises:
        ValueError: it is not valid, or holds anything else, be it white space.
    """
    padding = text.find("=", first)
    if 0 <= padding < len(text) - 2:
        raise ValueError("there is padding before the end")
    starts = range(first, len(text), PIECE)
    return b"".join([binascii.a2b_base64(text[start : start + PIECE], strict_mode=True) for start in starts])


def encoded(head: str, data: bytes) -> str:
    """A head and the base64 of data behind it."""
    view = memoryview(data)
    starts = range(0, len(data), PIECE)
    pieces = (binascii.b2a_base64(view[start : start + PIECE], newline=False).decode("ascii") for start in starts)
    return "".join([head, *pieces])


class MediaRoom:
    """Bounds the bytes of media that all requests hold at the same time.

    Requests name files and URLs in a few bytes each, so neither the room for bodies nor the limit of one conversation
    bounds them together.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    @contextmanager
    def taken(self, size: int) -> Generator[None]:
        """Room for so many bytes, for as long as the block takes.

        Raises:
            ServerBusyError: there is none for them now.
        """
        self._take(size)
        try:
            yield
        finally:
            self.held -= size

    def hold(self, fields: Mapping[str, Any], size: int) -> HeldPart:
        """A part of a message with so many bytes of data, whose room is given back when nothing refers to it any more.

        Raises:
            ServerBusyError: there is none for them now.
        """
        self._take(size)
        return HeldPart(fields, self, size)

    def _take(self, size: int) -> None:
        if self.held + size > self.most:
            raise ServerBusyError("Too many images and files are being read. Please try again later.")
        self.held += size


class HeldPart(dict[str, Any]):
    """Part of a message that takes up room; made by `MediaRoom.hold`."""

    __slots__ = ("_room", "_size")

    def __init__(self, fields: Mapping[str, Any], room: MediaRoom, size: int) -> None:
        super().__init__(fields)
        self._room = room
        self._size = size

    def __del__(self) -> None:
        """Give the room back."""
        self._room.held -= self._size

"""What comes of an outbound request: the answer of the other side, or that there is to be none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from msgspec import Struct

from antiphon.errors import OutboundRefusedError

__all__ = ["OutboundResponse", "OutboundStream", "not_public"]


class OutboundResponse(Struct, frozen=True):
    """An answer: its status, its headers by lower-case name, and its body as far as it was asked for."""

    status: int
    headers: dict[str, str]
    body: bytes


class OutboundStream(ABC):
    """An answer that has begun: its status, its headers by lower-case name, and its body as it comes."""

    status: int
    headers: dict[str, str]

    @abstractmethod
    def chunks(self, max_bytes: int) -> AsyncIterator[bytes]:
        """The body.

        Raises:
            OutboundError: the other side breaks off, or sends more than so many bytes.
        """

    @abstractmethod
    def close(self) -> None:
        """Take no more of it, and close its connection."""


def not_public() -> OutboundRefusedError:
    """The error for a host that may not be asked."""
    return OutboundRefusedError("The host is not on the public internet. Allow it with --allow-outbound.")

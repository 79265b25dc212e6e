"""What comes of an outbound request: the answer of the other side, or that there is to be none."""

from __future__ import annotations

from msgspec import Struct

from antiphon.errors import OutboundRefusedError

__all__ = ["OutboundResponse", "not_public"]


class OutboundResponse(Struct, frozen=True):
    """An answer: its status, its headers by lower-case name, and its body as far as it was asked for."""

    status: int
    headers: dict[str, str]
    body: bytes


def not_public() -> OutboundRefusedError:
    """The error for a host that may not be asked."""
    return OutboundRefusedError("The host is not on the public internet. Allow it with --allow-outbound.")

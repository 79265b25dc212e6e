"""What the commands that care for a store tell of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

__all__ = ["SpaceReport", "StoreReport"]


class StoreReport(Struct, frozen=True):
    """How a store stands.

    `schema` is its version, and `newest_schema` the one that this program would bring it to. `size` is its bytes on
    the disk. `responses` counts those that are not gone, and `running` those among them that have not ended.
    `file_bytes` are those of the content of `files`, and `chunks` are those of all `vector_stores`. `servers` are the
    names of those that have it open, as far as that can be known.
    """

    location: str
    schema: int
    newest_schema: int
    size: int
    responses: int
    running: int
    items: int
    conversations: int
    files: int
    file_bytes: int
    vector_stores: int = 0
    chunks: int = 0
    servers: Sequence[str] = ()


class SpaceReport(Struct, frozen=True):
    """Bytes on the disk, before and after space was given back."""

    before: int
    after: int

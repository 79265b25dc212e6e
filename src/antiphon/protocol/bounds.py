"""Bounds that bodies of several routes share: numbers, lengths of strings, and metadata (responses-api 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from antiphon.errors import InvalidRequestError

__all__ = [
    "MAX_COUNT",
    "MAX_METADATA_ENTRIES",
    "MAX_METADATA_KEY",
    "MAX_METADATA_VALUE",
    "Count",
    "check_metadata",
    "too_long",
]

MAX_COUNT = 2**53 - 1
"""The largest integer that every reader of JSON has exactly; a response repeats what was asked for."""

Count = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
"""A number of things whose own bounds are told in OpenAI's words, or that is compared with what there is."""

MAX_METADATA_ENTRIES = 16
MAX_METADATA_KEY = 64
MAX_METADATA_VALUE = 512


def too_long(path: str, limit: int, length: int) -> InvalidRequestError:
    """The 400 for a string at that path with more than `limit` characters."""
    return InvalidRequestError(
        f"Invalid '{path}': string too long. Expected a string with maximum length {limit}, "
        f"but got a string with length {length} instead.",
        param=path,
        code="string_above_max_length",
    )


def check_metadata(metadata: Mapping[str, str | None] | None) -> dict[str, str]:
    """The metadata of a body; null values are empty ones.

    Raises:
        InvalidRequestError: too many entries (M30), or a key or a value that is too long.
    """
    given = metadata or {}
    if len(given) > MAX_METADATA_ENTRIES:
        raise InvalidRequestError(
            f"Invalid 'metadata': metadata is limited to {MAX_METADATA_ENTRIES} entries; received {len(given)}.",
            param="metadata",
            code="object_above_max_properties",
        )
    for key, value in given.items():
        if len(key) > MAX_METADATA_KEY:
            raise too_long("metadata", MAX_METADATA_KEY, len(key))
        if value is not None and len(value) > MAX_METADATA_VALUE:
            raise too_long(f"metadata.{key}", MAX_METADATA_VALUE, len(value))
    return {key: value or "" for key, value in given.items()}

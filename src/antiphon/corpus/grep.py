"""Search for a pattern in the text of chunks: on bytes, in slices of time, with windows around what was found. Pure.

The pattern is one of RE2, whose time is in proportion to the text (faults B2 16); what is shown of a chunk are about a
hundred tokens around each match, and windows that overlap are one (hosted-search 3.1).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.store.corpora import StoredChunk

__all__ = ["MOST_MATCHES", "SLICE_SECONDS", "ChunkMatch", "Scan", "windows"]

SLICE_SECONDS: Final = 0.2
"""How long one slice of a scan may take; others get their turn between slices."""

MOST_MATCHES: Final = 200
"""Matches of one chunk that are counted and shown."""

_AROUND: Final = 200
"""Bytes on each side of a match: about fifty tokens."""

_LONGEST: Final = 2_000
"""Bytes of a match that are shown."""

_BETWEEN: Final = "\n…\n"
_CUT: Final = "…"


class ChunkMatch(Struct, frozen=True):
    """A chunk that matches: the windows, joined, and how many matches there are."""

    chunk: StoredChunk
    text: str
    matches: int


class Scan:
    """One search for a pattern, which goes on until it has found enough."""

    def __init__(self, pattern: Any, most: int) -> None:
        self._pattern = pattern
        self._most = most
        self.found: list[ChunkMatch] = []

    @property
    def done(self) -> bool:
        """Whether enough was found."""
        return len(self.found) >= self._most

    def slice(self, chunks: Sequence[StoredChunk]) -> int:
        """Search in some chunks for as long as a slice may take; how many of them are done with."""
        ends = time.monotonic() + SLICE_SECONDS
        for number, chunk in enumerate(chunks, 1):
            data = chunk.text.encode(errors="replace")
            spans = self._spans(data)
            if spans:
                self.found.append(ChunkMatch(chunk, windows(data, spans), len(spans)))
            if self.done or time.monotonic() >= ends:
                return number
        return len(chunks)

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        first = self._pattern.search(data)
        if first is None:
            return []
        spans: list[tuple[int, int]] = []
        for match in self._pattern.finditer(data):
            if match.end() > match.start():
                spans.append(match.span())
                if len(spans) == MOST_MATCHES:
                    break
            elif match.start() - first.start() > MOST_MATCHES:
                # A pattern that matches nothing at every place is not followed to the end.
                break
        return spans or [first.span()]


def windows(data: bytes, spans: Sequence[tuple[int, int]]) -> str:
    """The text around some places, in their order, with marks where text is left out."""
    merged: list[list[int]] = []
    for start, end in spans:
        low = _forward(data, max(0, start - _AROUND), start)
        high = _backward(data, min(len(data), min(end, start + _LONGEST) + _AROUND), min(end, start + _LONGEST))
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    shown = _BETWEEN.join(data[low:high].decode(errors="ignore").strip() for low, high in merged)
    before = _CUT if merged[0][0] > 0 else ""
    after = _CUT if merged[-1][1] < len(data) else ""
    return f"{before}{shown}{after}"


def _forward(data: bytes, place: int, most: int) -> int:
    """The beginning of the first word from a place on."""
    if place == 0:
        return 0
    space = data.find(b" ", place, most)
    return place if space < 0 else space + 1


def _backward(data: bytes, place: int, least: int) -> int:
    """The end of the last word before a place."""
    if place == len(data):
        return place
    space = data.rfind(b" ", least, place)
    return place if space < 0 else space

"""What a parser of an answer yields, and how pieces that came together are joined. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol, runtime_checkable

from antiphon.machine.deltas import TextDelta, ToolCallDelta, ToolCallStart

__all__ = ["CallReader", "OpenEnded", "Piece", "joined"]

Piece = TextDelta | ToolCallStart | ToolCallDelta
"""What a parser yields."""


class CallReader(Protocol):
    """An incremental reader of one call, from its first character on."""

    started: bool
    """Whether the call has begun; from then on it cannot fail."""
    failed: bool
    """Whether it is no call."""
    ended: bool
    """Whether the call is complete, or failed."""

    def feed(self, text: str) -> int:
        """Read on; the result is how many characters need not be shown again. The rest comes after them."""
        ...

    def take(self) -> list[ToolCallStart | ToolCallDelta]:
        """The deltas since the last call."""
        ...


@runtime_checkable
class OpenEnded(Protocol):
    """A reader whose call may end with the answer alone."""

    def finish(self, text: str) -> list[ToolCallStart | ToolCallDelta]:
        """What was held back, at the end of the answer; `text` is what would have been shown again."""
        ...


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with runs of one kind as one, so that a burst costs one delta."""
    result: list[Piece] = []
    for kind, group in groupby(pieces, key=type):
        run = list(group)
        if kind is ToolCallStart or len(run) == 1:
            result += run
        else:
            text = "".join(piece.text for piece in run if not isinstance(piece, ToolCallStart))
            result.append(TextDelta(text) if kind is TextDelta else ToolCallDelta(text))
    return result

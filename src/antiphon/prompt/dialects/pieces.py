"""What a parser of an answer yields, and how pieces that came together are joined. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from antiphon.machine.deltas import TextDelta, ToolCallDelta, ToolCallStart

__all__ = ["Piece", "joined"]

Piece = TextDelta | ToolCallStart | ToolCallDelta
"""What a parser yields."""


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

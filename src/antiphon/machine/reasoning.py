"""Splits a model's thinking from its answer while both are generated (M16).

Pure and synchronous. Thinking stands between two markers at the beginning of a turn. A prompt that already ends with
the opening marker is *primed*: the model then writes the closing one only. A marker may be cut over chunks in any way;
the deltas, joined, are the same for every cut.
"""

from __future__ import annotations

from typing import Final

from antiphon.machine.deltas import ReasoningDelta, TextDelta

__all__ = ["CLOSE_MARKER", "OPEN_MARKER", "ReasoningSplitter", "partial_suffix"]

OPEN_MARKER: Final = "<think>"
"""The usual marker before thinking."""

CLOSE_MARKER: Final = "</think>"
"""The usual marker after thinking."""


def partial_suffix(text: str, marker: str) -> int:
    """Length in characters of the longest end of `text` that begins `marker` without completing it."""
    for size in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0


class ReasoningSplitter:
    """An incremental splitter of one turn's text.

    Thinking is trimmed at both ends and is nothing at all where it is blank; whitespace after the closing marker is
    dropped (M16). An opening marker counts only where no answer has begun, so that an answer may speak of markers.
    """

    def __init__(
        self, open_marker: str = OPEN_MARKER, close_marker: str = CLOSE_MARKER, *, primed: bool = False
    ) -> None:
        self._open = open_marker
        self._close = close_marker
        self._thinking = primed
        self._answering = False
        self._thought = False
        self._blank_so_far = True
        self._held = ""

    @property
    def thinking(self) -> bool:
        """Whether the text fed so far ends inside thinking."""
        return self._thinking

    @property
    def answering(self) -> bool:
        """Whether the answer has begun, of which all is text."""
        return self._answering

    def feed(self, text: str) -> list[ReasoningDelta | TextDelta]:
        """The deltas that can be told apart with this text; what could still be part of a marker is held back."""
        if self._answering:
            return [TextDelta(text)] if text else []
        self._held += text
        deltas: list[ReasoningDelta | TextDelta] = []
        while self._thinking_step(deltas) if self._thinking else self._opening_step(deltas):
            pass
        return deltas

    def finish(self) -> list[ReasoningDelta | TextDelta]:
        """What was held back, at the end of the turn."""
        held, self._held = self._held, ""
        if self._thinking:
            held = held.rstrip()
            return [ReasoningDelta(held)] if held else []
        if self._thought:
            held = held.lstrip()
        return [TextDelta(held)] if held else []

    def _opening_step(self, deltas: list[ReasoningDelta | TextDelta]) -> bool:
        visible = self._held.lstrip()
        if visible.startswith(self._open):
            self._held = visible[len(self._open) :]
            self._thinking = self._blank_so_far = True
            return True
        if self._open.startswith(visible):
            return False
        self._answering = True
        deltas.append(TextDelta(visible if self._thought else self._held))
        self._held = ""
        return False

    def _thinking_step(self, deltas: list[ReasoningDelta | TextDelta]) -> bool:
        if self._blank_so_far:
            self._held = self._held.lstrip()
        end = self._held.find(self._close)
        # Trailing whitespace waits with a possible marker: before the closing marker it is trimmed.
        limit = end if end >= 0 else len(self._held) - partial_suffix(self._held, self._close)
        text = self._held[:limit].rstrip()
        if text:
            deltas.append(ReasoningDelta(text))
            self._blank_so_far = False
        if end < 0:
            self._held = self._held[len(text) :]
            return False
        self._held = self._held[end + len(self._close) :]
        self._thinking = False
        self._thought = True
        return True

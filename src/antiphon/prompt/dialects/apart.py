"""A call whose input stands as it is behind the JSON object that names the tool, where a grammar can bind it. Pure.

Such is a custom tool with a grammar of its own: within a JSON string the grammar could not be held to. The call is
`{"name": "NAME"}` on a line, and the input from the next line up to the closing marker, or to the end of the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.machine.reasoning import partial_suffix
from antiphon.prompt.dialects.scanner import CallScanner

__all__ = ["ApartReader"]

_LINE: Final = "\n"


class ApartReader:
    """A reader of one call; of a tool that is not in `apart`, or one with arguments, it is a plain object."""

    def __init__(self, tools: Mapping[str, bool], apart: Collection[str], close_marker: str) -> None:
        self._scanner = CallScanner(tools, apart)
        self._close = close_marker
        self._at_input = False
        self._deltas: list[ToolCallStart | ToolCallDelta] = []
        self.started = False
        """Whether the call has begun; from then on it cannot fail."""
        self.failed = False
        """Whether it is no call."""
        self.ended = False
        """Whether the call is complete, or failed."""

    def feed(self, text: str) -> int:
        """Read on; the result is how many characters need not be shown again. The rest comes after them."""
        place = 0
        if not self._scanner.ended:
            place = self._scanner.feed(text)
            self._deltas += self._scanner.take()
            self.started, self.failed = self._scanner.started, self._scanner.failed
            self.ended = self._scanner.ended and not self._scanner.begun_only
        if self._scanner.ended and not self.ended:
            place += self._input(text[place:])
        return place

    def take(self) -> list[ToolCallStart | ToolCallDelta]:
        """The deltas since the last call."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self, text: str) -> list[ToolCallStart | ToolCallDelta]:
        """What was held back, at the end of the answer; `text` is what would have been shown again."""
        if self._at_input and not self.ended:
            self._send(text)
        return self.take()

    def _input(self, text: str) -> int:
        place = 0
        if not self._at_input:
            place = len(text) - len(text.lstrip(" \t"))
            if place == len(text):
                return 0
            place += text[place] == _LINE
            self._at_input = True
        rest = text[place:]
        end = rest.find(self._close)
        if end >= 0:
            self._send(rest[:end].removesuffix(_LINE))
            self.ended = True
            return place + end
        held = max(partial_suffix(rest, _LINE + self._close), partial_suffix(rest, self._close))
        self._send(rest[: len(rest) - held])
        return place + len(rest) - held

    def _send(self, text: str) -> None:
        if text:
            self._deltas.append(ToolCallDelta(text))

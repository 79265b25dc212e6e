"""Citations: the marks that a model writes after a sentence become annotations of its text (B15). Pure.

A mark is `<cite i="7"/>`, with one number or several. It is taken out of the text, also where deltas split it, and each
number that there is a source for becomes an annotation at the place where the mark stood. The stage stands between the
router and the suppressor, so that a turn that is run again after a crash is compared as it was told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from antiphon.machine.deltas import (
    AnnotationDelta,
    ReasoningDelta,
    RefusalDelta,
    Routed,
    Stop,
    SummaryDelta,
    TextDelta,
    ThoughtEnd,
    ToolCallDelta,
)
from antiphon.protocol.parts import Logprob

__all__ = ["Citations", "says_nothing"]

MOST_CHARACTERS: Final = 64
"""The longest mark."""


def _begun(*steps: str) -> str:
    """A pattern of what begins with these steps, as far as it has come."""
    pattern = ""
    for step in reversed(steps):
        pattern = f"(?:{step}{pattern})?"
    return pattern


_HEAD: Final = ("<", "c", "i", "t", "e", r"\s{1,3}", "i", r"\s{0,2}", "=", r"\s{0,2}[\"']?\s{0,2}")
_TAG: Final = r"(?:/|>\s{0,2}" + _begun("<", "/", "c", "i", "t", "e") + ")"
_MARK: Final = re.compile("".join(_HEAD) + r"(\d[\d,\s]{0,30})[\"']?\s{0,2}(?:/>|>\s{0,2}</cite>|>)")
_BEGINS: Final = re.compile(_begun(*_HEAD, r"\d[\d,\s]{0,30}", r"[\"']?\s{0,2}", _TAG))
"""What may be the beginning of a mark, or one that may still get its closing tag; neither is longer than the bound."""

_NUMBER: Final = re.compile(r"\d{1,9}")
_SENTENCE: Final = re.compile(r"[.!?]\s+|\n+")
_MOST_NUMBERS: Final = 16


class Citations:
    """Makes annotations of the marks in the text of one turn; `sources` has the annotation of each number.

    An annotation that has a place of two ends gets the sentence before the mark, any other the mark's own place.
    """

    def __init__(self, sources: Mapping[int, Mapping[str, Any]]) -> None:
        self._sources = sources
        self._held = ""
        self._entries: list[tuple[int, Logprob]] = []
        self._logged = False
        self._position = 0
        self._starts = [0, 0]
        self._tail = ""
        self._early: list[int] = []

    def feed(self, deltas: Sequence[Routed]) -> list[Routed]:
        """The deltas without marks, and with what these cite."""
        told: list[Routed] = []
        for delta in deltas:
            if isinstance(delta, TextDelta):
                self._take(delta, told)
                continue
            if isinstance(delta, AnnotationDelta | ToolCallDelta | ThoughtEnd) or says_nothing(delta):
                told.append(delta)
                continue
            self._flush(told)
            if not isinstance(delta, Stop):
                self._begin()
            told.append(delta)
        return told

    def _flush(self, told: list[Routed]) -> None:
        """The text ends, so that what is held gets no more."""
        mark = _MARK.fullmatch(self._held)
        if mark is not None:
            self._cite(mark[1], told)
            self._drop(len(self._held))
        self._text(len(self._held), told)

    def _begin(self) -> None:
        """Another part begins."""
        self._position, self._starts, self._tail = 0, [0, 0], ""
        self._early.clear()

    def _take(self, delta: TextDelta, told: list[Routed]) -> None:
        if not self._held and "<" not in delta.text:
            # Most text holds no mark at all.
            self._say(delta, told)
            return
        place = len(self._held)
        self._logged = self._logged or delta.logprobs is not None
        for entry in delta.logprobs or ():
            self._entries.append((place, entry))
            place += len(entry.token)
        self._held += delta.text
        while True:
            mark = _MARK.search(self._held)
            # A mark that may go on with a closing tag is not over.
            if mark is None or _BEGINS.fullmatch(self._held, mark.start()):
                break
            self._text(mark.start(), told)
            self._cite(mark[1], told)
            self._drop(mark.end() - mark.start())
        self._text(self._may_begin(), told)

    def _may_begin(self) -> int:
        """Where a mark may begin whose rest has not come."""
        start = self._held.find("<", max(0, len(self._held) - MOST_CHARACTERS))
        while start >= 0:
            if _BEGINS.fullmatch(self._held, start):
                return start
            start = self._held.find("<", start + 1)
        return len(self._held)

    def _text(self, count: int, told: list[Routed]) -> None:
        """Tell so many characters of what is held."""
        text, whole = self._held[:count], count == len(self._held)
        entries = [entry for place, entry in self._entries if whole or place < count]
        logged = self._logged
        self._drop(count)
        if text or entries:
            self._say(TextDelta(text, entries if logged else None), told)

    def _drop(self, count: int) -> None:
        self._held = self._held[count:]
        self._entries = [(place - count, entry) for place, entry in self._entries if place >= count]
        if not self._held:
            self._entries, self._logged = [], False

    def _say(self, delta: TextDelta, told: list[Routed]) -> None:
        told.append(delta)
        text = delta.text
        if not text:
            return
        seen = self._tail + text
        offset = self._position - len(self._tail)
        for found in _SENTENCE.finditer(seen):
            start = offset + found.end()
            if start > self._starts[1]:
                self._starts = [self._starts[1], start]
        for number in self._early:
            self._tell(number, told)
        self._early.clear()
        self._position += len(text)
        self._tail = seen[-2:]

    def _cite(self, numbers: str, told: list[Routed]) -> None:
        for found in _NUMBER.findall(numbers)[:_MOST_NUMBERS]:
            number = int(found)
            if number not in self._sources:
                continue
            if self._position:
                self._tell(number, told)
            else:
                # There is no text yet that could be annotated.
                self._early.append(number)

    def _tell(self, number: int, told: list[Routed]) -> None:
        annotation = dict(self._sources[number])
        if annotation.get("type") in ("url_citation", "container_file_citation"):
            start = self._starts[1] if self._starts[1] < self._position else self._starts[0]
            annotation |= {"start_index": start, "end_index": self._position}
        else:
            annotation["index"] = self._position
        told.append(AnnotationDelta(annotation))


def says_nothing(delta: Routed) -> bool:
    """Whether a delta leaves the text that is open as it is."""
    return isinstance(delta, ReasoningDelta | RefusalDelta | SummaryDelta) and not delta.text

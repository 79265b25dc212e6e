"""Links to files of containers: where a text says `sandbox:/mnt/data/plot.png`, it gets an annotation. Pure.

The text stays as it is. A link may come in pieces, so that what may become one is remembered until it is sure; a name
may have spaces, as they are or as a URL has them. The stage stands after that of citations, whose marks are in no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from antiphon.machine.citations import says_nothing
from antiphon.machine.deltas import AnnotationDelta, Routed, TextDelta, ThoughtEnd, ToolCallDelta

__all__ = ["Links"]

SCHEME: Final = "sandbox:"
MOST: Final = 200
"""Annotations of one text."""


class Links:
    """Finds the links in the text of one turn; `files` has the annotation of each file by its path."""

    def __init__(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        self._forms = {SCHEME + form: files[path] for path in files for form in (path, quote(path))}
        self._begin()

    def feed(self, deltas: Sequence[Routed]) -> list[Routed]:
        """The deltas, and after each text what was linked in it."""
        told: list[Routed] = []
        for delta in deltas:
            if isinstance(delta, TextDelta):
                told.append(delta)
                self._seen += delta.text
                self._look(told, ended=False)
                continue
            if not (isinstance(delta, AnnotationDelta | ToolCallDelta | ThoughtEnd) or says_nothing(delta)):
                self._look(told, ended=True)
                self._begin()
            told.append(delta)
        return told

    def _begin(self) -> None:
        self._seen, self._position, self._count = "", 0, 0

    def _look(self, told: list[Routed], *, ended: bool) -> None:
        """Look at what was seen and not yet settled; `ended` says that no more of the text comes."""
        while True:
            start = self._seen.find(SCHEME)
            if start < 0:
                self._drop(max(0, len(self._seen) - len(SCHEME)))
                return
            self._drop(start)
            if not ended and any(len(form) >= len(self._seen) and form.startswith(self._seen) for form in self._forms):
                return
            self._settle(told)

    def _settle(self, told: list[Routed]) -> None:
        """The longest link that what was seen begins with, if it begins with one that ends there."""
        fitting = [form for form in self._forms if self._seen.startswith(form)]
        form = max(fitting, key=len, default="")
        if form and not _goes_on(self._seen[len(form) :]) and self._count < MOST:
            self._count += 1
            place = {"start_index": self._position, "end_index": self._position + len(form)}
            told.append(AnnotationDelta({**self._forms[form], **place}))
        self._drop(len(form) or len(SCHEME))

    def _drop(self, count: int) -> None:
        self._seen = self._seen[count:]
        self._position += count


def _goes_on(rest: str) -> bool:
    """Whether a name goes on after the one that fits."""
    return bool(rest) and (rest[0].isalnum() or rest[0] in "_-/")

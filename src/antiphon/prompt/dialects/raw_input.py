"""The input of a custom tool that stands in a call as it is, where its own grammar can bind it. Pure.

Within a JSON string no grammar of a tool could be held to, so that such a tool is called with bare text in the place of
arguments. The text goes on to the marker behind it, or to the end of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["RawInput"]


class RawInput:
    """One input, up to one of these markers. It is there even where it is empty."""

    begun = True
    broken = False

    def __init__(self, markers: Sequence[str]) -> None:
        self._search = re.compile("|".join(map(re.escape, markers))).search
        self._beginnings = frozenset(marker[:size] for marker in markers for size in range(1, len(marker)))
        self._longest = max(map(len, markers))
        self._out: list[str] = []
        self.ended = False
        """Whether the marker is there."""

    def feed(self, text: str, place: int = 0) -> int:
        """Read on from a place; what may become a marker need be shown again, with more behind it."""
        found = self._search(text, place)
        self.ended = found is not None
        end = found.start() if found else len(text) - self._partial(text, place)
        self._out.append(text[place:end])
        return end

    def take(self) -> str:
        """The text that came since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def _partial(self, text: str, place: int) -> int:
        for size in range(min(len(text) - place, self._longest - 1), 0, -1):
            if text[-size:] in self._beginnings:
                return size
        return 0

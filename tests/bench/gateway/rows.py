"""What was measured of each side, as one table and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

from tests.bench.gateway.sides import FLOOR, OURS, PEER, UPSTREAM

__all__ = ["COLUMNS", "Row", "as_json", "table"]

COLUMNS: Final = (OURS, PEER, FLOOR, UPSTREAM)


@dataclass
class Row:
    """One measurement; of each side, the best of its samples. `aim` bounds ours: from below where `more` is better."""

    title: str
    unit: str
    more: bool = False
    aim: float | None = None
    digits: int = 2
    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, side: str, sample: float) -> None:
        """One sample of a side."""
        self.samples.setdefault(side, []).append(sample)

    def best(self, side: str) -> float | None:
        """The best sample of a side; None where it has none."""
        samples = self.samples.get(side)
        if not samples:
            return None
        return max(samples) if self.more else min(samples)

    def ratio(self, over: str, *, of: str = OURS) -> float | None:
        """The best of `of` for each of `over`."""
        above, below = self.best(of), self.best(over)
        return above / below if above is not None and below else None

    @property
    def met(self) -> bool | None:
        """Whether ours meets the aim; None where there is none, or nothing was measured."""
        value = self.best(OURS)
        if self.aim is None or value is None:
            return None
        return value >= self.aim if self.more else value <= self.aim

    def _cells(self) -> list[str]:
        aim = "" if self.aim is None else f"{'≥' if self.more else '≤'} {self._number(self.aim)}"
        verdict = {True: "met", False: "MISSED", None: ""}[self.met]
        return [self.title, *(self._number(self.best(side)) for side in COLUMNS), self.unit, aim, verdict]

    def _number(self, value: float | None) -> str:
        return "" if value is None else f"{value:,.{self.digits}f}"


def table(rows: Sequence[Row]) -> str:
    """All rows, one a line."""
    # Ours is what is measured; the others stand beside it.
    lines = [["", "antiphon", "codex-relay", "floor", "upstream", "unit", "aim", ""], *(row._cells() for row in rows)]  # pyright: ignore[reportPrivateUsage]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    padded = ["  ".join(_cell(line, column, widths) for column in range(len(line))).rstrip() for line in lines]
    padded.insert(1, "─" * max(map(len, padded)))
    return "\n".join(padded)


def _cell(line: Sequence[str], column: int, widths: Sequence[int]) -> str:
    text = line[column]
    return text.rjust(widths[column]) if 0 < column < 5 else text.ljust(widths[column])


def as_json(rows: Sequence[Row], cores: str) -> dict[str, Any]:
    """The same for machines, with what it was measured on."""
    return {
        "python": platform.python_version(),
        "cores": cores,
        "load": os.getloadavg(),
        "versions": {name: version(name) for name in ("antiphon", "aiohttp", "uvicorn", "uvloop", "msgspec")},
        "rows": [
            {"title": row.title, "unit": row.unit, "aim": row.aim, "met": row.met, "samples": row.samples}
            for row in rows
        ],
    }

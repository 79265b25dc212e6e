"""What was measured: figures with their aims, as one table and as JSON."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

__all__ = ["Figure", "as_json", "table"]


@dataclass
class Figure:
    """One figure: the best of its samples. `aim` is a bound from below where more is better, else from above.

    `beside` says what to hold it against: the ceilings of engineering C5, or the ruler of the same run.
    """

    key: str
    title: str
    unit: str
    more_is_better: bool = True
    aim: float | None = None
    beside: str = ""
    digits: int = 0
    samples: list[float] = field(default_factory=list)

    @property
    def value(self) -> float | None:
        """The best sample."""
        if not self.samples:
            return None
        return max(self.samples) if self.more_is_better else min(self.samples)

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        value = self.value
        if self.aim is None or value is None:
            return None
        return value >= self.aim if self.more_is_better else value <= self.aim

    def format(self, number: float | None) -> str:
        """A number of this figure, with its digits."""
        return "–" if number is None else f"{number:,.{self.digits}f}"


def table(figures: Sequence[Figure]) -> str:
    """All figures, one a line."""
    rows = [("", "best", "unit", "aim", "", "beside", "samples")]
    for figure in figures:
        sign = "≥ " if figure.more_is_better else "≤ "
        aim = sign + figure.format(figure.aim) if figure.aim is not None else ""
        verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
        samples = " ".join(figure.format(sample) for sample in figure.samples)
        rows.append((figure.title, figure.format(figure.value), figure.unit, aim, verdict, figure.beside, samples))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(_cell(row, column, widths) for column in range(len(row))).rstrip() for row in rows]
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join(lines)


def _cell(row: Sequence[str], column: int, widths: Sequence[int]) -> str:
    text = row[column]
    return text.rjust(widths[column]) if column in (1, 3) else text.ljust(widths[column])


def as_json(figures: Sequence[Figure], cores: str) -> dict[str, Any]:
    """The same for machines, with what it was measured on."""
    return {
        "python": platform.python_version(),
        "cores": cores,
        "versions": {name: version(name) for name in ("antiphon", "uvicorn", "uvloop", "httptools", "msgspec")},
        "figures": [
            {
                "key": figure.key,
                "title": figure.title,
                "unit": figure.unit,
                "best": figure.value,
                "aim": figure.aim,
                "met": figure.met,
                "samples": figure.samples,
            }
            for figure in figures
        ],
    }

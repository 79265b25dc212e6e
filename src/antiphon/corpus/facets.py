"""What attributes files have: names, values, and how many chunks have each of them. Pure, and bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from antiphon.corpus.library import Facet

__all__ = ["MOST_FIELDS", "MOST_SCANNED", "MOST_VALUES", "facets_of"]

MOST_FIELDS: Final = 64
MOST_VALUES: Final = 32
MOST_SCANNED: Final = 10_000
"""Files that are looked at (hosted-tools A3)."""

_MOST_COUNTED: Final = 10_000
"""Values of one field that are told apart."""

_MOST_LETTERS: Final = 200


class _Field:
    """What is known of one field."""

    def __init__(self) -> None:
        self.values: Counter[tuple[str, Any]] = Counter()
        self.chunks = 0
        self.numeric = True

    def add(self, value: Any, chunks: int) -> None:
        """Count a value, or each of a list."""
        self.chunks += chunks
        several = isinstance(value, (list, tuple))
        for each in dict.fromkeys(map(_keyed, cast("Sequence[Any]", value))) if several else (_keyed(value),):
            self.numeric &= each[0] == "number" and not several
            if each in self.values or len(self.values) < _MOST_COUNTED:
                self.values[each] += chunks


def _keyed(value: Any) -> tuple[str, Any]:
    """A value that can be counted: true is not 1, and what is no plain value is told by its text."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, (int, float)):
        return "number", value
    return "text", str(value)[:_MOST_LETTERS]


def facets_of(files: Iterable[tuple[Mapping[str, Any], int]], most_values: int, most_fields: int) -> list[Facet]:
    """The fields of some files, each with its attributes and the number of its chunks.

    The fields that most chunks have come first, and of a field the values that most have. A field can be ranked by
    where each of its values is a number.
    """
    fields: dict[str, _Field] = {}
    for attributes, chunks in files:
        for name, value in attributes.items():
            if value is not None and (name in fields or len(fields) < _MOST_COUNTED):
                fields.setdefault(name, _Field()).add(value, chunks)
    ranked = sorted(fields.items(), key=lambda each: (-each[1].chunks, each[0]))
    return [
        Facet(name, _most_common(field, min(most_values, MOST_VALUES)), field.numeric)
        for name, field in ranked[: min(most_fields, MOST_FIELDS)]
    ]


def _most_common(field: _Field, most: int) -> list[tuple[Any, int]]:
    ranked = sorted(field.values.items(), key=lambda each: (-each[1], str(each[0][1])))
    return [(value, count) for (_, value), count in ranked[:most]]

"""Several rankings as one, by the ranks that a chunk has in them (reciprocal rank fusion): pure.

Scores of different kinds cannot be compared, but ranks can: a chunk at rank r of a list counts 1 / (K + r). Put to a
scale on which the first of every list has 1, that is what a chunk's score says: where it stands, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

__all__ = ["RANK_CONSTANT", "best_for_any", "fused", "told_apart"]

RANK_CONSTANT: Final = 5
"""K: the smaller, the more the first ranks count. Of 5, 10, 20 and 60 the best on the questions of our own tests."""

T = TypeVar("T", bound=Hashable)


def fused(rankings: Iterable[tuple[float, Sequence[T]]]) -> dict[T, float]:
    """The score of everything that one of some weighted rankings has; one that is empty does not count."""
    told = [(weight, ranking) for weight, ranking in rankings if weight > 0 and ranking]
    most = sum(weight for weight, _ in told) / (RANK_CONSTANT + 1)
    scores: dict[T, float] = {}
    for weight, ranking in told:
        for rank, each in enumerate(ranking, 1):
            scores[each] = scores.get(each, 0.0) + weight / (RANK_CONSTANT + rank)
    return {each: score / most for each, score in scores.items()}


def best_for_any(scores: Sequence[Mapping[T, float]]) -> list[tuple[T, float]]:
    """What was found for several questions, best first: by the best score of each, and then by all of them."""
    best: dict[T, float] = {}
    total: dict[T, float] = {}
    for question in scores:
        for each, score in question.items():
            best[each] = max(best.get(each, 0.0), score)
            total[each] = total.get(each, 0.0) + score
    return sorted(best.items(), key=lambda each: (-each[1], -total[each[0]]))


def told_apart(text: str) -> str:
    """What two chunks with the same text have in common, whatever space is between their words."""
    return " ".join(text.split())

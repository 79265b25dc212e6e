"""Requirements of the search in documents: the embedding model, filters, words, vectors, ranking, patterns, facets."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["SEARCH"]

R = Requirement

SEARCH: tuple[Requirement, ...] = (
    R(
        "search:model:pull",
        "issue 6, part 3",
        "The embedding model comes as a wheel of the package index, checked, and is made into a GGUF here.",
    ),
)

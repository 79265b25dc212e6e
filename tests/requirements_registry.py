"""Requirements of the registry: the models of one file, what the operator says of each, and changes while it runs."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["REGISTRY"]

R = Requirement

REGISTRY: tuple[Requirement, ...] = (
    R("registry:azure", "issue 5, section 1", "A URL keeps its query, and Azure's key goes in a header of its own."),
)

"""The behaviours of the loop that runs hosted tools between the turns of a model."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["LOOP"]

R = Requirement

LOOP: tuple[Requirement, ...] = (
    R(
        "loop:runs-kept",
        "architecture, tool re-execution",
        "The calls of hosted tools of a background response are in the store before the first of a turn runs.",
    ),
    R(
        "loop:runs-kept:fence",
        "architecture, tool re-execution",
        "Only the owner of a running response writes the runs of its tools; another tenant sees none of them.",
    ),
    R(
        "loop:runs-kept:end",
        "architecture, tool re-execution",
        "The runs of a response go from the store when it has ended, and with its tenant.",
    ),
    R(
        "loop:runs-kept:sealed",
        "issue 3, Encryption at rest",
        "A sealed store seals the names, arguments and results of tool runs, each for its own place.",
    ),
)

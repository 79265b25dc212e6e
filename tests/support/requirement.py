"""What one behaviour of the manifest is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Requirement"]


@dataclass(frozen=True)
class Requirement:
    """One behaviour."""

    id: str
    source: str
    behavior: str
    divergence: str | None = None
    deferred: str | None = None

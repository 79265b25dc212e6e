"""Requirements of fair shares, bounded reads, true answers to what is sent again, and what operators see."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["UPKEEP"]

R = Requirement

UPKEEP: tuple[Requirement, ...] = (
    R("store:deliveries:endpoints", "operations C1", "Webhooks of one endpoint are not in the way of another's."),
    R("webhooks:fair", "operations C1", "An endpoint that hangs or fails holds up no other's webhooks."),
)

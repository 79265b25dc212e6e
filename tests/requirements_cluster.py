"""Requirements of a cluster: servers under service managers, in containers and behind proxies, and what watches them."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["CLUSTER"]

R = Requirement

CLUSTER: tuple[Requirement, ...] = (
    R("cluster:notify", "operations C3 10", "A service manager is told when a server answers and when it stops."),
)

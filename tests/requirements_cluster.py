"""Requirements of a cluster: servers under service managers, in containers and behind proxies, and what watches them."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["CLUSTER"]

R = Requirement

CLUSTER: tuple[Requirement, ...] = (
    R("cluster:notify", "operations C3 10", "A service manager is told when a server answers and when it stops."),
    R(
        "cluster:image",
        "operations C3 10",
        "The image has what is locked, runs as a user of its own and needs no writable files but its own.",
    ),
    R(
        "cluster:compose",
        "issue 5, part 6",
        "The Compose file gives replicas, a database, a proxy and, if asked, a model.",
    ),
    R("cluster:helm", "issue 5, part 6", "The chart renders to valid manifests, and refuses values that cannot work."),
    R(
        "cluster:systemd",
        "operations C3 10",
        "The units wait for the start, and for the drain, of servers that may do little else.",
    ),
    R(
        "cluster:proxy",
        "operations C3 10",
        "Proxies pass events on as they come, WebSockets too, and close idle connections first.",
    ),
    R("cluster:monitoring", "operations C3 11", "The dashboard and the alarms ask for what /metrics has."),
    R(
        "cluster:models",
        "issue 5, part 4",
        "Behind several replicas each chain stays on the server that has its prefix, and outlives it.",
    ),
    R(
        "cluster:guide",
        "issue 5, part 6",
        "Every table of the guide is one that the server takes, and every file that it names is there.",
    ),
)

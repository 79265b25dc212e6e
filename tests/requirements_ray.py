"""Requirements of Ray clusters: engines as actors, servers as replicas, and the configuration that deploys them."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["RAY"]

R = Requirement

RAY: tuple[Requirement, ...] = (
    R(
        "ray:engine",
        "issue 5, part 5",
        "An engine on another node is asked as any engine is: the same deltas, counts, tokens and errors.",
    ),
    R("ray:wire", "issue 5, part 5", "Prompts, deltas and errors travel whole, and as plain bytes."),
    R(
        "ray:lost",
        "issue 5, part 5",
        "A turn whose node is lost goes on at another engine from what was drawn, and tells nothing twice.",
    ),
    R("ray:leaving", "issue 5, part 5", "A client that leaves frees the slot on the other node at once."),
    R("ray:server-gone", "issue 5, part 5", "The turns of a server that is gone are ended."),
    R("ray:unused", "issue 5, part 5", "An engine that no server asks for any more leaves."),
    R(
        "ray:start",
        "issue 5, part 5",
        "A model that no node can load, or has room for, ends the start with the reason.",
    ),
    R("ray:config", "issue 5, part 5", "A table that cannot be used on a cluster is refused, and says why."),
    R("ray:missing", "issue 5, part 5", "Without Ray, what needs it says what to install."),
    R("ray:replica", "issue 5, part 5", "A replica of Ray Serve starts with its service and ends with it, drained."),
    R("ray:shared", "issue 5, part 5", "Replicas share their state in PostgreSQL, or do not start."),
    R(
        "ray:deploy",
        "issue 5, part 5",
        "`deploy ray` writes the configuration of Ray Serve, for the settings of a file.",
    ),
    R("ray:deploy-secrets", "issue 5, part 5", "`deploy ray` writes no secret, and nothing that cannot work."),
)

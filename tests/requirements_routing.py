"""Requirements of routing: which replica of a model a turn goes to, what is told to it, and how a lost one is outlived."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["ROUTING"]

R = Requirement

ROUTING: tuple[Requirement, ...] = (
    R("routing:hash", "upstreams.md, section 6", "Each server has the same first home for a history, among replicas."),
    R(
        "routing:load",
        "issue 5, section 4",
        "No replica gets more in flight than 1.25 times the mean with the new turn, rounded up.",
    ),
    R("routing:sticks", "upstreams.md, section 6", "A history stays where its last turn went, for a bounded memory."),
    R("routing:lost", "issue 5, must show 5", "The histories of a lost replica move once, and stay when it is back."),
    R("routing:keyless", "issue 5, section 4", "A turn that belongs to no history goes to who has the least to do."),
    R(
        "routing:shown",
        "issue 5, must show 5",
        "Of 200 chains of ten turns at least 95 % of the turns land where their prefix is, at an even load.",
    ),
    R("routing:failover", "issue 5, section 3", "A turn that is lost before its first delta is begun elsewhere."),
    R("routing:goes-on", "issue 5, section 5", "A turn that is lost later goes on elsewhere where engines can do so."),
    R("routing:meet", "issue 5, section 3", "A replicated model does what all of its replicas do."),
    R("routing:ready", "issue 5, section 3", "A replicated model is ready as long as one of its replicas is."),
    R(
        "routing:keys",
        "upstreams.md, section 6",
        "A history is known by its cache key, its conversation, the first response of its chain, or what it begins with.",
    ),
    R(
        "routing:hints",
        "upstreams.md, section 6",
        "An upstream is told of a turn's history in its own terms, by a hash that says nothing of its client.",
    ),
    R(
        "routing:salt",
        "upstreams.md, section 6",
        "Each tenant has a salt for the caches of upstreams, the same on each server of a store and after a restart.",
    ),
    R(
        "routing:metrics",
        "operations C2",
        "Metrics show what each replica has in flight, by its number and by nothing else.",
    ),
    R(
        "routing:health",
        "issue 5, section 3",
        "An upstream that nobody asks is probed, and out of service while it is gone.",
    ),
    R("routing:bytes", "upstreams.md, section 6", "What goes up for a turn begins with the bytes of the turn before."),
)

"""Requirements of the registry: the models of one file, what the operator says of each, and changes while it runs."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["REGISTRY"]

R = Requirement

REGISTRY: tuple[Requirement, ...] = (
    R("registry:file", "issue 5, section 3", "`antiphon.toml` in the working directory is read, and said to be."),
    R(
        "registry:tables",
        "issue 5, section 3",
        "A table that cannot be used, or a field that has no use, is told at start.",
    ),
    R(
        "registry:defaults",
        "issue 5, section 3",
        "What a request does not set, its model's table may; the response shows what was used.",
    ),
    R("registry:defaults:kept", "issue 5, section 3", "A response goes on by the defaults that it began with."),
    R("registry:limits:output", "issue 5, section 3", "A model has a most of output tokens; to ask for more is a 400."),
    R("registry:limits:context", "issue 5, section 3", "A model has a context of its own, shorter than it could have."),
    R(
        "registry:limits:concurrent",
        "issue 5, section 3",
        "A model generates for so many requests at once, a bounded number waits, and others are a 503.",
    ),
    R(
        "registry:replicas",
        "issue 5, section 3",
        "One model may be served by several servers, each by its own URL and key.",
    ),
    R(
        "registry:reload",
        "issue 5, section 3",
        "At a SIGHUP models come, change and go, and what has not changed goes on as it was.",
    ),
    R("registry:reload:drain", "issue 5, section 3", "A model that is gone ends what it had begun, then it is closed."),
    R(
        "registry:reload:fault",
        "issue 5, section 3",
        "A file that cannot be used changes nothing, and the log says why.",
    ),
    R("registry:reload:rest", "issue 5, section 3", "What a reload cannot change is named in the log."),
    R("registry:reload:keys", "issue 5, section 3", "The file of API keys is read anew too."),
    R("registry:hangup", "issue 5, section 3", "A server whose terminal is gone ends."),
    R("registry:ready", "issue 5, section 3", "A server is ready while one of its models can generate."),
    R("registry:azure", "issue 5, section 1", "A URL keeps its query, and Azure's key goes in a header of its own."),
)

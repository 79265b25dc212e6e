"""Requirements of the engine over upstreams: what it reads of them, what it asks of them, and how it outlives them."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["UPSTREAMS"]

R = Requirement

UPSTREAMS: tuple[Requirement, ...] = (
    R("upstream:text", "issue 5, section 2", "Text is read as a string, as parts, and out of a whole message."),
    R("upstream:thinking", "issue 5, section 2", "Thinking is read from either field, or between its markers."),
    R("upstream:calls", "issue 5, section 2", "Tool calls are read in every shape seen in the wild."),
    R("upstream:calls:arguments", "issue 5, section 2", "Arguments that are missing are an empty object."),
    R("upstream:calls:order", "issue 5, section 2", "What comes beside a call waits until the call is whole."),
    R("upstream:calls:one", "issue 4, section 2", "Where calls may not be parallel, the first one is kept."),
    R("upstream:custom", "issue 5, section 2", "The input of a custom tool comes out of a function's arguments."),
    R("upstream:end", "issue 5, section 2", "Each finish reason, `[DONE]` or the end of the bytes ends a turn."),
    R("upstream:usage", "issue 5, section 2", "Usage is the upstream's, and an estimate where it tells none."),
    R("upstream:logprobs", "responses-api 6.3", "Log probabilities go with the text that they are of."),
    R("upstream:error", "issue 5, section 2", "An error in a stream that began with 200 is an error."),
    R("upstream:cuts", "faults B2 13", "Any cut of the bytes decodes to the same."),
    R("upstream:words", "faults B3 17", "An upstream's words are told without addresses, paths and keys, and bounded."),
    R("machine:content-filter", "responses-api 6.2", "What a filter cut is `incomplete` for that reason, and runs nothing."),
)

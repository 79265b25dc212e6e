"""Requirements of the engine over Responses endpoints: what it asks of them, what it reads, and how it outlives them."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["RESPONSES_UPSTREAMS"]

R = Requirement

RESPONSES_UPSTREAMS: tuple[Requirement, ...] = (
    R(
        "responses-upstream:request",
        "issue 5, section 2",
        "A request brings the whole history, and nothing that the upstream does not take.",
    ),
    R(
        "responses-upstream:request:tools",
        "issue 5, section 2",
        "Tools and tool choices go down in the upstream's own terms.",
    ),
    R(
        "responses-upstream:request:format",
        "issue 5, section 2",
        "A format goes down where it is known, and in words where it is not enforced.",
    ),
    R(
        "responses-upstream:request:thinking",
        "driver.md E17, E21",
        "Past thinking goes back as its text, or as the sealed items that came, where the upstream wants them.",
    ),
    R("responses-upstream:text", "driver.md S1 to S15", "Text, refusals and thinking are read by the driver's rules."),
    R("responses-upstream:calls", "driver.md S5 to S7", "Calls are told one after another, however they came."),
    R("responses-upstream:end", "driver.md D12", "Completed, incomplete and filtered turns end as such."),
    R("responses-upstream:usage", "driver.md D13", "Usage is the upstream's, and an estimate where it tells none."),
    R("responses-upstream:logprobs", "responses-api 6.3", "Log probabilities go with the text that they are of."),
    R("responses-upstream:error", "driver.md S12, S13", "Errors of either shape, and failed responses, are errors."),
    R(
        "responses-upstream:hosted",
        "issue 5, section 2",
        "What an upstream ran itself is passed on whole, with ids of ours and its own kept, and so are citations.",
    ),
    R(
        "responses-upstream:choice",
        "issue 5, section 2",
        "A tool choice that a tool of the upstream's may meet is for the upstream.",
    ),
    R(
        "responses-upstream:history",
        "issue 5, section 2",
        "What an upstream ran is told to upstreams that take it, and to no other model.",
    ),
    R(
        "responses-upstream:thoughts",
        "driver.md S3, D5",
        "Summaries come as such, and sealed thoughts stay with what they are of.",
    ),
    R("responses-upstream:phases", "driver.md S1", "Messages stay apart, each with its phase."),
    R(
        "responses-upstream:kept",
        "issue 5, section 2",
        "A background response is one at an upstream that keeps such; a foreground one is kept nowhere.",
    ),
    R(
        "responses-upstream:kept:break",
        "issue 5, section 2",
        "A broken connection to a kept response is taken up after its last event.",
    ),
    R(
        "responses-upstream:kept:crash",
        "issue 5, section 2",
        "After a crash of this server a kept response is read on, and not run again.",
    ),
    R(
        "responses-upstream:kept:lost",
        "issue 5, section 2",
        "What the upstream has lost is run again, or is `failed` where some of it was told.",
    ),
    R("responses-upstream:kept:cancel", "issue 5, section 2", "A cancelled response is cancelled at the upstream too."),
    R("responses-upstream:serve", "issue 5, section 2", "A Responses endpoint stands behind a model here."),
    R(
        "responses-upstream:fault",
        "faults B2 5",
        "An upstream that fails in any way ends in a stored `failed` within two seconds.",
    ),
)

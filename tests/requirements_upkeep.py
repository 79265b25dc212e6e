"""Requirements of fair shares, bounded reads, true answers to what is sent again, and what operators see."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["UPKEEP"]

R = Requirement

UPKEEP: tuple[Requirement, ...] = (
    R("store:deliveries:endpoints", "operations C1", "Webhooks of one endpoint are not in the way of another's."),
    R("store:events:some", "issue 3, Durable log", "The events of a response can be read some batches at a time."),
    R(
        "replay:bounded",
        "issue 3, Durable log",
        "However long a log is, its reader holds some batches of it at a time.",
    ),
    R("ops:metrics:websockets", "operations C2", "Open WebSocket connections are in /metrics."),
    R(
        "ops:metrics:queue",
        "operations C2",
        "How long the first background response has waited for a worker is in /metrics.",
    ),
    R("ops:metrics:rings", "operations C2", "What servers of one database could not tell each other is in /metrics."),
    R(
        "store:postgresql:deletes",
        "faults B2 11",
        "A deletion whose connection was lost says whether there was anything to delete.",
    ),
    R("store:db:files", "operations C3", "antiphon db status tells how many files there are, and their bytes."),
    R("corpus:fair", "faults B2 15", "A tenant whose files take long never holds all of the places for reading."),
    R(
        "project:child-process",
        "engineering",
        "A process that a caller's input may kill is started and ended in one way.",
    ),
    R(
        "project:child-process:keys",
        "engineering, security",
        "None of the server's keys are in the environment of a process that reads what callers send.",
    ),
    R(
        "replay:fold",
        "issue 3, Background",
        "A running response is folded from its log in steps, however they are cut.",
    ),
    R("store:idempotency:free", "operations C1", "A key is given free only by the response that it stands for."),
    R(
        "idempotency:free",
        "operations C1",
        "Whose answer was an error, or nothing since the server was restarted, can send the request again.",
        divergence="Stripe keeps the errors of 500 that it has told; OpenAI says nothing of keys.",
    ),
    R("webhooks:fair", "operations C1", "An endpoint that hangs or fails holds up no other's webhooks."),
)

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
    R("upstream:request", "issue 5, section 2", "A request holds what the client asked for, and nothing beside it."),
    R(
        "upstream:request:long",
        "issue 5, must show 6",
        "What was written of a history for one turn is sent again with the next, within bounds.",
    ),
    R("upstream:request:history", "M14", "The history goes down with its thinking under the name that is read there."),
    R(
        "upstream:request:tools",
        "issue 5, section 2",
        "Tools go down as functions, custom ones as functions of a text.",
    ),
    R(
        "upstream:request:forced",
        "issue 5, section 2",
        "vLLM is told to hold the arguments of a forced call to their schema.",
    ),
    R("upstream:request:choice", "issue 5, section 2", "A tool choice goes down in the terms of the upstream."),
    R("upstream:request:format", "issue 5, section 2", "An output format goes down in the terms of the upstream."),
    R(
        "upstream:request:form",
        "issue 5, section 2",
        "Where formats are enforced and calls are not, a forced one is one.",
    ),
    R("upstream:request:held", "issue 5, section 2", "What is not enforced is held back until it was checked."),
    R("upstream:request:sampling", "M29", "Sampling goes down by the names of the upstream."),
    R("upstream:request:effort", "M13", "The effort goes down natively, and as variables of the chat template."),
    R("upstream:serve", "issue 5, section 2", "A chat-completions endpoint has the whole Responses API before it."),
    R("upstream:key", "faults B3 24", "The key is the operator's, goes to its upstream only, and is in no log."),
    R(
        "upstream:fault",
        "faults B2 5",
        "An upstream that fails in any way ends in a stored `failed` within two seconds.",
    ),
    R(
        "upstream:refused",
        "issue 5, section 2",
        "The client of an upstream that refuses gets its status, streamed or not, and how long to wait.",
    ),
    R(
        "upstream:held",
        "issue 5, must show 4",
        "A stream begins when its upstream has taken the turn, or has said nothing for a moment.",
    ),
    R(
        "upstream:held:end",
        "issue 5, must show 4",
        "A stream that an upstream refused is stored as `failed`; one with an idempotency key is told that instead.",
    ),
    R(
        "upstream:texts",
        "M7",
        "An upstream goes on with a text or with tokens by its `/completions`, streamed or whole.",
    ),
    R(
        "upstream:count",
        "responses-api 2.3",
        "The tokens of a prompt are counted by its upstream where that has a way, and estimated where it fails.",
    ),
    R(
        "upstream:early",
        "issue 5, must show 6",
        "An upstream is asked while the response is begun in the store, of which nothing is seen before that is done.",
    ),
    R("upstream:held:websocket", "responses-api 7", "Over WebSocket a refusal of the upstream is an error frame."),
    R("upstream:retry", "issue 5, section 2", "A connection that fails before the first delta is tried once more."),
    R(
        "upstream:cancel",
        "issue 5, must show 6",
        "A cancelled response closes the upstream's connection within 200 ms.",
    ),
    R("upstream:away", "issue 5, section 2", "A server starts without its upstream, and is ready when that answers."),
    R("upstream:breaker", "issue 5, section 3", "An upstream that is gone is left alone until its probe succeeds."),
    R(
        "upstream:checked",
        "issue 5, section 2",
        "What nothing enforced is checked, asked for once more, then `failed`.",
    ),
    R("upstream:declared", "issue 4, section 3", "Schemas and grammars that nothing could be checked by are a 400."),
    R("upstream:context", "M8", "A prompt that is longer than the context, as well as can be told, is a 400."),
    R("upstream:whole", "issue 5, section 2", "An upstream that answers without streaming is understood."),
    R(
        "upstream:wires",
        "engineering C1",
        "Only a connection whose answer came to its end serves again; a bad answer, or none, is told as what it is.",
    ),
    R("upstream:pool", "engineering C1", "A connection whose stream has ended is used again, within a bounded pool."),
    R(
        "upstream:media",
        "issue 4, section 7",
        "Images go down as their data where the settings say that they are read.",
    ),
    R(
        "upstream:media:urls",
        "issue 5, must show 4",
        "An upstream that brings images itself is told their URLs, but of none that is not public.",
    ),
    R("upstream:linger", "issue 5, section 2", "Once a turn has its end, its usage is waited for two seconds at most."),
    R(
        "upstream:resume",
        "issue 3, Crash",
        "After a kill a turn is run again, what was told is not told again, and one that differs ends as failed.",
    ),
    R("upstream:suites", "issue 5, must show 4", "The client suites pass through upstreams of both kinds."),
    R("upstream:chain", "issue 5, must show 4", "Through two servers a client gets what the one behind gives."),
    R(
        "upstream:settings",
        "issue 5, section 3",
        "A `[[models]]` table names an upstream, its kind and where its key is.",
    ),
    R("upstream:real", "issue 5, must show 4", "llama-server is an upstream: chains, forms, calls, log probabilities."),
    R(
        "upstream:strict",
        "client-contract 4.4",
        "A conversation that an upstream refuses is sent as strict templates take it.",
    ),
    R("upstream:leaving", "issue 5, must show 6", "A client that leaves cancels the upstream within 200 ms."),
    R("upstream:words", "faults B3 17", "An upstream's words are told without addresses, paths and keys, and bounded."),
    R(
        "machine:content-filter",
        "responses-api 6.2",
        "What a filter cut is `incomplete` for that reason, and runs nothing.",
    ),
)

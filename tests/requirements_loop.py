"""The behaviours of the loop that runs hosted tools between the turns of a model."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["LOOP"]

R = Requirement

LOOP: tuple[Requirement, ...] = (
    R(
        "loop:runs-kept",
        "architecture, tool re-execution",
        "The calls of hosted tools of a background response are in the store before the first of a turn runs.",
    ),
    R(
        "loop:runs-kept:fence",
        "architecture, tool re-execution",
        "Only the owner of a running response writes the runs of its tools; another tenant sees none of them.",
    ),
    R(
        "loop:runs-kept:end",
        "architecture, tool re-execution",
        "The runs of a response go from the store when it has ended, and with its tenant.",
    ),
    R(
        "loop:runs-kept:sealed",
        "issue 3, Encryption at rest",
        "A sealed store seals the names, arguments and results of tool runs, each for its own place.",
    ),
    R(
        "loop:hosted",
        "hosted-search B2",
        "Declared hosted tools run on the server, for as many turns as the model wants; their calls are never functions.",
    ),
    R(
        "loop:hosted:order",
        "hosted-tools A1, parallel_tool_calls",
        "Calls of a turn run side by side where each may run again, and are told in the order of the model.",
    ),
    R(
        "loop:fault",
        "hosted-search B3",
        "Errors, exceptions, malformed arguments and invented names are failed items; the model is told, and goes on.",
    ),
    R(
        "loop:fault:invented",
        "hosted-search B3",
        "A call of an invented name is shown as a failed one of a tool that reads, or of a server by that very name.",
    ),
    R(
        "loop:fault:timeout",
        "issue 6, section 1",
        "A run has a time limit of its own, and is given up after it even where the tool would never end.",
    ),
    R(
        "loop:fault:servers",
        "issue 6, section 2",
        "A server whose tools cannot be listed refuses no request: the model is told that its tools are not there.",
    ),
    R("loop:check", "hosted-search B12", "An entry of `tools` that cannot be read is a 400 that names its place."),
    R(
        "loop:budget",
        "hosted-search B5",
        "`max_tool_calls` is 16 where the request does not say; a turn runs at most 8 calls, those beyond get an error.",
    ),
    R(
        "loop:budget:answer",
        "hosted-search B6",
        "At the budget the model is told once to answer in plain text and is given no tools; that is no part of history.",
    ),
    R(
        "loop:budget:incomplete",
        "hosted-search B6",
        "Where even that gives no text, the response is incomplete with `max_tool_calls`, and has the text so far.",
    ),
    R(
        "loop:choice",
        "hosted-search B7",
        "A forced call is forced in the first turn only; with `none` no tool is offered in any.",
    ),
    R(
        "loop:mixed",
        "hosted-search B8",
        "A call of a client's function ends the run after the hosted calls of its turn; its output goes on from there.",
    ),
    R(
        "loop:parallel",
        "hosted-search B9",
        "Without `parallel_tool_calls` one call of a turn counts, whoever answers it.",
    ),
    R(
        "loop:instructions",
        "hosted-search B13",
        "Two sentences of system text stand where hosted tools are declared and the request has no system text.",
    ),
    R("loop:usage", "hosted-search B16", "Usage is the sum of all turns, with their true reasoning tokens."),
    R("loop:limit", "issue 6, section 1", "`max_output_tokens` bounds all turns of a response together."),
    R(
        "loop:chain",
        "hosted-search B17, B18",
        "A chain or a conversation tells the model again what tools gave, byte for byte; instructions and tools are new.",
    ),
    R(
        "loop:include",
        "hosted-search B4",
        "Results are null unless `include` names them, and what is the server's own is never told.",
    ),
    R(
        "loop:payload",
        "hosted-search 3.3",
        "What a call may give is bounded by itself, by its turn and by the model's context.",
    ),
    R(
        "loop:unowned",
        "issue 6, section 7; hosted-search B12",
        "Types of tools that nobody runs are accepted and echoed, and the model is not offered them.",
        divergence="Mixedbread refuses an unknown type; OpenAI's clients send types that a server need not know.",
    ),
    R(
        "loop:approval",
        "hosted-tools A2, issue 6 section 5",
        "A call that needs approval is not run: the request for it ends a completed response, over chains and restarts.",
    ),
    R(
        "loop:approval:events",
        "hosted-tools A2",
        "The next response lists the tools again and runs what was approved straight after, before any model turn.",
    ),
    R("loop:approval:denied", "issue 6, section 5", "A denied call is not run, and the model is told so and why."),
    R(
        "loop:approval:inline",
        "issue 6, section 5",
        "Approvals work for clients that keep the history themselves; what was run is not run again.",
    ),
    R(
        "loop:approval:unknown",
        "issue 6, Must show 7",
        "An approval of an unknown, a foreign or an answered request is a 400 that names its place.",
    ),
    R(
        "loop:approval:gone",
        "issue 6, section 2",
        "An approved call whose tool is not there any more is a failed item, and the model goes on.",
    ),
    R(
        "loop:resume",
        "architecture, half-made turn after a crash; law 4",
        "Another server goes on with a loop from any write: the stream is the one that it would have been.",
    ),
    R(
        "loop:resume:once",
        "architecture, tool re-execution",
        "What is done runs no second time; what may not run twice and had begun has failed, and the model is told.",
    ),
    R(
        "loop:resume:end",
        "issue 6, section 1",
        "A loop that is ended by another server keeps in its items what its tools have given.",
    ),
    R(
        "loop:killed",
        "issue 6, Must show 8",
        "After `kill -9` in the middle of a call the loop goes on: what only reads runs again, anything else does not.",
    ),
    R(
        "loop:cancel",
        "issue 6, section 1",
        "Cancelling a response cancels the tool that runs; its item has not been completed, those before it stay.",
    ),
    R("loop:leave", "issue 6, section 1", "A client that leaves in the middle of a run stops the tool within it."),
    R("loop:close", "issue 6, section 1", "A server that stops waits for no tool; its background loops go on later."),
    R(
        "loop:socket",
        "hosted-search B18",
        "A WebSocket continues from a loop that no store has, with all that was found.",
    ),
    R(
        "loop:private",
        "hosted-search B4",
        "No look-up, listing or stream shows what is the server's own; what clients send back is the item that was kept.",
    ),
    R("loop:count", "responses-api 1.1", "Input tokens are counted with the functions of hosted tools."),
    R(
        "loop:upstream",
        "issue 6, section 1",
        "Hosted tools run here for models elsewhere too, but for those that an upstream with the same API has itself.",
    ),
    R(
        "loop:chat",
        "hosted-search B27",
        "Chat completions run hosted tools too.",
        deferred="They are refused with a 400 that names `/v1/responses`, which keeps what the tools have given.",
    ),
    R(
        "loop:tickets",
        "hosted-search B28",
        "Calls have tickets, by which they are billed.",
        deferred="Nothing is billed by a server of one's own.",
    ),
    R("loop:slot", "issue 6, section 1", "A response gives its model's slot to others while its tools run."),
    R(
        "loop:none",
        "issue 6, section 1; hosted-search B1",
        "A request without hosted tools takes no step for them.",
        divergence="Which model answers where none is named is the operator's setting, not toast-1.",
    ),
    R(
        "loop:budget:window",
        "hosted-search B6",
        "Where what was found fills the context, the model answers without tools; else the reason is `context_window`.",
    ),
    R(
        "loop:fault:engine",
        "hosted-search B3",
        "A model that fails in a later turn fails the response, which keeps what was found until then.",
    ),
    R("loop:metrics", "operations C2", "Runs of hosted tools are counted and timed, by tool and by how they ended."),
    R(
        "loop:laws",
        "architecture, laws 1 and 2",
        "A loop is replayed byte for byte, and its events add up to its object.",
    ),
    R(
        "loop:compaction",
        "issue 3, Compaction",
        "A conversation that is compacted before a loop goes on in it, and is told again as it was.",
    ),
)

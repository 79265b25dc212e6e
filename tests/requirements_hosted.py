"""The behaviours of hosted items: their events, where they stand, what of them is seen and what the model is told."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["HOSTED"]

R = Requirement

HOSTED: tuple[Requirement, ...] = (
    R(
        "hosted:order",
        "hosted-tools A2",
        "Each hosted item is told by the events of its type, in order, with all fields.",
    ),
    R(
        "hosted:order:failed",
        "hosted-tools A2",
        "A failed call has the failed event of its type, or none, and never completed.",
    ),
    R(
        "hosted:beside",
        "hosted-search B3, B26",
        "Corpus calls take an output_index and stand in hosted_tool_calls, not in output.",
    ),
    R(
        "hosted:beside:declared",
        "hosted-search B3",
        "hosted_tool_calls is there where corpus tools are declared, and only there.",
    ),
    R("hosted:law", "machine law 1", "All events with hosted items add up to the terminal object, also decoded again."),
    R("hosted:cut", "responses-api 6.1", "What is cut while a tool runs closes the item as not completed."),
    R("hosted:restore", "law 4", "A log that ends while a tool runs goes on with the same item, and tells none twice."),
    R(
        "hosted:held",
        "hosted-search B2",
        "Calls of hosted tools are held in the model's order; they are never told as function calls.",
    ),
    R(
        "hosted:held:one",
        "hosted-search B9",
        "With parallel_tool_calls false the first call counts, whoever answers it.",
    ),
    R(
        "hosted:steps",
        "hosted-search B8, law 4",
        "A turn whose calls run here goes on, unless a client's call or an approval waits.",
    ),
    R(
        "hosted:tools",
        "hosted-search B2, B12",
        "Functions that run here are told to the model; their types are no upstream's.",
    ),
    R(
        "hosted:tools:place",
        "issue 6",
        "An upstream that runs tools keeps its own; only this server searches its stores.",
    ),
    R(
        "hosted:tools:names",
        "hosted-search B12",
        "A client's function named like a hosted one is a 400; MCP tools give way by name.",
    ),
    R(
        "hosted:choice",
        "hosted-search B7",
        "A choice of a hosted type, of an MCP server or of one of its tools forces a call of it.",
    ),
    R("hosted:choice:get-chunks", "hosted-search B7", "A forced call of get_chunks is a 400."),
    R("hosted:choice:allowed", "responses-api 4", "Allowed tools may name hosted types and MCP servers."),
    R(
        "hosted:evidence",
        "hosted-search B18, 3.3",
        "The model is told of a hosted item as a call and its result, the same every time.",
    ),
    R(
        "hosted:evidence:chain",
        "hosted-search B18, law 3",
        "Chained hosted items are told as the same items sent inline are.",
    ),
    R(
        "hosted:evidence:not-kept",
        "hosted-search B4, B18",
        "Results that a client sends back without are told as not kept.",
    ),
    R(
        "hosted:approval",
        "hosted-tools A2",
        "A denied call is told with its reason; an approved one as the call that was run.",
    ),
    R(
        "hosted:prune",
        "hosted-search B14",
        "Pruned results lose their text in what the model sees, and nothing that is stored.",
    ),
    R("hosted:prune:restore", "hosted-search 3.3", "Only get_chunks brings the text of a pruned chunk back."),
    R(
        "hosted:prune:edits",
        "hosted-search B14",
        "A response says how many calls pruned, and how many tokens they cleared.",
    ),
    R(
        "hosted:prune:truncate",
        "hosted-search B14",
        "Results that do not fit are truncated, the longest first, and the response says so.",
    ),
    R(
        "hosted:include",
        "hosted-search B4",
        "Results are null without their include value; unknown values of include mean nothing.",
    ),
    R("hosted:include:private", "hosted-search B4", "What an item keeps for the server alone is never seen."),
    R(
        "hosted:evidence:elsewhere",
        "client-contract 4.4",
        "Hosted items that a client brings are told to every model, to an upstream with such tools as they are.",
    ),
    R(
        "hosted:include:get",
        "hosted-search B4, responses-api 1.1",
        "Look-ups of responses, input items and conversations show results by their own include.",
    ),
    R(
        "hosted:citations",
        "hosted-search B15",
        "Marks of citations leave the text, however it is split, and become annotations of known sources at their place.",
    ),
    R(
        "hosted:sdk",
        "client-contract 4.3",
        "The SDK takes hosted items strictly by its types, and calls beside the output too.",
    ),
    R(
        "hosted:driver",
        "hosted-search B26",
        "The driver reads hosted items and calls beside the output the same streamed and whole.",
    ),
    R(
        "hosted:folder",
        "issue 6, must show 3",
        "A folder that the command line brought in is searched, and citations name the chunk that the results have.",
    ),
    R(
        "hosted:folder:real",
        "issue 6, must show 3",
        "The default model, whose search is forced, gets a call, results and an answer of the right shape.",
    ),
    R(
        "hosted:libraries",
        "client-contract 4.3",
        "Agents SDK, pydantic-ai and LangChain take hosted items, whole and streamed.",
    ),
    R(
        "hosted:include:transcript",
        "hosted-search B4",
        "`transcript` gives the whole stored conversation.",
        deferred="Its shape is not known. The input items and the response, each with results by include, are all of it.",
    ),
)

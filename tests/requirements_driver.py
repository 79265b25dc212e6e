"""The behaviours of the driver, by the rules that it follows: E encodes, D decodes, S streams."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["ASK", "DRIVER_CALLS", "DRIVER_DECODE", "DRIVER_ENCODE", "DRIVER_STREAM", "DRIVER_TOOLS"]

R = Requirement

DRIVER_ENCODE: tuple[Requirement, ...] = (
    R(
        "driver:E1",
        "driver E1",
        "Responses are made at `/responses`, compacted at `/responses/compact`, over ws(s) too.",
    ),
    R(
        "driver:E2",
        "driver E2",
        "The token limit has three names, the first of which counts; one below the provider's floor is raised, with a "
        "warning.",
    ),
    R(
        "driver:E3",
        "driver E3",
        "Temperature and top_p are left out for models that do not take them, with a warning.",
        divergence="They are sent to models that do not reason, and to all that are not OpenAI's.",
    ),
    R(
        "driver:E4",
        "driver E4",
        "Text is `input_text`, the assistant's `output_text`; a message of nothing is left out.",
    ),
    R("driver:E5", "driver E5", "Roles go as they are."),
    R("driver:E6", "driver E6", "Images go by URL, as a data URL, or by the id of a file."),
    R("driver:E7", "driver E7", "Files go by id, the provider's own before all, or as data of a kind that it takes."),
    R("driver:E8", "driver E8", "Cache breakpoints go with their parts, cache keys and options with the request."),
    R(
        "driver:E9",
        "driver E9",
        "Calls go as items with their arguments as text; what the server executed does not go.",
    ),
    R("driver:E10", "driver E10", "Results go as text, JSON or parts; each answers its call in every round."),
    R("driver:E11", "driver E11", "Results that are given beside the context come after it."),
    R(
        "driver:E12",
        "driver E12",
        "Functions are flat and closed where they are strict; functions, types, schemas and mappings make them.",
        divergence="A schema that cannot be closed without saying something else is not strict unless asked to be.",
    ),
    R("driver:E13", "driver E13", "Hosted tools go as they are."),
    R("driver:E14", "driver E14", "A model for deep research gets a web search where it has no such tool."),
    R("driver:E15", "driver E15", "A choice of a tool is flat, whichever shape it had; what is no choice is left out."),
    R(
        "driver:E16",
        "driver E16",
        "Effort, summary and context make `reasoning`; `default` and a token budget do not go.",
    ),
    R(
        "driver:E17",
        "driver E17",
        "Models that reason are asked for their encrypted reasoning, unless `include` is said.",
    ),
    R("driver:E18", "driver E18", "A type, a schema or a format makes `text.format`, a verbosity `text.verbosity`."),
    R(
        "driver:E19",
        "driver E19",
        "A request goes on from the last answer and has it stored; without that, reasoning is sent back.",
        divergence="What the endpoint has by the answer that is referred to is not sent again.",
    ),
    R(
        "driver:E20",
        "driver E20",
        "What is not stored is not gone on from, except on a socket; codex models do not store.",
    ),
    R("driver:E21", "driver E21", "Reasoning goes back in order to the provider that made it, always with a summary."),
    R("driver:E22", "driver E22", "Compactions go back as they came to their provider, the first of them before all."),
    R("driver:E23", "driver E23", "The phases of what an assistant said are kept."),
    R("driver:E24", "driver E24", "`context_management` is a list of mappings."),
    R("driver:E25", "driver E25", "A compaction names the answer, or brings the whole conversation."),
    R("driver:E26", "driver E26", "False is sent, None is not."),
    R("driver:E27", "driver E27", "Keys of schemas go in their own order."),
    R("driver:E28", "driver E28", "A socket's first frame is the body as `response.create`, without `stream`."),
    R(
        "driver:profiles",
        "issue 5, section 1",
        "Profiles say as data which fields a provider takes, under which names, and what its models do.",
    ),
    R("driver:options", "issue 5, section 1", "An option that nobody knows is refused; `extra_body` goes as it is."),
)

DRIVER_DECODE: tuple[Requirement, ...] = (
    R("driver:D1", "driver D1", "A status other than 2xx is an error with status and body; what is no answer is none."),
    R(
        "driver:D2",
        "driver D2",
        "Text is that of all messages, refusals and bare parts, joined, and what stands beside the output.",
        divergence="`output_text` counts only where the output does not say the same.",
    ),
    R("driver:D3", "driver D3", "A commentary that equals the final answer is said once; others keep their phases."),
    R(
        "driver:D4",
        "driver D4",
        "Thinking is all summaries, then all content, a blank line between parts; it comes first.",
    ),
    R("driver:D5", "driver D5", "Each reasoning item is kept with text, signature, provider and place."),
    R("driver:D6", "driver D6", "A function call has an id, a name, and its arguments as they came."),
    R("driver:D7", "driver D7", "Calls that the server made are marked, and never make the answer wait for tools."),
    R("driver:D8", "driver D8", "Items of the code interpreter are in the provider's metadata only."),
    R("driver:D9", "driver D9", "A refusal is text, ends as `content_filter` before all else, and has no object."),
    R("driver:D10", "driver D10", "Annotations are gathered from all parts."),
    R("driver:D11", "driver D11", "What has no place of its own in the answer is in the provider's metadata."),
    R(
        "driver:D12",
        "driver D12",
        "The finish reason follows from status, refusals, calls and the reason of an incomplete answer.",
        divergence="`max_tool_calls` and `context_window` are `length`; a failed answer is `error`.",
    ),
    R(
        "driver:D13",
        "driver D13",
        "Usage is read under each of its names, with the most that anything says of hosted tools.",
        divergence="A missing total is the sum of input and output.",
    ),
    R(
        "driver:D14",
        "driver D14",
        "The object is read from the text or from `structured_output`, mended on request, and held against its schema.",
    ),
    R("driver:D15", "driver D15", "The message knows its response id, its phases and what to replay."),
    R("driver:problem", "driver S12, S13", "A failed answer has its problem, whole or streamed, and can raise it."),
    R("driver:kinds", "hosted-tools A1", "Calls of every kind are told by who executes them, unknown kinds too."),
    R("driver:lossless", "issue 5, section 1", "Every item stays at hand as it came."),
    R(
        "driver:schema",
        "driver D14",
        "An object is judged as JSON Schema says, without a validator's package, and never without end.",
        divergence="`pattern` and `patternProperties` are not checked.",
    ),
    R("driver:repair", "driver D14", "JSON as models write it is read as it was meant; what was none is not made up."),
    R("driver:loose", "issue 5, section 1", "NaN, half characters and missing last brackets are read."),
    R("driver:light", "issue 5, section 1", "The codec loads no library but msgspec."),
    R("driver:recordings", "issue 5, must show 1", "Recorded answers of real endpoints are decoded without loss."),
)

DRIVER_STREAM: tuple[Requirement, ...] = (
    R("driver:S1", "driver S1", "Text and refusals come as they arrive, with the phase that their item announced."),
    R("driver:S2", "driver S2", "The whole of a text that has ended is no chunk."),
    R(
        "driver:S3",
        "driver S3",
        "Thinking comes under each of its event names; joined, parts have a blank line between.",
    ),
    R("driver:S4", "driver S4", "Parts of a reasoning summary are announced, and told when done."),
    R("driver:S5", "driver S5", "Calls are announced by who executes them: function, hosted tool, code interpreter."),
    R("driver:S6", "driver S6", "Arguments come in fragments, or whole where none came; old event names count too."),
    R(
        "driver:S7",
        "driver S7",
        "A done item brings what no delta brought, and nothing twice.",
        divergence="Where deltas stopped short of the text, its rest comes too.",
    ),
    R("driver:S8", "driver S8", "Annotations come one by one; those of the last event count."),
    R("driver:S9", "driver S9", "Usage may come in an event of its own."),
    R(
        "driver:S10",
        "driver S10",
        "The terminal chunk says how the answer ended, with all that the next request needs.",
    ),
    R("driver:S11", "driver S11", "An incomplete answer says why, and keeps its usage."),
    R("driver:S12", "driver S12", "A failed answer ends its stream with its problem."),
    R("driver:S13", "driver S13", "An error event, flat or nested, ends the stream with its problem."),
    R(
        "driver:S14",
        "driver S14",
        "[DONE] ends what nothing else ended; what nobody knows is nothing; types are found.",
    ),
    R("driver:S15", "driver S15", "Calls of hosted tools are counted once, from events and items."),
    R("driver:law", "issue 5, section 1", "The streamed and the whole answer of the same bytes are the same."),
    R("driver:own-streams", "issue 5, must show 2", "Antiphon's own streams are decoded to what the server keeps."),
    R("driver:cuts", "issue 5, must show 1", "Where the bytes of a stream are cut makes no difference."),
    R("driver:drops", "issue 5, must show 1", "Events that are missing are made up for by those that say the same."),
    R("driver:duplicates", "issue 5, must show 1", "Events that are repeated say nothing again."),
    R(
        "driver:identity",
        "issue 5, section 1",
        "Items are told apart by place, id or kind, whichever is there and right.",
    ),
    R("driver:numbers", "issue 5, section 1", "Sequence numbers that do not count are not believed."),
    R("driver:garbage", "issue 5, section 1", "No stream and no answer, however spoiled, is a crash."),
    R("driver:cut-off", "issue 5, section 1", "A stream that breaks off is an error that says where to take it up."),
    R("driver:several", "responses-api 7", "A stream may hold several answers one after the other."),
)

DRIVER_CALLS: tuple[Requirement, ...] = (
    R("driver:requests", "issue 5, section 1", "Responses are made, retrieved, cancelled, deleted and compacted."),
    R("driver:streams", "issue 5, section 1", "A stream is chunks, and at its end the answer that the whole would be."),
    R(
        "driver:retries",
        "operations C1",
        "Requests are sent again as the endpoint says, or after pauses that double, and only so often.",
    ),
    R(
        "driver:resume",
        "issue 5, section 1",
        "A stream that breaks off goes on where it was: its caller sees every chunk once.",
    ),
    R(
        "driver:cancel",
        "issue 5, section 1",
        "Who leaves a stream early, or is cancelled, ends it at the endpoint too, unless it was to run on.",
    ),
    R("driver:deadline", "issue 5, section 1", "A whole call ends when its time is over, at the endpoint too."),
    R("driver:timeouts", "issue 5, section 1", "An endpoint that says nothing for too long counts as broken off."),
    R("driver:background", "issue 5, section 1", "A response in the background is asked for until it has ended."),
    R("driver:objects", "issue 5, section 1", "A structured answer is an object of the type that was asked for."),
    R(
        "driver:fallbacks",
        "issue 5, section 1",
        "An answer that the endpoint forgot is not gone on from; where nothing is stored nothing runs in the background.",
    ),
    R(
        "driver:in-process",
        "issue 5, section 1",
        "The asynchronous client can ask an application in its own process, in sessions too.",
    ),
    R(
        "driver:sessions",
        "issue 5, section 1",
        "A session asks over one WebSocket: answers go on from each other though nothing is stored.",
    ),
)

DRIVER_TOOLS: tuple[Requirement, ...] = (
    R(
        "driver:tools:loop",
        "issue 5, section 1",
        "`run_tools` makes the calls of local functions and sends their results until the model answers, streamed too.",
    ),
    R("driver:tools:parallel", "issue 5, section 1", "Calls of one turn run at once where the client is asynchronous."),
    R(
        "driver:tools:arguments",
        "issue 5, section 1",
        "Arguments come in the types that a function names; parts that it gives back go as such.",
    ),
    R(
        "driver:tools:errors",
        "issue 5, section 1",
        "The model is told of errors, wrong arguments and unknown tools as data, without a traceback.",
    ),
    R("driver:tools:kinds", "issue 5, section 1", "Custom tools get their text, other kinds their item."),
    R("driver:tools:hosted", "driver D7", "What the server executed is not called again."),
    R(
        "driver:tools:approvals",
        "hosted-tools A2",
        "Calls of MCP servers that wait for a word get it from a function of the caller's; anything but yes is no.",
    ),
    R("driver:tools:pending", "issue 5, section 1", "Calls that nobody here can make end the run and are handed back."),
    R("driver:tools:structured", "driver D14", "A call of `structured_output` is the answer, and is not made."),
    R("driver:tools:ends", "issue 5, section 1", "An answer that was refused, cut or failed ends the run."),
    R("driver:tools:limits", "issue 5, section 1", "Rounds, calls, seconds and forced choices are limited."),
    R("driver:tools:threads", "issue 5, section 1", "A call with a limit of time has a thread of its own."),
    R("driver:tools:usage", "issue 5, section 1", "The usage of a run is that of all its rounds."),
    R(
        "driver:tools:chain",
        "driver bugs #421, #455",
        "Rounds go on from each other where answers are kept; otherwise all rounds go along, with their calls.",
    ),
    R(
        "driver:law:http",
        "issue 5, must show 2",
        "For random programs of the scripted model, the streamed, the whole and the stored answer are the same.",
    ),
    R("driver:law:websocket", "issue 5, must show 2", "An answer over a WebSocket is the whole and the stored one."),
    R("driver:law:in-process", "issue 5, must show 2", "The same holds for an application in this process."),
    R(
        "driver:resume:anywhere",
        "issue 5, must show 3",
        "Wherever five connections of a stream break, its caller sees the chunks of one that nothing broke.",
    ),
    R("driver:guide", "issue 5, must show 8", "The guide says of each provider what its profile says."),
    R("driver:tools:server", "issue 5, must show 2", "The loop ends the same over each transport to our own server."),
)

ASK: tuple[Requirement, ...] = (
    R(
        "cli:ask:answer",
        "issue 5, section 1",
        "`antiphon ask` writes the answer of any endpoint, as it comes or whole.",
    ),
    R("cli:ask:parts", "issue 5, section 1", "Images and files go along, by path or URL."),
    R("cli:ask:schema", "issue 5, section 1", "With a schema the answer is JSON that follows it, or there is none."),
    R("cli:ask:chain", "issue 5, section 1", "A question can go on from an earlier response."),
    R("cli:ask:json", "issue 5, section 1", "All of the answer is written as JSON, or its chunks a line each."),
    R(
        "cli:ask:errors",
        "issue 5, section 1",
        "What goes wrong is one line; the code is 1, or 2 where nothing was asked.",
    ),
    R("cli:ask:interrupt", "issue 5, section 1", "Ctrl-C ends the answer at the endpoint too; the code is 130."),
    R("cli:ask:keys", "issue 5, section 1", "A provider's key goes to that provider only, unless another is named."),
)

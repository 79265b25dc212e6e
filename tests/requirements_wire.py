"""The behaviours of the wire and of the event log."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["MACHINE", "WIRE"]

R = Requirement

WIRE: tuple[Requirement, ...] = (
    R("wire:request:quoted", "faults B3 17", "An error message repeats only a little of what was sent."),
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
        "M30; hosted-search B25",
        "More than 16 metadata entries are a 400 that names the number; keys and values are bounded too.",
    ),
)

MACHINE: tuple[Requirement, ...] = (
    R(
        "machine:whole-parts",
        "architecture, fine print",
        "An answer that is not streamed logs one delta a part, and is otherwise the same.",
    ),
    R("law:1:fold", "architecture law 1", "The fold of all events is the object of the terminal event."),
    R("law:1:prefix", "architecture law 1", "The fold of a prefix of the events is the snapshot that was true there."),
    R("law:2:frames", "architecture law 2", "Each event is encoded once, as one frame, numbered from 0 without gaps."),
    R("machine:lifecycle", "responses-api 6.1", "A log is created, in progress, items and exactly one terminal event."),
    R("machine:ids", "M26", "An item has one id for life: in its events, in the terminal object and in the store."),
    R("machine:indexes", "responses-api 6.1", "Output indexes are dense and follow the order of the items."),
    R("machine:nothing-lost", "issue 2", "All that an engine generates is in the output, under its own kind."),
    R(
        "machine:native",
        "issue 5, section 2",
        "Summaries, sealed thoughts, phases and citations of an engine stand where they belong, streamed and whole.",
    ),
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

"""The behaviours that clients and libraries of others rely on."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["CLIENTS", "LIBRARIES"]

R = Requirement

CLIENTS: tuple[Requirement, ...] = (
    R(
        "client:openai:strict",
        "issue 2, Must show 2",
        "The strict reading notices a wrong event, field, type, id or order.",
    ),
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
    R("client:openai:keep-alive", "client-contract 4.1", "Keep-alive comments do not reach the caller of the SDK."),
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
    R(
        "client:openai:running",
        "responses-api 6.3",
        "A running response is seen as it stands and followed live, and cannot be deleted, cancelled or chained.",
    ),
    R("client:openai:delete", "client-contract 3.2", "A deleted response is gone for every call, and for chaining."),
    R("client:openai:store-false", "responses-api 6.3", "A response that is not stored is not found."),
    R("client:openai:cancel", "issue 2", "Cancelling a foreground response is a 400, an unknown one a 404."),
    R(
        "client:openai:input-items",
        "responses-api 6.3",
        "The SDK pages through the input items of a whole chain, in both orders.",
    ),
    R("client:openai:tool-loop", "client-contract 3.2", "Tool loops run by chaining and by sending everything again."),
    R(
        "client:openai:replay-ids",
        "issue 2, Input",
        "Items that the SDK sends back keep their ids and are listed unchanged.",
    ),
    R(
        "client:openai:items",
        "client-contract 4.4",
        "Input items of every kind are listed as the SDK's types for them, with ids of ours.",
    ),
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
        "A chain of 50 turns with branches shows its first turn and no sibling, and only this request's instructions; "
        "ancestors that go break nothing.",
    ),
    R("client:chain:cost", "issue 2, Must show 5", "What a turn stores does not grow with the depth of its chain."),
    R("law:3:chain", "architecture law 3", "The prompt of a chain is the prompt of its items inline, byte for byte."),
    R(
        "client:llm-comply:scripted",
        "issue 2, Must show 3",
        "llm-comply fails nothing on the scripted model, in both dialects, and warns of nothing.",
    ),
    R(
        "client:llm-comply:real",
        "issue 2, Must show 3",
        "llm-comply fails on the default model in images, and in nothing else.",
        divergence="They are a 400 there: the model reads no images.",
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
    R("client:real:overflow", "issue 2", "An overflow is a 400 with both numbers, before any event."),
    R(
        "client:real:truncation",
        "responses-api 6.4",
        "truncation auto drops from the beginning, and as little as it can.",
    ),
    R("client:real:context-full", "M24", "An answer that fills the context is incomplete."),
    R("client:real:free", "issue 2", "With tools, `auto` and `none` are taken on llama.cpp."),
    R("client:real:media", "M18", "Media that the model cannot read are a 400, and nothing is fetched."),
    R(
        "client:real:calls",
        "issue 2, Tools",
        "A call that the model writes is a streamed function call after its thinking.",
    ),
    R("subset:quickstart", "subset, Quickstart", "The documented quickstart runs under the documented model name."),
    R("subset:routes", "subset, Implemented endpoints", "Every documented route stands, with and without /v1."),
    R(
        "subset:fields",
        "subset, Supported request fields",
        "Every documented field is taken and echoed; documented refusals are a 400 that names the field.",
        divergence="truncation auto is supported; an unknown model is a 404; reasoning.effort is echoed as it came.",
    ),
    R("subset:items", "subset, Input items", "Every documented item is taken, also an output without its call."),
    R(
        "subset:parts",
        "subset, Input items",
        "Every documented part is taken in messages and in tool outputs, the chat spellings too.",
        divergence="input_file and an image by file_id are refused by what the model reads, not by the route.",
    ),
    R(
        "subset:empty",
        "subset, Input items",
        "Nothing to answer is a 400, unless instructions or the history count.",
    ),
    R(
        "subset:shape",
        "subset, Response shape",
        "An answer has the documented fields.",
        divergence="Reasoning items have a summary list too, and text parts annotations and log probabilities.",
    ),
    R(
        "subset:events",
        "subset, Streaming events",
        "A stream has the documented events, thinking before the message, and its ids are those of the object.",
    ),
    R(
        "subset:stores",
        "subset, Response and conversation stores",
        "Flags and both spellings of the environment variables bound the store as documented.",
        divergence="SQLite, the default here, keeps 30 days without other limits; the table's are the memory store's.",
    ),
    R(
        "subset:conversation-stores",
        "subset, Response and conversation stores",
        "Flags and environment variables bound the store of conversations.",
        divergence="SQLite, the default here, keeps them without limits; without responses there are no conversations.",
    ),
    R(
        "subset:chaining",
        "subset, Chaining semantics",
        "A chain gives input and output of every turn, never instructions.",
    ),
    R(
        "subset:tool-choice",
        "subset, Tool choice enforcement",
        "Documented choices are enforced on the scripted model; documented refusals are a 400.",
        divergence="A call that is forced comes every time or is a 400: an instruction alone is never all there is.",
    ),
    R(
        "subset:unsupported-tools",
        "subset, Unsupported tool types",
        "Tools of any type are taken, stored and echoed; a choice that only they could meet is a 400.",
        divergence="The source answers 400 to every type but function; real clients send others and expect an answer.",
    ),
    R(
        "subset:gaps",
        "subset, Differences",
        "input_items, compact and input_tokens are there.",
        divergence="The source has none of them.",
    ),
    R(
        "subset:M7",
        "M7",
        "An empty prompt is allowed on /v1/completions, a blank one is not.",
    ),
    R("subset:M10", "M10", "With parallel_tool_calls false there is at most one call."),
    R(
        "subset:M11",
        "M11",
        "A json_schema comes flat or nested and is kept to; other unknown formats are a 400.",
        divergence="json_object is always JSON, where the source lets prose through.",
    ),
    R("subset:M12", "M12", "A schema that nests without end, or grows without bound, is a 400 at once."),
    R(
        "subset:M19",
        "M19",
        "conversation is taken as a string or an object, excludes previous_response_id, and extends what it names.",
        divergence="An unknown id is a 404, as at OpenAI, unless --conversation-autocreate lets it begin.",
    ),
    R(
        "subset:M20",
        "M20",
        "A chain rehydrates what was said and called.",
        divergence="Thinking is replayed too, and an id that is not there is a 404, as at OpenAI.",
    ),
    R("subset:M21", "M21", "A chain has any number of hops: the row's fault is not repeated."),
    R("subset:M22", "M22", "store false keeps nothing."),
    R(
        "subset:M25",
        "M25",
        "max_tool_calls gives the same count whole and streamed.",
        divergence="It counts hosted calls only and never cuts function calls, as at OpenAI.",
    ),
    R("subset:M26", "M26", "Ids in events are those of the terminal and the stored object: no second ids."),
    R("subset:M27", "M27", "reasoning_tokens counts the thinking."),
    R("subset:M28", "M28", "Times are numbers.", divergence="They are whole seconds, as Open Responses requires."),
    R(
        "subset:M32",
        "M32",
        "prompt_cache_key is taken and echoed.",
        divergence="Prefixes are reused with or without it.",
    ),
    R(
        "subset:M37",
        "M37",
        "Frames are typed, numbered from 0 and kept alive by comments.",
        divergence="Streams end with [DONE], as Open Responses requires.",
    ),
    R("subset:M41", "M41", "The response store is bounded by entries, bytes and age, by use and by time of creation."),
)

LIBRARIES: tuple[Requirement, ...] = (
    R(
        "client:real:libraries",
        "issue 4, must show 5",
        "On the default model the OpenAI SDK, LangChain and pydantic-ai get objects of their classes and forced calls, whole and streamed, over both APIs.",
    ),
    R(
        "constrain:suite",
        "issue 4, must show 2",
        "Schemas of the JSON Schema Test Suite are chosen over all its keywords, and what is no value of one is told.",
    ),
    R(
        "prompt:dialect:splits",
        "issue 4, must show 3",
        "Two hundred answers of each dialect are read alike at every place where they may be cut in two, and byte for byte.",
    ),
)

"""The behaviours of prompts and of what a request may ask of them."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["PROMPT", "RULES", "TOOLS"]

R = Requirement

PROMPT: tuple[Requirement, ...] = (
    R("prompt:files", "issue 2, Scripted", "A file part is told whole: name, id, address and data."),
    R("prompt:instance:pattern", "responses-api 6.4", "A text for a pattern is made by reading it, never by matching."),
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
    R(
        "subset:M9",
        "M9",
        "tool_choice auto, none, required and named are resolved against the declared tools.",
        divergence="A forced choice beside json_schema is not a 400: the choice wins, since clients send both.",
    ),
    R(
        "subset:M14",
        "M14",
        "Thinking goes to the next assistant turn, and is dropped if a user or tool turn comes first.",
    ),
    R(
        "subset:M17",
        "M17",
        "Images of tool outputs and of non-user messages move to a user message that follows.",
        divergence="A document of an output is told as its text where the model reads documents, not as JSON.",
    ),
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
        "prompt:calls:linear",
        "architecture",
        "Whitespace without end, and outputs without number, cost time in proportion to their length.",
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
        "prompt:normalize:linear",
        "architecture",
        "An arrangement is made only when the one before it was refused, in time in proportion to its length.",
    ),
    R(
        "prompt:normalize:fold",
        "issue 2",
        "System text can move into the first user message, and no text is ever lost.",
    ),
)

TOOLS: tuple[Requirement, ...] = (
    R(
        "tools:namespace:names",
        "client-contract 4.4",
        "A tool of a namespace has one name for the model, like no other.",
    ),
    R(
        "tools:namespace:flat",
        "issue 4, section 4",
        "Tools of namespaces are told to the model as functions of one list.",
    ),
    R("tools:namespace:call", "client-contract 3.1", "A call of a namespace has the bare name and the namespace."),
    R("tools:namespace:choice", "issue 4, section 4", "A tool choice can name a tool of a namespace, or all of one."),
    R(
        "tools:namespace:history",
        "issue 4, section 4",
        "A past call of a namespace is told by the name that was shown.",
    ),
    R("tools:namespace:malformed", "issue 4, section 4", "A malformed namespace is a 400 that names its place."),
    R(
        "tools:bounds",
        "responses-api 2",
        "Tools of namespaces and of the conversation count against the bound of tools.",
    ),
    R("tools:arguments", "issue 4, section 4", "Arguments are read while they are written, however they are cut."),
    R("tools:arguments:malformed", "issue 4, section 4", "Arguments that make no item fail the response, and say why."),
    R("tools:arguments:cut", "M24", "A call that a limit cuts keeps what came of it and is not told again."),
    R("tools:shell", "hosted-tools A1, A2", "A call of the client's shell is an item with the events of its commands."),
    R(
        "tools:apply-patch",
        "hosted-tools A1, A2",
        "A patch is an item of its own, which begins when its operation and its path are known.",
    ),
    R(
        "tools:apply-patch:diffs",
        "hosted-tools A2, client-contract 3.3",
        "The events of a diff come where include asks for apply_patch_call.operation_diff.",
        divergence="OpenAI always sends them, although the stream helper of its JavaScript package throws on them.",
    ),
    R("tools:local-shell", "hosted-tools A1", "A call of the local shell is an item of its own."),
    R("tools:client:loop", "client-contract 3.4", "The outputs of tools that a client runs go to the model as text."),
    R(
        "tools:client:history",
        "issue 4, section 4",
        "Past calls of such tools are told as calls of the functions shown.",
    ),
    R("tools:client:choice", "responses-api 4", "A tool choice forces such a tool."),
    R("tools:client:parallel", "responses-api 6.4", "Without parallel calls, such a call is the only one of its turn."),
    R("tools:client:names", "issue 4, section 4", "A function that is named like such a tool stays a function."),
    R("tools:client:ignored", "client-contract 4.4", "Tools that are not run here are accepted, echoed and not told."),
    R(
        "tools:client:resume",
        "issue 3, Must show 6",
        "Such calls are gone on with after a crash, wherever they were cut.",
    ),
    R(
        "tools:search:deferred",
        "hosted-tools A1",
        "A tool with defer_loading is not shown before a search has found it.",
    ),
    R(
        "tools:search:function",
        "issue 4, section 4",
        "The model searches with a function that says what there is to find.",
    ),
    R("tools:search:find", "issue 4, section 4", "A search goes by names and words, and its result is bounded."),
    R("tools:search:output", "hosted-tools A2", "What a search found is an item with the tools as they were declared."),
    R("tools:search:call", "hosted-tools A2", "A search is an item that says who makes it."),
    R("tools:search:server", "hosted-tools A2", "After a search of the server the turn goes on with what was found."),
    R(
        "tools:search:client",
        "issue 4, section 4",
        "A search of the client ends the response; its output adds the tools.",
    ),
    R("tools:search:namespace", "recorded streams", "Calls of a deferred function have a namespace of its own name."),
    R("tools:search:history", "issue 4, section 4", "What was found stays found, in a chain and inline."),
    R("tools:search:choice", "issue 4, section 4", "A tool choice shows the deferred tool that it names."),
    R("tools:search:malformed", "issue 4, section 4", "A malformed output of a search is a 400 that names its place."),
    R("tools:rounds", "architecture, walk 3", "After tools that run here the model goes on, as a chain would."),
    R(
        "tools:rounds:wait",
        "architecture, walk 3",
        "A call of the client beside those that run here gives it the word.",
    ),
    R("tools:rounds:bound", "hosted-tools A1", "A response searches four times at most, and as max_tool_calls allows."),
    R("tools:rounds:choice", "architecture, walk 3", "What a tool choice forces is forced in the first turn only."),
    R("tools:rounds:usage", "responses-api 2.2", "Usage is that of all turns of a response."),
    R("tools:rounds:limit", "responses-api 6.4", "max_output_tokens is a limit of all turns together."),
    R(
        "tools:rounds:resume",
        "issue 3, Must show 6",
        "A response of several turns is gone on with in the turn it was in.",
    ),
    R("tools:additional", "responses-api 3", "additional_tools add tools from there on, also in a chain."),
    R(
        "tools:configuration",
        "responses-api 3",
        "configuration_update sets effort and format until another replaces it.",
    ),
    R("tools:phase", "responses-api 6.4", "The phase of a message is kept, listed and taken again without loss."),
    R("reasoning:summary", "issue 4, section 5", "The model sums up its thinking where reasoning.summary asks for it."),
    R("reasoning:summary:events", "responses-api 6.1", "A summary has its events before its item ends."),
    R("reasoning:summary:prompt", "issue 4, section 5", "A summary is a short turn under a bound of tokens."),
    R(
        "reasoning:summary:limit",
        "issue 4, section 5",
        "A response has eight summaries at most, and none of cut thinking.",
    ),
    R("reasoning:summary:usage", "responses-api 2.2", "The tokens of a summary count as output."),
    R(
        "reasoning:summary:beside",
        "issue 4, section 5",
        "A summary never costs the answer, nor waits for its own place.",
    ),
    R("reasoning:summary:encrypted", "issue 4, section 5", "A summary and encrypted_content go together."),
    R(
        "reasoning:template-kwargs",
        "issue 4, section 5",
        "Variables of the chat template come from the request, the effort, the model's and the server's settings.",
    ),
    R("store:prompts", "architecture, data model", "Prompt templates are kept by tenant, id and version, and sealed."),
    R("prompts:variables", "responses-api 2", "Variables of a template are replaced once, by text, images and files."),
    R("prompts:own-instructions", "issue 4, section 4", "Instructions of the request come instead of the template's."),
    R("prompts:chain", "responses-api 6.3", "A template is of one response, as instructions are."),
    R("prompts:not-found", "issue 4, section 4", "An unknown, deleted or foreign prompt is a 404, prompt_not_found."),
    R("prompts:malformed", "issue 4, section 4", "A malformed prompt or a missing variable is a 400 that names it."),
    R("prompts:resume", "issue 3, Must show 6", "A response goes on with the instructions that its template gave it."),
    R("cli:prompts", "issue 4, section 4", "`antiphon prompts` keeps, lists, shows and deletes prompt templates."),
    R(
        "cli:prompts:refused",
        "issue 4, section 4",
        "What `antiphon prompts` cannot do is told, and how it can be done.",
    ),
    R("cli:prompts:encrypted", "issue 3, Encryption at rest", "Prompts in an encrypted store are sealed."),
    R(
        "client:openai:tools",
        "issue 4, section 4",
        "Items and events of all these tools are those of the openai package.",
    ),
    R("client:agents:shell", "client-contract 3.4", "The Agents SDK runs commands and tells of their output."),
    R("client:agents:apply-patch", "client-contract 3.4", "The Agents SDK applies patches and tells of the result."),
    R("client:agents:tool-search", "client-contract 3.4", "The Agents SDK calls tools of namespaces, and tools found."),
    R("scripted:namespaces", "issue 4, section 4", "A call of a namespace is made only where it is declared."),
    R("scripted:then", "issue 4, section 4", "A text can say what comes after the outputs of its calls."),
    R("scripted:thought", "issue 4, section 5", "A summary of thinking is its first words."),
)

RULES: tuple[Requirement, ...] = (
    R(
        "wire:dialect:request",
        "issue 4, section 5",
        "A request chooses the names of events by the query parameter dialect or the header X-Antiphon-Dialect.",
    ),
    R(
        "prompt:instructions",
        "local-model 1.2",
        "A forced call is said in the system text, else in the last user message, else in system text of its own.",
    ),
    R(
        "subset:M42",
        "M42",
        "A stream is resumed behind any of its events, by whoever may read the response.",
        divergence="By GET /v1/responses/{id}?stream=true&starting_after=N, as at OpenAI, not by bytes at /v1/stream.",
    ),
    R(
        "subset:M46",
        "M46",
        "/v1/models lists every model that is served, and its aliases.",
        divergence="Their owner is antiphon; the source has one model, owned by user.",
    ),
    R(
        "subset:M47",
        "M47",
        "/metrics counts requests, tokens, cached tokens and times for Prometheus.",
        divergence="It is always there, at the server's port, under names of our own in vLLM's style.",
    ),
    R("scripted:budget", "issue 4, section 5", "The scripted model thinks within its budget, and then answers."),
    R(
        "media:output",
        "issue 4, section 7",
        "Images and documents that a tool gives reach the model as those of a user.",
    ),
    R(
        "subset:M48",
        "M48",
        "/v1/cache/stats and /v1/cache/reset are always there, with the same fields where nothing is cached.",
        divergence="A reset starts the model's process anew, and is for the server's operator only.",
    ),
    R(
        "reasoning:context",
        "responses-api 2",
        "`reasoning.context` says whether the thinking of earlier turns is told: `current_turn` leaves it out.",
    ),
    R(
        "settings:tool-dialect",
        "issue 4, section 1",
        "A setting names the form of a model's calls in place of its template.",
    ),
    R("api:cors", "operations C9", "Web pages of the origins that a setting names may ask, and no others."),
    R(
        "subset:M44",
        "M44",
        "A preflight is answered for the origins of --allowed-origins.",
        divergence="The default allows none, where the source reflects any: pages could use a server on one's machine.",
    ),
)

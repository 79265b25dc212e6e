"""The behaviours of the engines."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["FLORENCE", "LOCAL_ENGINE", "LOCAL_MEDIA", "PROBE", "SAMPLING", "SCRIPTED_ENGINE", "TEMPLATES"]

R = Requirement

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
        "Thinking is split from the answer and counted, also where the template opens it or a limit cuts it.",
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
        "engine:tokens:bounded",
        "architecture",
        "A prompt plainly longer than the context is refused by its beginning, and none that is longer is kept.",
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
        "Past thinking is kept, since prefixes are always cached; `preserve_thinking` false drops it and inline blocks.",
    ),
    R(
        "engine:child:no-tcp",
        "issue 2",
        "The child listens on a Unix socket in a folder of mode 0700 and on nothing else.",
    ),
    R(
        "engine:child:killed",
        "issue 3, Crash",
        "A turn whose child dies in mid-stream goes on in the next child, from what it has drawn.",
    ),
    R(
        "engine:child:deadly",
        "issue 3, Crash",
        "A turn whose child dies three times without a new token fails, and so does one that no child comes back for.",
    ),
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
    R(
        "engine:child:spared",
        "architecture",
        "A child is killed only when it does not answer; our own want, as of open files, is a 503 and harms no turn.",
    ),
    R(
        "engine:child:folder",
        "architecture",
        "The folders that a killed server left behind are removed at the next start, and nothing else is.",
    ),
    R(
        "engine:child:end",
        "architecture",
        "The log tells how a child ended and its last line, and speaks of memory only where the system does.",
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
    R(
        "engine:faults:refused",
        "issue 2",
        "Where llama.cpp refuses what a request asks for, the error repeats its words, without paths.",
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
    R("scripted:summary", "issue 2, Scripted", "A summary prompt of the server's own gets SUMMARY."),
)

SAMPLING: tuple[Requirement, ...] = (
    R("sampling:request", "M29", "Each field of sampling has its range; a value beyond it is a 400 that names it."),
    R("sampling:names", "M29", "The names that llama.cpp and vLLM have for the same field are both taken."),
    R("sampling:bounds", "B3 8", "No number of a request reaches an engine that is beyond its range."),
    R("sampling:reaches", "M29", "Each field of sampling reaches llama.cpp as it was sent."),
    R("sampling:bias", "M29", "A bias of a token's logit decides what is drawn."),
    R("sampling:bias:unknown", "M29", "A bias of a token that the model does not have is a 400."),
    R("thinking:budget", "issue 4, section 5", "Thinking that has spent its budget is ended; the answer follows."),
    R("thinking:budget:none", "issue 4, section 5", "A budget of nothing, or the server's, ends thinking at once."),
    R("thinking:budget:names", "M29", "The names that comparable servers have for the budget are taken."),
    R("thinking:budget:bound", "issue 4, section 5", "A forced call or an object comes after bounded thinking."),
    R("thinking:budget:resume", "issue 4, section 5", "A turn with a budget goes on after a crash as it would have."),
)

LOCAL_MEDIA: tuple[Requirement, ...] = (
    R("engine:media:image", "issue 4, section 7", "An image reaches a GGUF model through its projector."),
    R("engine:media:tokens", "issue 4, section 7", "Tokens of images are counted before they are read."),
    R("engine:media:cached", "issue 4, section 7", "An image that was read is kept; another one is not taken for it."),
    R("engine:media:context", "issue 4, section 7", "Images that the context cannot hold are a 400."),
    R("engine:media:forced", "issue 4, section 7", "A forced call comes with an image in the prompt."),
    R("engine:media:stop", "M29", "A stop word ends a turn with an image."),
    R("engine:media:resume", "issue 4, section 7", "A turn with an image goes on after a death from what was told."),
    R("engine:media:cancel", "issue 4, section 7", "Leaving a turn with an image frees its slot."),
    R("engine:media:unreadable", "issue 4, section 7", "An address, a video and what is no image reach no model."),
    R("engine:media:projector", "issue 4, section 7", "A projector that is not the model's is an error at the start."),
    R("engine:media:settings", "issue 4, section 7", "A projector is named by --mmproj or by its model's settings."),
)

FLORENCE: tuple[Requirement, ...] = (
    R(
        "florence:tasks",
        "issue 4, section 9",
        "A task is the prompt that a text begins with; there are fifteen of them.",
    ),
    R("florence:text", "M50", "An answer in text is the text without marks, and has no places."),
    R("florence:boxes", "M50", "Each four numbers after a label are a box of it; what makes no box is left out."),
    R("florence:quads", "M50", "A text in an image has four corners."),
    R("florence:polygons", "M50", "The outlines of one thing are together, with its label."),
    R(
        "florence:either",
        "M50",
        "What is sought by name is found as boxes or as outlines, each with labels of its own.",
    ),
    R("florence:pixels", "issue 4, section 9", "A place is the pixel at the centre of its bin."),
    R("florence:any-sequence", "issue 4, section 9", "Whatever is generated, every place is inside the image."),
    R("florence:engine", "issue 4, section 9", "Each task about one image is answered, with its tokens counted."),
    R("florence:result", "M50", "A whole chat answer has `florence2_result`; everything else has its text alone."),
    R("florence:refused", "issue 4, section 9", "What is no task about one image is a 400 that says what is missing."),
    R("florence:restart", "issue 4, section 9", "A task that kills the child fails, and the next one is answered."),
    R("florence:deadline", "issue 4, section 9", "A task that takes too long ends the child, which is started again."),
    R("florence:cancel", "issue 4, section 9", "Leaving a task cancels it; tasks are worked on one at a time."),
    R("florence:faults", "issue 4, section 9", "An image or a task that the child refuses is told in plain words."),
    R("florence:load", "issue 4, section 9", "A model that does not load ends the start with the reason."),
    R("florence:registry", "issue 4, section 9", "A folder of the model is served with the extra `vision` installed."),
)

PROBE: tuple[Requirement, ...] = (
    R("engine:grammars", "issue 4, section 3", "Before it serves, llama.cpp is asked whether it obeys a grammar."),
    R(
        "engine:grammars:refused",
        "issue 4, section 3",
        "Where it does not, forced calls, formats and grammars of tools are a 400; the rest is served.",
    ),
    R("engine:grammars:told", "operations C2", "That grammars are not obeyed is an event, and is in the log."),
    R("engine:grammars:checked", "issue 4, section 3", "A call that no grammar has bound is checked when it is made."),
    R("engine:grammars:lives", "faults B3 12", "Every life of the child is asked; two that die of it are enough."),
)

TEMPLATES: tuple[Requirement, ...] = (
    R("template:trial", "faults B3 4", "A chat template that loops, crashes or eats memory is refused at the start."),
    R(
        "template:header",
        "faults B3 7",
        "Templates are found in a model file, and what it says of itself is not trusted.",
    ),
    R("engine:load:lies", "faults B3 7", "A model file that lies about its sizes is refused, and harms nothing."),
    R("template:file", "faults B3 4", "A model gets another chat template by --chat-template-file or its settings."),
    R("template:serving", "faults B3 4", "A template that loops over one conversation holds up no other request."),
    R("template:serving:memory", "faults B3 4", "A template that eats memory over one conversation is stopped."),
)

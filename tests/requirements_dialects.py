"""The behaviours of tool calls in the models' own words, and of what holds a model to a form."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["CONSTRAINTS", "DIALECTS_A", "DIALECTS_B"]

R = Requirement

DIALECTS_A: tuple[Requirement, ...] = (
    R(
        "prompt:dialect:mistral",
        "issue 4, 1",
        "Mistral's calls are read in the older and the newer form, with ids or without, and ids have nine characters.",
    ),
    R(
        "prompt:dialect:kimi",
        "issue 4, 1",
        "Kimi's sections of calls are read, with or without their frame; ids count as the template counts.",
    ),
    R(
        "prompt:dialect:deepseek",
        "issue 4, 1",
        "DeepSeek's calls are read, arguments bare or as a block of code, also where a distilled model misspells.",
    ),
    R(
        "prompt:dialect:llama3",
        "issue 4, 1",
        "Llama's objects of name and parameters are read, bare or marked, also several; templates get one at a time.",
    ),
    R(
        "prompt:dialect:pythonic",
        "issue 4, 1",
        "Calls as Python functions are read in every frame and come out as JSON; a template gets what it cannot show.",
    ),
    R(
        "prompt:dialect:bare-input",
        "issue 4, 4",
        "The input of a custom tool with a Lark grammar stands in the call as it is, and the grammar binds it there.",
    ),
    R(
        "engine:dialect:bare-calls",
        "issue 4, 2",
        "A free call without a marker is bound from the name of its tool on, and only where a call can stand.",
    ),
    R(
        "prompt:literals:json",
        "issue 4, 1",
        "Arguments in sound JSON leave byte for byte as they come; what is meant beyond doubt is mended on the way.",
    ),
    R("prompt:literals:python", "issue 4, 1", "Python's literals are turned into JSON while they are generated."),
    R(
        "prompt:arguments",
        "issue 4, 1",
        "Arguments of a call leave as the JSON text of an object, and the input of a custom tool as bare text.",
    ),
    R(
        "prompt:history",
        "issue 4, 1",
        "Past calls and outputs get the ids, names, order and company that the chat template of a family takes.",
    ),
)

CONSTRAINTS: tuple[Requirement, ...] = (
    R(
        "constrain:check:schema",
        "issue 4, 3",
        "A schema that no draft of JSON Schema knows is named as one, before anything is generated.",
    ),
    R(
        "constrain:check:grammar",
        "issue 4, 3",
        "Every grammar is read by llguidance, under limits, before an engine sees it.",
    ),
    R(
        "constrain:check:output",
        "issue 4, 3",
        "An output is checked against the whole schema, look-around and unique items included.",
    ),
    R(
        "constrain:check:process",
        "faults B2 16",
        "What checks runs apart and is started anew when a question kills it; others get their answers.",
    ),
    R(
        "constrain:attack:grammar",
        "faults B3 9 and 10",
        "A hostile grammar is a fault within its time, and holds up nothing.",
    ),
    R("constrain:attack:schema", "faults B2 16, B3 11", "A hostile schema or pattern ends nothing but itself."),
    R(
        "constrain:limits",
        "M12",
        "A schema has at most 64 KiB, 32 levels and 64 references; more is a 400 that names its place.",
    ),
    R(
        "constrain:schema:strict",
        "responses-api 6.4",
        "All of the strict subset is held to: enums, alternatives, definitions, recursion, patterns, formats, bounds, and the order of keys.",
    ),
    R(
        "constrain:schema:rest",
        "issue 4, 2",
        "What a grammar cannot express is left out of it, so that the rest still binds.",
    ),
    R(
        "constrain:schema:ends",
        "issue 4, 2",
        "Under a schema no spaces, no unnamed properties and no nesting go on for ever.",
    ),
    R(
        "constrain:arguments",
        "issue 4, 2",
        "The arguments of a tool are one object, or parameters that stand alone for forms that are not JSON.",
    ),
    R(
        "constrain:grammar:forced",
        "issue 4, 2",
        "Under a forced choice a turn is calls of the tools that may be called, and nothing else.",
    ),
    R(
        "constrain:grammar:parallel",
        "M10",
        "Where calls may not be parallel a grammar allows one, else no more than eight.",
    ),
    R(
        "constrain:grammar:thinking",
        "issue 4, 1",
        "Thinking before a forced call or an object is a rule of the grammar, where the template knows it.",
    ),
    R(
        "constrain:grammar:control",
        "local-engine 2a",
        "Markers that are control tokens are written as tokens, and texts that look like them are spelled out.",
    ),
    R(
        "constrain:grammar:format",
        "issue 4, 3",
        "An output format binds the whole answer; with tools in `auto` it is a call or the object.",
    ),
    R("constrain:grammar:choice-wins", "issue 4, 2", "A forced choice beats an output format."),
    R(
        "constrain:grammar:opened",
        "issue 4, 2",
        "Behind the opening of a call a grammar goes on with calls of declared tools.",
    ),
    R(
        "constrain:custom:lark",
        "issue 4, 4",
        "The input of a custom tool with a Lark grammar stands as it is, where the grammar binds it, and is read back.",
    ),
    R(
        "constrain:forced",
        "issue 4, 2",
        "On llama.cpp every forced call is made and valid at temperature 1, by the grammar alone.",
    ),
    R(
        "constrain:format",
        "M11",
        "On llama.cpp `json_schema` and `json_object` are held to, and the schema is shown to the model.",
    ),
    R(
        "constrain:auto",
        "issue 4, 2",
        "A free call is bound from its opening on: declared names, valid arguments, and text behind it; nothing leaks.",
    ),
    R("constrain:stop-words", "issue 4, 6", "Stop words cut text, and no call and no formatted object."),
    R("constrain:cut", "M24", "A limit that cuts a bound turn makes it incomplete."),
    R(
        "constrain:retry",
        "issue 4, 2",
        "What a grammar cannot express is checked before it is told, drawn once more, and then failed with a code of its own.",
    ),
    R(
        "constrain:unbound",
        "local-engine 2a",
        "Where llama.cpp answers without the grammar, the turn fails and is not taken for what was asked.",
    ),
    R("constrain:refused", "issue 4, 3", "A malformed schema or grammar is a 400 that names its place in the request."),
    R(
        "constrain:cache",
        "faults B3 19",
        "What was checked is kept, within bounds, for requests that declare the same.",
    ),
    R(
        "constrain:resume",
        "architecture, fine print",
        "A turn under a grammar that was interrupted is drawn again from its seed, and what was told is not told again.",
    ),
    R(
        "constrain:attack:engine",
        "faults B3 9 to 12",
        "A grammar that can be read but does harm harms its own turn only.",
    ),
    R(
        "client:real:forced",
        "issue 4, Must show 2",
        "On the default model a required and a named call come whatever is asked, at temperature 0.7.",
    ),
    R(
        "client:real:formats",
        "issue 4, Must show 2",
        "On the default model an answer in a format is an object of its schema, also through `parse`.",
    ),
    R(
        "client:real:refused",
        "issue 4, 3",
        "On the default model what is malformed is refused before anything is generated.",
    ),
)

DIALECTS_B: tuple[Requirement, ...] = (
    R(
        "prompt:dialect:qwen3-coder",
        "issue 4, 1",
        "Calls of Qwen3-Coder are read: a function with a tag for each parameter, with or without its block.",
    ),
    R(
        "prompt:dialect:glm",
        "issue 4, 1",
        "Calls of GLM are read: keys and values in turn, each between tags, on lines of their own or not.",
    ),
    R(
        "prompt:dialect:harmony",
        "issue 4, 1",
        "The channels of gpt-oss are told apart: thinking, text, and calls in any form of their header.",
    ),
    R(
        "prompt:dialect:gemma",
        "issue 4, 1",
        "Calls of Gemma are read: the notation of Gemma 4 and FunctionGemma, and the fenced form that Gemma 3 is asked for.",
    ),
    R(
        "prompt:tagged:values",
        "local-engine 4",
        "Between tags a string stands bare and all else as JSON, and both come out as JSON of the schema's types.",
    ),
    R(
        "prompt:dialect:no-markup",
        "issue 4, 1",
        "No markup of a family reaches the text or the arguments, not even of a call that was cut.",
    ),
    R(
        "prompt:dialect:look-alikes",
        "issue 4, 1",
        "What only looks like a call of the family, or names a tool that may not be called, stays text.",
    ),
    R(
        "prompt:dialect:streamed-arguments",
        "issue 4, 1",
        "Arguments leave as JSON text while they are generated, whatever the family writes.",
    ),
    R(
        "prompt:dialect:custom-tools",
        "issue 4, 4",
        "In every family the input of a custom tool comes out as bare text while it is generated.",
    ),
    R("prompt:dialect:cuts", "issue 4, must show 3", "Every split of an answer's text gives the same items."),
    R(
        "prompt:dialect:grammar",
        "issue 4, 2",
        "What the grammar of a family's calls lets through is read back as calls of declared tools, valid by schema.",
    ),
    R(
        "engine:dialect:forced",
        "issue 4, must show 1",
        "On the real llama.cpp, with a random model at temperature 1, every forced call of every family is valid.",
    ),
    R(
        "engine:dialect:table",
        "issue 4, must show 1",
        "In every family all of auto, none, required, named, allowed tools and one call hold, streamed and without leaks.",
    ),
    R(
        "api:chain:dialects",
        "issue 4, must show 4",
        "In every family a chain prompts as its items inline, byte for byte, and goes on in the engine's cache.",
    ),
    R(
        "prompt:normalize:tools",
        "issue 4, 1",
        "A template that refuses lists of types in the schemas of tools is shown them as alternatives.",
    ),
)

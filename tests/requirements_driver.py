"""The behaviours of the driver, by the rules that it follows: E encodes, D decodes, S streams."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["DRIVER_DECODE", "DRIVER_ENCODE", "DRIVER_STREAM"]

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

DRIVER_DECODE: tuple[Requirement, ...] = ()

DRIVER_STREAM: tuple[Requirement, ...] = ()

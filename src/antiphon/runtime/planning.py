"""From a checked request and its history to a turn that the engine has counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from antiphon.engines.base import Engine, PreparedTurn
from antiphon.errors import ContextOverflowError, InvalidRequestError
from antiphon.prompt.assembly import assemble, renamed
from antiphon.prompt.budget import cut, cut_points
from antiphon.prompt.choice import after_first_turn, resolve_choice
from antiphon.prompt.looping import ANSWER_NOW, HOSTED_INSTRUCTIONS
from antiphon.prompt.messages import Conversation, additions
from antiphon.prompt.prompt import NOTHING_HOSTED, Hosted, Prompt, Sampling
from antiphon.prompt.pruning import truncated
from antiphon.prompt.toolbox import Toolbox, toolbox
from antiphon.protocol.context import prunes
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import AllowedTools, ToolChoice
from antiphon.runtime.hosted import HostedTools
from antiphon.runtime.rules import LOGPROBS, check_choice, check_format, check_word

__all__ = ["build_prompt", "instructed", "prepare", "sampling_of"]


ROOM_TOKENS = 256
"""Tokens that are left for an answer where results of tools are truncated."""

MOST_TRUNCATIONS = 4
"""How often it is tried, since characters are only about tokens."""

_CONTEXTS: Mapping[str, Mapping[str, Any]] = {
    "current_turn": {"preserve_thinking": False},
    "all_turns": {"preserve_thinking": True},
}
"""What `reasoning.context` says of past thinking, as a variable of the template (M15); `auto` says nothing."""


def build_prompt(
    request: CreateResponse,
    parts: Sequence[Conversation],
    engine: Engine,
    *,
    may_search: bool = True,
    first: bool = True,
    hosted: HostedTools | None = None,
    answer: bool = False,
) -> Prompt:
    """The prompt of a request, its history included.

    `may_search` says whether the server may search for tools in this turn, and `first` whether it is the first turn of
    the response: a forced call is forced there only (B7). `hosted` are the tools that run here. With `answer` the model
    is told to answer in text, and is given no tools (B6).

    Raises:
        InvalidRequestError: the tool choice or the output format cannot be met.
    """
    capabilities = engine.capabilities
    added, _ = additions(parts)
    box = toolbox(
        request.tools,
        added,
        may_search=may_search,
        hosted=() if hosted is None else hosted.functions,
        here=() if hosted is None else hosted.here,
        # Whoever uses a computer has to see it; an upstream with such tools knows them by themselves.
        computer="image" in capabilities.media and not capabilities.hosted,
    )
    wanted = "none" if answer else request.tool_choice if first else after_first_turn(request.tool_choice)
    tools, choice = resolve_choice(box, wanted, hosted=capabilities.hosted)
    check_choice(choice, capabilities)
    form = check_format(request, capabilities)
    instructions = instructed(request, parts, hosted).instructions
    prunable = prunes(request.context_management)
    told = assemble(parts, instructions, hosted=capabilities.hosted, prunable=prunable)
    messages = renamed(told, box.renames)
    if answer:
        messages = [*messages, ANSWER_NOW]
    check_word(form, messages)
    return Prompt(
        messages=messages,
        tools=tools,
        toolbox=box,
        choice=choice,
        # A choice of one tool by its name is one call of it.
        parallel_tool_calls=request.parallel_tool_calls and not _is_named(wanted),
        format=form,
        sampling=sampling_of(request),
        max_output_tokens=request.max_output_tokens,
        reasoning_effort=request.reasoning.effort,
        thinking_budget=request.thinking_budget,
        template_kwargs=request.chat_template_kwargs,
        template_defaults={**engine.template_defaults, **_CONTEXTS.get(request.reasoning.context or "", {})},
        media=frozenset[str]().union(*(part.media for part in parts)),
        hosted=_hosted(request, box) if capabilities.hosted else NOTHING_HOSTED,
        kept=request.background and request.store,
        edits=() if prunable else None,
    )


def instructed(request: CreateResponse, parts: Sequence[Conversation], hosted: HostedTools | None) -> CreateResponse:
    """The request with the server's own instructions where it declares hosted tools and has no system text (B13)."""
    if hosted is None or not hosted.here or request.instructions or any(part.system for part in parts):
        return request
    return msgspec.structs.replace(request, instructions=HOSTED_INSTRUCTIONS)


def _hosted(request: CreateResponse, box: Toolbox) -> Hosted:
    """What of a request only an upstream with the same API understands."""
    fields: dict[str, Any] = {
        "max_tool_calls": request.max_tool_calls,
        "safety_identifier": request.safety_identifier,
        "service_tier": None if request.service_tier == "auto" else request.service_tier,
    }
    return Hosted(
        tools=box.hosted,
        include=[name for name in request.include if name.partition(".")[0].endswith(("_call", "_call_output"))],
        fields={name: value for name, value in fields.items() if value is not None},
        summary=request.reasoning.summary or request.reasoning.generate_summary,
        verbosity=request.text.verbosity,
    )


def _is_named(choice: ToolChoice) -> bool:
    return not isinstance(choice, str | AllowedTools)


def sampling_of(request: CreateResponse) -> Sampling:
    """How the tokens of a request's answer are drawn."""
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repeat_penalty=request.repeat_penalty,
        samplers=request.samplers,
        seed=request.seed,
        stop=request.stop,
        top_logprobs=request.top_logprobs if LOGPROBS in request.include else None,
    )


async def prepare(engine: Engine, prompt: Prompt, truncation: str) -> PreparedTurn:
    """The counted turn; with `auto`, as few of the oldest messages as possible are dropped until it fits.

    Where the context may be edited, the longest results of tools are truncated before (B14).

    Raises:
        ContextOverflowError: it does not fit, or not even its last message does.
        InvalidRequestError: the template refuses the conversation.
    """
    try:
        return await engine.prepare(prompt)
    except ContextOverflowError as error:
        shorter = await _truncated(engine, prompt, error)
        if shorter is not None:
            return shorter
        if truncation != "auto":
            raise
    points = cut_points(prompt.messages)
    low, high = 1, len(points) - 1
    fitting: PreparedTurn | None = None
    while low <= high:
        middle = (low + high) // 2
        shorter = msgspec.structs.replace(prompt, messages=cut(prompt.messages, points[middle]))
        try:
            fitting = await engine.prepare(shorter)
            high = middle - 1
        except InvalidRequestError:
            # Too long still, or a template that refuses this beginning.
            if middle == len(points) - 1:
                raise
            low = middle + 1
    if fitting is None:
        return await engine.prepare(prompt)
    return fitting


async def _truncated(engine: Engine, prompt: Prompt, error: ContextOverflowError) -> PreparedTurn | None:
    """The turn with results of tools truncated; None where they may not be, or where that is not enough."""
    if prompt.edits is None:
        return None
    excess = 0
    for _ in range(MOST_TRUNCATIONS):
        excess += error.input_tokens - error.context_length + ROOM_TOKENS
        messages, edits = truncated(prompt.messages, excess)
        if not edits:
            return None
        try:
            return await engine.prepare(msgspec.structs.replace(prompt, messages=messages, edits=edits))
        except ContextOverflowError as again:
            error = again
    return None

"""The body of `POST /v1/responses` (responses-api 2): types, ranges and limits of single fields.

Unknown fields are ignored and an explicit null is the same as an absent field (client-contract 4.4). Rules that tie
several fields together, or that ask the store or the engine, are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.bounds import Count, check_metadata, too_long
from antiphon.protocol.context import ContextManagement, check_context_management, take_trigger
from antiphon.protocol.depth import check_value
from antiphon.protocol.items import Item, Message, decode_item
from antiphon.protocol.json import decode_body, quoted
from antiphon.protocol.parts import InputText
from antiphon.protocol.sampling import Samplers, SamplingFields, budget_of, samplers_of
from antiphon.protocol.tools import Tool, ToolChoice, decode_tool, decode_tool_choice

__all__ = [
    "LOGPROBS",
    "MAX_INPUT_ITEMS",
    "CreateResponse",
    "ReasoningConfig",
    "SharedFields",
    "TextConfig",
    "TextFormat",
    "check_tools",
    "check_verbosity",
    "decode_create_response",
    "shared_values",
]

LOGPROBS = "message.output_text.logprobs"
"""The `include` value that gives text its log probabilities."""

MAX_INPUT_TEXT = 10_485_760
MAX_INPUT_ITEMS = 10_000
MAX_TOOLS = 1_024
MAX_IDENTIFIER = 64
MAX_STOPS = 16
MAX_STOP = 256
MAX_SAFETY_IDENTIFIER = 128


class TextFormat(Struct, omit_defaults=True):
    """`text`, `json_object` or `json_schema`; the schema comes flat (OpenAI) or nested under `json_schema` (M11)."""

    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None
    json_schema: dict[str, Any] | None = None


class TextConfig(Struct):
    """`text`: the output format and the verbosity."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningConfig(Struct):
    """`reasoning`: the effort is echoed unchanged and feeds the template (M13)."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    context: str | None = None
    mode: str | None = None


class StreamOptions(Struct):
    """`stream_options`."""

    include_obfuscation: bool | None = None


class SharedFields(SamplingFields):
    """Fields that the bodies of all generating routes have in common: sampling (M29), and who asks for what."""

    model: str | None = None
    store: bool | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    parallel_tool_calls: bool | None = None
    truncation: str | None = None
    metadata: dict[str, str | None] | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    top_k: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-1, le=2**32 - 1)] | None = None
    stop: str | list[str] | None = None


class _Body(SharedFields):
    input: str | list[Raw] | None = None
    instructions: str | list[Raw] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_output_tokens: Count | None = None
    max_tool_calls: Count | None = None
    tools: list[Raw] | None = None
    tool_choice: Raw = Raw(b"null")
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    context_management: list[ContextManagement] | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    generate: bool | None = None


class CreateResponse(Struct):
    """A request, typed and with the defaults of its single fields; `items` is the input as items.

    `generate` False, which only a WebSocket asks for, ends the response at once without output (responses-api 7).
    `compaction_trigger` says that the input asked for a compaction; the item that did so is not among `items`.
    `unset` names the fields that the body did not set, of those whose value here does not say it.
    """

    model: str | None
    items: list[Item]
    instructions: str | None
    instruction_items: list[Item] | None
    previous_response_id: str | None
    conversation: str | dict[str, Any] | None
    store: bool
    stream: bool
    background: bool
    include: list[str]
    temperature: float | None
    top_p: float | None
    top_logprobs: int
    presence_penalty: float
    frequency_penalty: float
    max_output_tokens: int | None
    max_tool_calls: int | None
    parallel_tool_calls: bool
    tools: list[Tool]
    tool_choice: ToolChoice
    text: TextConfig
    reasoning: ReasoningConfig
    truncation: str
    context_management: list[ContextManagement]
    compaction_trigger: bool
    metadata: dict[str, str]
    prompt: dict[str, Any] | None
    prompt_cache_key: str | None
    service_tier: str
    safety_identifier: str | None
    user: str | None
    chat_template_kwargs: dict[str, Any]
    top_k: int | None
    min_p: float | None
    repeat_penalty: float | None
    samplers: Samplers
    thinking_budget: int | None
    seed: int | None
    stop: list[str]
    generate: bool = True
    unset: frozenset[str] = frozenset()


_decoder = msgspec.json.Decoder(_Body)


def decode_create_response(data: bytes) -> CreateResponse:
    """The typed request of a JSON body.

    Raises:
        InvalidRequestError: the JSON is malformed, or a field has a wrong type or is out of range; `param` is its path.
    """
    body = decode_body(_decoder, data)
    _check_limits(body)
    instructions = body.instructions
    items = _items(body.input, "input")
    compaction_trigger = take_trigger(items)
    return CreateResponse(
        **shared_values(body),
        items=items,
        instructions=instructions if isinstance(instructions, str) else None,
        instruction_items=None if isinstance(instructions, str | None) else _items(instructions, "instructions"),
        previous_response_id=body.previous_response_id,
        conversation=body.conversation,
        background=body.background is True,
        include=body.include or [],
        top_logprobs=body.top_logprobs or 0,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        tools=[decode_tool(raw, f"tools[{index}]") for index, raw in enumerate(body.tools or ())],
        tool_choice=decode_tool_choice(body.tool_choice),
        text=body.text or TextConfig(),
        reasoning=body.reasoning or ReasoningConfig(),
        context_management=check_context_management(body.context_management),
        compaction_trigger=compaction_trigger,
        prompt=body.prompt,
        generate=body.generate is not False,
    )


def shared_values(body: SharedFields) -> dict[str, Any]:
    """The fields of a `CreateResponse` that such a body gives, with their defaults.

    Raises:
        InvalidRequestError: one is too long, nested too deeply or of an unknown value.
    """
    _check_shared(body)
    repeat_penalty, samplers = samplers_of(body)
    return {
        "model": body.model,
        "store": body.store is not False,
        "stream": body.stream is True,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "presence_penalty": body.presence_penalty or 0.0,
        "frequency_penalty": body.frequency_penalty or 0.0,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "truncation": body.truncation or "disabled",
        "metadata": check_metadata(body.metadata),
        "prompt_cache_key": body.prompt_cache_key,
        "service_tier": body.service_tier or "auto",
        "safety_identifier": body.safety_identifier,
        "user": body.user,
        "chat_template_kwargs": body.chat_template_kwargs or {},
        "top_k": body.top_k,
        "min_p": body.min_p,
        "repeat_penalty": repeat_penalty,
        "samplers": samplers,
        "thinking_budget": budget_of(body),
        "seed": body.seed,
        "stop": [body.stop] if isinstance(body.stop, str) else body.stop or [],
        "unset": _unset(body),
    }


_FILLED = ("presence_penalty", "frequency_penalty", "parallel_tool_calls", "truncation", "service_tier", "stop")
_ALL_UNSET = frozenset(_FILLED)
_filled: Callable[[SharedFields], tuple[Any, ...]] = attrgetter(*_FILLED)


def _unset(body: SharedFields) -> frozenset[str]:
    given = _filled(body)
    if given.count(None) == len(given):
        return _ALL_UNSET
    return frozenset(name for name, value in zip(_FILLED, given, strict=True) if value is None)


def _items(value: str | Sequence[Raw] | None, path: str) -> list[Item]:
    if value is None:
        return []
    if isinstance(value, str):
        if len(value) > MAX_INPUT_TEXT:
            raise too_long(path, MAX_INPUT_TEXT, len(value))
        return [Message(role="user", content=[InputText(text=value)])]
    if len(value) > MAX_INPUT_ITEMS:
        raise InvalidRequestError(
            f"Invalid '{path}': at most {MAX_INPUT_ITEMS} items are expected, but got {len(value)}.",
            param=path,
            code="array_above_max_length",
        )
    return [decode_item(raw, f"{path}[{index}]") for index, raw in enumerate(value)]


def _check_shared(body: SharedFields) -> None:
    for field, limit in (("prompt_cache_key", MAX_IDENTIFIER), ("safety_identifier", MAX_SAFETY_IDENTIFIER)):
        value: str | None = getattr(body, field)
        if value is not None and len(value) > limit:
            raise too_long(field, limit, len(value))
    if body.truncation not in (None, "auto", "disabled"):
        raise InvalidRequestError(
            f"Invalid value: '{quoted(body.truncation or '')}'. Supported values are: 'auto' and 'disabled'.",
            param="truncation",
            code="invalid_value",
        )
    _check_stop(body.stop)
    check_value(body.chat_template_kwargs, "chat_template_kwargs")


def check_tools(count: int) -> None:
    """Refuse more tools than one request may declare.

    Raises:
        InvalidRequestError: there are more.
    """
    if count > MAX_TOOLS:
        raise InvalidRequestError(
            f"Invalid 'tools': at most {MAX_TOOLS} tools are expected, but got {count}.",
            param="tools",
            code="array_above_max_length",
        )


def _check_limits(body: _Body) -> None:
    check_tools(len(body.tools or ()))
    if body.max_output_tokens is not None and body.max_output_tokens < 1:
        raise InvalidRequestError(
            f"Invalid 'max_output_tokens': max_output_tokens must be > 0, but got {body.max_output_tokens}.",
            param="max_output_tokens",
            code="integer_below_min_value",
        )
    if body.max_tool_calls is not None and body.max_tool_calls < 1:
        raise InvalidRequestError(
            f"Invalid 'max_tool_calls': integer below minimum value. Expected a value >= 1, "
            f"but got {body.max_tool_calls}.",
            param="max_tool_calls",
            code="integer_below_min_value",
        )
    if body.text is not None:
        check_verbosity(body.text.verbosity, "text.verbosity")
    if body.text is not None and body.text.format is not None:
        check_value(body.text.format.schema, "text.format.schema")
        check_value(body.text.format.json_schema, "text.format.json_schema")
    for field in ("prompt", "conversation", "context_management"):
        check_value(getattr(body, field), field)


def check_verbosity(value: str | None, path: str) -> None:
    """Refuse an unknown verbosity.

    Raises:
        InvalidRequestError: it is none of low, medium and high.
    """
    if value not in (None, "low", "medium", "high"):
        raise InvalidRequestError(
            f"Invalid value: '{quoted(value or '')}'. Supported values are: 'low', 'medium', and 'high'.",
            param=path,
            code="invalid_value",
        )


def _check_stop(stop: str | list[str] | None) -> None:
    texts = [stop] if isinstance(stop, str) else stop or []
    if len(texts) > MAX_STOPS or any(len(text) > MAX_STOP for text in texts):
        raise InvalidRequestError(
            f"Invalid 'stop': at most {MAX_STOPS} strings of at most {MAX_STOP} characters are expected.",
            param="stop",
            code="array_above_max_length",
        )

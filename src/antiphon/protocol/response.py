"""The response object: the superset of fields that OpenAI's types and Open Responses require (responses-api 2.2)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.protocol.items import Item, Message, RawItem, decode_item
from antiphon.protocol.parts import OutputText

__all__ = [
    "ERROR_CODES",
    "TERMINAL_STATUSES",
    "IncompleteDetails",
    "InputTokensDetails",
    "OutputItem",
    "OutputTokensDetails",
    "Response",
    "ResponseError",
    "Usage",
    "decode_response",
    "output_text",
    "wire_item",
]

TERMINAL_STATUSES = frozenset({"completed", "failed", "incomplete", "cancelled"})
"""A response in one of these never changes again."""

ERROR_CODES = frozenset(
    {
        "server_error",
        "server_restarted",
        "model_changed",
        "resume_diverged",
        "invalid_tool_call",
        "invalid_output",
        "context_length_exceeded",
        "upstream_error",
        "upstream_invalid",
        "upstream_lost",
        "upstream_timeout",
        "upstream_unauthorized",
        "rate_limit_exceeded",
        "invalid_prompt",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)
"""The codes that `error` of a response may hold: OpenAI's, and ours for what only this server can say.

`server_restarted` ends a foreground response, or one that nothing can go on with; `model_changed` one whose model or
chat template is not what it was; `resume_diverged` one that, run again, said something else than before (issue 3).
`invalid_tool_call` and `invalid_output` end one whose call or output is not valid by its schema or grammar (issue 4).
`upstream_lost` ends one whose upstream cannot be reached or broke off, `upstream_timeout` one whose upstream was silent
for too long, `upstream_invalid` one that it answered with nonsense, `upstream_unauthorized` one for which it did not
take our key; `upstream_error`, and `context_length_exceeded`, are what it says itself (issue 5).
"""

OutputItem = Item
"""An item under `output`."""


class InputTokensDetails(Struct):
    """Of the input tokens: how many came from the prefix cache, how many were written to it."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct):
    """Of the output tokens: how many were thinking."""

    reasoning_tokens: int = 0


class Usage(Struct):
    """Tokens in and out; the total is their sum."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(Struct):
    """Why a response failed; `type` is there for clients that require it (client-contract 3.6)."""

    code: str
    message: str
    type: str = "server_error"


class IncompleteDetails(Struct):
    """Why a response is incomplete: max_output_tokens, content_filter, …"""

    reason: str


class Response(Struct):
    """One response. `output` holds structs, and plain dicts for raw items, so that it encodes as it stands.

    `title` is the first words of the first user message of its conversation, on responses that are stored (B23).
    `hosted_tool_calls` are the calls of corpus tools, where the request declares any (B3); `context_management` is
    there where something was edited (B14).
    """

    id: str
    created_at: int
    model: str
    status: str = "in_progress"
    object: str = "response"
    completed_at: int | None = None
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: Any = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    output: list[Any] = msgspec.field(default_factory=list[Any])
    output_text: str | UnsetType = UNSET
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    conversation: dict[str, Any] | None | UnsetType = UNSET
    prompt: dict[str, Any] | None | UnsetType = UNSET
    prompt_cache_key: str | None = None
    reasoning: dict[str, Any] | None = None
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    tool_choice: Any = "auto"
    tools: list[Any] = msgspec.field(default_factory=list[Any])
    top_logprobs: int = 0
    top_p: float = 1.0
    truncation: str = "disabled"
    usage: Usage | None = None
    user: str | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    title: str | UnsetType = UNSET
    hosted_tool_calls: list[Any] | UnsetType = UNSET
    context_management: dict[str, Any] | UnsetType = UNSET


def output_text(output: list[Any]) -> str:
    """What the SDKs compute as `output_text`: all output_text parts of all messages, in order."""
    return "".join(
        part.text
        for item in output
        if isinstance(item, Message) and not isinstance(item.content, str)
        for part in item.content
        if isinstance(part, OutputText)
    )


def wire_item(item: Item) -> Any:
    """The item as it stands under `output`: a struct, or the whole object of a raw item."""
    return item.body if isinstance(item, RawItem) else item


class _WithRawOutput(Response):
    output: list[Any] = msgspec.field(default_factory=list[Any])


class _OutputOnly(Struct):
    output: list[Raw]


_response = msgspec.json.Decoder(_WithRawOutput)
_output = msgspec.json.Decoder(_OutputOnly)


def decode_response(data: bytes) -> Response:
    """A response of its JSON, with the items under `output` typed where they are of a known type."""
    response = _response.decode(data)
    response.output = [wire_item(decode_item(raw)) for raw in _output.decode(data).output]
    return response

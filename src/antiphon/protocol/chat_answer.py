"""The objects that answer a chat request: the whole one, and the choices of a streamed one.

Reasoning has two names, of which the second can be left out (M49); a field that is not there is UNSET.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from antiphon.protocol.florence import FlorenceResult
from antiphon.protocol.parts import Logprob
from antiphon.protocol.response import Usage

__all__ = [
    "AnswerHead",
    "CallCustom",
    "CallCustomDelta",
    "CallDelta",
    "CallFunction",
    "CallFunctionDelta",
    "ChatAnswer",
    "ChatCall",
    "ChatChoice",
    "ChatDelta",
    "ChatLogprobs",
    "ChatMessage",
    "ChatUsage",
    "ChoiceDelta",
    "CompletionTokensDetails",
    "PromptTokensDetails",
    "chat_usage",
]


class AnswerHead(Struct):
    """What every object of one answer begins with; `created` in seconds. `system_fingerprint` is of the model."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str


class PromptTokensDetails(Struct):
    """Of the tokens in: how many came from the prefix cache."""

    cached_tokens: int


class CompletionTokensDetails(Struct):
    """Of the tokens out: how many were thinking."""

    reasoning_tokens: int


class ChatUsage(Struct):
    """Tokens in and out; the total is their sum."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class CallFunction(Struct):
    """A call of a function; `arguments` is JSON text."""

    name: str
    arguments: str


class CallCustom(Struct):
    """A call of a custom tool."""

    name: str
    input: str


class ChatCall(Struct):
    """A call in a message: `function` or `custom` is there, by its type."""

    id: str
    type: str
    function: CallFunction | UnsetType = UNSET
    custom: CallCustom | UnsetType = UNSET


class ChatMessage(Struct):
    """What the model answered; `florence2_result` is what a vision model found, in coordinates (M50)."""

    role: str
    content: str | None
    refusal: str | None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ChatCall] | UnsetType = UNSET
    florence2_result: FlorenceResult | UnsetType = UNSET


class ChatLogprobs(Struct):
    """The log probabilities of an answer's text, or of a piece of it."""

    content: list[Logprob]
    refusal: None = None


class ChatChoice(Struct):
    """One answer, and why it ended: stop, length, tool_calls or content_filter."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str


class ChatAnswer(Struct):
    """A whole answer."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: ChatUsage
    service_tier: str = "default"


class CallFunctionDelta(Struct):
    """More of a call of a function; the name comes once."""

    arguments: str
    name: str | UnsetType = UNSET


class CallCustomDelta(Struct):
    """More of a call of a custom tool; the name comes once."""

    input: str
    name: str | UnsetType = UNSET


class CallDelta(Struct):
    """More of the call of that number; id and type come once."""

    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: CallFunctionDelta | UnsetType = UNSET
    custom: CallCustomDelta | UnsetType = UNSET


class ChatDelta(Struct):
    """More of a message."""

    role: str | UnsetType = UNSET
    content: str | None | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChoiceDelta(Struct):
    """A choice in a chunk."""

    index: int
    delta: ChatDelta = field(default_factory=ChatDelta)
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


def chat_usage(usage: Usage) -> ChatUsage:
    """The usage under the names of chat completions."""
    return ChatUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptTokensDetails(usage.input_tokens_details.cached_tokens),
        completion_tokens_details=CompletionTokensDetails(usage.output_tokens_details.reasoning_tokens),
    )

"""What comes out of an answer: one normalized `Response`, whichever endpoint it came from, streamed or whole."""

from __future__ import annotations

import warnings
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.client.context import APPROVAL_REQUEST, Context, Message, ReasoningDetail, ToolCall
from antiphon.client.errors import ResponseError
from antiphon.client.loose import as_str

__all__ = ["FinishReason", "ObjectError", "Problem", "Response", "ToolUsage", "Usage", "UsageReported"]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "error"]
"""Why the model stopped (D12); the endpoint's own word is `Response.raw_finish_reason`."""

ObjectError: TypeAlias = Literal["invalid_json", "not_an_object", "validation_failed", "invalid_keys"]
"""Why a structured answer could not be read (D14)."""


class ToolUsage(Struct, frozen=True):
    """How often a hosted tool was used (D13)."""

    count: int
    unit: str = "call"


class UsageReported(Struct, frozen=True):
    """Which numbers the endpoint gave itself; one that it did not is 0 (D13)."""

    input: bool = False
    output: bool = False


class Usage(Struct, frozen=True):
    """Tokens of one answer (D13). `cache_creation_tokens` is None where the endpoint does not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    cache_creation_tokens: int | None = None
    reasoning_tokens: int = 0
    usage_reported: UsageReported = UsageReported()
    tool_usage: dict[str, ToolUsage] = msgspec.field(default_factory=dict[str, ToolUsage])

    @property
    def reasoning(self) -> int:
        """Deprecated: the same as `reasoning_tokens`."""
        warnings.warn("Usage.reasoning is deprecated: use Usage.reasoning_tokens.", DeprecationWarning, stacklevel=2)
        return self.reasoning_tokens


class Problem(Struct, frozen=True):
    """Why an answer failed: the words of `response.failed` or of an `error` event, of either shape (S12, S13)."""

    message: str
    code: str | None = None
    type: str | None = None
    param: str | None = None


class Response(Struct):
    """One answer, normalized.

    `message` is what belongs into the conversation; `text`, `thinking` and `tool_calls` are its contents at hand.
    `object` is the structured answer where one was asked for (D14), with the reason in `object_error` where it could
    not be read. `output` holds the items as they came, so that nothing is lost. `problem` is set, and `finish_reason`
    is `error`, where the answer failed.
    """

    message: Message
    text: str = ""
    thinking: str = ""
    tool_calls: list[ToolCall] = msgspec.field(default_factory=list[ToolCall])
    refusals: list[str] = msgspec.field(default_factory=list[str])
    annotations: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    object: Any = None
    object_error: ObjectError | None = None
    usage: Usage = Usage()
    finish_reason: FinishReason = "stop"
    raw_finish_reason: str | None = None
    provider_meta: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    response_id: str | None = None
    model: str | None = None
    status: str | None = None
    phase: str | None = None
    problem: Problem | None = None
    output: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])

    @property
    def reasoning_details(self) -> list[ReasoningDetail]:
        """The reasoning items, to be sent back with the message (D5)."""
        return self.message.reasoning_details

    @property
    def local_tool_calls(self) -> list[ToolCall]:
        """The calls that wait for a result of ours: all but those that the server executed."""
        return [call for call in self.tool_calls if not call.builtin]

    @property
    def approval_requests(self) -> list[ToolCall]:
        """The calls that the endpoint makes if we approve; `metadata` has the `server_label`."""
        return [
            ToolCall(
                as_str(item.get("id")) or "",
                as_str(item.get("name")) or "",
                as_str(item.get("arguments")) or "{}",
                builtin=True,
                type=APPROVAL_REQUEST,
                metadata={"server_label": item.get("server_label")},
            )
            for item in self.output
            if item.get("type") == APPROVAL_REQUEST
        ]

    @property
    def classification(self) -> Literal["tool_calls", "final_answer"]:
        """Whether this answer waits for results of tools; what the server executed does not make it wait (D7)."""
        return "tool_calls" if self.local_tool_calls else "final_answer"

    def append_to(self, context: Context) -> Context:
        """Add this answer to the conversation."""
        return context.append(self.message)

    def raise_for_problem(self) -> Response:
        """The answer itself, unless it failed.

        Raises:
            ResponseError: the answer failed (S12, S13).
        """
        if self.problem is not None:
            raise ResponseError(
                self.problem.message,
                code=self.problem.code,
                type=self.problem.type,
                param=self.problem.param,
                response_id=self.response_id,
            )
        return self

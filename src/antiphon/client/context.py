"""What goes into a request: a conversation of messages, their parts, tool calls, and the tools on offer.

Plain data without I/O. A `Context` is encoded to JSON and back by msgspec, so that a conversation can be kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

__all__ = [
    "APPROVAL_REQUEST",
    "ApprovalPart",
    "Context",
    "FilePart",
    "ImagePart",
    "Message",
    "MessageMetadata",
    "Part",
    "PhaseItem",
    "ProviderBlock",
    "ReasoningDetail",
    "ResponsesReplay",
    "Role",
    "TextPart",
    "ThinkingPart",
    "Tool",
    "ToolCall",
    "approval",
    "assistant",
    "developer",
    "system",
    "tool_result",
    "user",
]

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
"""Who speaks; `tool` brings the result of a call."""


class TextPart(Struct, frozen=True, tag="text", omit_defaults=True):
    """Text (E4).

    `metadata` may hold `prompt_cache_breakpoint` (E8) and `phase` (E23); `refusal` says that the model declined (D9).
    """

    text: str
    refusal: bool = False
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class ThinkingPart(Struct, frozen=True, tag="thinking", omit_defaults=True):
    """What the model thought, as one may read it (D4). What is sent back is `Message.reasoning_details` (E21)."""

    text: str


class ImagePart(Struct, frozen=True, tag="image", omit_defaults=True):
    """An image by its URL, by its bytes with their media type, or by the id of a file (E6)."""

    url: str | None = None
    data: bytes | None = None
    media_type: str | None = None
    file_id: str | None = None
    detail: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class FilePart(Struct, frozen=True, tag="file", omit_defaults=True):
    """A file by its id, its bytes or its URL (E7).

    `provider_file_ids` names the file where one provider knows it under an id of its own, which is preferred.
    """

    file_id: str | None = None
    data: bytes | None = None
    url: str | None = None
    filename: str | None = None
    media_type: str | None = None
    provider_file_ids: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class ProviderBlock(Struct, frozen=True, tag="provider_block", omit_defaults=True):
    """An item that only its provider understands, such as a compaction; `data` is the item as it came (E22)."""

    block_type: str
    data: dict[str, Any]
    provider: str | None = None


APPROVAL_REQUEST: Final = "mcp_approval_request"
"""The type of the item with which an endpoint asks whether it may call a tool of an MCP server."""


class ApprovalPart(Struct, frozen=True, tag="approval", omit_defaults=True):
    """What we say to an `mcp_approval_request`: whether the endpoint may make that call."""

    request_id: str
    approve: bool
    reason: str | None = None


Part: TypeAlias = TextPart | ThinkingPart | ImagePart | FilePart | ProviderBlock | ApprovalPart
"""One part of a message."""


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A call of a tool (D6, D7).

    `id` is what the result refers to. `arguments` is the text as the model wrote it: JSON for functions, free text
    where `type` is `custom_tool_call`. A `builtin` call was executed by the server: it has no result of ours and is
    not sent back (E9). `type` is the type of the item. `metadata` holds what else the item has, under its own names:
    `id` (the item's), `status`, `namespace`, `caller`.
    """

    id: str
    name: str
    arguments: str = "{}"
    builtin: bool = False
    type: str = "function_call"
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class ReasoningDetail(Struct, frozen=True, omit_defaults=True):
    """One reasoning item of an answer, with all that it takes to send it back (D5, E21).

    `text` is its summary, None where there is none; `signature` its `encrypted_content`; `index` its place among the
    output; `provider_data` its `id`, `type`, `summary` and, where it came, `content`.
    """

    index: int
    provider: str | None = None
    text: str | None = None
    signature: str | None = None
    encrypted: bool = False
    format: str = "openai-responses-v1"
    provider_data: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class PhaseItem(Struct, frozen=True, omit_defaults=True):
    """One message item of an answer that has several, with its phase (D3, E23)."""

    text: str
    phase: str | None = None
    id: str | None = None


class ResponsesReplay(Struct, frozen=True, omit_defaults=True):
    """The items of an answer as they came, to be sent back as they are instead of the message (E22, D15)."""

    items: list[dict[str, Any]]
    provider: str | None = None


class MessageMetadata(Struct, omit_defaults=True):
    """What an answer's message knows of where it came from (D15)."""

    response_id: str | None = None
    phase: str | None = None
    phase_items: list[PhaseItem] = msgspec.field(default_factory=list[PhaseItem])
    responses_replay: ResponsesReplay | None = None


class Message(Struct, omit_defaults=True):
    """One message of a conversation.

    Of role `tool`: `tool_call_id` says which call it answers; `output`, where set, is the value to be sent instead of
    `content` (text as it is, anything else as JSON: E10).
    """

    role: Role
    content: list[Part] = msgspec.field(default_factory=list[Part])
    tool_calls: list[ToolCall] = msgspec.field(default_factory=list[ToolCall])
    tool_call_id: str | None = None
    output: Any | UnsetType = UNSET
    reasoning_details: list[ReasoningDetail] = msgspec.field(default_factory=list[ReasoningDetail])
    metadata: MessageMetadata = msgspec.field(default_factory=MessageMetadata)

    @property
    def text(self) -> str:
        """The text of its parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


class Context(Struct, omit_defaults=True):
    """A conversation: its messages, oldest first. Methods add to it in place and give it back."""

    messages: list[Message] = msgspec.field(default_factory=list[Message])

    def append(self, *messages: Message) -> Context:
        """Add messages at the end."""
        self.messages.extend(messages)
        return self

    def copy(self) -> Context:
        """Another context of the same messages, so that each may grow its own way."""
        return Context(list(self.messages))


def _parts(content: tuple[str | Part, ...]) -> list[Part]:
    return [TextPart(part) if isinstance(part, str) else part for part in content]


def system(*content: str | Part) -> Message:
    """A message of the system."""
    return Message("system", _parts(content))


def developer(*content: str | Part) -> Message:
    """A message of the developer."""
    return Message("developer", _parts(content))


def user(*content: str | Part) -> Message:
    """A message of the user; a string stands for a part of text."""
    return Message("user", _parts(content))


def assistant(*content: str | Part, tool_calls: list[ToolCall] | None = None) -> Message:
    """A message of the model, with the calls that it makes."""
    return Message("assistant", _parts(content), tool_calls=tool_calls or [])


def tool_result(call_id: str, output: Any = UNSET, *content: str | Part) -> Message:
    """The result of a call: any value, or parts with images and files (E10)."""
    return Message("tool", _parts(content), tool_call_id=call_id, output=output)


def approval(request_id: str, approve: bool, reason: str | None = None) -> Message:
    """The answer to an `mcp_approval_request` of that id."""
    return Message("tool", [ApprovalPart(request_id, approve, reason)])


class Tool(Struct, frozen=True):
    """A function on offer to the model (E12).

    `parameters` is a JSON Schema, None for a function without any. `strict` None leaves the choice to the encoder.
    `function` is what runs when the model calls it; without one the caller runs it.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    function: Callable[..., Any] | None = None

"""The messages of a prompt as chat-completions objects, for chat templates and for upstreams. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.prompt.dialects.base import call_arguments
from antiphon.prompt.prompt import ChatMessage

__all__ = ["chat_messages"]


def chat_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The messages as chat-completions objects."""
    return [_chat_message(message) for message in messages]


def _chat_message(message: ChatMessage) -> dict[str, Any]:
    content = message.content if isinstance(message.content, str) else list(message.content)
    body: dict[str, Any] = {"role": message.role, "content": content}
    if not (message.reasoning or message.tool_calls or message.tool_call_id or message.name):
        return body
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    if message.tool_calls:
        body["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call_arguments(call)}}
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        body["tool_call_id"] = message.tool_call_id
    if message.name:
        body["name"] = message.name
    return body

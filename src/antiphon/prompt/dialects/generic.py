"""The dialect for templates that know no tools. Pure.

Tools are described in the system text, calls are asked for in the most common form, and past calls and tool outputs
stand in the conversation as plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from antiphon.prompt.dialects.base import Dialect, call_arguments, callable_tools, function_schema
from antiphon.prompt.dialects.hermes import CLOSE_CALL, OPEN_CALL
from antiphon.prompt.dialects.parser import CallParser
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.json import encode

__all__ = ["Generic"]

_INTRODUCTION = "You can call these tools:"
_MANUAL = (
    "To call a tool, answer with nothing but a JSON object with its name and its arguments between tags, "
    "one pair of tags for each call:\n"
    f'{OPEN_CALL}\n{{"name": "TOOL", "arguments": {{"PARAMETER": "VALUE"}}}}\n{CLOSE_CALL}\n'
    "The outputs of the tools come in the next message. When no tool helps, answer in plain text."
)
_OPEN_OUTPUT, _CLOSE_OUTPUT = "<tool_response>", "</tool_response>"


class Generic(Dialect):
    """Everything about tools is text."""

    name = "generic"
    markers = (OPEN_CALL, CLOSE_CALL)

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages with tools, past calls and tool outputs as text; the template is given no tools."""
        messages: list[ChatMessage] = []
        for role, group in groupby(prompt.messages, key=lambda message: message.role):
            if role == "tool":
                messages.append(ChatMessage(role="user", content="\n".join(_output(message) for message in group)))
            else:
                messages += [_with_calls(message) if message.tool_calls else message for message in group]
        if prompt.tools and prompt.choice.mode != "none":
            _describe(messages, [function_schema(tool)["function"] for tool in prompt.tools])
        return messages, []

    def parser(self, prompt: Prompt) -> CallParser:
        """A parser of the answer to this prompt."""
        return CallParser(callable_tools(prompt), OPEN_CALL, CLOSE_CALL)


def _describe(messages: list[ChatMessage], functions: Sequence[dict[str, Any]]) -> None:
    lines = [_INTRODUCTION, *(encode(function).decode() for function in functions)]
    text = "\n".join(lines) + "\n\n" + _MANUAL
    if messages and messages[0].role == "system":
        first = messages[0]
        if isinstance(first.content, str):
            content: Any = f"{first.content}\n\n{text}" if first.content else text
        else:
            content = [*first.content, {"type": "text", "text": text}]
        messages[0] = msgspec.structs.replace(first, content=content)
    else:
        messages.insert(0, ChatMessage(role="system", content=text))


def _with_calls(message: ChatMessage) -> ChatMessage:
    blocks = [_call_text(call) for call in message.tool_calls]
    text = message.text()
    return msgspec.structs.replace(message, content="\n".join(([text] if text else []) + blocks), tool_calls=())


def _call_text(call: ToolCall) -> str:
    # The arguments go in as the model wrote them, so that the prompt keeps the tokens that are in the engine's cache.
    name = encode(call.name).decode()
    return f'{OPEN_CALL}\n{{"name": {name}, "arguments": {call_arguments(call)}}}\n{CLOSE_CALL}'


def _output(message: ChatMessage) -> str:
    return f"{_OPEN_OUTPUT}\n{message.text()}\n{_CLOSE_OUTPUT}"

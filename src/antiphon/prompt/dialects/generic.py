"""The dialect for templates that know no tools. Pure.

Tools are described in the system text, calls are asked for in the most common form, and past calls and tool outputs
stand in the conversation as plain text.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import Any

import msgspec

from antiphon.prompt.dialects.base import Dialect, call_arguments, callable_tools, described_tools
from antiphon.prompt.dialects.hermes import CLOSE_CALL, OPEN_CALL
from antiphon.prompt.dialects.history import with_system_text
from antiphon.prompt.dialects.json_calls import apart_tools, call_object, described, marked_calls
from antiphon.prompt.dialects.parser import CallParser
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.json import encode

__all__ = ["Generic"]

_MANUAL = (
    "To call a tool, answer with nothing but a JSON object with its name and its arguments between tags, "
    "one pair of tags for each call:\n"
    f'{OPEN_CALL}\n{{"name": "TOOL", "arguments": {{"PARAMETER": "VALUE"}}}}\n{CLOSE_CALL}\n'
    "The outputs of the tools come in the next message. When no tool helps, answer in plain text."
)
_MOST_CALLS = 4
"""Calls of one turn: a model that was never taught to call does not know when to stop."""

_OPEN_OUTPUT, _CLOSE_OUTPUT = "<tool_response>", "</tool_response>"


class Generic(Dialect):
    """Everything about tools is text."""

    name = "generic"
    markers = (OPEN_CALL, CLOSE_CALL)
    openings = (OPEN_CALL,)
    binds_lark = True

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages with tools, past calls and tool outputs as text; the template is given no tools."""
        messages: list[ChatMessage] = []
        apart = apart_tools(prompt)
        for role, group in groupby(prompt.messages, key=lambda message: message.role):
            if role == "tool":
                messages.append(ChatMessage(role="user", content="\n".join(_output(message) for message in group)))
            else:
                messages += [_with_calls(message, apart) if message.tool_calls else message for message in group]
        if prompt.tools and prompt.choice.mode != "none":
            messages = with_system_text(messages, described_tools(prompt, _MANUAL, described))
        return messages, []

    def parser(self, prompt: Prompt) -> CallParser:
        """A parser of the answer to this prompt."""
        return CallParser(callable_tools(prompt), OPEN_CALL, CLOSE_CALL, apart_tools(prompt))

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        return marked_calls(prompt, lark, (OPEN_CALL, CLOSE_CALL), opened=bool(opened), most=_MOST_CALLS)


def _with_calls(message: ChatMessage, apart: Collection[str]) -> ChatMessage:
    blocks = [_call_text(call, apart) for call in message.tool_calls]
    text = message.text()
    return msgspec.structs.replace(message, content="\n".join(([text] if text else []) + blocks), tool_calls=())


def _call_text(call: ToolCall, apart: Collection[str]) -> str:
    # The arguments go in as the model wrote them, so that the prompt keeps the tokens that are in the engine's cache.
    if call.name in apart:
        return f'{OPEN_CALL}\n{{"name": {encode(call.name).decode()}}}\n{call.arguments}\n{CLOSE_CALL}'
    return f"{OPEN_CALL}\n{call_object(call.name, call_arguments(call))}\n{CLOSE_CALL}"


def _output(message: ChatMessage) -> str:
    return f"{_OPEN_OUTPUT}\n{message.text()}\n{_CLOSE_OUTPUT}"

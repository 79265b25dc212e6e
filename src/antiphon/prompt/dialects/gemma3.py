"""The dialect of Gemma 2 and 3, whose templates know no tools: calls are asked for as blocks of code. Pure.

Tools are described in the system text. A call is a JSON object in a block of the kind `tool_code`, and outputs come
back in blocks of the kind `tool_output`, as the family was taught.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from antiphon.prompt.dialects.apart import ApartReader
from antiphon.prompt.dialects.base import Dialect, call_arguments, callable_tools, described_tools
from antiphon.prompt.dialects.history import calls_as_text, with_system_text
from antiphon.prompt.dialects.json_calls import apart_tools, call_object, described, marked_calls
from antiphon.prompt.dialects.parser import Form, FormParser, json_call
from antiphon.prompt.dialects.pieces import CallReader
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.json import encode

__all__ = ["Gemma3"]

_OPEN_TURN: Final = "<start_of_turn>"
_CLOSE_TURN: Final = "<end_of_turn>"
_OPEN: Final = "```tool_code"
_CLOSE: Final = "```"
_MANUAL: Final = (
    "To call a tool, answer with nothing but a block of code that holds a JSON object with its name and its arguments, "
    "one block for each call:\n"
    f'{_OPEN}\n{{"name": "TOOL", "arguments": {{"PARAMETER": "VALUE"}}}}\n{_CLOSE}\n'
    "The outputs of the tools come in the next message. When no tool helps, answer in plain text."
)


class Gemma3(Dialect):
    """Everything about tools is text."""

    name = "gemma3"
    markers = ()
    openings = (_OPEN,)
    binds_lark = True

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template writes turns as this family does, and shows no tools."""
        return _OPEN_TURN in template and not caps.get("supports_tools")

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages with tools, past calls and tool outputs as text; the template is given no tools."""
        apart = apart_tools(prompt)
        messages: list[ChatMessage] = []
        for role, group in groupby(prompt.messages, key=lambda message: message.role):
            if role == "tool":
                outputs = "\n".join(f"```tool_output\n{message.text()}\n{_CLOSE}" for message in group)
                messages.append(ChatMessage(role="user", content=outputs))
            else:
                messages += group
        messages = calls_as_text(messages, lambda calls: _written(calls, apart), "\n")
        if prompt.tools and prompt.choice.mode != "none":
            messages = with_system_text(messages, described_tools(prompt, _MANUAL, described))
        return messages, []

    def parser(self, prompt: Prompt) -> FormParser:
        """A parser of the answer to this prompt."""
        tools, apart = callable_tools(prompt), apart_tools(prompt)
        plain = json_call(tools)

        def call(first: str) -> CallReader | None:
            return ApartReader(tools, apart, _CLOSE) if apart and first == "{" else plain(first)

        return FormParser(tools, Form(opens=(), others=(_OPEN_TURN, _CLOSE_TURN), call=call, bare=call))

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        return marked_calls(prompt, lark, (_OPEN, _CLOSE), opened=bool(opened))


def _written(calls: Sequence[ToolCall], apart: Collection[str]) -> str:
    return "\n".join(f"{_OPEN}\n{_object(call, apart)}\n{_CLOSE}" for call in calls)


def _object(call: ToolCall, apart: Collection[str]) -> str:
    if call.name in apart:
        return f'{{"name": {encode(call.name).decode()}}}\n{call.arguments}'
    return call_object(call.name, call_arguments(call))

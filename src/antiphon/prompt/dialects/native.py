"""What dialects have in common whose templates show tools and past calls themselves. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.prompt.dialects.base import Dialect, callable_tools, function_schema, tool_parameters
from antiphon.prompt.dialects.kinds import Arguments
from antiphon.prompt.dialects.parser import Form, FormParser, json_call
from antiphon.prompt.dialects.pieces import CallReader
from antiphon.prompt.dialects.tagged import TaggedScanner, Tags
from antiphon.prompt.dialects.tagged_rules import tagged_calls
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["NativeDialect", "TaggedDialect", "declared_arguments"]


class NativeDialect(Dialect):
    """Tools and past calls are the template's own business."""

    shown: Callable[[FunctionTool | CustomTool], dict[str, Any]] = staticmethod(function_schema)
    """Makes the chat-completions object of a tool."""

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages as they are, and the tools for the template to show."""
        tools = [] if prompt.choice.mode == "none" else [self.shown(tool) for tool in prompt.tools]
        return list(prompt.messages), tools


class TaggedDialect(NativeDialect):
    """A family that writes each argument between tags."""

    tags: Tags
    """The tags of this family."""

    binds_lark = True

    def parser(self, prompt: Prompt) -> FormParser:
        """A parser of the answer to this prompt."""
        tags, tools = self.tags, callable_tools(prompt)
        arguments = declared_arguments(prompt)
        json = json_call(tools)

        def call(first: str) -> CallReader | None:
            tagged = first == tags.open_call[0] if tags.open_call else first != "{"
            return TaggedScanner(tags, arguments) if tagged else json(first)

        form = Form(
            opens=(tags.open_block,),
            others=[marker for marker in self.markers if marker != tags.open_block],
            call=call,
            bare=call if tags.open_call else json,
            starts="{" + tags.open_call[:1],
            before=" \t\r\n",
            fences=("json", "xml", "tool_call", "tool_code", "tool"),
        )
        return FormParser(tools, form)

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        return tagged_calls(self.tags, prompt, lark, opened=opened)


def declared_arguments(prompt: Prompt) -> dict[str, Arguments | None]:
    """The arguments of each tool that may be called now, None for a custom tool."""
    allowed = callable_tools(prompt)
    return {
        tool.name: None if isinstance(tool, CustomTool) else Arguments(tool_parameters(tool))
        for tool in prompt.tools
        if tool.name in allowed
    }

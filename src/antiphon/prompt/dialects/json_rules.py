"""Grammars of calls whose arguments stand as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.prompt.dialects.base import MOST_CALLS, callable_tools, tool_schema
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.json import encode
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["arguments_of", "in_row", "object_call", "opened_object", "tools_to_call"]


def tools_to_call(prompt: Prompt) -> list[FunctionTool | CustomTool]:
    """The tools that may be called now, in the order of their declaration."""
    allowed = callable_tools(prompt)
    return [tool for tool in prompt.tools if tool.name in allowed]


def arguments_of(tool: FunctionTool | CustomTool, place: int, lark: Lark) -> str:
    """The name of the rule for a tool's arguments; `place` is that of the tool among those that may be called.

    Raises:
        InvalidRequestError: the parameters are too large (M12), or are not an object.
    """
    return lark.rule(f"arguments{place}", lark.json(tool_schema(tool)))


def object_call(
    prompt: Prompt, lark: Lark, tools: Sequence[FunctionTool | CustomTool], *, arguments: str, tail: str = ""
) -> str:
    """The name of the rule for one call to one of these tools as an object of a name and arguments; `arguments` is what
    the object calls them, `tail` the body for more members behind them.
    """
    heads = [lark.literal(f'{{"name": {encode(tool.name).decode()}') for tool in tools]
    rests = [_rest(prompt, tool, lark, arguments, tail) for tool in tools]
    return lark.rule("call", lark.any_of(f"{head} {rest}" for head, rest in zip(heads, rests, strict=True)))


def opened_object(
    prompt: Prompt, lark: Lark, tool: FunctionTool | CustomTool, *, arguments: str, tail: str = ""
) -> str:
    """The name of the rule for what follows the name of this tool in such an object."""
    return lark.rule("opened_call", _rest(prompt, tool, lark, arguments, tail))


def _rest(prompt: Prompt, tool: FunctionTool | CustomTool, lark: Lark, arguments: str, tail: str) -> str:
    place = tools_to_call(prompt).index(tool)
    head = lark.literal(f', "{arguments}": ')
    return f"{head} {arguments_of(tool, place, lark)} {tail + ' ' if tail else ''}{lark.literal('}')}"


def in_row(prompt: Prompt, lark: Lark, first: str, following: str, between: str = "") -> str:
    """The body for a call and, where calls may be parallel, for more of them; `between` is the body between two."""
    more = lark.most_calls(MOST_CALLS) - 1
    if not prompt.parallel_tool_calls or not more:
        return first
    return f"{first} ({f'{between} {following}' if between else following}){{0,{more}}}"

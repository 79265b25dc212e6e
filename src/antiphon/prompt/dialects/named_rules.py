"""Grammars of calls that are a header with the tool's name and the arguments behind it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from antiphon.prompt.arguments import bare_input
from antiphon.prompt.dialects.base import function_schema
from antiphon.prompt.dialects.json_rules import arguments_of, in_row, tools_to_call
from antiphon.prompt.dialects.tagged_rules import Calls, swallows
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Head", "bare_tools", "behind", "closed_turn", "named_calls", "shown_bare"]

Head = Callable[[FunctionTool | CustomTool], str]
"""Makes the body for the header of a call to a tool."""

_BARE: Final = "The input is no JSON: it stands as it is in the place of the arguments."


def bare_tools(prompt: Prompt) -> frozenset[str]:
    """The tools whose input stands as it is in the place of arguments: those with a grammar of their own."""
    return frozenset(tool.name for tool in prompt.tools if swallows(tool))


def shown_bare(tool: FunctionTool | CustomTool) -> dict[str, Any]:
    """The tool as a chat-completions object; of one whose input stands as it is that is said."""
    shown = function_schema(tool)
    if swallows(tool):
        shown["function"]["description"] += f"\n{_BARE}"
        shown["function"]["parameters"] = {"type": "object", "properties": {}}
    return shown


def named_calls(prompt: Prompt, lark: Lark, head: Head, tail: str, bare_head: Head, bare_tail: str) -> Calls:
    """The rules for one call behind its marker: `head`, arguments and the body `tail`.

    Of tools whose input stands as it is, `bare_head`, the input, and perhaps `bare_tail`, which the input may swallow.
    """
    calls: list[str] = []
    lasts: list[str] = []
    for place, tool in enumerate(tools_to_call(prompt)):
        if isinstance(tool, CustomTool) and swallows(tool):
            text = lark.rule(f"input{place}", bare_input(tool))
            lasts.append(f"{bare_head(tool)} {text}{f' ({bare_tail})?' if bare_tail else ''}")
        else:
            calls.append(f"{head(tool)} {arguments_of(tool, place, lark)} {tail}".rstrip())
    return Calls(
        lark.rule("named_call", lark.any_of(calls)) if calls else "",
        lark.rule("named_last", lark.any_of(lasts)) if lasts else "",
    )


def behind(lark: Lark, marker: str, calls: Calls) -> Calls:
    """The same calls behind a marker."""
    return Calls(
        lark.rule("call", f"{lark.marked(marker)} {calls.call}") if calls.call else "",
        lark.rule("last", f"{lark.marked(marker)} {calls.last}") if calls.last else "",
    )


def closed_turn(prompt: Prompt, lark: Lark, first: Calls, following: Calls, close: str, between: str = "") -> str:
    """The body for a turn of calls and for `close` behind it, which a call whose input stands as it is has itself.

    `first` are the calls that can begin the turn, `between` is the body between two.
    """
    turns = [first.last] if first.last else []
    if first.call:
        row = in_row(prompt, lark, first.call, following.call, between)
        turns.append(f"{row} {close}")
        if following.last and prompt.parallel_tool_calls:
            turns.append(f"{row} {between} {following.last}")
    return lark.any_of(turns)

"""Calls that are a JSON object with name and arguments between two markers: how they are asked for and bound. Pure."""

from __future__ import annotations

from typing import Any, Final

from antiphon.prompt.arguments import bare_input, custom_format
from antiphon.prompt.dialects.base import MOST_CALLS, function_schema
from antiphon.prompt.dialects.json_rules import arguments_of, tools_to_call
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.json import encode
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["apart_tools", "call_object", "described", "marked_calls"]

_APART: Final = (
    'Do not write the input into the JSON object: write {"name": NAME} without arguments, and the input as it is on '
    "the lines after it."
)


def apart_tools(prompt: Prompt) -> frozenset[str]:
    """The tools whose input stands behind the object: custom tools with a grammar that no JSON string could hold to."""
    return frozenset(tool.name for tool in prompt.tools if _is_apart(tool))


def described(tool: FunctionTool | CustomTool) -> dict[str, Any]:
    """The tool as a chat-completions object; of one whose input stands apart it is said how to write it."""
    shown = function_schema(tool)
    if _is_apart(tool):
        function = shown["function"]
        function["description"] += "\n" + _APART.replace("NAME", encode(tool.name).decode())
        function["parameters"] = {"type": "object", "properties": {}}
    return shown


def call_object(name: str, arguments: str) -> str:
    """The object of a call, of the JSON of its arguments."""
    return f'{{"name": {encode(name).decode()}, "arguments": {arguments}}}'


def marked_calls(
    prompt: Prompt, lark: Lark, markers: tuple[str, str], *, opened: bool, most: int = MOST_CALLS
) -> str | None:
    """The name of the rule for a turn of at most so many calls between these markers; see `Dialect.calls`.

    What stands apart may swallow the closing marker: no other call may follow it, and the marker may be missing.
    """
    tools = tools_to_call(prompt)
    if not tools:
        return None
    opening, closing = f"{markers[0]}\n", f"\n{markers[1]}"
    begin = lark.literal("\n") if opened else lark.marked(opening)
    calls: list[str] = []
    lasts: list[str] = []
    for place, tool in enumerate(tools):
        if isinstance(tool, CustomTool) and _is_apart(tool):
            head = lark.literal(f'{{"name": {encode(tool.name).decode()}}}\n')
            text = lark.rule(f"input{place}", bare_input(tool))
            lasts.append(lark.rule(f"last{place}", f"{head} {text} ({lark.marked(closing)})?"))
        else:
            head, tail = call_object(tool.name, "\0").split("\0")
            arguments = arguments_of(tool, place, lark)
            calls.append(lark.rule(f"call{place}", f"{lark.literal(head)} {arguments} {lark.literal(tail)}"))
    return lark.rule(
        "calls",
        _turn(lark, begin, opening, closing, calls, lasts, lark.most_calls(most) if prompt.parallel_tool_calls else 1),
    )


def _turn(lark: Lark, begin: str, opening: str, closing: str, calls: list[str], lasts: list[str], most: int) -> str:
    turns: list[str] = []
    if calls:
        call = lark.rule("call", f"{Lark.any_of(calls)} {lark.marked(closing)}")
        following = f"{lark.marked(chr(10) + opening)} {call}"
        more = f" ({following}){{0,{most - 1}}}" if most > 1 else ""
        turns.append(f"{begin} {call}{more}")
        if lasts and most > 1:
            turns.append(f"{turns[0]} {lark.marked(chr(10) + opening)} {Lark.any_of(lasts)}")
    if lasts:
        turns.append(f"{begin} {Lark.any_of(lasts)}")
    return Lark.any_of(turns)


def _is_apart(tool: FunctionTool | CustomTool) -> bool:
    return isinstance(tool, CustomTool) and custom_format(tool)[0] == "lark"

"""Help for tests of dialects: reading answers whole and in pieces, and grammars for calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
from hypothesis import strategies as st

from antiphon.machine.deltas import TextDelta, ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import Dialect, Piece, named
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice
from antiphon.protocol.tools import CustomTool, FunctionTool
from support.grammar_walk import complaints, walk

__all__ = [
    "TOOLS",
    "arguments_of",
    "check_bound",
    "check_calls",
    "cuts",
    "folded",
    "grammar",
    "parse",
    "pieces_of",
    "prompt_of",
    "read",
]

TOOLS: Sequence[FunctionTool | CustomTool] = (
    FunctionTool(
        name="get_weather",
        description="The weather of a place.",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
                "note": {"type": ["string", "null"], "maxLength": 12},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    ),
    FunctionTool(
        name="search",
        description="Looks texts up.",
        parameters={
            "type": "object",
            "properties": {
                "queries": {
                    "type": "array",
                    "items": {"type": "string", "maxLength": 10},
                    "minItems": 1,
                    "maxItems": 3,
                },
                "exact": {"type": "boolean"},
                "where": {
                    "type": "object",
                    "properties": {"site": {"type": "string", "maxLength": 10}, "depth": {"type": "number"}},
                    "required": ["site"],
                    "additionalProperties": False,
                },
                "limit": {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 5}]},
                "since": {"type": "string", "pattern": "^\\d{4}-\\d{2}$"},
            },
            "required": ["queries", "exact"],
            "additionalProperties": False,
        },
    ),
    FunctionTool(name="get_time", description="The time."),
    CustomTool(name="shell", description="Runs a command.", format={"type": "text"}),
)
"""Tools with every kind of parameter; one has none, and one is a custom tool."""


def prompt_of(
    tools: Sequence[FunctionTool | CustomTool] = TOOLS,
    allowed: Sequence[str] = (),
    *,
    mode: str = "auto",
    parallel: bool = True,
) -> Prompt:
    """A prompt of one question."""
    choice = ResolvedChoice(mode, allowed)
    return Prompt([ChatMessage("user", "Hi")], tools=tools, choice=choice, parallel_tool_calls=parallel)


def pieces_of(dialect: Dialect, texts: Sequence[str], prompt: Prompt) -> list[Piece]:
    """What a parser makes of an answer that comes in these parts."""
    parser = dialect.parser(prompt)
    return [piece for text in texts for piece in parser.feed(text)] + list(parser.finish())


def parse(name: str, texts: Sequence[str] | str, prompt: Prompt | None = None, template: str = "") -> list[Any]:
    """Text as strings, calls as (name, arguments), in order."""
    parts = [texts] if isinstance(texts, str) else texts
    return folded(pieces_of(named(name, template), parts, prompt or prompt_of()))


def folded(found: Sequence[Piece]) -> list[Any]:
    """Text as strings, calls as (name, arguments), in order."""
    result: list[Any] = []
    for piece in found:
        if isinstance(piece, ToolCallStart):
            result.append((piece.name, ""))
        elif isinstance(piece, ToolCallDelta):
            assert piece.text
            result[-1] = (result[-1][0], result[-1][1] + piece.text)
        else:
            assert isinstance(piece, TextDelta)
            assert piece.text
            if result and isinstance(result[-1], str):
                result[-1] += piece.text
            else:
                result.append(piece.text)
    return result


def cuts(data: st.DataObject, text: str) -> list[str]:
    """The text in parts."""
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=10)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def read(dialect: Dialect, texts: Sequence[str] | str, prompt: Prompt | None = None) -> list[Any]:
    """What a dialect in a form of its own makes of an answer: text as strings, calls as (name, arguments)."""
    parts = [texts] if isinstance(texts, str) else texts
    return folded(pieces_of(dialect, parts, prompt or prompt_of()))


def check_bound(dialect: Dialect, prompt: Prompt, *, opened: str = "", walks: int = 30) -> set[str]:
    """Fail unless what the grammar of calls lets through is read back as calls with valid arguments, however it is cut.

    The result is the names of the tools that were called.
    """
    made = grammar(dialect, prompt, opened=opened)
    assert complaints(made) == []
    texts = [text for seed in range(walks) if (text := walk(made, seed)) is not None]
    assert len(texts) > walks * 2 / 3
    names: set[str] = set()
    for text in texts:
        items = read(dialect, opened + text, prompt)
        check_calls(items)
        assert prompt.parallel_tool_calls or len(items) == 1
        assert read(dialect, list(opened + text), prompt) == items
        names |= {item[0] for item in items}
    return names


def grammar(dialect: Dialect | str, prompt: Prompt, *, opened: str = "") -> str:
    """The grammar of a turn of calls."""
    lark = Lark()
    rule = (named(dialect) if isinstance(dialect, str) else dialect).calls(prompt, lark, opened=opened)
    assert rule is not None
    return lark.text(rule)


def arguments_of(call: tuple[str, str], tools: Sequence[FunctionTool | CustomTool] = TOOLS) -> Any:
    """The arguments of a call to a declared tool, which must be valid; a custom tool's text as it is."""
    tool = next(tool for tool in tools if tool.name == call[0])
    if isinstance(tool, CustomTool):
        return call[1]
    arguments = json.loads(call[1])
    jsonschema.validate(arguments, tool.parameters or {"type": "object"})
    return arguments


def check_calls(items: Sequence[Any], tools: Sequence[FunctionTool | CustomTool] = TOOLS) -> None:
    """Fail unless these are calls alone, at least one, with valid arguments."""
    assert items
    for item in items:
        assert isinstance(item, tuple), items
        arguments_of(item, tools)

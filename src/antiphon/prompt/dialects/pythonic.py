"""The dialect of models that call tools as Python functions, such as Llama 4, Llama 3.2, LFM2 and OLMo 3. Pure.

A turn of calls is a list, `[NAME(KEY=VALUE, …), …]`: bare, or between `<|tool_call_start|>` and `<|tool_call_end|>`
with LFM2. OLMo 3 puts each call on a line of its own between `<function_calls>` and `</function_calls>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self, cast

import msgspec
from msgspec import Struct

from antiphon.prompt.arguments import bare_input
from antiphon.prompt.dialects.base import call_arguments, callable_tools, described_tools, function_schema
from antiphon.prompt.dialects.history import calls_as_text, in_call_order, with_names, with_system_text
from antiphon.prompt.dialects.json_rules import tools_to_call
from antiphon.prompt.dialects.named_rules import closed_turn
from antiphon.prompt.dialects.native import NativeDialect
from antiphon.prompt.dialects.parser import Form, FormParser, json_call
from antiphon.prompt.dialects.pieces import CallReader
from antiphon.prompt.dialects.python_calls import PythonCall, parameter_names
from antiphon.prompt.dialects.python_rules import PLAIN_KEY, arguments_body, python_text
from antiphon.prompt.dialects.tagged_rules import Calls, swallows
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Pythonic"]


class _Frame(Struct, frozen=True):
    """What stands around calls: a marker before and behind, brackets, and the text between two."""

    open: str
    close: str
    before: str = "["
    behind: str = "]"
    between: str = ", "


_BARE: Final = _Frame("", "")
_MARKED: Final = _Frame("<|tool_call_start|>", "<|tool_call_end|>")
_LINES: Final = _Frame("<function_calls>", "</function_calls>", "\n", "\n", "\n")
_LLAMA4: Final = ("<|python_start|>", "<|python_end|>")

_OPENS: Final = (_MARKED.open, _LINES.open, _LLAMA4[0])
_CLOSES: Final = (_MARKED.close, _LINES.close, _LLAMA4[1])
_EXAMPLE = re.compile(r"\[func\w*\(")
"""How templates show the form to a model."""

_LFM2_TOOLS: Final = ("<|tool_list_start|>", "List of tools: [")
_MANUAL: Final = (
    "To call tools, answer with nothing but calls in exactly this form:\n{form}\n"
    "The outputs of the tools come next. When no tool helps, answer in plain text."
)
_OPEN_RAW: Final = 'input=r"""'
_CLOSE_RAW: Final = '""")'
_MOST_BOUND: Final = 16
"""Tools up to which each call of a bare list is bound; of more the first."""

_FENCES: Final = ("json", "python", "py", "tool_call", "tool_code", "tool")


def _shown(tool: FunctionTool | CustomTool) -> dict[str, Any]:
    """The tool as a chat-completions object; of one whose input stands as it is, it is said how to write it."""
    shown = function_schema(tool)
    if swallows(tool):
        form = f"{tool.name}({_OPEN_RAW}INPUT{_CLOSE_RAW}"
        shown["function"]["description"] += f"\nThe input stands as it is in a raw string: {form}"
    return shown


class Pythonic(NativeDialect):
    """`shows_tools` and `shows_calls` say what the template shows to the model in this form; text does the rest."""

    name = "pythonic"
    markers = (*_OPENS, *_CLOSES)
    binds_lark = True
    shown = staticmethod(_shown)

    def __init__(self, frame: _Frame = _BARE, *, shows_tools: bool = True, shows_calls: bool = True) -> None:
        self._frame = frame
        self._shows_tools = shows_tools
        self._shows_calls = shows_calls
        self.openings = (frame.open,) if frame.open else (_LLAMA4[0],)

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template shows this form, or the tools as LFM2 is used to."""
        if _MARKED.open in template or any(text in template for text in _LFM2_TOOLS):
            return True
        return _EXAMPLE.search(template) is not None or (_LINES.open in template and "<invoke" not in template)

    @classmethod
    def of(cls, template: str, caps: Mapping[str, bool]) -> Self:
        """The dialect with the frame and the abilities of this template."""
        frame = _BARE
        if _MARKED.open in template or any(text in template for text in _LFM2_TOOLS):
            frame = _MARKED
        elif _LINES.open in template:
            frame = _LINES
        # Some templates of LFM2 show past calls as JSON, which the model would take up.
        shows_calls = bool(caps.get("supports_tool_calls")) and '{"name"' not in template
        return cls(frame, shows_tools=bool(caps.get("supports_tools")), shows_calls=shows_calls)

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages, outputs in the order of their calls and under their names, and the tools to show.

        What the template does not show goes in as text.
        """
        messages, tools = super().arrange(prompt)
        messages = in_call_order(with_names(messages))
        if not self._shows_calls:
            messages = calls_as_text(messages, self._written)
        if tools and not self._shows_tools:
            form = self._written([ToolCall("", "NAME", '{"PARAMETER": "VALUE"}')])
            messages = with_system_text(messages, described_tools(prompt, _MANUAL.format(form=form), self.shown))
            tools = []
        return messages, tools

    def parser(self, prompt: Prompt) -> FormParser:
        """A parser of the answer to this prompt; every frame is read."""
        tools = callable_tools(prompt)
        parameters = parameter_names(prompt)
        objects = json_call(tools)

        def call(first: str) -> CallReader | None:
            return objects(first) or (PythonCall(tools, parameters) if PLAIN_KEY.match(first) else None)

        form = Form(
            opens=_OPENS,
            others=_CLOSES,
            call=call,
            bare=call,
            starts="{[",
            between=" \t\r\n[],;}",
            fences=_FENCES,
        )
        return FormParser(tools, form)

    def call_openings(self, prompt: Prompt) -> Sequence[str]:
        """The marker, and without one the bracket with the name of each tool."""
        openings = super().call_openings(prompt)
        return openings if self._frame.open else [*openings, *(f"[{tool.name}(" for tool in tools_to_call(prompt))]

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        tools = tools_to_call(prompt)
        if not tools:
            return None
        named = [tool for tool in tools if opened == f"[{tool.name}("]
        close = _LLAMA4[1] if opened == _LLAMA4[0] else self._frame.close
        behind = lark.marked(self._frame.behind + close)
        following = _calls(prompt, lark, tools, behind, named=True)
        first = _calls(prompt, lark, named, behind, named=False) if named else following
        if named and len(tools) > _MOST_BOUND:
            # Each opening needs a grammar of its own, and all tools in each would be too many.
            turn = f"{first.call} ({behind})?" if first.call else first.last
        else:
            turn = closed_turn(prompt, lark, first, following, behind, lark.literal(self._frame.between))
        opening = "" if opened or not self._frame.open else f"{lark.marked(self._frame.open)} "
        before = "" if named else f"{lark.literal(self._frame.before)} "
        return lark.rule("calls", f"{opening}{before}{turn}")

    def _written(self, calls: Sequence[ToolCall]) -> str:
        frame = self._frame
        row = frame.between.join(_call_text(call) for call in calls)
        return f"{frame.open}{frame.before}{row}{frame.behind}{frame.close}"


def _calls(
    prompt: Prompt, lark: Lark, tools: Sequence[FunctionTool | CustomTool], behind: str, *, named: bool
) -> Calls:
    """The rules for one call to any of these tools, with or without its name and bracket; `behind` is the body for what
    stands behind all calls.
    """
    calls: list[str] = []
    lasts: list[str] = []
    for place, tool in enumerate(tools_to_call(prompt)):
        if tool not in tools:
            continue
        head = f"{lark.literal(f'{tool.name}(')} " if named else ""
        if isinstance(tool, CustomTool) and swallows(tool):
            # What follows may be taken for more of the input, so nothing has to.
            text = lark.rule(f"input{place}", bare_input(tool))
            lasts.append(f"{head}{lark.literal(_OPEN_RAW)} {text} ({lark.literal(_CLOSE_RAW)} {behind})?")
        else:
            calls.append(f"{head}{arguments_body(tool, place, lark)} {lark.literal(')')}")
    prefix = "" if named else "opened_"
    return Calls(
        lark.rule(f"{prefix}call", lark.any_of(calls)) if calls else "",
        lark.rule(f"{prefix}last", lark.any_of(lasts)) if lasts else "",
    )


def _call_text(call: ToolCall) -> str:
    arguments: Any = msgspec.json.decode(call_arguments(call))
    members = cast("dict[str, Any]", arguments)
    if all(PLAIN_KEY.fullmatch(key) for key in members):
        return f"{call.name}({', '.join(f'{key}={python_text(value)}' for key, value in members.items())})"
    return f"{call.name}(**{python_text(members)})"

"""The dialect of DeepSeek V3, R1 and V3.1: calls between markers of their own, in two forms. Pure.

A turn of calls stands between the markers `tool calls begin` and `tool calls end`, whose bars and gaps are characters
that no keyboard has. With V3 and R1 a call is the marker `tool call begin`, the word `function`, the marker `tool sep`,
the name, the arguments as a block of JSON code, and the marker `tool call end`; with V3.1 it is `tool call begin`, the
name, `tool sep`, the bare arguments, and `tool call end`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from antiphon.prompt.dialects.base import call_arguments, callable_tools, described_tools
from antiphon.prompt.dialects.history import calls_as_text, in_call_order, with_system_text
from antiphon.prompt.dialects.json_rules import tools_to_call
from antiphon.prompt.dialects.named_calls import Header, NamedCall, begins_name
from antiphon.prompt.dialects.named_rules import bare_tools, behind, closed_turn, named_calls, shown_bare
from antiphon.prompt.dialects.native import NativeDialect
from antiphon.prompt.dialects.parser import Form, FormParser, json_call
from antiphon.prompt.dialects.pieces import CallReader
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["DeepSeek"]

_BAR: Final = "\uff5c"
_GAP: Final = "\u2581"


def _marker(words: str) -> str:
    return f"<{_BAR}{words.replace(' ', _GAP)}{_BAR}>"


_OPEN: Final = _marker("tool calls begin")
_CLOSE: Final = _marker("tool calls end")
_OPEN_CALL: Final = _marker("tool call begin")
_CLOSE_CALL: Final = _marker("tool call end")
_SEPARATOR: Final = _marker("tool sep")
_SLOPPY_GAPS: Final = ("_", " ", "\\_")
"""What distilled models write in markers that are no tokens of theirs."""

_KIND: Final = "function"
_OPEN_CODE: Final = "\n```json\n"
_CLOSE_CODE: Final = "\n```"
_PERHAPS_CODE = re.compile(r"\s*(?:`{1,2}|```[a-z]{0,8}\s*)?")
_CODE_AT_END = re.compile(r"\s*(?:```[a-z]*)?\s*\Z")
_MANUAL: Final = (
    "To call tools, end the answer with calls in exactly this form, one after the other:\n"
    "{form}\nThe outputs of the tools come next. When no tool helps, answer in plain text."
)


class DeepSeek(NativeDialect):
    """`coded` says that calls are written in the older form, arguments as a block of code; both are read.

    `shows_tools` says that the template tells the model of tools; else the system text does.
    """

    name = "deepseek"
    markers = (_OPEN, _CLOSE, _OPEN_CALL, _CLOSE_CALL, _SEPARATOR)
    openings = (_OPEN, _OPEN_CALL)
    binds_lark = True
    shown = staticmethod(shown_bare)

    def __init__(self, *, coded: bool = False, shows_tools: bool = False) -> None:
        self._coded = coded
        self._shows_tools = shows_tools

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template marks calls as this family does."""
        return _OPEN in template and _SEPARATOR in template

    @classmethod
    def of(cls, template: str, caps: Mapping[str, bool]) -> Self:
        """The dialect with the form that the template gives to past calls."""
        return cls(coded="```json" in template, shows_tools=bool(caps.get("supports_tools")))

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages, outputs in the order of their calls, and the tools where the template shows them.

        Templates of the older form lose calls beside text, or put them in front of it, so that calls go in as text.
        """
        messages, tools = super().arrange(prompt)
        messages = in_call_order(messages)
        if self._coded:
            messages = calls_as_text(messages, self._written)
        if tools and not self._shows_tools:
            form = self._written([ToolCall("", "NAME", '{"PARAMETER": "VALUE"}')])
            messages = with_system_text(messages, described_tools(prompt, _MANUAL.format(form=form), self.shown))
            tools = []
        return messages, tools

    def parser(self, prompt: Prompt) -> FormParser:
        """A parser of the answer to this prompt, in either form."""
        tools = callable_tools(prompt)
        header = Header(
            name=lambda parts: _tool_name(parts, tools),
            may_be=lambda parts: (
                begins_name(parts[0], [*tools, _KIND], _PERHAPS_CODE)
                and all(begins_name(part, tools, _PERHAPS_CODE) for part in parts[1:])
            ),
            marks=_spellings(_SEPARATOR),
            stops=_spellings(_CLOSE_CALL),
            raw=bare_tools(prompt),
            raw_ends=_spellings(_SEPARATOR),
        )
        bare = json_call(tools)

        def call(first: str) -> CallReader | None:
            return bare(first) or NamedCall(tools, header)

        form = Form(
            opens=[*_spellings(_OPEN), *_spellings(_OPEN_CALL)],
            others=[*_spellings(_SEPARATOR), *_spellings(_CLOSE_CALL), *_spellings(_CLOSE)],
            call=call,
            bare=bare,
            between=" \t\r\n[],}`",
        )
        return FormParser(tools, form)

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        if not tools_to_call(prompt):
            return None

        def bare_head(tool: FunctionTool | CustomTool) -> str:
            return lark.marked(f"{tool.name}{_SEPARATOR}")

        def coded_head(tool: FunctionTool | CustomTool) -> str:
            return lark.marked(f"{_KIND}{_SEPARATOR}{tool.name}{_OPEN_CODE}")

        end = lark.marked(_CLOSE_CALL)
        head, tail = (coded_head, f"{lark.literal(_CLOSE_CODE)} {end}") if self._coded else (bare_head, end)
        unmarked = named_calls(prompt, lark, head, tail, bare_head, f"{end} ({lark.marked(_CLOSE)})?")
        following = behind(lark, _OPEN_CALL, unmarked)
        # Where the model opened no section it need not close one.
        close = f"({lark.marked(_CLOSE)})?" if opened == _OPEN_CALL else lark.marked(_CLOSE)
        first = unmarked if opened == _OPEN_CALL else following
        turn = closed_turn(prompt, lark, first, following, close, lark.literal("\n") if self._coded else "")
        opening = "" if opened else lark.marked(_OPEN)
        return lark.rule("calls", f"{opening} {turn}".lstrip())

    def _written(self, calls: Sequence[ToolCall]) -> str:
        if self._coded:
            texts = [
                f"{_OPEN_CALL}{_KIND}{_SEPARATOR}{call.name}{_OPEN_CODE}{call_arguments(call)}{_CLOSE_CODE}{_CLOSE_CALL}"
                for call in calls
            ]
            return f"{_OPEN}{chr(10).join(texts)}{_CLOSE}"
        texts = [f"{_OPEN_CALL}{call.name}{_SEPARATOR}{call_arguments(call)}{_CLOSE_CALL}" for call in calls]
        return f"{_OPEN}{''.join(texts)}{_CLOSE}"


def _spellings(marker: str) -> list[str]:
    return [marker, *(marker.replace(_GAP, gap) for gap in _SLOPPY_GAPS)]


def _tool_name(parts: Sequence[str], tools: Mapping[str, bool]) -> str | None:
    """The name of the last part that is one: in the older form `function` stands before it."""
    for part in reversed(parts):
        name = _CODE_AT_END.sub("", part).strip()
        if name in tools:
            return name
    return None

"""The dialect of Kimi K2: a section of calls, each with an id that names its tool and JSON behind it. Pure.

A turn of calls is `<|tool_calls_section_begin|>`, for each call
`<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`, and
`<|tool_calls_section_end|>`. The number counts the calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.dialects.history import in_call_order, with_ids, with_names
from antiphon.prompt.dialects.json_rules import tools_to_call
from antiphon.prompt.dialects.named_calls import Header, NamedCall, begins_name
from antiphon.prompt.dialects.named_rules import bare_tools, behind, closed_turn, named_calls, shown_bare
from antiphon.prompt.dialects.native import NativeDialect
from antiphon.prompt.dialects.parser import Form, FormParser, json_call
from antiphon.prompt.dialects.pieces import CallReader
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Kimi"]

_OPEN: Final = "<|tool_calls_section_begin|>"
_CLOSE: Final = "<|tool_calls_section_end|>"
_OPEN_CALL: Final = "<|tool_call_begin|>"
_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
_CLOSE_CALL: Final = "<|tool_call_end|>"

_PREFIX: Final = "functions."
_NUMBER = re.compile(r"\s*(?::\s*[0-9]*)?\s*")
_NUMBERED = re.compile(r"(.*?)\s*:\s*[0-9]+", re.DOTALL)
_COUNTS_PER_MESSAGE: Final = "loop.index0"


class Kimi(NativeDialect):
    """`whole_count` says that the template counts calls through the whole conversation, not anew in each turn."""

    name = "kimi"
    markers = (_OPEN, _CLOSE, _OPEN_CALL, _ARGUMENTS, _CLOSE_CALL)
    openings = (_OPEN, _OPEN_CALL)
    binds_lark = True
    shown = staticmethod(shown_bare)

    def __init__(self, *, whole_count: bool = True) -> None:
        self._whole_count = whole_count

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template marks calls as this family does."""
        return _OPEN in template and _ARGUMENTS in template

    @classmethod
    def of(cls, template: str, caps: Mapping[str, bool]) -> Self:
        """The dialect with the template's way of counting."""
        return cls(whole_count=_COUNTS_PER_MESSAGE not in template)

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages, outputs in the order of their calls and under their names and ids, and the tools to show."""
        messages, tools = super().arrange(prompt)
        count = 0

        def new_id(call: ToolCall, place: int) -> str:
            nonlocal count
            if not call.name:
                return call.id
            count += 1
            return f"{_PREFIX}{call.name}:{count - 1 if self._whole_count else place}"

        return with_ids(in_call_order(with_names(messages)), new_id), tools

    def parser(self, prompt: Prompt) -> FormParser:
        """A parser of the answer to this prompt; the markers of the section, and the prefix, may be missing."""
        tools = callable_tools(prompt)
        names = [name for tool in tools for name in (_PREFIX + tool, tool)]
        header = Header(
            name=lambda parts: _tool_name(parts[0], tools),
            may_be=lambda parts: begins_name(parts[0], names, _NUMBER),
            ends=(_ARGUMENTS,),
            stops=(_CLOSE_CALL,),
            raw=bare_tools(prompt),
        )
        bare = json_call(tools)

        def call(first: str) -> CallReader | None:
            return bare(first) or NamedCall(tools, header)

        others = (_ARGUMENTS, _CLOSE_CALL, _CLOSE)
        return FormParser(tools, Form(opens=(_OPEN, _OPEN_CALL), others=others, call=call, bare=bare))

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        if not tools_to_call(prompt):
            return None

        def head(tool: FunctionTool | CustomTool) -> str:
            return f"{lark.literal(f'{_PREFIX}{tool.name}:')} /[0-9]{{1,3}}/ {lark.marked(_ARGUMENTS)}"

        end = lark.marked(_CLOSE_CALL)
        unmarked = named_calls(prompt, lark, head, end, head, f"{end} ({lark.marked(_CLOSE)})?")
        following = behind(lark, _OPEN_CALL, unmarked)
        # Where the model opened no section it need not close one.
        close = f"({lark.marked(_CLOSE)})?" if opened == _OPEN_CALL else lark.marked(_CLOSE)
        first = unmarked if opened == _OPEN_CALL else following
        turn = closed_turn(prompt, lark, first, following, close)
        opening = "" if opened else lark.marked(_OPEN)
        return lark.rule("calls", f"{opening} {turn}".lstrip())


def _tool_name(text: str, tools: Mapping[str, bool]) -> str | None:
    text = text.strip()
    numbered = _NUMBERED.fullmatch(text)
    readings = [text, numbered.group(1)] if numbered else [text]
    for name in (reading for text in readings for reading in _readings(text)):
        if name in tools:
            return name
    return None


def _readings(text: str) -> Sequence[str]:
    return (text, text.removeprefix(_PREFIX))

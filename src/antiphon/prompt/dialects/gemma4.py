"""The dialect of Gemma 4 and FunctionGemma: `call:NAME{…}` between two markers, in a notation of their own. Pure.

Gemma 4 writes `<|tool_call>call:NAME{key:<|"|>text<|"|>,other:1}<tool_call|>`, FunctionGemma the same with markers and
marks of other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from antiphon.prompt.arguments import bare_input
from antiphon.prompt.dialects.base import callable_tools, tool_parameters
from antiphon.prompt.dialects.history import in_call_order, with_names
from antiphon.prompt.dialects.json_rules import tools_to_call
from antiphon.prompt.dialects.named_calls import Header, NamedCall, begins_name
from antiphon.prompt.dialects.native import NativeDialect
from antiphon.prompt.dialects.notation import NotationReader
from antiphon.prompt.dialects.notation_rules import notation_object
from antiphon.prompt.dialects.parser import Form, FormParser, json_call
from antiphon.prompt.dialects.pieces import CallReader
from antiphon.prompt.dialects.tagged_rules import Calls, swallows, turn_of_calls
from antiphon.prompt.dialects.values import INPUT
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.protocol.tools import CustomTool

__all__ = ["Gemma4"]

_CALL: Final = "call:"


class _Marks(NamedTuple):
    opening: str
    closing: str
    quote: str
    others: tuple[str, ...]


_GEMMA: Final = _Marks("<|tool_call>", "<tool_call|>", '<|"|>', ("<|tool_response>", "<tool_response|>"))
_FUNCTION_GEMMA: Final = _Marks(
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    ("<start_function_response>", "<end_function_response>"),
)


class Gemma4(NativeDialect):
    """`marks` are those of Gemma 4 or of FunctionGemma."""

    name = "gemma4"
    always = ("<|channel>", "<channel|>")
    binds_lark = True

    def __init__(self, marks: _Marks = _GEMMA) -> None:
        self._marks = marks
        self.markers = (marks.opening, marks.closing, marks.quote)
        self.openings = (marks.opening,)

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template marks calls in one of the two forms."""
        return any(marks.opening in template and marks.quote in template for marks in (_GEMMA, _FUNCTION_GEMMA))

    @classmethod
    def of(cls, template: str, caps: Mapping[str, bool]) -> Self:
        """The dialect with the marks of the template."""
        return cls(_FUNCTION_GEMMA if _FUNCTION_GEMMA.opening in template else _GEMMA)

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages, with outputs under their names, and the tools for the template to show."""
        messages, tools = super().arrange(prompt)
        return with_names(in_call_order(messages)), tools

    def parser(self, prompt: Prompt) -> FormParser:
        """A parser of the answer to this prompt."""
        marks, tools = self._marks, callable_tools(prompt)
        json = json_call(tools)
        names = [_CALL + name for name in tools]
        header = Header(
            name=lambda parts: parts[0].strip().removeprefix(_CALL).strip(),
            may_be=lambda parts: begins_name(parts[0], names),
        )

        def call(first: str) -> CallReader | None:
            named = NamedCall(tools, header, lambda custom: NotationReader(marks.quote, custom=custom))
            return named if first == _CALL[0] else json(first)

        form = Form(
            opens=(marks.opening,),
            others=(marks.closing, marks.quote, *marks.others),
            call=call,
            bare=json,
            before=" \t\r\n",
        )
        return FormParser(tools, form)

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        if not tools_to_call(prompt):
            return None
        following = self._either(prompt, lark, "call", self._marks.opening)
        first = self._either(prompt, lark, "opened", "") if opened else following
        return lark.rule("calls", turn_of_calls(prompt, lark, first, following))

    def _either(self, prompt: Prompt, lark: Lark, name: str, opening: str) -> Calls:
        marks = self._marks
        calls: list[str] = []
        lasts: list[str] = []
        for place, tool in enumerate(tools_to_call(prompt)):
            head = lark.marked(f"{opening}{_CALL}{tool.name}")
            if isinstance(tool, CustomTool) and swallows(tool):
                # What follows may be taken for more of the input, so nothing has to.
                text = lark.rule(f"input{place}", bare_input(tool))
                begin, end = lark.marked(f"{{{INPUT}:{marks.quote}"), lark.marked(f"{marks.quote}}}{marks.closing}")
                lasts.append(f"{head} {begin} {text} ({end})?")
            else:
                body = notation_object(lark, f"arguments{place}", tool_parameters(tool), marks.quote)
                calls.append(f"{head} {body} {lark.marked(marks.closing)}")
        return Calls(
            lark.rule(name, lark.any_of(calls)) if calls else "",
            lark.rule(f"{name}_last", lark.any_of(lasts)) if lasts else "",
        )

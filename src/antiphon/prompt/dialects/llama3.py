"""The dialect of Llama 3: a JSON object of a name and `parameters`, mostly bare. Pure.

A call is `{"name": NAME, "parameters": {…}}` on a line of its own, or behind `<|python_tag|>`; several are parted by
semicolons. Tools that the models know from their training are called like `<|python_tag|>NAME.call(KEY="VALUE")`.
Llama 4 writes the same behind what stands between `<|python_start|>` and `<|python_end|>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from antiphon.prompt.arguments import bare_input
from antiphon.prompt.dialects.apart import ApartReader
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.dialects.history import one_call_each
from antiphon.prompt.dialects.json_calls import apart_tools, described
from antiphon.prompt.dialects.json_rules import object_call, opened_object, tools_to_call
from antiphon.prompt.dialects.native import NativeDialect
from antiphon.prompt.dialects.parser import Form, FormParser
from antiphon.prompt.dialects.pieces import CallReader
from antiphon.prompt.dialects.python_calls import PythonCall, parameter_names
from antiphon.prompt.dialects.scanner import CallScanner
from antiphon.prompt.dialects.tagged_rules import Calls, swallows, turn_of_calls
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.protocol.json import encode
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Llama3"]

_TAG: Final = "<|python_tag|>"
_START: Final = "<|python_start|>"
_END: Final = "<|python_end|>"
_END_OF_MESSAGE: Final = "<|eom_id|>"
_PARAMETERS: Final = "parameters"
_HEADERS: Final = ("<|start_header_id|>", "<|header_start|>")
_OTHER_FORMS: Final = ("<tool_call>", "<function=", "functools[", ">>>", "[func_name")
"""Texts of templates of other families that keep the headers of this one."""


class Llama3(NativeDialect):
    """`single` says that the template takes one call in a message and shows no text beside it."""

    name = "llama3"
    markers = (_TAG, _START, _END)
    openings = (_TAG,)
    binds_lark = True
    shown = staticmethod(described)

    def __init__(self, *, single: bool = False) -> None:
        self._single = single

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template asks for calls in this form."""
        if not any(header in template for header in _HEADERS) or any(form in template for form in _OTHER_FORMS):
            return False
        return _TAG in template or f'"{_PARAMETERS}"' in template

    @classmethod
    def of(cls, template: str, caps: Mapping[str, bool]) -> Self:
        """The dialect with the number of calls that the template takes in a message."""
        return cls(single=bool(template) and not caps.get("supports_parallel_tool_calls"))

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages, as many calls in each as the template takes, and the tools for the template to show."""
        messages, tools = super().arrange(prompt)
        return (one_call_each(messages, text_apart=True) if self._single else messages), tools

    def parser(self, prompt: Prompt) -> FormParser:
        """A parser of the answer to this prompt."""
        tools = callable_tools(prompt)
        parameters = parameter_names(prompt)
        apart = apart_tools(prompt)

        def bare(first: str) -> CallReader | None:
            return (
                (ApartReader(tools, apart, _END_OF_MESSAGE) if apart else CallScanner(tools)) if first == "{" else None
            )

        def call(first: str) -> CallReader | None:
            return bare(first) or (PythonCall(tools, parameters) if first not in "[]{},;" else None)

        form = Form(opens=(_TAG, _START), others=(_END,), call=call, bare=bare, starts="{[", between=" \t\r\n[],;}")
        return FormParser(tools, form)

    def call_openings(self, prompt: Prompt) -> Sequence[str]:
        """The marker, and the beginning of an object with the name of each tool."""
        return [*super().call_openings(prompt), *(_opening(tool.name) for tool in tools_to_call(prompt))]

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        tools = tools_to_call(prompt)
        if not tools:
            return None
        named = [tool for tool in tools if opened == _opening(tool.name)]
        plain = [tool for tool in tools if not swallows(tool)]
        if named and named[0] in plain:
            # The next bare call opens with a name again.
            return opened_object(prompt, lark, named[0], arguments=_PARAMETERS)
        if named:
            return _last(prompt, lark, named, opened=True)
        last = _last(prompt, lark, [tool for tool in tools if tool not in plain])
        calls = Calls(object_call(prompt, lark, plain, arguments=_PARAMETERS) if plain else "", last)
        turn = turn_of_calls(prompt, lark, calls, calls, lark.literal("; "))
        return lark.rule("calls", turn if opened else f"({lark.marked(_TAG)})? {turn}")


def _last(prompt: Prompt, lark: Lark, tools: Sequence[FunctionTool | CustomTool], *, opened: bool = False) -> str:
    """The name of the rule for calls whose input stands as it is behind the object; empty for no tools."""
    bodies: list[str] = []
    for place, tool in enumerate(tools_to_call(prompt)):
        if tool in tools and isinstance(tool, CustomTool):
            head = lark.literal("}\n" if opened else f"{_opening(tool.name)}}}\n")
            bodies.append(f"{head} {lark.rule(f'input{place}', bare_input(tool))}")
    return lark.rule("last", lark.any_of(bodies)) if bodies else ""


def _opening(name: str) -> str:
    return f'{{"name": {encode(name).decode()}'

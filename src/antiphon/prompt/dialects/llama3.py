"""The dialect of Llama 3: a JSON object of a name and `parameters`, mostly bare. Pure.

A call is `{"name": NAME, "parameters": {…}}` on a line of its own, or behind `<|python_tag|>`; several are parted by
semicolons. Tools that the models know from their training are called like `<|python_tag|>NAME.call(KEY="VALUE")`.
Llama 4 writes the same behind what stands between `<|python_start|>` and `<|python_end|>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.dialects.history import one_call_each
from antiphon.prompt.dialects.json_rules import in_row, object_call, opened_object, tools_to_call
from antiphon.prompt.dialects.native import NativeDialect
from antiphon.prompt.dialects.parser import Form, FormParser, json_call
from antiphon.prompt.dialects.pieces import CallReader
from antiphon.prompt.dialects.python_calls import PythonCall, parameter_names
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.protocol.json import encode

__all__ = ["Llama3"]

_TAG: Final = "<|python_tag|>"
_START: Final = "<|python_start|>"
_END: Final = "<|python_end|>"
_PARAMETERS: Final = "parameters"
_HEADERS: Final = ("<|start_header_id|>", "<|header_start|>")
_OTHER_FORMS: Final = ("<tool_call>", "<function=", "functools[", ">>>", "[func_name")
"""Texts of templates of other families that keep the headers of this one."""


class Llama3(NativeDialect):
    """`single` says that the template takes one call in a message and shows no text beside it."""

    name = "llama3"
    markers = (_TAG, _START, _END)
    openings = (_TAG,)

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
        bare = json_call(tools)

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
        if named:
            # The next bare call opens with a name again.
            return opened_object(prompt, lark, named[0], arguments=_PARAMETERS)
        call = object_call(prompt, lark, arguments=_PARAMETERS)
        row = in_row(prompt, call, call, lark.literal("; "))
        return lark.rule("calls", row if opened else f"({lark.marked(_TAG)})? {row}")


def _opening(name: str) -> str:
    return f'{{"name": {encode(name).decode()}'

"""The dialect of Mistral's models: `[TOOL_CALLS]` before calls, in an older and a newer form. Pure.

The older one is an array of objects behind one marker: `[TOOL_CALLS][{"name": …, "arguments": {…}, "id": …}]`. The
newer one has a marker for each call, `[TOOL_CALLS]name[ARGS]{…}`, and with some models an id between the two,
`[TOOL_CALLS]name[CALL_ID]id[ARGS]{…}`. Ids have nine letters and digits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, Self

from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.dialects.history import in_call_order, with_ids
from antiphon.prompt.dialects.json_rules import in_row, object_call, tools_to_call
from antiphon.prompt.dialects.named_calls import Header, NamedCall, begins_name
from antiphon.prompt.dialects.named_rules import Head, bare_tools, behind, named_calls, shown_bare
from antiphon.prompt.dialects.native import NativeDialect
from antiphon.prompt.dialects.parser import Form, FormParser, json_call
from antiphon.prompt.dialects.pieces import CallReader
from antiphon.prompt.dialects.tagged_rules import swallows, turn_of_calls
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Mistral"]

_CALLS: Final = "[TOOL_CALLS]"
_ID: Final = "[CALL_ID]"
_ARGUMENTS: Final = "[ARGS]"

_ID_LENGTH: Final = 9
_ID_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_RULE: Final = f"/[a-zA-Z0-9]{{{_ID_LENGTH}}}/"
_CALL_ID = re.compile(r"\s*[A-Za-z0-9]*\s*")


class Mistral(NativeDialect):
    """`array` says that calls are written in the older form, `ids` that the newer form has ids. Both are read."""

    name = "mistral"
    markers = (_CALLS, _ID, _ARGUMENTS)
    openings = (_CALLS,)
    binds_lark = True
    shown = staticmethod(shown_bare)

    def __init__(self, *, array: bool = False, ids: bool = False) -> None:
        self._array = array
        self._ids = ids

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template marks calls as this family does."""
        return _CALLS in template

    @classmethod
    def of(cls, template: str, caps: Mapping[str, bool]) -> Self:
        """The dialect with the form that the template gives to past calls."""
        return cls(array=bool(template) and _ARGUMENTS not in template, ids=_ID in template)

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages with ids as the templates demand them, outputs in the order of their calls since some templates
        show no ids, and the tools for the template to show.
        """
        messages, tools = super().arrange(prompt)
        return with_ids(in_call_order(messages), lambda call, place: _short_id(call.id)), tools

    def parser(self, prompt: Prompt) -> FormParser:
        """A parser of the answer to this prompt, in either form; an array without its marker is one too."""
        tools = callable_tools(prompt)
        header = Header(
            name=lambda parts: parts[0].strip(),
            may_be=lambda parts: begins_name(parts[0], tools) and all(map(_CALL_ID.fullmatch, parts[1:])),
            marks=(_ID,),
            ends=(_ARGUMENTS,),
            stops=(_CALLS,),
            raw=bare_tools(prompt),
        )
        bare = json_call(tools)

        def call(first: str) -> CallReader | None:
            return bare(first) or (NamedCall(tools, header) if first not in "[]{}," else None)

        return FormParser(tools, Form(opens=(_CALLS,), others=(_ID, _ARGUMENTS), call=call, bare=bare, starts="{["))

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        if not tools_to_call(prompt):
            return None
        identifier = f" {lark.marked(_ID)} {_ID_RULE}" if self._ids else ""

        def head(tool: FunctionTool | CustomTool) -> str:
            return f"{lark.literal(tool.name)}{identifier} {lark.marked(_ARGUMENTS)}"

        if self._array:
            return self._array_of_calls(prompt, lark, head, opened=opened)
        unmarked = named_calls(prompt, lark, head, "", head, "")
        following = behind(lark, _CALLS, unmarked)
        return lark.rule("calls", turn_of_calls(prompt, lark, unmarked if opened else following, following))

    def _array_of_calls(self, prompt: Prompt, lark: Lark, head: Head, *, opened: str) -> str:
        """An array, or alone a call whose input stands as it is, in the newer form."""
        before, behind_id = lark.literal(', "id": "'), lark.literal('"')
        turns: list[str] = []
        tools = [tool for tool in tools_to_call(prompt) if not swallows(tool)]
        if tools:
            tail = f"({before} {_ID_RULE} {behind_id})?"
            call = object_call(prompt, lark, tools, arguments="arguments", tail=tail)
            turns.append(f'" "? "[" {in_row(prompt, lark, call, call, lark.literal(", "))} "]"')
        last = named_calls(prompt, lark, head, "", head, "").last if len(tools) < len(tools_to_call(prompt)) else ""
        marker = "" if opened else f"{lark.marked(_CALLS)} "
        return lark.rule("calls", f"{marker}{lark.any_of([*turns, last] if last else turns)}")


def _short_id(identifier: str) -> str:
    """An id of the form that the family demands; the same for the same id, so that a prompt stays the same."""
    if len(identifier) == _ID_LENGTH and identifier.isascii() and identifier.isalnum():
        return identifier
    number = int.from_bytes(hashlib.sha256(identifier.encode()).digest())
    digits: list[str] = []
    for _ in range(_ID_LENGTH):
        number, digit = divmod(number, len(_ID_ALPHABET))
        digits.append(_ID_ALPHABET[digit])
    return "".join(digits)

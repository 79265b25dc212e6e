"""The Hermes dialect, which Qwen and many others use: a JSON object between `<tool_call>` and `</tool_call>`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from antiphon.prompt.dialects.base import Dialect, callable_tools
from antiphon.prompt.dialects.json_calls import apart_tools, described, marked_calls
from antiphon.prompt.dialects.parser import CallParser
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt

__all__ = ["CLOSE_CALL", "OPEN_CALL", "Hermes"]

OPEN_CALL: Final = "<tool_call>"
"""The marker before a call."""

CLOSE_CALL: Final = "</tool_call>"
"""The marker after a call."""

_OTHER_FORMS: Final = ("<function=", "<arg_key>", "<tool_sep>", "<invoke name=")
"""Texts of templates that put something else than JSON between the same markers (Qwen3-Coder, GLM, MiniMax)."""


class Hermes(Dialect):
    """Tools and past calls are the template's own business; calls are read between the markers, bare or fenced."""

    name = "hermes"
    markers = (OPEN_CALL, CLOSE_CALL)
    openings = (OPEN_CALL,)
    binds_lark = True

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template renders tools and asks for calls in this form."""
        if not caps.get("supports_tools") or OPEN_CALL not in template:
            return False
        return not any(form in template for form in _OTHER_FORMS)

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages as they are, and the tools for the template to show."""
        tools = [] if prompt.choice.mode == "none" else [described(tool) for tool in prompt.tools]
        return list(prompt.messages), tools

    def parser(self, prompt: Prompt) -> CallParser:
        """A parser of the answer to this prompt."""
        return CallParser(callable_tools(prompt), OPEN_CALL, CLOSE_CALL, apart_tools(prompt))

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        return marked_calls(prompt, lark, (OPEN_CALL, CLOSE_CALL), opened=bool(opened))

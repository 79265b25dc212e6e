"""What a tool-call dialect is: how tools and past calls are shown to the model, and how its calls are read. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import msgspec

from antiphon.machine.deltas import ReasoningDelta, TextDelta
from antiphon.machine.reasoning import ReasoningSplitter
from antiphon.prompt.arguments import (
    CUSTOM_INPUT,
    NO_ARGUMENTS,
    Parameter,
    custom_format,
    express_arguments,
    parameters_of,
)
from antiphon.prompt.dialects.pieces import Piece
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.json import encode
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = [
    "CUSTOM_INPUT",
    "MOST_CALLS",
    "Dialect",
    "Splitter",
    "TurnParser",
    "call_arguments",
    "callable_tools",
    "described_tools",
    "function_schema",
    "tool_parameters",
    "tool_schema",
]

MOST_CALLS = 8
"""Calls of one turn that a grammar lets a model make, so that one that repeats itself comes to an end."""

_INTRODUCTION = "You can call these tools:"


class TurnParser(Protocol):
    """An incremental parser of one answer; the pieces are the same however the text is cut, and hold no markup."""

    @property
    def in_text(self) -> bool:
        """Whether the answer is in text now, not in a call or what may become one."""
        ...

    @property
    def calls(self) -> int:
        """Calls that are complete."""
        ...

    def feed(self, text: str) -> list[Piece]:
        """The pieces that can be told apart with this text; arguments leave while they are written."""
        ...

    def finish(self) -> list[Piece]:
        """What was held back, at the end of the answer. A call that was cut before its name is no text."""
        ...


class Splitter(Protocol):
    """An incremental splitter of an answer into thinking and the rest, which goes to the parser."""

    @property
    def thinking(self) -> bool:
        """Whether the answer is in thinking now."""
        ...

    def feed(self, text: str) -> list[ReasoningDelta | TextDelta]:
        """The deltas that can be told apart with this text."""
        ...

    def finish(self) -> list[ReasoningDelta | TextDelta]:
        """What was held back, at the end of the answer."""
        ...


class Dialect(ABC):
    """One family's form of tool calls."""

    name: str
    """The name by which it is set."""

    markers: Sequence[str]
    """Texts that may be special tokens of the model and must come out as text."""

    always: Sequence[str] = ()
    """Such texts that must come out also where no tool may be called."""

    binds_lark: bool = False
    """Whether the grammar of its calls holds the input of a custom tool to the Lark grammar that this has."""

    openings: Sequence[str] = ()
    """Texts of which one opens a call in free text, whatever the tools."""

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether a chat template is of this family; `caps` is llama.cpp's `chat_template_caps`."""
        return False

    @classmethod
    def of(cls, template: str, caps: Mapping[str, bool]) -> Self:
        """The dialect as this template writes it; some families have several forms."""
        return cls()

    @abstractmethod
    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages, and the tools as chat-completions objects, that the chat template is given."""

    @abstractmethod
    def parser(self, prompt: Prompt) -> TurnParser:
        """A parser of the answer to this prompt."""

    def splitter(self, markers: tuple[str, str], *, primed: bool) -> Splitter:
        """A splitter of one answer; `markers` are those that the chat template puts around thinking.

        `primed` says whether the prompt ends with the first of them.
        """
        return ReasoningSplitter(*markers, primed=primed)

    def thought(self, lark: Lark, budget: int | None = None) -> str | None:
        """The name of a rule for thinking before an answer, where it is more than a text between two markers.

        `budget` are the tokens that it may take at most.
        """
        return None

    def closing(self, markers: tuple[str, str], *, again: bool) -> str:
        """What ends thinking in its midst, as this family would write it.

        `again` says that thinking has been ended in this turn before, and has begun anew.
        """
        return f"\n{markers[1]}\n\n"

    def framed(self, lark: Lark, body: str) -> str:
        """The body of a rule for an answer that is no call, as this family writes it around this body."""
        return body

    def call_openings(self, prompt: Prompt) -> Sequence[str]:
        """Texts of which one opens every call in free text; empty where a call cannot be told from text by its opening.

        A family without markers of its own opens a call with the name of a tool.
        """
        return self.openings if callable_tools(prompt) else ()

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The name of the rule for one turn of calls as this family writes them: of the tools that may be called now,
        with arguments of their schemas, one call where calls may not be parallel, else one or more.

        `opened` is the one of `call_openings` that the model has written already; the rule goes on after it. None where
        this dialect has no grammar.
        """
        return None


def callable_tools(prompt: Prompt) -> dict[str, bool]:
    """The tools that may be called now, by name, each with whether it is a custom tool."""
    if prompt.choice.mode == "none":
        return {}
    tools = {tool.name: isinstance(tool, CustomTool) for tool in prompt.tools}
    if not prompt.choice.allowed:
        return tools
    return {name: tools[name] for name in prompt.choice.allowed if name in tools}


def function_schema(tool: FunctionTool | CustomTool) -> dict[str, Any]:
    """A tool as a chat-completions function; a custom tool takes its text as `input`."""
    function: dict[str, Any] = {"name": tool.name, "description": tool.description or ""}
    if isinstance(tool, FunctionTool):
        function["parameters"] = tool.parameters or NO_ARGUMENTS
    else:
        function["parameters"] = CUSTOM_INPUT
        syntax, definition = custom_format(tool)
        if syntax != "text":
            function["description"] += f"\nThe input must match this {syntax} grammar:\n{definition}"
    return {"type": "function", "function": function}


def described_tools(
    prompt: Prompt, manual: str, show: Callable[[FunctionTool | CustomTool], dict[str, Any]] = function_schema
) -> str:
    """The tools as text for a system message, for templates that show none; `manual` says how to call them.

    `show` makes the chat-completions object of a tool.
    """
    functions = [encode(show(tool)["function"]).decode() for tool in prompt.tools]
    return "\n".join([_INTRODUCTION, *functions]) + f"\n\n{manual}"


def tool_schema(tool: FunctionTool | CustomTool) -> dict[str, Any]:
    """The arguments of a call as a JSON object: what of its schema a grammar can express. Its root is an object, and
    its references lead to its own `$defs`. The text of a custom tool stands under `input`.

    Raises:
        InvalidRequestError: the parameters are too large (M12), or are not an object.
    """
    return express_arguments(tool).schema


def tool_parameters(tool: FunctionTool | CustomTool) -> list[Parameter]:
    """The same parameter by parameter, for a form of calls that is not JSON; the schema of each stands alone.

    Raises:
        InvalidRequestError: the parameters are too large (M12), or are not an object.
    """
    return parameters_of(tool_schema(tool))


def call_arguments(call: ToolCall) -> str:
    """The arguments of a past call as the JSON text of an object.

    The text of a custom tool's call, and anything else that is no object, stands under `input`, as it was shown.
    """
    text = call.arguments.strip()
    if not text:
        return "{}"
    try:
        value: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        value = None
    if isinstance(value, dict):
        return call.arguments
    # Spaced as models write it, so that the prompt keeps the tokens that are in the engine's cache.
    return f'{{"input": {encode(call.arguments).decode()}}}'

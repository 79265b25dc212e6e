"""Grammars of calls whose arguments stand between tags. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from antiphon.prompt.arguments import Parameter, bare_input, custom_format
from antiphon.prompt.dialects.base import tool_parameters
from antiphon.prompt.dialects.json_rules import in_row, tools_to_call
from antiphon.prompt.dialects.kinds import Arguments, Kind
from antiphon.prompt.dialects.raw_text import raw_string
from antiphon.prompt.dialects.tagged import Tags
from antiphon.prompt.dialects.values import INPUT
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Calls", "swallows", "tagged_calls", "turn_of_calls"]

_NEWLINE: Final = "\n"


def tagged_calls(tags: Tags, prompt: Prompt, lark: Lark, *, opened: str) -> str | None:
    """The name of the rule for a turn of calls between these tags; see `Dialect.calls`."""
    tools = tools_to_call(prompt)
    if not tools:
        return None
    rules = _Rules(tags, lark)
    bodies = [rules.body(f"tool{place}", tool) for place, tool in enumerate(tools)]
    gap = f"{lark.literal(_NEWLINE)}?"
    first, following = rules.either("opened", tools, bodies, opened), rules.either("call", tools, bodies, "")
    return lark.rule("calls", turn_of_calls(prompt, lark, first, following, gap))


def turn_of_calls(prompt: Prompt, lark: Lark, first: Calls, following: Calls, between: str = "") -> str:
    """The body for a turn of calls; `first` are those that can begin it, `between` is the body between two."""
    turns = [first.last] if first.last else []
    if first.call:
        row = in_row(prompt, lark, first.call, following.call, between)
        more = f" ({f'{between} {following.last}'.lstrip()})?" if following.last and prompt.parallel_tool_calls else ""
        turns.append(row + more)
    return lark.any_of(turns)


class Calls(NamedTuple):
    """Rules for one call of any tool: of those that more may follow, and of those that end a turn; empty for none."""

    call: str
    last: str


class _Rules:
    def __init__(self, tags: Tags, lark: Lark) -> None:
        self._tags = tags
        self._lark = lark
        self._newline = _NEWLINE if tags.trims else ""
        # Where tags need no line of their own, a line break may stand behind one all the same.
        self._gap = "" if tags.trims else f"{lark.literal(_NEWLINE)}?"

    def either(self, name: str, tools: list[FunctionTool | CustomTool], bodies: list[str], opened: str) -> Calls:
        """The rules for one call; `opened` is what the model has written of it."""
        tags, lark = self._tags, self._lark
        calls: list[str] = []
        lasts: list[str] = []
        for tool, body in zip(tools, bodies, strict=True):
            head = f"{tags.open_block}{self._newline}{tags.open_call}{tool.name}{tags.close_name}{self._newline}"
            rest = head.partition(opened)[2] if opened else head
            (lasts if swallows(tool) else calls).append(f"{lark.marked(rest)} {body}")
        closing = lark.marked(self._newline + tags.close_block)
        if opened and opened != tags.open_block:
            # Where the model left the block out it need not close it.
            closing = f"({closing})?"
        return Calls(
            lark.rule(name, f"{lark.any_of(calls)} {closing}") if calls else "",
            lark.rule(f"{name}_last", lark.any_of(lasts)) if lasts else "",
        )

    def body(self, name: str, tool: FunctionTool | CustomTool) -> str:
        """The name of the rule for everything of a call behind its name."""
        tags, lark = self._tags, self._lark
        if isinstance(tool, CustomTool) and swallows(tool):
            # What follows may be taken for more of the input, so nothing has to.
            end = self._close() + tags.close_call + self._newline + tags.close_block
            text = lark.rule(f"{name}_input", bare_input(tool))
            return lark.rule(name, f"{self._gap} {self._opening(INPUT)} {text} ({lark.marked(end)})?".lstrip())
        arguments = Arguments(tool_parameters(tool))
        parts = [self._gap]
        for place, parameter in enumerate(arguments.parameters):
            rule = f"{name}_{place}"
            value = self._value(rule, parameter, arguments.kind(parameter.name))
            whole = lark.rule(rule, f"{self._opening(parameter.name)} {value} {self._gap}".strip())
            parts.append(whole if parameter.required else f"{whole}?")
        parts.append(lark.marked(tags.close_call) if tags.close_call else "")
        return lark.rule(name, " ".join(part for part in parts if part))

    def _opening(self, key: str) -> str:
        tags, lark = self._tags, self._lark
        text = lark.marked(f"{tags.open_key}{key}{tags.close_key}{self._newline}")
        return f"{text} {self._gap} {lark.marked(tags.open_value)}" if tags.open_value else text

    def _close(self) -> str:
        return f"{self._newline}{self._tags.close_value}{self._newline}"

    def _value(self, rule: str, parameter: Parameter, kind: Kind) -> str:
        lark, close = self._lark, self._close()
        if kind in (Kind.STRING, Kind.NULLABLE):
            nullable = kind is Kind.NULLABLE
            return raw_string(lark, f"{rule}_text", parameter.schema, close, self._tags.close_value, null=nullable)
        return f"{lark.rule(f'{rule}_json', lark.json(parameter.schema))} {lark.marked(close)}"


def swallows(tool: FunctionTool | CustomTool) -> bool:
    """Whether the input may run over its closing tag: it has a grammar of its own."""
    return isinstance(tool, CustomTool) and custom_format(tool)[0] == "lark"

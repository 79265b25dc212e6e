"""The tool choice of a request, resolved against its tools (responses-api 4, local-model 1.2).

Only function and custom tools can be called by a model here; a choice that only another tool could meet is a 400.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from antiphon.errors import InvalidRequestError
from antiphon.prompt.prompt import ResolvedChoice
from antiphon.protocol.json import quoted
from antiphon.protocol.tools import AllowedTools, CustomTool, FunctionChoice, FunctionTool, Tool, ToolChoice

__all__ = ["resolve_choice"]

CallableTool = FunctionTool | CustomTool


def resolve_choice(tools: Sequence[Tool], choice: ToolChoice) -> tuple[list[CallableTool], ResolvedChoice]:
    """The tools that the model is told of, and what it may or must call.

    Raises:
        InvalidRequestError: no tool can meet the choice, or it names a tool that is not declared.
    """
    callables = [tool for tool in tools if not isinstance(tool, dict)]
    names = tuple(tool.name for tool in callables)
    if choice == "none":
        return [], ResolvedChoice("none", ())
    if choice == "auto":
        return callables, ResolvedChoice("auto", names)
    if choice == "required":
        if not callables:
            raise _unmeetable("'required' needs at least one function or custom tool in 'tools'.", "tool_choice")
        return callables, ResolvedChoice("required", names)
    if isinstance(choice, AllowedTools):
        return callables, _allowed(choice, callables, tools)
    if isinstance(choice, FunctionChoice):
        return _named(callables, FunctionTool, choice.name)
    if not isinstance(choice, str) and choice.type == "custom":
        return _named(callables, CustomTool, choice.name or "")
    kind = choice if isinstance(choice, str) else choice.type
    raise _unmeetable(f"This server cannot force a call of the tool type '{quoted(kind)}'.", "tool_choice.type")


def _named(
    callables: list[CallableTool], kind: type[CallableTool], name: str
) -> tuple[list[CallableTool], ResolvedChoice]:
    found = [tool for tool in callables if isinstance(tool, kind) and tool.name == name]
    if not found:
        what = "function" if kind is FunctionTool else "custom tool"
        raise _unmeetable(
            f"Tool choice names the {what} '{quoted(name)}', which is not in 'tools'.", "tool_choice.name"
        )
    return found[:1], ResolvedChoice("required", (name,))


def _allowed(choice: AllowedTools, callables: list[CallableTool], tools: Sequence[Tool]) -> ResolvedChoice:
    names: list[str] = []
    for index, entry in enumerate(choice.tools):
        name = _entry_name(entry)
        if name is not None and any(tool.name == name for tool in callables):
            names.append(name)
        elif not any(_same_hosted(tool, entry) for tool in tools):
            raise _unmeetable(f"'tool_choice.tools[{index}]' is not in 'tools'.", f"tool_choice.tools[{index}]")
    if choice.mode == "required" and not names:
        raise _unmeetable("This server can run none of the allowed tools.", "tool_choice.tools")
    ordered = tuple(tool.name for tool in callables if tool.name in names)
    return ResolvedChoice(choice.mode, ordered)


def _entry_name(entry: dict[str, Any]) -> str | None:
    """The name in an entry of allowed_tools, flat or in the nested form of chat-completions."""
    for holder in (entry, entry.get("function"), entry.get("custom")):
        name = cast("dict[str, Any]", holder).get("name") if isinstance(holder, dict) else None
        if isinstance(name, str):
            return name
    return None


def _same_hosted(tool: Tool, entry: dict[str, Any]) -> bool:
    return isinstance(tool, dict) and tool.get("type") == entry.get("type")


def _unmeetable(message: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(message, param=param, code="invalid_tool_choice")

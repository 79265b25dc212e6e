"""The tool choice of a request, resolved against its toolbox (responses-api 4, local-model 1.2).

Functions, custom tools, the tools that a client runs and those that the server runs can be called by a model here; a
choice that only another tool could meet is a 400. A choice that names a tool which waits for a search shows it.
"""

from __future__ import annotations

from typing import Any, Final, cast

from antiphon.errors import InvalidRequestError
from antiphon.prompt.prompt import ResolvedChoice
from antiphon.prompt.toolbox import CallableTool, Toolbox
from antiphon.protocol.hosted import call_type
from antiphon.protocol.json import quoted
from antiphon.protocol.tools import AllowedTools, CustomTool, FunctionChoice, Tool, ToolChoice

__all__ = ["after_first_turn", "resolve_choice"]

_KINDS: Final = ("function", "custom")
_UNFORCED: Final = "get_chunks"
"""It needs what another call has found, so that it cannot be the first (B7)."""
_OWN_KINDS: Final = ("shell", "apply_patch", "local_shell", "computer", "computer_use_preview", "tool_search")


def resolve_choice(
    toolbox: Toolbox, choice: ToolChoice, *, hosted: bool = False
) -> tuple[list[CallableTool], ResolvedChoice]:
    """The tools that the model is told of, and what it may or must call.

    `hosted` says that tools of other types are run where the model is, so that a choice of them is for the upstream.

    Raises:
        InvalidRequestError: no tool can meet the choice, or it names a tool that is not declared.
    """
    if choice == "none":
        return [], ResolvedChoice("none", ())
    if hosted and toolbox.hosted:
        found = _of_upstream(choice, toolbox)
        if found is not None:
            names = tuple(tool.name for tool in toolbox.shown)
            return toolbox.shown, ResolvedChoice("auto", names, found)
    if isinstance(choice, AllowedTools):
        names = _allowed(choice, toolbox)
        if not names and choice.mode == "required":
            return toolbox.shown, ResolvedChoice("auto", ())
        return toolbox.showing(names).shown, ResolvedChoice(choice.mode, names)
    if isinstance(choice, str):
        shown = toolbox.shown
        if choice == "required" and not shown and toolbox.here:
            # Their servers told of no tool, or have not been asked yet.
            return shown, ResolvedChoice("auto", ())
        if choice == "required" and not shown:
            raise _unmeetable("'required' needs at least one tool that can be called in 'tools'.", "tool_choice")
        return shown, ResolvedChoice(choice, tuple(tool.name for tool in shown))
    if isinstance(choice, FunctionChoice):
        return _named(toolbox, "function", choice.name, choice.namespace or None)
    if choice.type == "custom":
        namespace = choice.body.get("namespace")
        return _named(toolbox, "custom", choice.name or "", namespace if isinstance(namespace, str) else None)
    if _is_here(choice.type, toolbox):
        return _of_server(choice.type, choice.body, toolbox)
    name = toolbox.find(choice.type, "") if choice.type in _OWN_KINDS else None
    if name is None:
        raise _unmeetable(
            f"This server cannot force a call of the tool type '{quoted(choice.type)}'.", "tool_choice.type"
        )
    return [toolbox.entries[name].tool], ResolvedChoice("required", (name,))


def _is_here(kind: str, toolbox: Toolbox) -> bool:
    return call_type(kind) is not None and call_type(kind) in {call_type(each) for each in toolbox.here}


def _of_server(kind: str, body: dict[str, Any], toolbox: Toolbox) -> tuple[list[CallableTool], ResolvedChoice]:
    """The choice of a type of tools that the server runs; of MCP, of one server's and perhaps of one of them.

    The model is told of all tools, as in the turns after it, so that these have their prompt in the cache.
    """
    if kind == _UNFORCED:
        raise _unmeetable(
            f"A call of '{_UNFORCED}' cannot be forced: it needs chunks that another call has found.",
            "tool_choice.type",
        )
    server, name = body.get("server_label"), body.get("name")
    declared = any(_names_same(tool, kind, server) for tool in toolbox.declared)
    if not declared:
        what = f"mcp server '{quoted(str(server))}'" if kind == "mcp" else f"tool type '{quoted(kind)}'"
        raise _unmeetable(f"Tool choice names the {what}, which is not in 'tools'.", "tool_choice")
    asked = name if kind == "mcp" and isinstance(name, str) else None
    names = toolbox.run_here(kind, str(server), asked)
    if not names:
        # Its server told of no such tool, or has not been asked yet: the item says what is wrong.
        return toolbox.shown, ResolvedChoice("auto", tuple(tool.name for tool in toolbox.shown))
    return toolbox.showing(names).shown, ResolvedChoice("required", tuple(names))


def _names_same(tool: Tool, kind: str, server: Any) -> bool:
    if not isinstance(tool, dict) or call_type(str(tool.get("type"))) != call_type(kind):
        return False
    return kind != "mcp" or tool.get("server_label") == server


def _of_upstream(choice: ToolChoice, toolbox: Toolbox) -> Any:
    """The choice as the upstream is told it, where a tool that it runs may meet it; None where none could."""
    if isinstance(choice, AllowedTools):
        tools: list[dict[str, Any]] = []
        ran = False
        for entry in choice.tools:
            names = _entry_names(entry, toolbox)
            kinds = [_kind_of(toolbox, name) for name in names]
            tools += [{"type": kind, "name": name} for kind, name in zip(kinds, names, strict=True)]
            if not names and any(_same_hosted(tool, entry) for tool in toolbox.hosted):
                tools.append(entry)
                ran = True
        return {"type": "allowed_tools", "mode": choice.mode, "tools": tools} if ran else None
    if choice == "required":
        return choice
    if isinstance(choice, str | FunctionChoice) or choice.type in _KINDS:
        return None
    if choice.type in _OWN_KINDS and toolbox.find(choice.type, "") is not None:
        return None
    return choice.body if any(tool.get("type") == choice.type for tool in toolbox.hosted) else None


def _kind_of(toolbox: Toolbox, name: str) -> str:
    return "custom" if isinstance(toolbox.entries[name].tool, CustomTool) else "function"


def after_first_turn(choice: ToolChoice) -> ToolChoice:
    """The choice for the turns after the first one of a response: what is forced is forced once (architecture).

    A limit on the tools stays.
    """
    if isinstance(choice, AllowedTools):
        return AllowedTools("auto", choice.tools)
    return "none" if choice == "none" else "auto"


def _named(toolbox: Toolbox, kind: str, name: str, namespace: str | None) -> tuple[list[CallableTool], ResolvedChoice]:
    flat = toolbox.find(kind, name, namespace)
    if flat is None:
        what = "function" if kind == "function" else "custom tool"
        raise _unmeetable(
            f"Tool choice names the {what} '{quoted(name)}', which is not in 'tools'.", "tool_choice.name"
        )
    return [toolbox.entries[flat].tool], ResolvedChoice("required", (flat,))


def _allowed(choice: AllowedTools, toolbox: Toolbox) -> tuple[str, ...]:
    names: set[str] = set()
    for index, entry in enumerate(choice.tools):
        found = _entry_names(entry, toolbox)
        names.update(found)
        if not found and not any(_same_hosted(tool, entry) for tool in toolbox.declared):
            raise _unmeetable(f"'tool_choice.tools[{index}]' is not in 'tools'.", f"tool_choice.tools[{index}]")
    if choice.mode == "required" and not names and toolbox.here:
        return ()
    if choice.mode == "required" and not names:
        raise _unmeetable("This server can run none of the allowed tools.", "tool_choice.tools")
    return tuple(name for name in toolbox.entries if name in names)


def _entry_names(entry: dict[str, Any], toolbox: Toolbox) -> list[str]:
    """The tools that an entry of allowed_tools names, flat or in the nested form of chat-completions."""
    kind = entry.get("type")
    if kind == "namespace":
        return toolbox.of_namespace(str(entry.get("name")))
    if _is_here(str(kind), toolbox):
        server, name = entry.get("server_label"), entry.get("name")
        asked = name if kind == "mcp" and isinstance(name, str) else None
        return toolbox.run_here(str(kind), str(server), asked)
    if kind in _OWN_KINDS:
        found = toolbox.find(str(kind), "")
        return [] if found is None else [found]
    for holder in (entry, entry.get("function"), entry.get("custom")):
        fields = cast("dict[str, Any]", holder) if isinstance(holder, dict) else {}
        name, namespace = fields.get("name"), fields.get("namespace")
        if isinstance(name, str):
            space = namespace if isinstance(namespace, str) else None
            kinds = (str(kind),) if kind in _KINDS else _KINDS
            return [flat for each in kinds if (flat := toolbox.find(each, name, space)) is not None][:1]
    return []


def _same_hosted(tool: Tool, entry: dict[str, Any]) -> bool:
    if not isinstance(tool, dict) or tool.get("type") != entry.get("type"):
        return False
    return tool.get("type") != "namespace" or tool.get("name") == entry.get("name")


def _unmeetable(message: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(message, param=param, code="invalid_tool_choice")

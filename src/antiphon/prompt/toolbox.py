"""The tools of a request as one flat list for the model, and what each of its names stands for. Pure.

Made from the tools of the request and those that items of its history have added. Everything that names a tool goes by
this: the tool choice, the prompt, and the router that makes items of calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.machine.router import HOSTED, TOOL_SEARCH, CallRouter, Target
from antiphon.prompt.clienttools import CLIENT_TOOLS, client_tool
from antiphon.prompt.names import SEPARATOR, fits, flat_name, other_name
from antiphon.prompt.toolsearch import Hidden, search_tool
from antiphon.protocol.hosted import call_type
from antiphon.protocol.json import quoted
from antiphon.protocol.tools import MAX_TOOLS, CustomTool, FunctionTool, Tool, inner_tools

__all__ = [
    "NO_TOOLS",
    "AddedTool",
    "CallableTool",
    "Entry",
    "HostedFunction",
    "Toolbox",
    "merge_added",
    "origin_key",
    "toolbox",
]

CallableTool = FunctionTool | CustomTool
_Identity = tuple[str, str, str]


class AddedTool(Struct, frozen=True):
    """A tool that an item of the history holds; `loaded` says that a search has found it, so that it is shown."""

    tool: Tool
    loaded: bool = False


class HostedFunction(Struct, frozen=True):
    """A function that the server runs itself: the type of the tool that it is of, and of which server, if it is MCP's.

    Two servers may have tools of the same name; type, server and name are what it is known by. One that is `deferred`
    waits for a search, where there is one.
    """

    tool: FunctionTool
    type: str
    server: str = ""
    deferred: bool = False


class Entry(Struct, frozen=True):
    """A tool that can be called: as the model is told of it, what its calls become, and whether it waits for a search.

    `given` is the tool as it was declared, in its namespace; `hosted` is there where the server runs it.
    """

    tool: CallableTool
    target: Target
    given: CallableTool | None = None
    namespace: str = ""
    description: str = ""
    hidden: bool = False
    hosted: HostedFunction | None = None


class Toolbox(Struct, frozen=True):
    """All tools that can be called, by the names that the model knows, in the order in which it is told of them.

    `renames` leads from names that are made of a namespace, or are ours, to those that stand in for them here, because
    a tool of the request has them; those of a server's tools by `origin_key`. `declared` are all tools of whatever
    type, and `here` are the types of which the server runs the tools itself.
    """

    entries: Mapping[str, Entry] = {}
    renames: Mapping[str, str] = {}
    declared: Sequence[Tool] = ()
    here: frozenset[str] = frozenset()

    @property
    def shown(self) -> list[CallableTool]:
        """The tools that the model is told of."""
        return [entry.tool for entry in self.entries.values() if not entry.hidden]

    @property
    def hidden(self) -> list[Hidden]:
        """The tools that a search can find."""
        return [
            Hidden(name, entry.given, entry.namespace, entry.description, _server(entry))
            for name, entry in self.entries.items()
            if entry.hidden and entry.given is not None
        ]

    @property
    def hosted(self) -> list[dict[str, Any]]:
        """The declared tools of types that nobody here runs."""
        return [
            tool
            for tool in self.declared
            if isinstance(tool, dict) and tool.get("type") not in self.here and _is_hosted(tool)
        ]

    @property
    def searches(self) -> bool:
        """Whether the server searches for tools, if the model asks for it."""
        return any(
            entry.target.item == TOOL_SEARCH and entry.target.execution == "server" for entry in self.entries.values()
        )

    def router(self, *, parallel: bool = True) -> CallRouter | None:
        """What makes items of the calls of a turn; None where every call is what it is named.

        `parallel` False lets one call of a turn count, whoever answers it. Where the server runs tools, calls of names
        that nobody has are for it to answer.
        """
        targets = {name: entry.target for name, entry in self.entries.items() if entry.target != Target(name)}
        if not targets and not self.here:
            return None
        return CallRouter(targets, parallel=parallel, known=self.entries.keys() if self.here else None)

    def run_here(self, kind: str, server: str | None = None, name: str | None = None) -> list[str]:
        """The names for the model of the functions that the server runs of a type of tool; of MCP, of one server.

        `name` is that of one function. Types whose calls are the same items are one.
        """
        return [
            flat
            for flat, entry in self.entries.items()
            if entry.hosted is not None
            and _same_type(entry.hosted.type, kind)
            and (kind != "mcp" or entry.hosted.server == server)
            and (name is None or entry.hosted.tool.name == name)
        ]

    def find(self, kind: str, name: str, namespace: str | None = None) -> str | None:
        """The name for the model of a tool that a choice names: `kind` is its type, such as function or shell.

        A tool of a namespace may be named with it in any of the usual ways, or alone where no other has its name.
        """
        fitting = {flat: entry for flat, entry in self.entries.items() if _kind(entry) == kind}
        if kind not in ("function", "custom"):
            return next(iter(fitting), None)
        if namespace:
            places = [(namespace, name), ("", name)] if namespace == name else [(namespace, name)]
        else:
            places = [("", name), *_qualified(name)]
        for place in places:
            for flat, entry in fitting.items():
                if (entry.namespace, entry.target.name) == place:
                    return flat
        if namespace:
            return None
        alone = [flat for flat, entry in fitting.items() if name in (flat, entry.target.name)]
        return alone[0] if len(alone) == 1 else None

    def of_namespace(self, namespace: str) -> list[str]:
        """The names for the model of a namespace's tools."""
        return [name for name, entry in self.entries.items() if entry.namespace == namespace]

    def showing(self, names: Iterable[str]) -> Toolbox:
        """The same with these tools shown, whether a search has found them or not."""
        wanted = {name for name in names if self.entries[name].hidden}
        if not wanted:
            return self
        entries = {
            name: msgspec.structs.replace(entry, hidden=False) if name in wanted else entry
            for name, entry in self.entries.items()
        }
        return msgspec.structs.replace(self, entries=entries)


NO_TOOLS = Toolbox()


def toolbox(
    tools: Sequence[Tool],
    added: Sequence[AddedTool] = (),
    *,
    may_search: bool = True,
    hosted: Sequence[HostedFunction] = (),
    here: Collection[str] = (),
    computer: bool = False,
) -> Toolbox:
    """The toolbox of a request's tools and of those that its history added; `may_search` False leaves searches out.

    `hosted` are the functions that the server runs, and `here` the types of tools that it does, whether it has a
    function of them or not. `computer` says that the model can use one of the client's.

    A tool that is declared again replaces what it was. Tools with `defer_loading` wait for a search, where there is one
    that can find them; what was found comes after what was always there.

    Raises:
        InvalidRequestError: there are too many, one of a namespace is malformed, or one of the client's has the name of
            one that the server runs (B12).
    """
    if not tools and not added and not hosted:
        return NO_TOOLS
    _check_names(tools, hosted)
    gathered, found, searches = _gathered(tools, added, hosted, computer=computer)
    if len(gathered) > MAX_TOOLS:
        raise InvalidRequestError(
            f"Invalid 'tools': at most {MAX_TOOLS} tools are expected, but with those of namespaces and of the "
            f"conversation there are {len(gathered)}.",
            param="tools",
            code="array_above_max_length",
        )
    search = searches[-1] if searches else None
    waiting = {name for name, entry in gathered.items() if search and entry.hidden and name not in found}
    order = [*(name for name in gathered if name not in found), *found]
    entries: dict[_Identity, Entry] = {
        name: msgspec.structs.replace(gathered[name], hidden=name in waiting) for name in order
    }
    if search is not None:
        searching = _search_entry(search, [entries[name] for name in order if name in waiting])
        if searching.target.execution == "client" or (waiting and may_search):
            entries["", "tool_search", TOOL_SEARCH] = searching
    declared = [*tools, *(each.tool for each in added if not (each.loaded and _found_of(each.tool)))]
    return _named(entries, declared, frozenset(here))


def _gathered(
    tools: Sequence[Tool], added: Sequence[AddedTool], hosted: Sequence[HostedFunction], *, computer: bool
) -> tuple[dict[_Identity, Entry], dict[_Identity, None], list[dict[str, Any]]]:
    """All tools that can be called, those of them that a search has found, and the searches that are declared."""
    gathered: dict[_Identity, Entry] = {}
    found: dict[_Identity, None] = {}
    searches: list[dict[str, Any]] = []
    for each in (*map(AddedTool, tools), *added):
        tool = each.tool
        if isinstance(tool, dict) and tool.get("type") == "tool_search":
            searches.append(tool)
        if each.loaded:
            found.update(dict.fromkeys(_found_of(tool)))
        for entry in _entries(tool, computer=computer):
            identity = (entry.namespace, entry.target.name, entry.target.item or "")
            if each.loaded:
                found[identity] = None
            gathered[identity] = entry
    for function in hosted:
        # After those of the client, whose names they give way to.
        gathered[_identity_of(function)] = Entry(
            function.tool,
            Target(function.tool.name, item=HOSTED),
            given=function.tool if function.deferred else None,
            hidden=function.deferred,
            hosted=function,
        )
    return gathered, {identity: None for identity in found if identity in gathered}, searches


def _identity_of(function: HostedFunction) -> _Identity:
    return "", function.tool.name, f"{function.type}:{function.server}"


def _found_of(tool: Tool) -> list[_Identity]:
    """The functions of an MCP server that a search has found, as its output holds them."""
    inner: Any = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "mcp" else None
    named = cast("list[Any]", inner) if isinstance(inner, list) else []
    server = str(tool.get("server_label") or "") if isinstance(tool, dict) else ""
    names = [cast("dict[str, Any]", each).get("name") for each in named if isinstance(each, dict)]
    return [("", name, f"mcp:{server}") for name in names if isinstance(name, str)]


def merge_added(parts: Iterable[Sequence[AddedTool]]) -> tuple[AddedTool, ...]:
    """Added tools of consecutive parts of a history; of those that are said twice the later one stands."""
    merged: dict[tuple[str, str, bool], AddedTool] = {}
    for part in parts:
        for each in part:
            tool = each.tool
            kind = str(tool.get("type")) if isinstance(tool, dict) else "call"
            name = str(tool.get("name") or "") if isinstance(tool, dict) else tool.name
            # A namespace adds to what is there of it: searches find its tools one by one.
            key = (kind, name if kind not in ("namespace", "mcp") else repr(tool), each.loaded)
            merged.pop(key, None)
            merged[key] = each
    return tuple(merged.values())


def origin_key(server: str, name: str) -> str:
    """The key in `renames` of a tool's name; that of a server's tool is apart from those of others."""
    return f"{server}\0{name}" if server else name


def _entries(tool: Tool, *, computer: bool) -> list[Entry]:
    if not isinstance(tool, dict):
        return [_entry(tool, "", "")]
    kind = tool.get("type")
    if kind == "namespace":
        name, description = str(tool["name"]), str(tool.get("description") or "")
        return [_entry(inner, name, description) for inner in inner_tools(tool)]
    shown = client_tool(tool, computer=computer)
    return [] if shown is None else [Entry(shown, Target(shown.name, item=CLIENT_TOOLS[shown.name]))]


def _is_hosted(tool: dict[str, Any]) -> bool:
    return tool.get("type") not in ("namespace", "tool_search") and client_tool(tool) is None


def _entry(tool: CallableTool, namespace: str, description: str) -> Entry:
    deferred = tool.defer_loading is True
    # Calls of a deferred tool come back in a namespace of its own name (recorded; clients look them up by it).
    returned = namespace or (tool.name if deferred else None)
    return Entry(tool, Target(tool.name, returned), tool, namespace, description, hidden=deferred)


def _search_entry(search: dict[str, Any], waiting: Sequence[Entry]) -> Entry:
    client = search.get("execution") == "client"
    hidden = [
        Hidden(_wanted(entry), entry.given, entry.namespace, entry.description, _server(entry))
        for entry in waiting
        if entry.given is not None
    ]
    target = Target("tool_search", item=TOOL_SEARCH, execution="client" if client else "server")
    return Entry(search_tool(search, hidden), target)


def _named(gathered: Mapping[_Identity, Entry], declared: Sequence[Tool], here: frozenset[str]) -> Toolbox:
    """Give every tool its name; those that bring one of their own come first."""
    names = {identity: _wanted(entry) for identity, entry in gathered.items()}
    taken = {names[identity] for identity, entry in gathered.items() if _own_name(entry)}
    renames: dict[str, str] = {}
    # What waits for a search gives way to what a search has found, which the model was told of by its name.
    for identity, entry in sorted(gathered.items(), key=lambda pair: pair[1].hidden):
        if _own_name(entry):
            continue
        wanted = names[identity]
        hosted = entry.hosted
        if wanted in taken or (hosted is not None and not fits(wanted)):
            name = names[identity] = other_name(wanted, repr(identity))
            renames[origin_key(hosted.server if hosted is not None else "", wanted)] = name
        taken.add(names[identity])
    entries: dict[str, Entry] = {}
    begun: set[str] = set()
    for identity, entry in gathered.items():
        description = entry.tool.description or ""
        if entry.namespace and not entry.hidden and entry.namespace not in begun:
            begun.add(entry.namespace)
            about = f"[Tools {entry.namespace}{SEPARATOR}…: {entry.description}]" if entry.description else ""
            description = "\n".join(text for text in (description, about) if text)
        name = names[identity]
        tool = msgspec.structs.replace(entry.tool, name=name, description=description or entry.tool.description)
        entries[name] = msgspec.structs.replace(entry, tool=tool)
    return Toolbox(entries, renames, declared, here)


def _check_names(tools: Sequence[Tool], hosted: Sequence[HostedFunction]) -> None:
    names = {function.tool.name for function in hosted if not function.server}
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict) and tool.name in names:
            raise InvalidRequestError(
                f"Invalid 'tools[{index}].name': '{quoted(tool.name)}' is the name of a tool that the server runs. "
                "Give the function another name.",
                param=f"tools[{index}].name",
                code="duplicate_tool_name",
            )


def _same_type(one: str, other: str) -> bool:
    return one == other or (call_type(one) is not None and call_type(one) == call_type(other))


def _server(entry: Entry) -> str:
    return "" if entry.hosted is None else entry.hosted.server


def _own_name(entry: Entry) -> bool:
    return entry.target.item is None and not entry.namespace


def _wanted(entry: Entry) -> str:
    return flat_name(entry.namespace, entry.target.name)


def _kind(entry: Entry) -> str:
    if entry.hosted is not None:
        return HOSTED
    if entry.target.item is not None:
        return entry.target.name
    return "custom" if isinstance(entry.tool, CustomTool) else "function"


def _qualified(name: str) -> list[tuple[str, str]]:
    """The places that a name with its namespace before it may mean."""
    places: list[tuple[str, str]] = []
    for separator in ("::", ".", SEPARATOR):
        start = name.find(separator)
        while start > 0:
            places.append((name[:start], name[start + len(separator) :]))
            start = name.find(separator, start + 1)
    return places

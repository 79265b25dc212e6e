"""The search for tools that are not shown at first: the function for the model, the search itself, its result. Pure.

The search is lexical: words of the query in names, descriptions and parameters, without an index, over at most as many
tools as a request may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import UNSET, Struct

from antiphon.prompt.names import flat_name
from antiphon.protocol.json import encode, loads
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["MOST_FOUND", "MOST_NAMED", "Hidden", "find_tools", "output_tools", "search_tool", "told_tools"]

MOST_FOUND: Final = 8
"""The most tools that one search loads, but for those that it names."""

MOST_NAMED: Final = 64
"""The most tools that it loads by their names or by that of their namespace."""

_LISTED_CHARACTERS: Final = 2_000
_DESCRIPTION_CHARACTERS: Final = 120
_MOST_WORDS: Final = 64
_NAME, _NAMESPACE, _TEXT, _PARAMETER = 4, 3, 1, 1
_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]+")
_STEMS: Final = ("ing", "ers", "er", "es", "ed", "s", "e")
_NO_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What the tool should do, or its name."},
    },
    "required": ["query"],
    "additionalProperties": False,
}


class Hidden(Struct, frozen=True):
    """A tool that waits for a search: the name that the model will know it by, and how it was declared.

    `server` is the label of the MCP server that it is of.
    """

    name: str
    tool: FunctionTool | CustomTool | None
    namespace: str = ""
    description: str = ""
    server: str = ""


def search_tool(search: Mapping[str, Any], hidden: Sequence[Hidden]) -> FunctionTool:
    """The function by which the model asks for tools; of a search that the client makes, as the client declares it."""
    client = search.get("execution") == "client"
    description = str(search.get("description") or "")
    given: Any = search.get("parameters")
    parameters = cast("dict[str, Any]", given) if client and isinstance(given, dict) else _NO_PARAMETERS
    if not client:
        description = "\n".join(
            [description or "Find further tools; they can be called once they are found.", *_list(hidden)]
        )
    return FunctionTool("tool_search", parameters, description=description or "Find further tools.")


def _list(hidden: Sequence[Hidden]) -> Iterable[str]:
    """What there is to find, as far as a bound of characters goes."""
    room = _LISTED_CHARACTERS
    namespaces = {tool.namespace: tool.description for tool in hidden if tool.namespace}
    for name, description in namespaces.items():
        names = [tool.tool.name for tool in hidden if tool.namespace == name and tool.tool is not None]
        line = (
            f"- {name} ({_short(description)}): {', '.join(names)}" if description else f"- {name}: {', '.join(names)}"
        )
        room -= len(line)
        if room < 0:
            yield "- and more"
            return
        yield line
    for tool in hidden:
        if tool.namespace or tool.tool is None:
            continue
        about = _short(tool.tool.description or "")
        line = f"- {tool.name}: {about}" if about else f"- {tool.name}"
        room -= len(line)
        if room < 0:
            yield "- and more"
            return
        yield line


def find_tools(arguments: Mapping[str, Any], hidden: Sequence[Hidden]) -> list[Hidden]:
    """The tools that a search finds: those that it names, then those that fit best.

    A name may be that of a tool, alone or with its namespace, or of a namespace, which means all its tools.
    """
    texts = [text for value in arguments.values() for text in _texts(value)]
    named = {text.strip() for text in texts}
    exact = [tool for tool in hidden if named & _names(tool)]
    if exact:
        return exact[:MOST_NAMED]
    query = list(dict.fromkeys(word for text in texts for word in _words(text)))[:_MOST_WORDS]
    scored = [(score, -place, tool) for place, tool in enumerate(hidden) if (score := _score(query, tool))]
    scored.sort(key=lambda entry: entry[:2], reverse=True)
    # What fits far less than the best is not what was looked for.
    return [tool for score, _, tool in scored[:MOST_FOUND] if score * 3 >= scored[0][0]]


def output_tools(found: Sequence[Hidden]) -> list[dict[str, Any]]:
    """The tools as the output of a search holds them: as they were declared, those of a namespace or a server in it."""
    tools: list[dict[str, Any]] = []
    namespaces: dict[str, dict[str, Any]] = {}
    servers: dict[str, dict[str, Any]] = {}
    for tool in found:
        if tool.server and isinstance(tool.tool, FunctionTool):
            holder = servers.get(tool.server)
            if holder is None:
                holder = servers[tool.server] = {"type": "mcp", "server_label": tool.server, "tools": []}
                tools.append(holder)
            listed = {"description": tool.tool.description, "input_schema": tool.tool.parameters}
            holder["tools"].append({"name": tool.tool.name, **listed})
            continue
        body = cast("dict[str, Any]", loads(encode(tool.tool)))
        if not tool.namespace:
            tools.append(body)
            continue
        holder = namespaces.get(tool.namespace)
        if holder is None:
            holder = namespaces[tool.namespace] = {
                "type": "namespace",
                "name": tool.namespace,
                "description": tool.description,
                "tools": [],
            }
            tools.append(holder)
        holder["tools"].append(body)
    return tools


def told_tools(tools: Sequence[Any]) -> str:
    """The output of a search as the model is told of it: names, since the tools themselves are shown as tools."""
    lines: list[str] = []
    for tool in tools:
        body = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
        inner: Any = body.get("tools")
        if body.get("type") in ("namespace", "mcp") and isinstance(inner, list):
            namespace = str(body.get("name") or "")
            given = [cast("dict[str, Any]", each) for each in cast("list[Any]", inner) if isinstance(each, dict)]
            names = [each.get("name") for each in given]
            lines += [flat_name(namespace, str(name)) for name in names]
        else:
            lines.append(str(body.get("name") or body.get("type") or ""))
    if not lines:
        return "No tool was found."
    return "These tools can be called now: " + ", ".join(lines)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            if isinstance(inner, str):
                yield inner


def _names(tool: Hidden) -> set[str]:
    bare = tool.tool.name if tool.tool is not None else tool.name
    names = {tool.name, bare}
    if tool.server:
        names.add(tool.server)
    if tool.namespace:
        names |= {tool.namespace, *(f"{tool.namespace}{separator}{bare}" for separator in (".", "::", "/", "__"))}
    return names


def _score(query: Sequence[str], tool: Hidden) -> int:
    declared = tool.tool
    if declared is None:
        return 0
    fields = (
        (_NAME, set(_words(declared.name))),
        (_NAMESPACE, set(_words(f"{tool.namespace} {tool.server} {tool.description}"))),
        (_TEXT, set(_words(declared.description or ""))),
        (_PARAMETER, set(_words(" ".join(_parameters(declared))))),
    )
    return sum(max((weight for weight, words in fields if word in words), default=0) for word in query)


def _parameters(tool: FunctionTool | CustomTool) -> Iterable[str]:
    if isinstance(tool, CustomTool):
        form: Any = tool.format
        return [] if form is UNSET or form is None else [str(form.get("syntax") or "")]
    properties: Any = (tool.parameters or {}).get("properties")
    if not isinstance(properties, dict):
        return []
    told: list[str] = []
    for name, schema in cast("dict[str, Any]", properties).items():
        about: Any = cast("dict[str, Any]", schema).get("description") if isinstance(schema, dict) else None
        told += [name, about if isinstance(about, str) else ""]
    return told


def _words(text: str) -> Iterable[str]:
    """The words of a text or of a name in any of the usual spellings, without the commonest endings."""
    for part in _PART.findall(text):
        word = part.lower()
        for ending in _STEMS:
            if word.endswith(ending) and len(word) - len(ending) >= 3:
                word = word[: -len(ending)]
                break
        if len(word) > 1:
            yield word


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _DESCRIPTION_CHARACTERS else line[:_DESCRIPTION_CHARACTERS] + "…"

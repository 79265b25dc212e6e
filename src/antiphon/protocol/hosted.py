"""Items of hosted tools: which there are, where they stand in a response, and what of them a client sees.

The item in full is the evidence that a history keeps; a client sees it by its `include` (B4). Calls of the corpus
tools stand in `hosted_tool_calls` beside `output` (B3), those of OpenAI's tools in `output`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from msgspec import UNSET

from antiphon.protocol.ids import is_id
from antiphon.protocol.items import Item, RawItem
from antiphon.protocol.response import Response

__all__ = [
    "BESIDE",
    "CALL_TYPES",
    "CODE_TYPES",
    "CORPUS_TOOLS",
    "HOSTED_ITEMS",
    "MCP_TYPES",
    "PRUNE_CONTEXT",
    "UPSTREAM_ID",
    "WEB_TYPES",
    "call_type",
    "in_container",
    "is_beside",
    "made_here",
    "project",
    "project_item",
    "project_response",
    "stands_beside",
    "types_here",
]

PRUNE_CONTEXT: Final = "prune_context"
"""The tool that `context_management` gives to the model (B14); it cannot be declared."""

CODE_TYPES: Final = frozenset({"code_interpreter", "shell"})
"""The types of tools that run code; a shell may be the client's."""

MCP_TYPES: Final = frozenset({"mcp"})
"""The type of tools that are MCP servers."""

WEB_TYPES: Final = frozenset(
    {"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"}
)
"""The types of tools that search the web."""

UPSTREAM_ID: Final = "upstream_id"
"""The field of an item that an upstream ran in which its id there is kept: the item goes back under it.

An upstream that has an upstream itself is sent its own: behind the space is what it says of the next one.
"""

CORPUS_TOOLS: Final = (
    "search_corpus",
    "grep",
    "filter_chunks",
    "inspect_metadata",
    "get_chunks",
    "list_stores",
    "store_search",
    "store_grep",
    "store_list_chunks",
    "store_metadata_facets",
)
"""The tools over stores of documents; the last four are older names (hosted-search 3.1)."""

CALL_TYPES: Final[Mapping[str, str]] = {
    **{name: f"{name}_call" for name in (*CORPUS_TOOLS, PRUNE_CONTEXT)},
    "file_search": "file_search_call",
    "web_search": "web_search_call",
    "web_search_2025_08_26": "web_search_call",
    "web_search_preview": "web_search_call",
    "web_search_preview_2025_03_11": "web_search_call",
    "code_interpreter": "code_interpreter_call",
    "image_generation": "image_generation_call",
    "mcp": "mcp_call",
    "shell": "shell_call",
}
"""Tool type → the type of the items that its calls are."""

BESIDE: Final = frozenset(CALL_TYPES[name] for name in (*CORPUS_TOOLS, PRUNE_CONTEXT))
"""The types of calls that stand in `hosted_tool_calls` (B3, B26)."""

HOSTED_ITEMS: Final = frozenset({*CALL_TYPES.values(), "mcp_list_tools", "mcp_approval_request", "shell_call_output"})
"""The types of all items that hosted tools make; those of a shell may be the client's too."""

_NO_RESULTS: Final = frozenset({"inspect_metadata_call", "store_metadata_facets_call", "list_stores_call"})
_WITH_RESULTS: Final = (BESIDE - _NO_RESULTS - {"prune_context_call"}) | {"file_search_call"}
_RESULTS, _OUTPUTS, _SOURCES = "results", "outputs", "web_search_call.action.sources"


def call_type(tool_type: str) -> str | None:
    """The type of the items that calls of a tool are; None for a type that is no hosted tool's."""
    return CALL_TYPES.get(tool_type)


def is_beside(item: Any) -> bool:
    """Whether an item, as it stands in an event, belongs into `hosted_tool_calls`."""
    return isinstance(item, dict) and cast("dict[str, Any]", item).get("type") in BESIDE


def stands_beside(tools: Collection[Any]) -> bool:
    """Whether one of these tools of a request has calls beside the output."""
    return any(isinstance(tool, dict) and cast("dict[str, Any]", tool).get("type") in CORPUS_TOOLS for tool in tools)


def types_here(tools: Collection[Any], provided: Collection[str], *, upstream: bool) -> frozenset[str]:
    """Which of the types of tools that are declared run here; `provided` are those that there is a provider for.

    All tools of one type run in one place. Where the engine is no `upstream` that runs tools itself, that is here, if
    there is a provider. Where it is one, it runs its tools, but for those that only this server can run: the corpus
    tools, `file_search` over a store of ours, and MCP servers that are named by a label alone, which the operator has
    set up. What no provider of ours has is the upstream's.
    """
    declared = [cast("dict[str, Any]", tool) for tool in tools if isinstance(tool, dict)]
    return frozenset(
        str(tool.get("type"))
        for tool in declared
        if tool.get("type") in provided and not _is_clients(tool) and (not upstream or _is_ours(tool))
    )


def _is_clients(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "shell" and not in_container(tool)


def _is_ours(tool: Mapping[str, Any]) -> bool:
    kind = tool.get("type")
    if kind == "file_search":
        stores: Any = tool.get("vector_store_ids")
        return isinstance(stores, list) and any(is_id("vs", str(store)) for store in cast("list[Any]", stores))
    if kind == "mcp":
        return not tool.get("server_url") and not tool.get("connector_id")
    return kind in CORPUS_TOOLS


def made_here(item: Any, here: Collection[str]) -> bool:
    """Whether an item is of a hosted tool that runs here; `here` are the types of the items of those that do.

    Calls of a shell that is the client's are not, nor is what an upstream ran.
    """
    body = cast("dict[str, Any]", item.body if isinstance(item, RawItem) else item)
    if not isinstance(body, dict) or body.get("type") not in here or UPSTREAM_ID in body:  # pyright: ignore[reportUnnecessaryIsInstance]
        return False
    return body["type"] != "shell_call" or in_container(body)


def in_container(body: Mapping[str, Any]) -> bool:
    """Whether a shell, by its tool or a call of it, is one in a container, and not the client's."""
    environment: Any = body.get("environment")
    return isinstance(environment, dict) and cast("dict[str, Any]", environment).get("type", "local") != "local"


def project(body: Mapping[str, Any], include: Collection[str] = ()) -> dict[str, Any]:
    """The item as a client sees it: results only where they are included, and nothing that is ours alone.

    Keys that begin with an underscore are ours, those of the item and of each of its results. `results` is always there
    where the type has it, null without its `include`; values of `include` that mean nothing are ignored (B4).
    """
    kind = str(body.get("type"))
    seen = {name: value for name, value in body.items() if not name.startswith("_")}
    if kind in _WITH_RESULTS:
        seen[_RESULTS] = seen.get(_RESULTS) if f"{kind}.results" in include else None
    elif kind == "code_interpreter_call":
        seen[_OUTPUTS] = seen.get(_OUTPUTS) if f"{kind}.outputs" in include else None
    elif kind == "web_search_call":
        if f"{kind}.results" not in include:
            seen.pop(_RESULTS, None)
        action: Any = seen.get("action")
        if isinstance(action, dict) and "sources" in action and _SOURCES not in include:
            seen["action"] = {
                name: value for name, value in cast("dict[str, Any]", action).items() if name != "sources"
            }
    found: Any = seen.get(_RESULTS)
    if isinstance(found, list):
        seen[_RESULTS] = [_public(entry) for entry in cast("list[Any]", found)]
    return seen


def project_item(item: Any, include: Collection[str] = ()) -> Any:
    """The same of any item of a response or of a listing; one of another type is itself."""
    if isinstance(item, RawItem):
        return RawItem(item.type, item.id, project(item.body, include)) if item.type in HOSTED_ITEMS else item
    body = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    return project(body, include) if body.get("type") in HOSTED_ITEMS else cast("Any", item)


def project_response(response: Response, items: Collection[Item], include: Collection[str]) -> None:
    """Put the hosted items of a response as `include` shows them into it; `items` are its items in full.

    What stands in the response and has no item in full stays as it is.
    """
    full = {item.id: item.body for item in items if isinstance(item, RawItem) and item.type in HOSTED_ITEMS}
    for place in (response.output, response.hosted_tool_calls):
        if place is UNSET:
            continue
        for index, item in enumerate(place):
            body = full.get(cast("dict[str, Any]", item).get("id")) if isinstance(item, dict) else None
            if body is not None:
                place[index] = project(body, include)


def _public(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry  # pyright: ignore[reportUnknownVariableType]
    return {name: value for name, value in cast("dict[str, Any]", entry).items() if not name.startswith("_")}

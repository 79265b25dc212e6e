"""The credentials in the tools of a request: what is a secret of an `mcp` entry, and the entry as it may be shown.

`authorization` and `headers` go to the MCP server and nowhere else, and so does what follows the `?` of `server_url`,
where many servers take a key (hosted-tools A4). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from antiphon.protocol.tools import Tool

__all__ = ["has_secrets", "secrets_of", "shown_tool", "without_secrets"]

_SECRETS: Final = ("authorization", "headers")
_URL: Final = "server_url"
_HIDDEN: Final = "<redacted>"


def has_secrets(tool: object) -> bool:
    """Whether a tool holds anything that may be kept nowhere."""
    return isinstance(tool, Mapping) and bool(secrets_of(tool))  # pyright: ignore[reportUnknownArgumentType]


def secrets_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an `mcp` entry that hold secrets, whole; none of other tools."""
    if tool.get("type") != "mcp":
        return {}
    found = {name: tool[name] for name in _SECRETS if tool.get(name)}
    url = tool.get(_URL)
    if isinstance(url, str) and "?" in url:
        found[_URL] = url
    return found


def without_secrets(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The entry without them: no `authorization`, `headers` null, and of the URL what stands before the `?`."""
    shown = dict(tool)
    for name in secrets_of(tool):
        if name == _URL:
            shown[name] = f"{tool[name].partition('?')[0]}?{_HIDDEN}"
        elif name == "headers":
            shown[name] = None
        else:
            del shown[name]
    return shown


def shown_tool(tool: Tool) -> Tool:
    """A tool as a response echoes it."""
    return without_secrets(tool) if isinstance(tool, dict) and has_secrets(tool) else tool

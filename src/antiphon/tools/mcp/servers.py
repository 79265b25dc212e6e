"""MCP servers: those that a request names by URL, and those of the operator, by label.

A program is only ever run by the operator's configuration: nothing of a request becomes a command line (faults B3 37).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.errors import ConfigurationError, OutboundRefusedError
from antiphon.outbound.target import parse_target
from antiphon.protocol.json import encode
from antiphon.tool_settings import McpServerConfig, ToolSettings
from antiphon.tools.mcp.declared import Entry
from antiphon.tools.mcp.faults import protocol_fault

__all__ = ["Server", "Servers"]

UNKNOWN: Final = -32600
_LEAST_SECRET: Final = 6
"""Characters of a value that is looked for in what a server says; shorter ones stand in any text."""


class Server(Struct, frozen=True):
    """A server that can be spoken to.

    `key` tells it and the credentials that it is given from all others. `allow` are hosts beside the public ones.
    `kinds` are the transports to be tried, in order: `http`, `sse` or `stdio`. `allowed` are all tools that it may be
    asked for, None for any, and `asks` says that calls need approval where the request does not say.
    """

    key: str
    label: str
    kinds: tuple[str, ...]
    url: str = ""
    headers: Mapping[str, str] = {}
    allow: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    seconds: float = 60.0
    allowed: frozenset[str] | None = None
    asks: bool = True

    def __repr__(self) -> str:
        return f"Server({self.label!r})"

    def scrubbed(self, text: str) -> str:
        """A text of the server without the credentials that it was given."""
        for value in (*self.headers.values(), *self.environment.values()):
            for secret in (value, value.partition(" ")[2]):
                if len(secret) >= _LEAST_SECRET and secret in text:
                    text = text.replace(secret, "<redacted>")
        return text


class Servers:
    """The servers that requests may name.

    Raises:
        ConfigurationError: a table of the operator's cannot be used.
    """

    def __init__(self, settings: ToolSettings, allow: Sequence[str], environment: Mapping[str, str]) -> None:
        self._allow = tuple(allow)
        self._urls = not settings.mcp_configured_only
        self._seconds = settings.mcp_timeout
        self._ours: dict[str, Server] = {}
        for table in settings.mcp_servers:
            if table.label in self._ours:
                raise _unusable(table, "another table has that label")
            self._ours[table.label] = self._configured(table, environment)

    @property
    def configured(self) -> Sequence[Server]:
        """Those of the operator."""
        return list(self._ours.values())

    def of(self, entry: Entry) -> Server:
        """The server that an entry names.

        Raises:
            McpFaultError: there is none, or it may not be asked.
        """
        if entry.url is not None:
            return self._remote(entry, entry.url)
        if entry.tunnel:
            raise protocol_fault(UNKNOWN, "Tunnels are not supported: name the server by 'server_url'.")
        found = self._ours.get(entry.connector or entry.label)
        if found is None:
            raise protocol_fault(
                UNKNOWN, "This server has no MCP server by that label. Name one by 'server_url', or configure it."
            )
        if not entry.headers or found.command:
            return found
        # What the operator sets cannot be replaced.
        headers = {**entry.headers, **found.headers}
        return msgspec.structs.replace(found, headers=headers, key=_key("with", found.key, headers))

    def _remote(self, entry: Entry, url: str) -> Server:
        if not self._urls:
            raise protocol_fault(UNKNOWN, "This server asks no MCP servers that a request names by 'server_url'.")
        try:
            target = parse_target(url)
        except OutboundRefusedError as error:
            raise protocol_fault(UNKNOWN, f"The 'server_url' cannot be asked. {error}") from None
        path = target.url.path.rstrip("/")
        return Server(
            key=_key("url", str(target.url), dict(entry.headers)),
            label=entry.label,
            kinds=("sse", "http") if path.endswith("/sse") else ("http", "sse"),
            url=str(target.url),
            headers=dict(entry.headers),
            allow=self._allow,
            seconds=self._seconds,
        )

    def _configured(self, table: McpServerConfig, environment: Mapping[str, str]) -> Server:
        if (table.command is None) == (table.url is None):
            raise _unusable(table, "it names either a command or a url")
        values = {name: _value(table, source, environment) for name, source in table.env.items()}
        headers = {name.lower(): _value(table, source, environment) for name, source in table.headers.items()}
        allow = self._allow
        if table.url is not None:
            try:
                # A host that the operator names may be asked, wherever it is.
                allow = (*allow, parse_target(table.url).host)
            except OutboundRefusedError as error:
                raise _unusable(table, f"its url cannot be asked: {error}") from None
        command = () if table.command is None else (table.command, *table.args)
        return Server(
            key=_key("table", table.label, [list(command), table.url, values, headers]),
            label=table.label,
            kinds=("stdio",) if command else (table.transport,),
            url=table.url or "",
            headers=headers,
            allow=allow,
            command=command,
            environment=values,
            seconds=table.timeout,
            allowed=None if table.allowed_tools is None else frozenset(table.allowed_tools),
            asks=table.require_approval == "always",
        )


def _value(table: McpServerConfig, source: str, environment: Mapping[str, str]) -> str:
    found = environment.get(source)
    if not found:
        raise _unusable(table, f"the environment variable {source} is not set")
    if not found.isascii() or any(letter < " " for letter in found):
        raise _unusable(table, f"the environment variable {source} holds what cannot be sent")
    return found


def _unusable(table: McpServerConfig, what: str) -> ConfigurationError:
    return ConfigurationError(f"[[mcp_servers]] '{table.label}' cannot be used: {what}.")


def _key(*parts: object) -> str:
    return hashlib.sha256(encode(parts)).hexdigest()

"""The connections to MCP servers: one for a tenant, a server and its credentials; bounded, and open for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from antiphon.outbound.client import Lookup
from antiphon.tools.mcp.faults import CLOSED, McpFaultError, protocol_fault
from antiphon.tools.mcp.link import Link, Result
from antiphon.tools.mcp.listing import Tool
from antiphon.tools.mcp.servers import Server

__all__ = ["Links"]

MOST_LINKS: Final = 64
MOST_OF_ONE_TENANT: Final = 16
IDLE_SECONDS: Final = 60.0
IDLE_PROGRAM_SECONDS: Final = 600.0
_GONE: Final = 404

_Key = tuple[str, str]


class Links:
    """Asks servers over connections that are opened when they are first needed.

    `changed` is told the key of a server whose tools are others now.
    """

    def __init__(self, lookup: Lookup | None, changed: Callable[[str], None]) -> None:
        self._lookup = lookup
        self._changed = changed
        self._links: dict[_Key, Link] = {}
        self._idle: dict[_Key, asyncio.TimerHandle] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def tools(self, server: Server, tenant: str) -> list[Tool]:
        """All tools of a server.

        Raises:
            McpFaultError: they cannot be listed, or are more than is taken.
        """
        async with self._taken(server, tenant) as (link, _):
            return await link.tools()

    async def call(self, server: Server, tenant: str, name: str, arguments: dict[str, Any]) -> Result:
        """The result of a tool.

        Raises:
            McpFaultError: there is none.
        """
        async with self._taken(server, tenant) as (link, fresh):
            try:
                return await link.call(name, arguments, server.seconds)
            except McpFaultError as fault:
                if fresh or fault.error.get("code") != _GONE:
                    raise
        # The server knows the session no more, so that it did nothing.
        async with self._taken(server, tenant) as (link, _):
            return await link.call(name, arguments, server.seconds)

    async def close(self) -> None:
        """Close every connection."""
        for key, link in list(self._links.items()):
            self._leave(key, link)
        while self._leaving:
            await asyncio.wait(self._leaving)

    @asynccontextmanager
    async def _taken(self, server: Server, tenant: str) -> AsyncGenerator[tuple[Link, bool]]:
        key = (tenant, server.key)
        link = self._links.get(key)
        fresh = link is None or not link.usable
        if link is None or not link.usable:
            self._make_room(tenant)
            link = self._links[key] = Link(server, self._lookup, lambda: self._changed(server.key))
        timer = self._idle.pop(key, None)
        if timer is not None:
            timer.cancel()
        link.users += 1
        try:
            yield link, fresh
        finally:
            link.users -= 1
            if link.users == 0:
                self._rest(key, link)

    def _rest(self, key: _Key, link: Link) -> None:
        """Nobody asks over a connection now."""
        if not link.usable or self._links.get(key) is not link:
            self._leave(key, link)
            return
        seconds = IDLE_PROGRAM_SECONDS if link.server.command else IDLE_SECONDS
        self._idle[key] = asyncio.get_running_loop().call_later(seconds, self._leave, key, link)

    def _leave(self, key: _Key, link: Link) -> None:
        if self._links.get(key) is link:
            del self._links[key]
            timer = self._idle.pop(key, None)
            if timer is not None:
                timer.cancel()
        task = asyncio.create_task(link.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _make_room(self, tenant: str) -> None:
        own = [key for key in self._links if key[0] == tenant]
        crowd = own if len(own) >= MOST_OF_ONE_TENANT else list(self._links) if len(self._links) >= MOST_LINKS else []
        if not crowd:
            return
        idle = next((key for key in crowd if self._links[key].users == 0), None)
        if idle is None:
            raise protocol_fault(CLOSED, "Too many MCP servers are in use; try again.")
        self._leave(idle, self._links[idle])

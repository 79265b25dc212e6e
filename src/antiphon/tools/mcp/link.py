"""One connection to an MCP server, kept by a task of its own, and what is asked over it within limits of time.

Whatever the other side does ends in an answer or in a fault: a connection that fails takes its calls with it, a call
that takes too long takes its connection with it, and nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import httpx2
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import TypeAdapter, ValidationError

from antiphon import __version__
from antiphon.outbound.client import Lookup, OutboundClient
from antiphon.tools.mcp.faults import CLOSED, LATE, MALFORMED, McpFaultError, http_fault, protocol_fault
from antiphon.tools.mcp.listing import MOST_PAGES, MOST_TOOLS, Tool, checked
from antiphon.tools.mcp.program import program
from antiphon.tools.mcp.servers import Server
from antiphon.tools.mcp.transport import MOST_BYTES, GuardedTransport, Trouble, trouble

__all__ = ["CONNECT_SECONDS", "LIST_SECONDS", "Link", "Result"]

T = TypeVar("T")

CONNECT_SECONDS: Final = 15.0
LIST_SECONDS: Final = 20.0
LEAVE_SECONDS: Final = 8.0
"""How long a connection may take to be closed; then it is dropped."""

_OTHER_TRANSPORT: Final = frozenset({400, 404, 405, 406})
"""Answers to a first message by which a server may mean that it speaks another transport."""

Result = types.CallToolResult | types.InputRequiredResult
_result: TypeAdapter[Any] = TypeAdapter(Result)

# Its words can hold what users wrote, and URLs with keys.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class Link:
    """A connection. `changed` is called when the server says that its tools are others now."""

    def __init__(self, server: Server, lookup: Lookup | None, changed: Callable[[], None]) -> None:
        self.server = server
        self.users = 0
        self._lookup = lookup
        self._changed = changed
        self._trouble = Trouble()
        self._retired = False
        self._closing = asyncio.Event()
        self._session: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live())
        # Who waits for it is told; where nobody does, nobody needs to know.
        self._life.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def usable(self) -> bool:
        """Whether more can be asked over it; where not, whoever asks now may still get an answer."""
        return not self._retired and not self._life.done()

    async def close(self) -> None:
        """Close it, by force if it takes long."""
        self._retired = True
        self._closing.set()
        done, _ = await asyncio.wait({self._life}, timeout=LEAVE_SECONDS)
        if not done:
            self._life.cancel()
            await asyncio.wait({self._life}, timeout=LEAVE_SECONDS)

    async def tools(self) -> list[Tool]:
        """All tools of the server.

        Raises:
            McpFaultError: they cannot be listed, or are more than is taken.
        """
        return await self._ask(_listed, LIST_SECONDS)

    async def call(self, name: str, arguments: dict[str, Any], seconds: float) -> Result:
        """The result of a tool.

        Raises:
            McpFaultError: there is none.
        """
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))

        async def call(session: ClientSession) -> Result:
            # Not `call_tool`, which holds the result against a schema of the server's, with its patterns.
            return await session.send_request(request, _result)

        return await self._ask(call, seconds)

    async def _ask(self, ask: Callable[[ClientSession], Awaitable[T]], seconds: float) -> T:
        session = await self._ready()
        noted = Trouble()
        token = trouble.set(noted)
        work = asyncio.ensure_future(ask(session))
        trouble.reset(token)
        try:
            return await self._answer(work, noted, seconds)
        except McpFaultError:
            self._retired = True
            raise
        except Exception as error:  # noqa: BLE001 - the library raises anything
            # A server that answers with an error of its own is sound, and is asked again.
            if not isinstance(error, MCPError) or error.code in (CLOSED, LATE, MALFORMED) or noted.status is not None:
                self._retired = True
            raise _fault(noted, error) from None
        finally:
            work.cancel()
            await asyncio.wait({work}, timeout=LEAVE_SECONDS)

    async def _answer(self, work: asyncio.Future[T], noted: Trouble, seconds: float) -> T:
        """What is asked, unless the connection or the time ends before."""
        waited: set[asyncio.Future[Any]] = {work, self._life}
        broken = asyncio.create_task(noted.happened.wait())
        if self.server.kinds[0] != "http":
            # Only streamable HTTP has an answer for each request, so that the library learns of every fault.
            waited.add(broken)
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        happened = broken.done()
        broken.cancel()
        if work.done():
            return work.result()
        if happened or self._life.done():
            raise _fault(noted if happened else self._trouble, None)
        raise protocol_fault(LATE, f"The server gave no answer within {seconds:g} seconds.")

    async def _ready(self) -> ClientSession:
        await asyncio.wait({self._session, self._life}, timeout=CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if self._session.done():
            return self._session.result()
        self._retired = True
        if not self._life.done():
            self._life.cancel()
            raise protocol_fault(LATE, f"The server could not be connected to within {CONNECT_SECONDS:g} seconds.")
        error = None if self._life.cancelled() else self._life.exception()
        raise _fault(self._trouble, error)

    async def _live(self) -> None:
        trouble.set(self._trouble)
        for kind in self.server.kinds:
            try:
                await self._serve(kind)
            except Exception:
                last = kind == self.server.kinds[-1] or self._trouble.status not in _OTHER_TRANSPORT
                if last or self._session.done():
                    raise
                self._trouble = Trouble()
                trouble.set(self._trouble)
            else:
                return

    async def _serve(self, kind: str) -> None:
        info = types.Implementation(name="antiphon", version=__version__)
        async with (
            self._messages(kind) as (read, write),
            ClientSession(read, write, client_info=info, message_handler=self._heard) as session,
        ):
            await _greet(session)
            self._session.set_result(session)
            await self._closing.wait()

    def _messages(self, kind: str) -> AbstractAsyncContextManager[Any]:
        if kind == "stdio":
            return program(self.server, self._retire)
        return self._over_sse() if kind == "sse" else self._over_http()

    @asynccontextmanager
    async def _over_http(self) -> AsyncGenerator[Any]:
        async with (
            self._client() as client,
            streamable_http_client(self.server.url, http_client=client, max_sse_event_size=MOST_BYTES) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _over_sse(self) -> AsyncGenerator[Any]:
        def client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return self._client(self._retire)

        async with sse_client(self.server.url, httpx_client_factory=client) as streams:
            yield streams

    def _client(self, ended: Callable[[], None] | None = None) -> httpx2.AsyncClient:
        server = self.server
        # Without https only what the operator has named is asked.
        public = server.url.startswith("https:")
        outbound = OutboundClient(server.allow, lookup=self._lookup, public=public)
        return httpx2.AsyncClient(
            transport=GuardedTransport(outbound, server.url, server.seconds + CONNECT_SECONDS, ended=ended),
            headers=dict(server.headers),
            follow_redirects=False,
            trust_env=False,
            timeout=None,
        )

    def _retire(self) -> None:
        """What comes next is asked over another connection."""
        self._retired = True

    async def _heard(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed()


async def _greet(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
            raise
        # A server of 2026 and later only has no greeting.
        await session.discover()


async def _listed(session: ClientSession) -> list[Tool]:
    entries: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        entries.extend(_entry(tool) for tool in page.tools)
        cursor = page.next_cursor
        if cursor is None or len(entries) > MOST_TOOLS:
            return checked(entries)
    raise protocol_fault(MALFORMED, f"The server's list of tools has more than {MOST_PAGES} pages.")


def _entry(tool: types.Tool) -> dict[str, Any]:
    hints = tool.annotations
    annotations = {
        "read_only": hints is not None and hints.read_only_hint is True,
        **({} if hints is None else _said(hints)),
    }
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "annotations": annotations,
    }


def _said(hints: types.ToolAnnotations) -> dict[str, Any]:
    values = {
        "title": hints.title,
        "destructive": hints.destructive_hint,
        "idempotent": hints.idempotent_hint,
        "open_world": hints.open_world_hint,
    }
    return {name: value for name, value in values.items() if value is not None}


def _fault(noted: Trouble, error: BaseException | None) -> McpFaultError:
    """What a client is told of a failure: what is known of its HTTP, else what the server or the library says."""
    error = _leaf(error)
    if isinstance(error, McpFaultError):
        return error
    if noted.message is not None:
        return protocol_fault(CLOSED, noted.message)
    if noted.status is not None and 300 <= noted.status < 400:
        return http_fault(noted.status, "The server redirects to elsewhere, which is not followed.")
    if isinstance(error, MCPError) and not _synthetic(error, noted) and not _ended(error):
        return protocol_fault(error.code, error.message)
    if noted.status is not None:
        return http_fault(noted.status, f"The server answered with HTTP status {noted.status}.")
    if isinstance(error, ValidationError | ValueError | RuntimeError):
        return protocol_fault(MALFORMED, "The server's answer is not of the protocol.")
    if isinstance(error, FileNotFoundError | PermissionError):
        return protocol_fault(CLOSED, "The server's program cannot be started.")
    return protocol_fault(CLOSED, "The connection to the server ended.")


def _leaf(error: BaseException | None) -> BaseException | None:
    """The first of the errors that a group of tasks ended with."""
    found: Any = error
    while (inner := getattr(found, "exceptions", None)) is not None:
        found = inner[0]
    return found


def _synthetic(error: MCPError, noted: Trouble) -> bool:
    """Whether the library made the error up of an HTTP status."""
    return noted.status is not None and error.message in (
        "Server returned an error response",
        "Not Found",
        "Session terminated",
    )


def _ended(error: MCPError) -> bool:
    """Whether it is the library's own word for a connection that ended."""
    return error.code == CLOSED and error.message == "Connection closed"

"""The tools of MCP servers, as tools that this server runs (hosted-tools A2, issue 6 section 5)."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.errors import APIError, InvalidRequestError
from antiphon.outbound.client import Lookup
from antiphon.protocol.hosted import MCP_TYPES
from antiphon.protocol.json import encode
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import FunctionTool
from antiphon.tool_settings import ToolSettings
from antiphon.tools.base import HostedCall, HostedTool, Opened, Outcome, Provider, Session
from antiphon.tools.mcp.content import cut, text_of
from antiphon.tools.mcp.declared import Entry, read_entry
from antiphon.tools.mcp.faults import CLOSED, INVALID, McpFaultError, protocol_fault
from antiphon.tools.mcp.listing import Lists, Tool, checked, digest
from antiphon.tools.mcp.parameters import parameters_of
from antiphon.tools.mcp.servers import Server, Servers

if TYPE_CHECKING:
    from antiphon.tools.mcp.links import Links

__all__ = ["McpProvider", "McpTool"]

MOST_SERVERS: Final = 16
"""MCP servers of one request."""

GRACE_SECONDS: Final = 20.0
"""How much longer than its call a run may take: it may have to connect first."""

CHARACTERS: Final = 4
"""Characters of a token, by and large."""

_LIST: Final = "mcp_list_tools"
_ASKED: Final = "mcp_approval_request"
_PIN: Final = "_list"


class _Offer(Struct):
    """What came of one entry: the item that tells its tools, where it is told anew, and the tools."""

    label: str
    item: dict[str, Any] | None
    tools: Sequence[HostedTool] = ()


class McpProvider(Provider):
    """Runs the tools of MCP servers; `allow` is what may be asked although it is not public.

    Raises:
        ConfigurationError: a server of the operator's cannot be used.
    """

    types = MCP_TYPES
    waits = True

    def __init__(
        self,
        settings: ToolSettings,
        allow: Sequence[str] = (),
        *,
        lookup: Lookup | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._servers = Servers(settings, allow, environment)
        self._lookup = lookup
        self._lists = Lists()
        self._links: Links | None = None
        self._loading = asyncio.Lock()

    def check(self, declared: Sequence[dict[str, Any]], request: CreateResponse) -> None:
        """See that the entries can be read, and have labels of their own.

        Raises:
            InvalidRequestError: one cannot be, or there are too many.
        """
        labels: set[str] = set()
        for index, tool in enumerate(request.tools):
            if not isinstance(tool, dict) or tool.get("type") not in self.types:
                continue
            label = read_entry(tool, f"tools[{index}]").label
            if label in labels:
                raise _refused(f"tools[{index}].server_label", "another MCP server of the request has that label")
            labels.add(label)
            if len(labels) > MOST_SERVERS:
                raise _refused("tools", f"at most {MOST_SERVERS} MCP servers are expected")

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """The tools of the entries, and an item for each server that tells what it has."""
        offers = _within(await asyncio.gather(*(self._offer(tool, session) for tool in declared)), session)
        return Opened(
            tools=[tool for offer in offers for tool in offer.tools],
            items=[offer.item for offer in offers if offer.item is not None],
        )

    async def survey(self) -> dict[str, int | str]:
        """What each server of the operator's lists, by label: the number of its tools, or what is wrong with it."""
        found: dict[str, int | str] = {}
        for server in self._servers.configured:
            try:
                found[server.label] = len(await (await self._opened()).tools(server, ""))
            except McpFaultError as fault:
                found[server.label] = server.scrubbed(fault.message)
        await self.close()
        return found

    async def close(self) -> None:
        """Close every connection, and end the programs."""
        if self._links is not None:
            await self._links.close()

    async def call(self, server: Server, tenant: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of a tool, as the protocol writes it.

        Raises:
            McpFaultError: there is none.
        """
        links = await self._opened()
        result = await links.call(server, tenant, name, arguments)
        found = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        if "content" not in found:
            raise protocol_fault(CLOSED, "The tool asks for more input, which this server cannot give.")
        return found

    async def _offer(self, declared: dict[str, Any], session: Session) -> _Offer:
        entry = read_entry(declared, "tools")
        try:
            server = self._servers.of(entry)
            known = _in_context(entry.label, session)
            tools = [tool for tool in known or await self._listed(server, session) if _allowed(tool, entry, server)]
        except McpFaultError as fault:
            return _refusing(entry.label, fault.message)
        pin = digest(tools)
        # The AI SDK refuses an error that is null: as OpenAI's, a list that succeeded has none.
        item = {"type": _LIST, "server_label": entry.label, "tools": [tool.told() for tool in tools]}
        offered = [McpTool(self, declared, entry, server, tool, session, pin) for tool in tools]
        return _Offer(entry.label, None if known else item, offered)

    async def _listed(self, server: Server, session: Session) -> list[Tool]:
        kept = self._lists.get(server.key)
        if kept is None:
            links = await self._opened()
            try:
                kept = await links.tools(server, session.scope.tenant)
            except McpFaultError as fault:
                fault.message = server.scrubbed(fault.message)
                raise
            self._lists.keep(server.key, kept)
        return kept

    async def _opened(self) -> Links:
        """The connections; the library takes a second to be imported, which is first done here.

        Raises:
            McpFaultError: it is not installed.
        """
        async with self._loading:
            if self._links is None:
                try:
                    module = await asyncio.to_thread(importlib.import_module, "antiphon.tools.mcp.links")
                except ImportError:
                    raise protocol_fault(
                        CLOSED, "This server lacks what speaks to MCP servers. Its operator can install antiphon[mcp]."
                    ) from None
                self._links = module.Links(self._lookup, self._lists.forget)
            found: Links = self._links  # pyright: ignore[reportAssignmentType]
            return found


class McpTool(HostedTool):
    """One tool of a server, for one response. `pin` is the digest of the list that told it."""

    item_type = "mcp_call"

    def __init__(
        self,
        provider: McpProvider,
        declared: Mapping[str, Any],
        entry: Entry,
        server: Server,
        tool: Tool,
        session: Session,
        pin: str,
    ) -> None:
        self.declared = declared
        self.function = FunctionTool(
            name=tool.name, parameters=parameters_of(tool.input_schema), strict=False, description=tool.description
        )
        self.repeatable = tool.repeatable
        self.seconds = server.seconds + GRACE_SECONDS
        self._provider = provider
        self._entry = entry
        self._server = server
        self._tool = tool
        self._session = session
        self._pin = pin

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The call as it begins."""
        return {
            "type": self.item_type,
            "server_label": self._entry.label,
            "name": self._tool.name,
            "arguments": call.text,
            "output": None,
            "error": None,
            "approval_request_id": call.approval,
        }

    def approval(self, call: HostedCall) -> dict[str, Any] | None:
        """What asks for approval: where the request or the operator wants it, of what was not approved as it is now."""
        if not self._entry.needs_approval(
            self._tool.name, read_only=self._tool.read_only, default=self._server.asks
        ) or self._approved(call):
            return None
        return {
            "type": _ASKED,
            "server_label": self._entry.label,
            "name": self._tool.name,
            "arguments": call.text,
            _PIN: self._pin,
        }

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Call the tool.

        Raises:
            McpFaultError: there is no result, or it was not approved.
        """
        if self.approval(call) is not None:
            raise protocol_fault(INVALID, "The call was not approved.")
        if call.arguments is None:
            raise protocol_fault(INVALID, "The arguments are no JSON object.")
        server = self._server
        result = await self._provider.call(server, session.scope.tenant, self._tool.name, call.arguments)
        text = cut(server.scrubbed(text_of(result["content"], result.get("structuredContent"))), call.characters)
        if result.get("isError"):
            error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
            return Outcome({"status": "failed", "output": None, "error": error})
        return Outcome({"status": "completed", "output": text, "error": None})

    def failed(self, call: HostedCall, error: APIError) -> Outcome:
        """A call without a result."""
        fault = error if isinstance(error, McpFaultError) else protocol_fault(CLOSED, error.message)
        told = {**fault.error, "message": self._server.scrubbed(fault.message)}
        return Outcome({"status": "failed", "output": None, "error": told})

    def _approved(self, call: HostedCall) -> bool:
        """Whether a call was approved, and the tools of the server are those that it was approved with (B3 39)."""
        if call.approval is None:
            return False
        pin: Any = None
        for item in self._session.evidence:
            if item.get("type") == _LIST and item.get("server_label") == self._entry.label:
                pin = _pin_of(item)
            elif item.get("type") == _ASKED and call.approval in (item.get("id"), item.get("_sent_id")):
                pin = item.get(_PIN) or pin
                break
        return pin is None or pin == self._pin


def _refusing(label: str, why: str) -> _Offer:
    return _Offer(label, {"type": _LIST, "server_label": label, "tools": [], "error": why})


def _within(offers: Sequence[_Offer], session: Session) -> list[_Offer]:
    """What the model has room for: the tools of each server in turn, as long as they take half of its context."""
    if session.context_length is None:
        return list(offers)
    room = session.context_length * CHARACTERS // 2
    taken: list[_Offer] = []
    for offer in offers:
        size = sum(len(encode(tool.function)) for tool in offer.tools)
        if size > room:
            tokens = size // CHARACTERS
            why = (
                f"The tools take about {tokens} tokens, for which this model has no room: name few in 'allowed_tools'."
            )
            taken.append(_refusing(offer.label, why))
            continue
        room -= size
        taken.append(offer)
    return taken


def _pin_of(item: Mapping[str, Any]) -> str | None:
    try:
        return digest(checked(item.get("tools") or []))
    except McpFaultError:
        return None


def _allowed(tool: Tool, entry: Entry, server: Server) -> bool:
    ours = server.allowed is None or tool.name in server.allowed
    return ours and entry.allowed.holds(tool.name, read_only=tool.read_only)


def _in_context(label: str, session: Session) -> list[Tool] | None:
    """The tools that the input of the request itself tells of a server; the last list counts."""
    for item in reversed(session.request.items):
        body: Any = getattr(item, "body", None)
        if isinstance(body, dict) and getattr(item, "type", None) == _LIST and body.get("server_label") == label:  # pyright: ignore[reportUnknownMemberType]
            try:
                return checked(body.get("tools") or []) or None  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            except McpFaultError:
                return None
    return None


def _refused(param: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid '{param}': {what}.", param=param, code="invalid_value")

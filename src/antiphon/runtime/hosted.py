"""The hosted tools of one response: which providers run them, when they are opened, and what they have given so far.

Providers that wait for something outside are opened once the response has begun; all others while it is planned. The
items of their tools are kept here in full, as evidence: the log, the snapshot and the client have what `include` lets
through (issue 6, section 1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.errors import APIError
from antiphon.prompt.toolbox import HostedFunction
from antiphon.protocol.hosted import project
from antiphon.protocol.ids import item_prefix, new_id
from antiphon.protocol.items import RawItem
from antiphon.protocol.json import encode
from antiphon.protocol.request import CreateResponse
from antiphon.runtime.observer import Observer
from antiphon.tools.base import HostedCall, HostedTool, Provider, Session

__all__ = ["BUDGET", "Called", "HostedTools", "Wanted", "function_of", "key_of", "wanted"]

OPEN_SECONDS: Final = 120.0
"""The longest that a provider may take to be opened; each of them has shorter limits of its own."""

BUDGET: Final = 16
"""The most calls of hosted tools in a response whose request does not say (B5)."""

_Wanted = tuple[Provider, list[dict[str, Any]]]


class Wanted(Struct, frozen=True):
    """The providers that a request asks for, each with the entries of `tools` that are its."""

    now: Sequence[_Wanted]
    later: Sequence[_Wanted]


def wanted(
    providers: Sequence[Provider], request: CreateResponse, only: Collection[str] | None = None
) -> Wanted | None:
    """The providers that a request asks for, its entries checked; None where it asks for none.

    `only` are the types of tools that are run here, where the model's own upstream runs others.

    Raises:
        InvalidRequestError: an entry cannot be read.
    """
    if not request.tools and not request.context_management:
        return None
    now: list[_Wanted] = []
    later: list[_Wanted] = []
    for provider in providers:
        if not provider.wanted(request):
            continue
        types = provider.types if only is None else provider.types.intersection(only)
        declared = [tool for tool in request.tools if isinstance(tool, dict) and tool.get("type") in types]
        if provider.types and not declared:
            continue
        provider.check(declared, request)
        (later if provider.waits else now).append((provider, declared))
    return Wanted(now, later) if now or later else None


class Called(Struct):
    """One call of a hosted tool in this response.

    `turn` is that of the model which made it, -1 for one that was approved before the first; `key` is that of its tool.
    `body` is the item when it is begun. `refusal` says why it is not run; `asks` is the item that asks for approval
    instead. `given` are the fields that its run gave, and `also` the items after it.
    """

    position: int
    turn: int
    key: str
    call: HostedCall
    tool: HostedTool | None
    body: dict[str, Any]
    refusal: APIError | None = None
    asks: dict[str, Any] | None = None
    given: dict[str, Any] | None = None
    also: Sequence[dict[str, Any]] = ()


class HostedTools:
    """What one response knows of its hosted tools."""

    def __init__(
        self, session: Session, asked: Wanted, observer: Observer, include: Collection[str], context_length: int
    ) -> None:
        self.session = session
        self.include = include
        self.context_length = context_length
        self.tools: list[HostedTool] = []
        self.opening: list[dict[str, Any]] = []
        """Whole items that come before the first turn."""
        self.approved: list[dict[str, Any]] = []
        """Requests for approval that were granted, to be run before the first turn."""
        self.called: list[Called] = []
        """The calls of this response so far, in order."""
        self.full: dict[str, dict[str, Any]] = {}
        """The items of this response in full, by id."""
        self._asked = asked
        self._observer = observer
        self._opened = False
        self._here = frozenset(str(tool["type"]) for _, tools in (*asked.now, *asked.later) for tool in tools)

    @property
    def late(self) -> bool:
        """Whether something has to be done before the first turn that can only be done once the response has begun."""
        return bool(self._asked.later or self.approved)

    @property
    def server(self) -> str:
        """The label of the first MCP server that the request declares."""
        tools = [tool for tool in self.session.request.tools if isinstance(tool, dict) and tool.get("type") == "mcp"]
        return str(tools[0].get("server_label") or "") if tools else ""

    @property
    def most_calls(self) -> int:
        """The budget of calls of the whole response (B5)."""
        most = self.session.request.max_tool_calls
        return BUDGET if most is None else most

    @property
    def counted(self) -> int:
        """How many calls so far count for the budget."""
        return sum(called.tool is None or called.tool.counted for called in self.called)

    @property
    def size(self) -> int:
        """The bytes of its items in full."""
        return sum(len(encode(body)) for body in self.full.values())

    @property
    def exhausted(self) -> bool:
        """Whether the budget of calls is used up, so that the model has to answer (B6)."""
        return self.counted >= self.most_calls

    async def open_now(self) -> None:
        """Open what does not wait.

        Raises:
            APIError: the request cannot be met.
        """
        for provider, declared in self._asked.now:
            try:
                opened = await provider.open(declared, self.session)
            except APIError:
                raise
            except Exception as error:  # noqa: BLE001 - a fault of a tool never refuses a response
                self._observer.fault("the tools of a provider could not be opened", error)
            else:
                self._take(opened.tools, opened.items)
        self.learn_sources()

    async def open_later(self) -> None:
        """Open the rest, once. A provider that fails has no tools in this response."""
        if self._opened:
            return
        self._opened = True
        for provider, declared in self._asked.later:
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    opened = await provider.open(declared, self.session)
            except Exception as error:  # noqa: BLE001 - a fault of a tool never refuses or ends a response
                self._observer.fault("the tools of a provider could not be opened", error)
            else:
                self._take(opened.tools, opened.items)
        self.learn_sources()

    @property
    def functions(self) -> list[HostedFunction]:
        """What the model is told of."""
        return [function_of(tool) for tool in self.tools]

    @property
    def here(self) -> frozenset[str]:
        """The types of tools that are run here, whether they have a function or not."""
        return self._here

    def find(self, key: str) -> HostedTool | None:
        """The tool that `key_of` has that key of."""
        return next((tool for tool in self.tools if key_of(function_of(tool)) == key), None)

    def tool_of(self, approval: Mapping[str, Any]) -> HostedTool | None:
        """The tool that a request for approval is about."""
        wanted_call = (approval.get("server_label"), approval.get("name"))
        for tool in self.tools:
            if tool.item_type == "mcp_call":
                item = tool.item(HostedCall("", "", tool.function.name, "{}", {}))
                if (item.get("server_label"), item.get("name")) == wanted_call:
                    return tool
        return None

    def learn_sources(self) -> None:
        """Let what can be cited of the history be known by its numbers (B15)."""
        tools = {tool.item_type: tool for tool in self.tools}
        for body in self.session.evidence[: self.session.before]:
            tool = tools.get(str(body.get("type")))
            if tool is not None:
                self.session.sources.update(tool.sources(body))

    def keep(self, body: dict[str, Any]) -> dict[str, Any]:
        """Take an item in that is whole; what of it a client sees."""
        # What is kept of an item for this server alone tells that it ran here, wherever the item goes.
        body = {"_turn": -1, **body}
        self.full[body["id"]] = body
        self.session.evidence.append(body)
        return project(body, self.include)

    def in_full(self, items: Iterable[Any]) -> list[Any]:
        """Items of this response with those of hosted tools in full; plain objects stay plain objects."""
        return [self._full_one(item) for item in items]

    def _full_one(self, item: Any) -> Any:
        if isinstance(item, RawItem):
            body = self.full.get(item.id or "")
            return item if body is None else replace(item, body=body)
        if not isinstance(item, dict):
            return item
        named = cast("dict[str, Any]", item)
        return self.full.get(str(named.get("id")), named)

    def _take(self, tools: Sequence[HostedTool], items: Sequence[dict[str, Any]]) -> None:
        self.tools += tools
        for item in items:
            kind = str(item.get("type"))
            self.opening.append(item if item.get("id") else {**item, "id": new_id(item_prefix(kind))})


def key_of(function: HostedFunction) -> str:
    """What a tool of a response is known by: its type, its server and its name."""
    return f"{function.type} {function.server} {function.tool.name}"


def function_of(tool: HostedTool) -> HostedFunction:
    """What the model is told of a tool."""
    kind = str(tool.declared.get("type"))
    server = str(tool.declared.get("server_label") or "") if kind == "mcp" else ""
    return HostedFunction(tool.function, kind, server, deferred=tool.declared.get("defer_loading") is True)

"""A response's use of MCP servers, without a response: the provider's tools opened and called one by one."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.errors import APIError
from antiphon.protocol.request import decode_create_response
from antiphon.store.base import Scope
from antiphon.tools.base import HostedCall, HostedTool, Outcome, Session
from antiphon.tools.mcp.provider import McpProvider

__all__ = ["Use", "entry", "use"]


def entry(url: str, **fields: Any) -> dict[str, Any]:
    """An `mcp` entry of `tools` whose calls need no approval."""
    return {"type": "mcp", "server_label": "stub", "server_url": url, "require_approval": "never", **fields}


class Use:
    """The tools of one response; `items` are those that were told first."""

    def __init__(self, tools: list[HostedTool], items: list[dict[str, Any]], session: Session) -> None:
        self.tools = {tool.function.name: tool for tool in tools}
        self.items = items
        self.session = session

    async def call(
        self, name: str, text: str = '{"text":"hello"}', *, approval: str | None = None, characters: int = 100_000
    ) -> dict[str, Any]:
        """The item of a call once it is done, as the loop makes it."""
        arguments: Any = msgspec.json.decode(text) if text.startswith("{") else None
        call = HostedCall("call_1", "mcp_1", name, text, arguments, characters, approval)
        tool = self.tools[name]
        begun = {"id": call.item_id, **tool.item(call), "status": "in_progress"}
        try:
            outcome: Outcome = await tool.run(call, self.session)
        except APIError as error:
            outcome = tool.failed(call, error)
        return begun | outcome.fields


async def use(
    provider: McpProvider,
    *entries: dict[str, Any],
    input: Any = "hello",  # noqa: A002 - the wire's name
    evidence: list[dict[str, Any]] | None = None,
    context_length: int | None = None,
    **fields: Any,
) -> Use:
    """What a request with these entries gets of the provider, checked as the loop checks it."""
    body = msgspec.json.encode({"model": "m", "input": input, "tools": list(entries), **fields})
    request = decode_create_response(body)
    declared: list[dict[str, Any]] = [tool for tool in request.tools if isinstance(tool, dict)]
    session = Session(Scope("tenant"), "resp_1", request, list(evidence or []), len(evidence or []), {}, context_length)
    provider.check(declared, request)
    opened = await provider.open(declared, session)
    session.evidence.extend({"id": f"mcpl_{index}", **item} for index, item in enumerate(opened.items))
    return Use(list(opened.tools), list(opened.items), session)

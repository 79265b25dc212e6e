"""Hosted tools for tests: what each does is said by its arguments, and what ran is written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from antiphon.errors import InvalidRequestError, NotFoundError
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import FunctionTool
from antiphon.tools.base import HostedCall, HostedTool, Opened, Outcome, Provider, Session

__all__ = ["Corpus", "Servers", "Tool"]

QUERIES = {"type": "object", "properties": {"queries": {"type": "array", "items": {"type": "string"}}}}


class Tool(HostedTool):
    """Answers each query with itself; some words do something else.

    `fail`, `break` and `hang` do what they say, `wait NAME` waits for the event of that name, and `big` gives much.
    """

    def __init__(
        self,
        declared: dict[str, Any],
        item_type: str,
        name: str,
        ran: Callable[[str], None],
        *,
        gates: dict[str, asyncio.Event] | None = None,
        repeatable: bool = True,
        seconds: float = 60.0,
        asks: bool = False,
    ) -> None:
        self.declared = declared
        self.item_type = item_type
        self.function = FunctionTool(name=name, description=f"{name}.", parameters=QUERIES)
        self.repeatable = repeatable
        self.seconds = seconds
        self._ran = ran
        self._gates = gates if gates is not None else {}
        self._asks = asks
        self.seen: list[HostedCall] = []
        self.evidence: list[list[dict[str, Any]]] = []

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call."""
        if self.item_type == "mcp_call":
            return {
                "type": "mcp_call",
                "server_label": self.declared["server_label"],
                "name": self.function.name,
                "arguments": call.text,
                "output": None,
                "error": None,
                "approval_request_id": call.approval,
            }
        return {"type": self.item_type, "queries": (call.arguments or {}).get("queries", [])}

    def approval(self, call: HostedCall) -> dict[str, Any] | None:
        """Every call of a server that asks needs one."""
        if not self._asks or call.approval is not None:
            return None
        return {
            "type": "mcp_approval_request",
            "server_label": self.declared["server_label"],
            "name": self.function.name,
            "arguments": call.text,
            "_approved": "this very tool",
        }

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Do what the queries say."""
        self.seen.append(call)
        self.evidence.append(list(session.evidence))
        queries = [str(query) for query in (call.arguments or {}).get("queries", [])]
        self._ran(f"{self.function.name} {' '.join(queries)}")
        for query in queries:
            word, _, rest = query.partition(" ")
            if word == "fail":
                raise NotFoundError("There is no such store.", code="store_not_found")
            if word == "break":
                raise RuntimeError("a secret of the server")
            if word == "hang":
                await asyncio.Event().wait()
            if word == "wait":
                await self._gates[rest].wait()
        found = ["found " + (query * 1000 if query == "big" else query) for query in queries]
        if self.item_type == "mcp_call":
            return Outcome({"status": "completed", "output": "\n".join(found)})
        results = [
            {"file_id": "file-1", "filename": "a.md", "score": 0.5, "text": text, "attributes": {}, "_private": 1}
            for text in found
        ]
        return Outcome({"status": "completed", "results": results})

    def failed(self, call: HostedCall, error: Any) -> Outcome:
        """The error where the item has its own place for it."""
        if self.item_type == "mcp_call":
            return Outcome(
                {"status": "failed", "error": {"type": "mcp_tool_execution_error", "content": error.message}}
            )
        return super().failed(call, error)


class Corpus(Provider):
    """Runs `file_search` and corpus tools; `file` is where runs are written down, one line each."""

    types = frozenset({"file_search", "search_corpus", "grep"})

    def __init__(self, file: Path | None = None, **how: Any) -> None:
        self.runs: list[str] = []
        self.tools: list[Tool] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.closed = False
        self._file = file
        self._how = how

    def note(self, line: str) -> None:
        """Write a run down."""
        self.runs.append(line)
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(line + "\n")

    def check(self, declared: Sequence[dict[str, Any]], request: CreateResponse) -> None:
        """Refuse an entry that says so."""
        if any(entry.get("bad") for entry in declared):
            raise InvalidRequestError("Invalid 'tools[0].bad'.", param="tools[0].bad", code="invalid_value")

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """One tool for each entry."""
        self.tools = [
            Tool(entry, f"{entry['type']}_call", entry["type"], self.note, gates=self.gates, **self._how)
            for entry in declared
        ]
        return Opened(self.tools)

    async def close(self) -> None:
        """Note that it is closed."""
        self.closed = True


class Servers(Provider):
    """MCP servers with the tools `look` and `change`; `change` may not run twice, and asks unless it is told not to."""

    types = frozenset({"mcp"})
    waits = True

    def __init__(self, file: Path | None = None, *, down: bool = False) -> None:
        self.runs: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.opened = 0
        self.down = down
        self._file = file

    def note(self, line: str) -> None:
        """Write a run down."""
        self.runs.append(line)
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(line + "\n")

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """The list of each server's tools as an item, and the tools."""
        self.opened += 1
        if self.down:
            raise RuntimeError("connection refused at a secret address")
        tools: list[Tool] = []
        items: list[dict[str, Any]] = []
        for entry in declared:
            asks = entry.get("require_approval", "always") != "never"
            of_server = [
                Tool(entry, "mcp_call", "look", self.note, gates=self.gates),
                Tool(entry, "mcp_call", "change", self.note, gates=self.gates, repeatable=False, asks=asks),
            ]
            tools += of_server
            listed = [
                {"name": tool.function.name, "description": None, "input_schema": QUERIES, "annotations": None}
                for tool in of_server
            ]
            items.append({"type": "mcp_list_tools", "server_label": entry["server_label"], "tools": listed})
        return Opened(tools, items)

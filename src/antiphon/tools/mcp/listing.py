"""The tools that a server lists, within bounds, and the lists that are kept for a while."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.depth import check_value
from antiphon.protocol.json import encode
from antiphon.tools.mcp.faults import MALFORMED, protocol_fault

__all__ = ["LISTED_SECONDS", "MOST_PAGES", "MOST_TOOLS", "Lists", "Tool", "checked", "digest"]

MOST_TOOLS: Final = 1_024
"""Tools of one server; one that has more is not used."""

MOST_PAGES: Final = 64
MOST_NAME: Final = 128
MOST_DESCRIPTION: Final = 16_384
MOST_SCHEMA: Final = 65_536
"""Bytes of the schema of one tool."""

MOST_LIST: Final = 2 * 1024 * 1024
"""Bytes of the whole list."""

LISTED_SECONDS: Final = 300.0
"""How long a list is kept; a server that says that it changed is asked again."""

MOST_KEPT: Final = 256
MOST_KEPT_BYTES: Final = 16 * 1024 * 1024


class Tool(Struct, frozen=True):
    """A tool of a server, as `mcp_list_tools` tells it; `annotations` are the server's word and nobody else's."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] = {}
    annotations: dict[str, Any] | None = None

    @property
    def read_only(self) -> bool:
        """Whether it says that it changes nothing."""
        return self._says("read_only", "readOnlyHint")

    @property
    def repeatable(self) -> bool:
        """Whether it says that it may run twice."""
        return self.read_only or self._says("idempotent", "idempotentHint")

    def _says(self, *names: str) -> bool:
        return any((self.annotations or {}).get(name) is True for name in names)

    def told(self) -> dict[str, Any]:
        """The entry of an `mcp_list_tools` item; what the server does not say is left out, as clients need it."""
        told: dict[str, Any] = {"name": self.name, "input_schema": self.input_schema}
        if self.description is not None:
            told["description"] = self.description
        if self.annotations is not None:
            told["annotations"] = self.annotations
        return told


def checked(entries: Sequence[Mapping[str, Any]]) -> list[Tool]:
    """The tools of a list.

    Raises:
        McpFaultError: it is malformed or larger than what is taken.
    """
    if len(entries) > MOST_TOOLS:
        raise protocol_fault(MALFORMED, f"The server lists more than {MOST_TOOLS} tools.")
    found: dict[str, Tool] = {}
    size = 0
    for entry in entries:
        try:
            tool = msgspec.convert(entry, Tool)
            check_value(tool.input_schema, "input_schema")
            check_value(tool.annotations, "annotations")
        except (msgspec.ValidationError, InvalidRequestError, RecursionError):
            raise protocol_fault(MALFORMED, "The server lists a tool that cannot be read.") from None
        schema = len(encode(tool.input_schema))
        size += schema + len(tool.description or "") + len(encode(tool.annotations))
        if not 1 <= len(tool.name) <= MOST_NAME or len(tool.description or "") > MOST_DESCRIPTION:
            raise protocol_fault(MALFORMED, "The server lists a tool whose name or description is too long.")
        if schema > MOST_SCHEMA:
            raise protocol_fault(MALFORMED, f"The server lists a tool whose schema has more than {MOST_SCHEMA} bytes.")
        if size > MOST_LIST:
            raise protocol_fault(MALFORMED, f"The server's list of tools has more than {MOST_LIST} bytes.")
        if tool.name in found:
            raise protocol_fault(MALFORMED, "The server lists two tools by one name.")
        found[tool.name] = tool
    return list(found.values())


def digest(tools: Sequence[Tool]) -> str:
    """What tells this list from every other, whatever the order of its tools (faults B3 39)."""
    entries = sorted((tool.told() for tool in tools), key=lambda entry: entry["name"])
    return hashlib.sha256(msgspec.json.encode(entries, order="deterministic")).hexdigest()


class Lists:
    """Lists of servers by their keys; `clock` gives seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, int, list[Tool]]] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> list[Tool] | None:
        """The list of a server, where one is kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] <= self._clock():
            self.forget(key)
            return None
        self._kept.move_to_end(key)
        return found[2]

    def keep(self, key: str, tools: list[Tool]) -> None:
        """Keep a list for a while; the least used ones go where there are too many."""
        self.forget(key)
        size = sum(len(encode(tool.told())) for tool in tools)
        self._kept[key] = (self._clock() + LISTED_SECONDS, size, tools)
        self._bytes += size
        while len(self._kept) > MOST_KEPT or self._bytes > MOST_KEPT_BYTES:
            self.forget(next(iter(self._kept)))

    def forget(self, key: str) -> None:
        """Keep the list of a server no longer."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._bytes -= found[1]

"""The provider of what runs code: `code_interpreter`, and `shell` where its environment is a container of the server.

A shell of the client's own machine is none of this: its calls go to the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.protocol.hosted import CODE_TYPES
from antiphon.protocol.request import CreateResponse
from antiphon.tools.base import HostedTool, Opened, Provider, Session
from antiphon.tools.code.containers import Containers
from antiphon.tools.code.entries import Place, is_local, read_entry
from antiphon.tools.code.interpreter import CodeInterpreter
from antiphon.tools.code.sandbox import NoSandboxError
from antiphon.tools.code.shell import HostedShell

__all__ = ["CodeProvider"]


class CodeProvider(Provider):
    """Runs code in the containers of a server."""

    types = CODE_TYPES

    def __init__(self, containers: Containers) -> None:
        self._containers = containers

    def check(self, declared: Sequence[dict[str, Any]], request: CreateResponse) -> None:
        """See that the entries can be read.

        Raises:
            InvalidRequestError: a field has a wrong type or is out of range.
        """
        for index, tool in enumerate(request.tools):
            if isinstance(tool, dict) and tool.get("type") in self.types and not is_local(_as_shell(tool)):
                read_entry(tool, f"tools[{index}]")

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """One tool of each type; of several entries the first counts. Both have the same container by themselves."""
        try:
            cannot = (await self._containers.sandboxes.backend()).cannot
        except NoSandboxError as error:
            # The call says so too; a model that knows may answer without.
            cannot = str(error)
        made: dict[str, HostedTool] = {}
        own: Place | None = None
        for entry in declared:
            kind = entry["type"]
            if kind in made or is_local(_as_shell(entry)):
                continue
            wanted = read_entry(entry, "tools")
            place = own if own is not None and wanted.container_id is None else Place(self._containers, wanted, session)
            own = place if wanted.container_id is None and own is None else own
            maker = CodeInterpreter if kind == "code_interpreter" else HostedShell
            made[kind] = maker(entry, self._containers, place, cannot)
        return Opened(list(made.values()))

    async def close(self) -> None:
        """End every container."""
        await self._containers.close()


def _as_shell(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry, where it is of a shell; one of code has always a container."""
    return entry if entry["type"] == "shell" else {"environment": {"type": "container"}}

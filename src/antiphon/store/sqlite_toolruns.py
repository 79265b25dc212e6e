"""Runs of hosted tools in the SQLite store."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.store.queries import QUERIES
from antiphon.store.rows import Scope
from antiphon.store.sqlite_conversations import LARGE
from antiphon.store.sqlite_core import SQLiteCore
from antiphon.store.toolruns import ToolRun, ToolRunStore

__all__ = ["SQLiteToolRuns"]


class SQLiteToolRuns(SQLiteCore, ToolRunStore):
    """Keeps runs in a table of their own; they go with the plan of their response."""

    async def set_tool_runs(self, scope: Scope, response_id: str, runs: Sequence[ToolRun], *, fence: int = 1) -> bool:
        """Write runs, all of them or none; each replaces the one at its position.

        Raises:
            UnavailableError: it cannot be written now.
        """
        execute = self._open().connection.execute
        key = (scope.tenant, response_id, fence)

        def write() -> bool:
            written = True
            for run in runs:
                values = (run.position, run.state, run.call_id, run.name, run.arguments, run.result)
                written = execute(QUERIES["set_tool_run"], (*values, *key)).rowcount == 1
            # What holds of the first one holds of all: it is one transaction.
            return written

        heavy = sum(len(run.result) + len(run.arguments) for run in runs) > LARGE
        return await self._write(write, heavy=heavy)

    async def tool_runs(self, scope: Scope, response_id: str) -> list[ToolRun]:
        """The runs of a response, by position."""
        return [ToolRun(*row) for row in self._read("tool_runs", {"tenant": scope.tenant, "id": response_id})]

"""Runs of hosted tools in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.store.postgres_core import FORMAT, PostgresCore, storable
from antiphon.store.rows import Scope
from antiphon.store.toolruns import ToolRun, ToolRunStore

__all__ = ["PostgresToolRuns"]


class PostgresToolRuns(PostgresCore, ToolRunStore):
    """Keeps runs in a table of their own; they go with the plan of their response."""

    async def set_tool_runs(self, scope: Scope, response_id: str, runs: Sequence[ToolRun], *, fence: int = 1) -> bool:
        """Write runs, all of them or none; each replaces the one at its position.

        Raises:
            UnavailableError: it cannot be written now.
        """
        if not storable(response_id):
            return False
        rows = await self._fetch(
            "set_tool_runs",
            tenant=scope.tenant,
            id=response_id,
            fence=fence,
            format=FORMAT,
            places=[run.position for run in runs],
            states=[run.state for run in runs],
            call_ids=[run.call_id for run in runs],
            names=[run.name for run in runs],
            arguments=[run.arguments for run in runs],
            results=[run.result for run in runs],
        )
        return bool(rows)

    async def tool_runs(self, scope: Scope, response_id: str) -> list[ToolRun]:
        """The runs of a response, by position."""
        if not storable(response_id):
            return []
        return [ToolRun(*row) for row in await self._fetch("tool_runs", tenant=scope.tenant, id=response_id)]

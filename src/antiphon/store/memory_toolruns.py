"""Runs of hosted tools in the memory store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from antiphon.store.memory_rows import ResponseRow
from antiphon.store.rows import Scope
from antiphon.store.toolruns import ToolRun, ToolRunStore

__all__ = ["MemoryToolRuns"]


class MemoryToolRuns(ToolRunStore):
    """Keeps runs beside the row of their response."""

    async def set_tool_runs(self, scope: Scope, response_id: str, runs: Sequence[ToolRun], *, fence: int = 1) -> bool:
        """Write runs; each replaces the one at its position."""
        row = self._owned_row(scope, response_id, fence)
        if row is None or not row.plan:
            return False
        for run in runs:
            row.tool_runs[run.position] = run
        return True

    async def tool_runs(self, scope: Scope, response_id: str) -> list[ToolRun]:
        """The runs of a response, by position."""
        row = self._live_row(scope, response_id)
        return [] if row is None else [run for _, run in sorted(row.tool_runs.items())]

    @abstractmethod
    def _live_row(self, scope: Scope, response_id: str) -> ResponseRow | None: ...

    @abstractmethod
    def _owned_row(self, scope: Scope, response_id: str, fence: int) -> ResponseRow | None: ...

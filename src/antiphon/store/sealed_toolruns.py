"""Runs of hosted tools in a sealed store: their names, arguments and results are sealed, each for its own place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.store.rows import Scope
from antiphon.store.sealed_keys import TenantKeys, open_sealed
from antiphon.store.toolruns import ToolRun, ToolRunStore

if TYPE_CHECKING:
    from antiphon.store.base import Store

__all__ = ["SealedToolRuns"]

NAME, ARGUMENTS, RESULT = "tool name", "tool arguments", "tool result"


class SealedToolRuns(ToolRunStore):
    """Seals what goes into the runs of `inner` and opens what comes out."""

    inner: Store
    _keys: TenantKeys

    async def set_tool_runs(self, scope: Scope, response_id: str, runs: Sequence[ToolRun], *, fence: int = 1) -> bool:
        """Write runs; each replaces the one at its position."""
        key = await self._keys.make(scope.tenant)
        sealed: list[ToolRun] = []
        for run in runs:
            place = _place(response_id, run)
            sealed.append(
                replace(
                    run,
                    name=key.seal(NAME, place, run.name),
                    arguments=key.seal(ARGUMENTS, place, run.arguments),
                    result=key.seal(RESULT, place, run.result),
                )
            )
        return await self.inner.set_tool_runs(scope, response_id, sealed, fence=fence)

    async def tool_runs(self, scope: Scope, response_id: str) -> list[ToolRun]:
        """The runs of a response, by position."""
        found = await self.inner.tool_runs(scope, response_id)
        if not found:
            return found
        key = await self._keys.find(scope.tenant)
        return [
            replace(
                run,
                name=open_sealed(key, NAME, _place(response_id, run), run.name),
                arguments=open_sealed(key, ARGUMENTS, _place(response_id, run), run.arguments),
                result=open_sealed(key, RESULT, _place(response_id, run), run.result),
            )
            for run in found
        ]


def _place(response_id: str, run: ToolRun) -> str:
    return f"{response_id} {run.position}"

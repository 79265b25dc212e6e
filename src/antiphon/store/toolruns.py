"""The part of a store that keeps the runs of hosted tools, so that a response can go on in the middle of a loop.

The calls of a turn are written before the first of them runs, and what a run gave before the model is told of it: so
whoever takes a response over knows what has run, what may have, and what has not (architecture, "tool re-execution").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct

from antiphon.store.rows import Scope

__all__ = ["DONE", "PENDING", "RUNNING", "ToolRun", "ToolRunStore"]

PENDING, RUNNING, DONE = "pending", "running", "done"
"""The states of a run: not begun, begun, and ended with its result."""


class ToolRun(Struct, frozen=True):
    """A call of a hosted tool. `position` counts those of a response over all its turns; `call_id` is the server's own.

    `name` and `arguments` are UTF-8 as the model wrote them; `result` is what the run gave, empty until it is done.
    """

    position: int
    call_id: str
    name: bytes
    arguments: bytes
    state: str = PENDING
    result: bytes = b""


class ToolRunStore(ABC):
    """Runs of hosted tools of responses that another owner can go on with: those that have a plan, until they end."""

    @abstractmethod
    async def set_tool_runs(self, scope: Scope, response_id: str, runs: Sequence[ToolRun], *, fence: int = 1) -> bool:
        """Write runs, all of them or none; each replaces the one at its position.

        False, and nothing is written, where the fence is not the row's, the response has no plan, or it has ended.
        """

    @abstractmethod
    async def tool_runs(self, scope: Scope, response_id: str) -> list[ToolRun]:
        """The runs of a response, by position; none of one that has ended."""

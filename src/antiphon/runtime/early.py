"""A turn that its engine has begun with before anybody takes what it generates: other things are done meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Self

from antiphon.engines.base import Engine, PreparedTurn
from antiphon.machine.deltas import Delta

__all__ = ["EarlyTurn"]


class EarlyTurn:
    """The deltas of a turn, the first of which are waited for already. It is to be closed in any case.

    Raises, while it is iterated:
        EngineError: the engine failed.
    """

    def __init__(self, engine: Engine, turn: PreparedTurn) -> None:
        self._stream = engine.generate(turn)
        self._first: asyncio.Task[Sequence[Delta]] | None = asyncio.create_task(_next(self._stream))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Delta]:
        first, self._first = self._first, None
        return await (_next(self._stream) if first is None else first)

    async def aclose(self) -> None:
        """Stop generating."""
        first, self._first = self._first, None
        if first is not None:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        await self._stream.aclose()


async def _next(stream: AsyncGenerator[Sequence[Delta]]) -> Sequence[Delta]:
    return await stream.__anext__()

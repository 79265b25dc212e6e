"""An engine's actor that is in this process, and can be lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from antiphon.engines.base import Engine, EngineLostError
from antiphon.engines.ray.actor import EngineActor
from antiphon.engines.ray.engine import Actor
from antiphon.engines.ray.wire import EngineOptions, encode

__all__ = ["NearActor"]


class NearActor(Actor):
    """The actor of those options, over another engine than theirs where one is given.

    From `lost` on it is gone; with `breaks_after` a stream breaks off, and it is lost, after so many batches.
    """

    def __init__(self, options: EngineOptions, engine: Engine | None = None) -> None:
        class Made(EngineActor):
            def _make(self, options: EngineOptions) -> Engine:
                return engine or super()._make(options)

        self.actor = Made(encode(options))
        self.lost = False
        self.breaks_after: int | None = None

    async def call(self, method: str, *arguments: Any) -> bytes:
        """What a method gives back."""
        if self.lost:
            raise EngineLostError("gone")
        return await getattr(self.actor, method)(*arguments)

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[bytes]:
        """What a method yields."""
        if self.lost:
            raise EngineLostError("gone")
        came = 0
        async with aclosing(getattr(self.actor, method)(*arguments)) as batches:
            async for batch in batches:
                yield batch
                came += 1
                if came == self.breaks_after:
                    self.lost = True
                    raise EngineLostError("gone")

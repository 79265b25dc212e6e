"""The only module that asks Ray: where the cluster is, and the actors of engines in it.

An actor has a name, by which every server finds the one that is there, or else has Ray make it. It belongs to no
server: Ray places it, keeps it, and starts it again on a node that is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from msgspec import Struct

from antiphon.engines.base import EngineLostError
from antiphon.engines.ray.actor import EngineActor
from antiphon.engines.ray.engine import Actor
from antiphon.engines.ray.library import require_ray
from antiphon.engines.ray.wire import EngineOptions, encode

__all__ = ["NAMESPACE", "Place", "RayActor"]

NAMESPACE: Final = "antiphon"
"""The namespace of the names of engines."""

_MOST_CALLS: Final = 1000
"""Calls and turns that one actor takes at a time; its engine has slots for far fewer, and lets the others wait."""


class Place(Struct, frozen=True):
    """What a node must have for an engine, by Ray's names."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    resources: Mapping[str, float] = {}


class RayActor(Actor):
    """The actor of that name, made of `options` where there is none."""

    def __init__(self, name: str, options: EngineOptions, place: Place) -> None:
        self._ray = require_ray()
        self._errors: type[Exception] = self._ray.exceptions.RayError
        self._died: type[Exception] = self._ray.exceptions.ActorDiedError
        self._name = name
        self._options = options
        self._place = place
        self._handle: Any = None
        self._finding = asyncio.Lock()

    async def call(self, method: str, *arguments: Any) -> bytes:
        """What a method gives back."""
        handle = await self._found()
        try:
            return await getattr(handle, method).remote(*arguments)
        except self._errors as error:
            raise self._lost(error) from None

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[bytes]:
        """What a method yields."""
        handle = await self._found()
        references: Any = None
        ended = False
        try:
            references = getattr(handle, method).options(num_returns="streaming").remote(*arguments)
            async for reference in references:
                yield await reference
            ended = True
        except self._errors as error:
            ended = True
            raise self._lost(error) from None
        finally:
            if references is not None and not ended:
                self._ray.cancel(references)

    def _lost(self, error: Exception) -> EngineLostError:
        if isinstance(error, self._died):
            # Ray does not start it again: the next call has another one made.
            self._handle = None
        return EngineLostError("The engine, or its node, has been lost.")

    async def _found(self) -> Any:
        if self._handle is None:
            async with self._finding:
                if self._handle is None:
                    try:
                        self._handle = await asyncio.to_thread(self._find)
                    except (self._errors, ValueError, ConnectionError) as error:
                        raise self._lost(error) from None
        return self._handle

    def _find(self) -> Any:
        """Find the actor or have it made; waits for the cluster, not for the actor to be placed."""
        ray = self._ray
        if not ray.is_initialized():
            ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
        return (
            ray.remote(EngineActor)
            .options(
                name=self._name,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=_MOST_CALLS,
                scheduling_strategy="SPREAD",
                num_cpus=self._place.num_cpus,
                num_gpus=self._place.num_gpus,
                resources=dict(self._place.resources),
            )
            .remote(encode(self._options))
        )

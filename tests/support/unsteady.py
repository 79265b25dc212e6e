"""A store in memory that can be made to wait or to fail, outlives its servers, and can be shared by several of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec

from antiphon.engines.registry import build_registry
from antiphon.errors import UnavailableError
from antiphon.http.app import create_app
from antiphon.http.telemetry import Telemetry
from antiphon.protocol.response import TERMINAL_STATUSES
from antiphon.runtime.service import Service
from antiphon.settings import Settings
from antiphon.store.base import EventBatch, Scope, Store
from antiphon.store.memory import MemoryStore
from antiphon.store.rows import StoreLimits
from antiphon.tools.base import Provider
from support.inprocess import BASE_URL, InProcess

__all__ = ["AWAY", "Faults", "Gate", "UnsteadyStore", "eventually", "frames_of", "served"]

AWAY = UnavailableError("The store cannot be used now.", retry_after=1)
PATIENCE = 60.0
OURS = Scope("default")

Call = Callable[[], Awaitable[Any]]
Around = Callable[[Call], Awaitable[Any]]


class UnsteadyStore(MemoryStore):
    """A memory store; `around[method]` is given each call of a method, and decides what comes of it.

    Closing it forgets nothing, so that the next server finds what the last one left. With `shared` set, owners stay
    beside each other as they do in a database.
    """

    def __init__(self, *, shared: bool = False) -> None:
        super().__init__(StoreLimits())
        self.shared = shared  # type: ignore[misc]
        self.around: dict[str, Around] = {}

    async def close(self) -> None:
        """Keep everything."""

    async def join(self, owner: str) -> None:
        """Enter a process, where the store is shared beside the others."""
        if self.shared:
            self._owners.setdefault(owner, 0)
        else:
            await super().join(owner)

    async def create_response(self, *args: Any, **names: Any) -> Any:
        return await self._call("create_response", lambda: MemoryStore.create_response(self, *args, **names))

    async def append_events(self, *args: Any, **names: Any) -> Any:
        return await self._call("append_events", lambda: MemoryStore.append_events(self, *args, **names))

    async def finish_response(self, *args: Any, **names: Any) -> Any:
        return await self._call("finish_response", lambda: MemoryStore.finish_response(self, *args, **names))

    async def set_tool_runs(self, *args: Any, **names: Any) -> Any:
        return await self._call("set_tool_runs", lambda: MemoryStore.set_tool_runs(self, *args, **names))

    async def get_response(self, *args: Any, **names: Any) -> Any:
        return await self._call("get_response", lambda: MemoryStore.get_response(self, *args, **names))

    async def events(self, *args: Any, **names: Any) -> Any:
        return await self._call("events", lambda: MemoryStore.events(self, *args, **names))

    async def claim(self, *args: Any, **names: Any) -> Any:
        return await self._call("claim", lambda: MemoryStore.claim(self, *args, **names))

    async def conversation_item_ids(self, *args: Any, **names: Any) -> Any:
        return await self._call(
            "conversation_item_ids", lambda: MemoryStore.conversation_item_ids(self, *args, **names)
        )

    async def _call(self, method: str, call: Call) -> Any:
        around = self.around.get(method)
        return await (call() if around is None else around(call))


class Gate:
    """Holds calls back until it is opened; `entered` says that one waits."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, call: Call) -> Any:
        self.entered.set()
        await self.opened.wait()
        return await call()


class Faults:
    """Makes the first calls fail, `after` they had their effect or instead of it; then the store is well again."""

    def __init__(self, times: int = 1, *, after: bool = False, error: Exception = AWAY) -> None:
        self.left = times
        self.after = after
        self.error = error

    async def __call__(self, call: Call) -> Any:
        if self.left <= 0:
            return await call()
        self.left -= 1
        if self.after:
            await call()
        raise self.error


@asynccontextmanager
async def served(
    store: Store, settings: Settings | None = None, tools: Sequence[Provider] | None = None
) -> AsyncIterator[InProcess]:
    """A server of the scripted model over a store; `tools` are its providers of hosted tools, if not those set."""
    settings = msgspec.structs.replace(settings or Settings(drain_timeout=0), model=("scripted",), store="memory")
    telemetry = Telemetry()
    service = Service(settings, build_registry(settings), store, telemetry, tools)
    try:
        await service.start()
        transport = httpx2.ASGITransport(create_app(service, telemetry))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE_URL, timeout=60) as client:
            yield InProcess(client, service)
    finally:
        await service.close()


async def eventually(told: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until the answer is true; that answer."""
    async with asyncio.timeout(PATIENCE):
        while not (answer := await told()):
            await asyncio.sleep(0.005)
    return answer


async def ended(store: UnsteadyStore, response_id: str) -> dict[str, Any]:
    """The object of a response once it has ended in the store."""

    async def told() -> Any:
        row = await MemoryStore.get_response(store, OURS, response_id)
        return row is not None and row.status in TERMINAL_STATUSES and row

    return msgspec.json.decode((await eventually(told)).snapshot)


def frames_of(batches: list[EventBatch]) -> bytes:
    """The bytes of batches."""
    return b"".join(batch.body for batch in batches)

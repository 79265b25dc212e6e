"""The client of the child that runs now; one of a child that has died is closed when the next child is there."""

from __future__ import annotations

import asyncio

from antiphon.engines.llamacpp.client import Client
from antiphon.engines.llamacpp.process import Child
from antiphon.errors import EngineUnavailableError

__all__ = ["CurrentClient"]


class CurrentClient:
    """Follows the lives of a child; `connect` is what its supervisor calls for each."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._retired: set[asyncio.Task[None]] = set()

    async def connect(self, child: Child) -> None:
        """Call this child from now on."""
        old, self._client = self._client, Client(child.config.socket)
        if old is not None:
            task = asyncio.create_task(old.close())
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    def now(self) -> Client:
        """The client of the last child.

        Raises:
            EngineUnavailableError: there has been none, or all is closed.
        """
        if self._client is None:
            raise EngineUnavailableError("The engine is not running.")
        return self._client

    async def close(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        await asyncio.gather(*self._retired, return_exceptions=True)

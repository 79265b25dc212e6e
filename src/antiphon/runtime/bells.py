"""Bells: whoever waits for more of a response is woken when something of it was written, here or by another server."""

from __future__ import annotations

import asyncio

__all__ = ["Bells"]


class Bells:
    """Wakes readers by tenant and response id. A missed ring costs a reader its patience, never an event."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], set[asyncio.Future[None]]] = {}

    def ring(self, tenant: str, response_id: str) -> None:
        """Wake all that wait for this response."""
        waiting = self._waiting.pop((tenant, response_id), None)
        for future in waiting or ():
            if not future.done():
                future.set_result(None)

    def ring_all(self) -> None:
        """Wake everybody, as when the server stops."""
        for tenant, response_id in list(self._waiting):
            self.ring(tenant, response_id)

    async def wait(self, tenant: str, response_id: str, seconds: float) -> None:
        """Return at the next ring, or after so many seconds."""
        future = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault((tenant, response_id), set())
        waiting.add(future)
        try:
            await asyncio.wait({future}, timeout=seconds)
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get((tenant, response_id)) is waiting:
                del self._waiting[tenant, response_id]

"""Places for long work, shared fairly by tenants: none of them can hold all, and those who wait take turns."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

__all__ = ["Places"]


class Places:
    """So many places, and at most `of_one` of them for one tenant.

    A place that becomes free goes to the tenant that holds the fewest, and among those to the one that was given its
    last place longest ago; a tenant's own come in their order.
    """

    def __init__(self, count: int, of_one: int) -> None:
        self._free = count
        self._of_one = of_one
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._given = 0
        self._last: dict[str, int] = {}

    @asynccontextmanager
    async def taken(self, tenant: str) -> AsyncGenerator[None]:
        """A place for a tenant, once there is one."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(future)
        self._give()
        try:
            await future
        except asyncio.CancelledError:
            self._withdraw(tenant, future)
            raise
        try:
            yield
        finally:
            self._leave(tenant)

    def _withdraw(self, tenant: str, future: asyncio.Future[None]) -> None:
        if not future.cancelled():
            # It was given a place in the moment in which it gave up.
            self._leave(tenant)
        elif future in self._waiting.get(tenant, ()):
            self._waiting[tenant].remove(future)
            self._forget(tenant)

    def _leave(self, tenant: str) -> None:
        self._free += 1
        self._held[tenant] -= 1
        self._forget(tenant)
        self._give()

    def _forget(self, tenant: str) -> None:
        """Keep nothing of a tenant that neither holds a place nor waits for one."""
        if not self._waiting.get(tenant):
            self._waiting.pop(tenant, None)
            if not self._held[tenant]:
                del self._held[tenant]
                self._last.pop(tenant, None)

    def _give(self) -> None:
        while self._free:
            able = [tenant for tenant in self._waiting if self._held[tenant] < self._of_one]
            if not able:
                return
            tenant = min(able, key=lambda one: (self._held[one], self._last.get(one, 0)))
            future = self._waiting[tenant].popleft()
            if future.cancelled():
                self._forget(tenant)
                continue
            self._free -= 1
            self._held[tenant] += 1
            self._given += 1
            self._last[tenant] = self._given
            self._forget(tenant)
            future.set_result(None)

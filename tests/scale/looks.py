"""Times of single requests, one after the other, also while other things go on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from tests.bench.load import connections, get
from tests.scale.fill import request

__all__ = ["Beside", "percentile", "times_of"]

PAUSE = 0.004


def percentile(times: Sequence[float], share: float) -> float:
    """The time, in milliseconds, that this share of them did not exceed."""
    ordered = sorted(times)
    return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def times_of(port: int, requests: Sequence[bytes]) -> list[float]:
    """Seconds of each of these requests, one after the other on one connection."""
    times: list[float] = []
    async with connections(port, 1) as (connection,):
        for raw in requests:
            began = time.perf_counter()
            await connection.request(raw)
            times.append(time.perf_counter() - began)
    return times


class Beside:
    """Two clients that look up and store without haste until `stopped`, and how long each of their requests took."""

    def __init__(self, ids: Sequence[str], seed: int = 2) -> None:
        self._ids = ids
        self._random = random.Random(seed)
        self.looks: list[float] = []
        self.stores: list[float] = []
        self.stopped = False

    async def run(self, port: int) -> None:
        """Go on until `stopped`."""
        await asyncio.gather(
            self._client(port, self.looks, lambda: get(f"/v1/responses/{self._random.choice(self._ids)}")),
            self._client(port, self.stores, lambda: request("one more")),
        )

    async def _client(self, port: int, times: list[float], make: Callable[[], bytes]) -> None:
        async with connections(port, 1) as (connection,):
            while not self.stopped:
                raw = make()
                began = time.perf_counter()
                await connection.request(raw)
                times.append(time.perf_counter() - began)
                await asyncio.sleep(PAUSE)

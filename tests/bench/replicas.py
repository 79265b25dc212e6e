"""The probe of two servers over one PostgreSQL database: how much later the other one shows an event."""

from __future__ import annotations

import asyncio
import contextlib
import time

import httpx2
from tests.bench.probe import MODEL, Bench, Probe
from tests.support.postgres import cluster
from tests.support.server import running_server

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser

__all__ = ["Replicas"]

STREAMS = 8
EVENTS = 300
PAUSE_MS = 5


class Replicas(Probe):
    """Eight background streams of one server, each read on both."""

    name = "replicas"

    def __init__(self) -> None:
        super().__init__()
        less: dict[str, bool | int] = {"more_is_better": False, "digits": 1}
        self._half = self.figure("event on the other server, p50 after the first", "ms", **less)
        self._late = self.figure("event on the other server, p99 after the first", "ms", aim=300, **less)
        self._cancel = self.figure("cancelled on one, end seen on the other, p99", "ms", aim=300, **less)
        self._stack = contextlib.ExitStack()
        self._urls: list[str] = []

    async def prepare(self, bench: Bench) -> None:
        shared = cluster()
        database = shared.url(shared.create_database(empty=True))
        arguments = ["--model", MODEL, "--store", database]
        self._urls = [self._stack.enter_context(running_server(arguments)).base_url for _ in range(2)]

    async def round(self, bench: Bench) -> None:
        async with httpx2.AsyncClient(timeout=60) as client:
            said = f"!SLOW {PAUSE_MS}\n!COUNT {EVENTS}"
            delays = [
                delay
                for each in await asyncio.gather(*(self._stream(client, said) for _ in range(STREAMS)))
                for delay in each
            ]
            self._half.samples.append(_share(delays, 0.5))
            self._late.samples.append(_share(delays, 0.99))
            ends = await asyncio.gather(*(self._cancelled(client) for _ in range(STREAMS)))
            self._cancel.samples.append(_share(list(ends), 0.99))

    def conclude(self) -> None:
        self._stack.close()

    async def _begin(self, client: httpx2.AsyncClient, said: str) -> str:
        body = {"model": MODEL, "input": said, "background": True}
        answer = await client.post(f"{self._urls[0]}/responses", json=body)
        return answer.json()["id"]

    async def _stream(self, client: httpx2.AsyncClient, said: str) -> list[float]:
        """By how many milliseconds each event came later from the second server than from the first."""
        name = await self._begin(client, said)
        first, second = await asyncio.gather(*(_arrivals(client, url, name) for url in self._urls))
        return [max(0.0, second[number] - at) * 1000 for number, at in first.items()]

    async def _cancelled(self, client: httpx2.AsyncClient) -> float:
        """Milliseconds from a cancellation on the first server to the end of the stream on the second."""
        name = await self._begin(client, f"!SLOW {PAUSE_MS}\n!COUNT 100000")
        reading = asyncio.create_task(_arrivals(client, self._urls[1], name))
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await client.post(f"{self._urls[0]}/responses/{name}/cancel")
        arrivals = await reading
        return max(0.0, max(arrivals.values()) - began) * 1000


async def _arrivals(client: httpx2.AsyncClient, url: str, name: str) -> dict[int, float]:
    """When each event of a response came."""
    parser = SSEParser()
    arrivals: dict[int, float] = {}
    async with client.stream("GET", f"{url}/responses/{name}?stream=true") as answer:
        async for chunk in answer.aiter_bytes():
            now = time.monotonic()
            for frame in parser.feed(chunk):
                if frame.data != "[DONE]":
                    arrivals[loads(frame.data)["sequence_number"]] = now
    return arrivals


def _share(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]

"""So many kills: traffic, a kill at a random moment, a start, and every rule checked."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import httpx2
from tests.kills.ledger import Ledger
from tests.kills.replicas import Replica
from tests.kills.traffic import Traffic

__all__ = ["Outcome", "kill_servers"]

CLIENTS = 10
LONGEST_PEACE = 1.2


@dataclass
class Outcome:
    """What was done and seen. `slowest` is how long after a start the last response was still running, in seconds."""

    kills: int
    requests: int
    checked: int
    resumed: int
    restarted: int
    slowest: float
    seconds: float
    refused: list[str]

    def __str__(self) -> str:
        return (
            f"{self.kills} kills in {self.seconds:.0f} s: {self.requests} requests, {self.checked} responses checked, "
            f"{self.resumed} background streams resumed byte for byte, {self.restarted} foreground ones ended as "
            f"failed; all had ended {self.slowest:.1f} s after a start"
        )


class _Clients:
    """A client for each server that is up; asked in turns."""

    def __init__(self, replicas: Sequence[Replica], chosen: random.Random) -> None:
        self._replicas = replicas
        self._chosen = chosen
        self._clients: dict[str, httpx2.AsyncClient] = {}

    def any(self) -> httpx2.AsyncClient | None:
        """A client of one that is up."""
        urls = [replica.base_url for replica in self._replicas if replica.up]
        if not urls:
            return None
        url = self._chosen.choice(urls)
        if url not in self._clients:
            self._clients[url] = httpx2.AsyncClient(base_url=url, timeout=30)
        return self._clients[url]

    def one(self) -> httpx2.AsyncClient:
        """The same, where one must be up."""
        client = self.any()
        assert client is not None
        return client

    async def close(self) -> None:
        """Close all."""
        await asyncio.gather(*(client.aclose() for client in self._clients.values()))


async def kill_servers(
    arguments: Sequence[str], *, replicas: int, kills: int, seed: int, told: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Kill servers with these arguments so often; the rules are checked after each start.

    With several replicas one is killed at a time, and the others go on with what it ran.

    Raises:
        BrokenPromiseError: a promise was not kept.
    """
    chosen = random.Random(seed)
    servers = [Replica(arguments) for _ in range(replicas)]
    ledger = Ledger()
    clients = _Clients(servers, chosen)
    traffic = Traffic(ledger, clients.any, seed + 1)
    began = time.monotonic()
    async with _started(servers):
        for number in range(1, kills + 1):
            victim = chosen.choice(servers)
            traffic.stopped = False
            running = asyncio.create_task(traffic.run(CLIENTS))
            await asyncio.sleep(0.05 + chosen.random() * LONGEST_PEACE)
            victim.kill()
            died_at = time.monotonic()
            traffic.stopped = True
            starting = asyncio.create_task(asyncio.to_thread(victim.start))
            await asyncio.gather(running, starting)
            if chosen.random() < 0.1:
                # Again at once: a start is as good a moment as any.
                victim.kill()
                await asyncio.to_thread(victim.start)
            since = time.monotonic() if replicas == 1 else died_at
            try:
                await ledger.check(clients.one, since)
                await traffic.check_conversations(clients.one())
            except AssertionError:
                for server in servers:
                    told("".join(server.lines[-60:]))
                raise
            told(f"kill {number}: {ledger.checked} responses checked")
        await clients.close()
    return Outcome(
        kills,
        traffic.requests,
        ledger.checked,
        ledger.resumed,
        ledger.restarted,
        ledger.slowest,
        time.monotonic() - began,
        traffic.refused,
    )


@contextlib.asynccontextmanager
async def _started(servers: Sequence[Replica]) -> AsyncIterator[None]:
    try:
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers))
        yield
    finally:
        for server in servers:
            server.kill()

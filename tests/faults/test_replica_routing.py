"""Chains over four replicas of an upstream, behind a real server: where turns go, and what a dead replica changes.

`make heavy` runs 200 chains of ten turns; the gate runs fewer.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from support.server import running_server
from support.upstream import Exchange, FakeUpstream, fake_upstream, said

HEAVY = os.environ.get("ANTIPHON_HEAVY") == "1"
CHAINS, TURNS, BETWEEN = (200, 10, 20) if HEAVY else (40, 3, 1)
"""How many chains of how many turns, and how many of the chains may be between two turns at the same time."""

MISSED = 0.05 if HEAVY else 0.1
"""The share of turns that may miss their prefix: of few turns, few say little."""

REPLICAS = 4
_NAME = re.compile(r"chain (\d+)\b")


class Replicas:
    """Upstreams that answer one turn after another, while nearly all chains wait for an answer."""

    def __init__(self, fakes: Sequence[FakeUpstream]) -> None:
        self.fakes = fakes
        self.landed: defaultdict[int, list[int]] = defaultdict(list)
        """The replica that each chain's turns were answered by, in their order."""
        self.talking = 0
        """Chains that have not ended."""
        self.ratios: list[float] = []
        """How far the busiest replica was above the mean, each time that a turn began while nearly all chains ran."""
        self._open: list[dict[Exchange, asyncio.Event]] = [{} for _ in fakes]
        self._dice = random.Random(7)
        for number, fake in enumerate(fakes):
            fake.behave = self._behaviour(number)

    def advance(self) -> None:
        """Let turns end for as long as nearly all chains have one that runs."""
        while True:
            waiting = [event for opened in self._open for event in opened.values() if not event.is_set()]
            if not waiting or len(waiting) < self.talking - BETWEEN + 1:
                return
            self._dice.choice(waiting).set()

    def kill(self, number: int) -> None:
        """The replica answers nobody any more, whoever waits for it included."""
        self.fakes[number].up = False
        for exchange in list(self._open[number]):
            exchange.abort()

    def _behaviour(self, number: int):
        async def behave(exchange: Exchange) -> None:
            ending = self._open[number][exchange] = asyncio.Event()
            running = [len(opened) for opened, fake in zip(self._open, self.fakes, strict=True) if fake.up]
            if sum(running) > 0.9 * CHAINS:
                self.ratios.append(max(running) * len(running) / sum(running))
            self.advance()
            gone = asyncio.ensure_future(exchange.gone.wait())
            ended = asyncio.ensure_future(ending.wait())
            try:
                await asyncio.wait({gone, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                ended.cancel()
                del self._open[number][exchange]
            if self.fakes[number].up and not exchange.gone.is_set():
                await said("Well.")(exchange)
                chain = _NAME.search(exchange.body["messages"][0]["content"])
                assert chain is not None
                self.landed[int(chain[1])].append(number)

        return behave


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Replicas, str]]:
    """The replicas, and the base URL of a server before them."""
    async with AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(fake_upstream()) for _ in range(REPLICAS)]
        replicas = Replicas(fakes)
        config = folder / "antiphon.toml"
        urls = ", ".join(f'"{fake.url}"' for fake in fakes)
        config.write_text(f'[[models]]\nname = "m"\nreplicas = [{urls}]\n', encoding="utf-8")
        # The server asks the replicas while it starts, so that this loop must not wait for it.
        server = running_server(["--config", str(config), "--store", str(folder / "a.db")])
        running = await asyncio.to_thread(server.__enter__)
        try:
            yield replicas, running.base_url
        finally:
            await asyncio.to_thread(server.__exit__, None, None, None)


class Talks:
    """Chains of one client."""

    def __init__(self, replicas: Replicas, url: str, session: aiohttp.ClientSession) -> None:
        self._replicas = replicas
        self._url = url
        self._session = session
        self._last: dict[int, str] = {}

    async def go_on(self, chains: Sequence[int], turns: int) -> None:
        """So many turns of each of these chains, each after the one before it."""
        self._replicas.talking = len(chains)
        await asyncio.gather(*(self._chain(chain, turns) for chain in chains))

    async def _chain(self, chain: int, turns: int) -> None:
        for _ in range(turns):
            body = {"model": "m", "input": f"chain {chain}"}
            if chain in self._last:
                body["previous_response_id"] = self._last[chain]
            async with self._session.post(f"{self._url}/responses", json=body) as answer:
                response = await answer.json()
            assert response.get("status") == "completed", response
            self._last[chain] = response["id"]
        self._replicas.talking -= 1
        self._replicas.advance()


def misses(landed: Sequence[int], dead: int | None = None) -> int:
    """Turns that went elsewhere than the one before, whose replica could have taken them."""
    return sum(new != old and old != dead for old, new in zip(landed, landed[1:], strict=False))


@pytest.mark.requirement("routing:shown", "routing:load", "routing:sticks", "routing:lost", "routing:failover")
async def test_chains_land_where_their_prefix_is_and_move_once_from_a_dead_replica(tmp_path: Path):
    chains = range(CHAINS)
    async with (
        served(tmp_path) as (replicas, url),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        talks = Talks(replicas, url, session)
        await talks.go_on(chains, TURNS)
        landed = {chain: list(replicas.landed[chain]) for chain in chains}
        assert all(len(where) == TURNS for where in landed.values())
        missed = sum(map(misses, landed.values()))
        load = Counter(number for where in landed.values() for number in where)
        mean = CHAINS * TURNS / REPLICAS
        print(f"\n{missed} of {CHAINS * (TURNS - 1)} turns missed; load {sorted(load.values())}, mean {mean:g}")
        print(f"the busiest replica was at most {max(replicas.ratios):.2f} times the mean of what was in flight")
        assert missed <= MISSED * CHAINS * (TURNS - 1)
        # The bound is rounded up, by less than one chain.
        assert max(load.values()) <= 1.25 * mean + TURNS

        dead = max(load, key=lambda number: load[number])
        going = asyncio.create_task(talks.go_on(chains, 2))
        while sum(len(replicas.landed[chain]) > TURNS for chain in chains) < CHAINS / 4:
            await asyncio.sleep(0.005)
        replicas.kill(dead)
        killed = {chain: len(replicas.landed[chain]) for chain in chains}
        await going
        landed = {chain: replicas.landed[chain][killed[chain] - 1 :] for chain in chains}
        moved = [chain for chain in chains if landed[chain][0] == dead and len(landed[chain]) > 1]
        assert moved
        assert all(dead not in where[1:] for where in landed.values())
        missed, after = sum(misses(where, dead) for where in landed.values()), sum(map(len, landed.values())) - CHAINS
        print(f"{len(moved)} chains moved from the dead replica; {missed} of {after} turns missed otherwise")
        assert missed <= MISSED * after

        if not HEAVY:
            return
        replicas.fakes[dead].up = True
        await _known(talks, replicas.fakes[dead])
        # One after another, since many at the same time would give it what is too much for the others.
        for chain in moved:
            await talks.go_on([chain], 1)
        assert all(replicas.landed[chain][-1] == replicas.landed[chain][-2] for chain in moved)


async def _known(talks: Talks, fake: FakeUpstream) -> None:
    """Begin chains until the replica gets one of them: the server knows then that it is back."""
    asked, number = len(fake.asked), 10 * CHAINS
    async with asyncio.timeout(30):
        while len(fake.asked) == asked:
            await talks.go_on(range(number, number + 8), 1)
            number += 8

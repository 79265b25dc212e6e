"""The measurements of a server's life: its start, its memory, long chains, clients that leave, and what it installs."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from tests.bench.gateway.measures import CLIENTS, Measure
from tests.bench.gateway.sides import FLOOR, OURS, PEER, Sides, asked, get_json
from tests.bench.gateway.sizes import installed
from tests.bench.gateway.upstream import asking
from tests.bench.load import Connection, connections
from tests.bench.process import Target

from antiphon.protocol.json import loads

__all__ = ["Chain", "Installs", "Leaving", "Life"]

TURNS = 200
STORED = 1_000
FILLER = "lorem ipsum dolor sit amet " * 20


class Life(Measure):
    """A fresh server: until it answers, idle, and after 1,000 stored responses."""

    name = "life"

    def __init__(self, sides: Sides, *, quick: bool) -> None:
        super().__init__(sides, quick=quick)
        self._start = self.row("start, to the first answer", "s", aim=0.8)
        self._start_cpu = self.row("start, CPU time", "s")
        self._idle = self.row("memory, idle", "MB", aim=70, digits=1)
        self._more = self.row("memory, more after 1,000 stored", "MB", aim=10, digits=1)

    async def round(self) -> None:
        for side in self.sides.servers:
            began = time.monotonic()
            with self.sides.fresh(side) as target:
                request = asked(side, asking(1))
                if side == OURS:
                    get_json(target, "/v1/models")
                self._start.add(side, time.monotonic() - began)
                self._start_cpu.add(side, target.cpu())
                await asyncio.sleep(0.3)
                idle = _memory(target)
                self._idle.add(side, idle)
                async with connections(target.port, CLIENTS) as opened:
                    await asyncio.gather(*(_send(one, request, STORED // CLIENTS + 1) for one in opened))
                await asyncio.sleep(0.3)
                self._more.add(side, _memory(target) - idle)


async def _send(connection: Connection, request: bytes, times: int) -> None:
    for _ in range(times):
        await connection.request(request)


def _memory(target: Target) -> float:
    """Resident memory of a process tree, in MB of 2**20 bytes."""
    root = psutil.Process(target.pid)
    return sum(process.memory_info().rss for process in (root, *root.children(recursive=True))) / 2**20


class Chain(Measure):
    """Chains of 200 turns by `previous_response_id`: late turns beside early ones, and what a turn takes on disk."""

    name = "chain"
    _EARLY, _LATE = (5, 30), (175, 200)
    _CHAINS = 4

    def __init__(self, sides: Sides, *, quick: bool) -> None:
        super().__init__(sides, quick=quick)
        self._early = self.row("chain, turns 5–29, a turn", "CPU ms")
        self._late = self.row("chain, turns 175–199, a turn", "CPU ms")
        self._early_wall = self.row("chain, turns 5–29, a turn", "ms")
        self._late_wall = self.row("chain, turns 175–199, a turn", "ms")
        self._ratio = self.row("chain, late : early by CPU time", "ratio", aim=1.2)
        self._wall_ratio = self.row("chain, late : early by the clock", "ratio", aim=1.2)
        self._stored = self.row("chain, stored a turn, turns 1–100", "bytes", digits=0)
        self._stored_late = self.row("chain, stored a turn, turns 101–200", "bytes", digits=0)

    async def round(self) -> None:
        for side, target in self.each():
            if side != FLOOR:
                await self._walk(side, target)

    async def _walk(self, side: str, target: Target) -> None:
        async with connections(target.port, self._CHAINS) as opened:
            ids: list[str | None] = [None] * self._CHAINS
            size = _stored(side, target)
            ids = await _turns(opened, ids, 0, self._EARLY[0])
            ids = await self._timed(side, target, opened, ids, early=True)
            ids = await _turns(opened, ids, self._EARLY[1], TURNS // 2)
            middle = _stored(side, target)
            ids = await _turns(opened, ids, TURNS // 2, self._LATE[0])
            await self._timed(side, target, opened, ids, early=False)
            end = _stored(side, target)
        turns = self._CHAINS * TURNS // 2
        self._stored.add(side, (middle - size) / turns)
        self._stored_late.add(side, (end - middle) / turns)

    async def _timed(
        self, side: str, target: Target, opened: list[Connection], ids: list[str | None], *, early: bool
    ) -> list[str | None]:
        window = self._EARLY if early else self._LATE
        await asyncio.sleep(0.05)
        cpu, began = target.cpu(), time.monotonic()
        ids = await _turns(opened, ids, *window)
        seconds = time.monotonic() - began
        await asyncio.sleep(0.05)
        turns = window[1] - window[0]
        (self._early if early else self._late).add(side, (target.cpu() - cpu) * 1000 / (turns * len(opened)))
        (self._early_wall if early else self._late_wall).add(side, seconds * 1000 / turns)
        return ids

    def conclude(self) -> None:
        for late, early, ratio in (
            (self._late, self._early, self._ratio),
            (self._late_wall, self._early_wall, self._wall_ratio),
        ):
            for side in (OURS, PEER):
                above, below = late.best(side), early.best(side)
                if above is not None and below:
                    ratio.add(side, above / below)


async def _turns(opened: list[Connection], ids: list[str | None], first: int, end: int) -> list[str | None]:
    async def walk(connection: Connection, identity: str | None) -> str | None:
        for number in range(first, end):
            more: dict[str, Any] = {} if identity is None else {"previous_response_id": identity}
            text = f"Turn {number}. {FILLER}{asking(100)}"
            reply = await connection.request(asked(OURS, text, **more), keep=True)
            identity = loads(reply.body)["id"]
        return identity

    return list(await asyncio.gather(*map(walk, opened, ids)))


def _stored(side: str, target: Target) -> int:
    """Bytes that a server keeps."""
    place = target.place
    if place is None:
        return 0
    if side != OURS:
        return sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file())
    with closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as rows:
        pages, free, size = (
            rows.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


class Leaving(Measure):
    """Clients that leave in the middle of an answer: until the upstream is left too."""

    name = "leaving"

    def __init__(self, sides: Sides, *, quick: bool) -> None:
        super().__init__(sides, quick=quick)
        self._stream = self.row("a client leaves, until the upstream is left: a stream", "ms", aim=200, digits=1)
        self._whole = self.row("a client leaves, until the upstream is left: a whole answer", "ms", aim=200, digits=1)

    async def round(self) -> None:
        for side, target in self.each():
            for row, stream in ((self._stream, True), (self._whole, False)):
                samples = [await self._leave(side, target, stream=stream) for _ in range(1 if self.quick else 5)]
                told = [sample for sample in samples if sample is not None]
                if len(told) == len(samples):
                    # The slowest of them: each has to be in time.
                    row.add(side, max(told) * 1000)

    async def _leave(self, side: str, target: Target, *, stream: bool) -> float | None:
        """Seconds that it took; None where the upstream answered to the end."""
        upstream = self.sides.upstream
        before = get_json(upstream, "/stats")
        _, writer = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write(asked(side, asking(200, 10), stream=stream))
        await writer.drain()
        while get_json(upstream, "/stats")["answers"] == before["answers"]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.15)
        left_at = time.monotonic()
        writer.close()
        while time.monotonic() < left_at + 3:
            told = get_json(upstream, "/stats")
            if told["left"] > before["left"]:
                return told["left_at"] - left_at
            await asyncio.sleep(0.01)
        return None


class Installs(Measure):
    """What is installed with the driver, and with the server, without engines and models."""

    name = "installs"

    def __init__(self, sides: Sides, *, quick: bool) -> None:
        super().__init__(sides, quick=quick)
        self._aims = {"": (12, 15), "server": (35, 75)}
        self._rows = {
            extra: (
                self.row(f"packages of {_named(extra)}", "packages", aim=packages, digits=0),
                self.row(f"size of {_named(extra)}", "MB", aim=size, digits=1),
            )
            for extra, (packages, size) in self._aims.items()
        }

    def conclude(self) -> None:
        for extra, (count, size) in self._rows.items():
            sizes = installed("antiphon", extra)
            count.add(OURS, len(sizes))
            size.add(OURS, sum(sizes.values()) / 1e6)


def _named(extra: str) -> str:
    return f"antiphon[{extra}]" if extra else "antiphon"

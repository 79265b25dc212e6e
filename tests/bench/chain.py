"""The probe of chains: what a turn costs at turn 10 and at turn 200, and what it takes on disk."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.bench.load import Connection, connections, post
from tests.bench.probe import MODEL, Bench, Probe
from tests.bench.process import Target
from tests.bench.report import Figure

from antiphon.protocol.json import loads

__all__ = ["Chain", "chain_turns", "database_size"]

TURNS = 200
CHAINS = 4
"""Chains side by side, in step: one alone would spend too little time in a window to be measured well."""

EARLY = (5, 15)
LATE = (190, 200)
FILLER = "lorem ipsum dolor sit amet " * 37


class Chain(Probe):
    """Chains of 200 turns of 1 KB by `previous_response_id`, on both stores."""

    name = "chain"

    def __init__(self) -> None:
        super().__init__()
        self._early: dict[str, Figure] = {}
        self._late: dict[str, Figure] = {}
        self._ratio: dict[str, Figure] = {}
        for store in ("memory", "SQLite"):
            for kept, window in ((self._early, "turns 6–15"), (self._late, "turns 191–200")):
                kept[store] = self.figure(f"chain, {window}, {store}", "CPU ms a turn", more_is_better=False, digits=3)
            self._ratio[store] = self.figure(
                f"chain, late : early, {store}", "ratio", more_is_better=False, digits=2, aim=1.5
            )
        self._bytes = self.figure(
            "chain, bytes a turn, SQLite, turns 1–100", "bytes", more_is_better=False, beside="1 KB of new text a turn"
        )
        self._late_bytes = self.figure("chain, bytes a turn, SQLite, turns 101–200", "bytes", more_is_better=False)

    async def prepare(self, bench: Bench) -> None:
        for target in (bench.memory(self), bench.sqlite(self)):
            async with connections(target.port, CHAINS) as opened:
                await chain_turns(opened, [None] * CHAINS, 0, EARLY[1])

    async def round(self, bench: Bench) -> None:
        await self._walk("memory", bench.memory(self), None)
        await self._walk("SQLite", bench.sqlite(self), bench.database(self))

    async def _walk(self, store: str, target: Target, database: Path | None) -> None:
        async with connections(target.port, CHAINS) as opened:
            sizes = [database_size(database)]
            ids = await chain_turns(opened, [None] * CHAINS, 0, EARLY[0])
            ids, early = await _timed(target, opened, ids, EARLY)
            ids = await chain_turns(opened, ids, EARLY[1], TURNS // 2)
            sizes.append(database_size(database))
            ids = await chain_turns(opened, ids, TURNS // 2, LATE[0])
            ids, late = await _timed(target, opened, ids, LATE)
            sizes.append(database_size(database))
        self._early[store].samples.append(early)
        self._late[store].samples.append(late)
        if database is not None:
            each = TURNS // 2 * CHAINS
            self._bytes.samples.append((sizes[1] - sizes[0]) / each)
            self._late_bytes.samples.append((sizes[2] - sizes[1]) / each)

    def conclude(self) -> None:
        for store, figure in self._ratio.items():
            late, early = self._late[store].value, self._early[store].value
            if late and early:
                figure.samples.append(late / early)


async def _timed(
    target: Target, opened: list[Connection], ids: list[str | None], window: tuple[int, int]
) -> tuple[list[str | None], float]:
    """The turns of a window, and the CPU milliseconds that each cost."""
    # What a server does after an answer belongs to the turn before.
    await asyncio.sleep(0.05)
    before = target.cpu()
    ids = await chain_turns(opened, ids, *window)
    await asyncio.sleep(0.05)
    return ids, (target.cpu() - before) * 1000 / ((window[1] - window[0]) * len(opened))


async def chain_turns(opened: list[Connection], ids: list[str | None], first: int, end: int) -> list[str | None]:
    """Every chain goes on from turn `first` to before turn `end`."""

    async def walk(connection: Connection, identity: str | None) -> str | None:
        for number in range(first, end):
            body = {"model": MODEL, "input": f"Turn {number}. {FILLER}"}
            if identity is not None:
                body["previous_response_id"] = identity
            reply = await connection.request(post("/v1/responses", body), keep=True)
            identity = loads(reply.body)["id"]
        return identity

    return list(await asyncio.gather(*map(walk, opened, ids)))


def database_size(database: Path | None) -> int:
    """Bytes that the database holds, what is still in its write-ahead log included."""
    if database is None:
        return 0
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size

"""The steps of a run over one store: fill it, look things up, kill and start the server, sweep half of it away."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from tests.bench.load import connections, get
from tests.bench.report import Figure
from tests.scale.fill import Filler
from tests.scale.looks import Beside, percentile, times_of
from tests.support.server import RunningServer, running_server

__all__ = ["LEAST_FOR_FLATNESS", "Scale"]

MEGABYTE = 1e6
LOOKS = 2_000
ROUNDS = 3
"""What must not take long is measured so often: the best of them tells it from what else the machine does."""

WARM_UP = 200
BESIDE_SECONDS = 1.5
KEPT_IN_MEMORY = 1_000
"""The memory store keeps the last 1,024."""

LEAST_FOR_FLATNESS = 50_000
"""With fewer responses the caches are still filling in the second half."""


class Scale:
    """One run with so many responses; `store` is `memory` or the path of a file that is not there yet.

    Bounds of time are taken times `slack`, for a machine that does other things too.
    """

    def __init__(self, store: str, responses: int, told: Callable[[str], None], slack: float = 1.0) -> None:
        self._file = None if store == "memory" else Path(store)
        self._arguments = ["--model", "scripted", "--store", store]
        self._responses = responses
        self._told = told
        self._slack = slack
        self._filler = Filler()
        self._random = random.Random(3)
        self.figures: list[Figure] = []

    def run(self) -> None:
        """Take all steps; the figures are complete afterwards."""
        with self._server() as server:
            port = _port(server)
            self._fill(server)
            self._look(port)
            # What is killed leaves its log to be read at the next start.
            server.process.kill()
            server.process.wait()
        if self._file is not None:
            self._start()
            self._sweep(self._file)

    def _fill(self, server: RunningServer) -> None:
        process = psutil.Process(server.process.pid)
        asyncio.run(Filler(seed=0).fill(_port(server), WARM_UP, lambda _: None))
        before = process.memory_info().rss
        sizes: list[int] = []
        step = max(1, self._responses // 20)

        def told(done: int) -> None:
            if done % step == 0:
                sizes.append(process.memory_info().rss)
                self._told(f"{done:,} responses, {sizes[-1] / MEGABYTE:.0f} MB of memory")

        began = time.monotonic()
        asyncio.run(self._filler.fill(_port(server), self._responses, told))
        self._figure("responses stored through the API", "a second", self._responses / (time.monotonic() - began))
        if self._file is not None:
            self._figure("bytes of a response and its items", "B", _bytes_each(self._file))
            self._figure("bytes of the file a response, with its log", "B", self._file.stat().st_size / len(self.ids))
        self._figure("growth of memory", "MB", (max(sizes) - before) / MEGABYTE, most=300)
        half = sizes[len(sizes) // 2 - 1]
        flat = 5.0 if self._responses >= LEAST_FOR_FLATNESS else None
        self._figure("growth in the second half", "%", 100 * (max(sizes) / half - 1), most=flat, digits=1)

    @property
    def ids(self) -> Sequence[str]:
        """The ids of what is stored, oldest first."""
        return self._filler.ids if self._file is not None else self._filler.ids[-KEPT_IN_MEMORY:]

    def _look(self, port: int) -> None:
        kinds = (("GET by id", "", 10.0), ("input_items", "/input_items?limit=100", 20.0))
        for title, tail, most in kinds:
            median = self._new_figure(f"{title}, median", "ms", digits=2)
            late = self._new_figure(f"{title}, p99", "ms", most=most, digits=2)
            for _ in range(ROUNDS):
                requests = [get(f"/v1/responses/{self._random.choice(self.ids)}{tail}") for _ in range(LOOKS)]
                times = asyncio.run(times_of(port, requests))
                median.samples.append(percentile(times, 0.5))
                late.samples.append(percentile(times, 0.99))
        if self._file is None:
            # What is written pushes out what is asked for.
            return
        beside = self._new_figure("GET by id beside writes, p99", "ms", digits=2)
        for _ in range(ROUNDS):
            looks = asyncio.run(_for_a_while(port, Beside(self.ids))).looks
            beside.samples.append(percentile(looks, 0.99))

    def _start(self) -> None:
        start = self._new_figure("start over the whole file, after a kill", "s", most=3.0, digits=2)
        for _ in range(ROUNDS):
            began = time.monotonic()
            with self._server() as server:
                start.samples.append(time.monotonic() - began)
                asyncio.run(_answers(_port(server), self.ids[-1]))
                server.process.kill()
                server.process.wait()

    def _sweep(self, file: Path) -> None:
        """Sweep the older half away, in some parts, while clients look up and store."""
        looks = self._new_figure("longest GET during a sweep", "ms", most=100, digits=1)
        stores = self._new_figure("longest stored POST during a sweep", "ms", most=100, digits=1)
        rate = self._new_figure("responses swept beside these", "a second", more_is_better=True)
        part = len(self.ids) // 2 // ROUNDS
        for number in range(ROUNDS):
            expired = self.ids[part * number : part * (number + 1)]
            _expire(file, expired)
            with self._server("-m", "tests.scale.server") as server:
                beside = Beside(self.ids[part * ROUNDS :])
                seconds = asyncio.run(_until_swept(_port(server), beside, file))
            looks.samples.append(1000 * max(beside.looks))
            stores.samples.append(1000 * max(beside.stores))
            rate.samples.append(part / seconds)
            self._told(f"sweep {number + 1}: GET {looks.samples[-1]:.0f} ms, POST {stores.samples[-1]:.0f} ms at most")

    @contextmanager
    def _server(self, *program: str) -> Iterator[RunningServer]:
        with running_server(self._arguments, program=program or ("-m", "antiphon")) as server:
            yield server

    def _figure(self, title: str, unit: str, value: float, **details: Any) -> None:
        figure = self._new_figure(title, unit, **details)
        figure.samples.append(value)
        self._told(f"{title}: {figure.format(value)} {unit}")

    def _new_figure(
        self, title: str, unit: str, *, most: float | None = None, digits: int = 0, more_is_better: bool = False
    ) -> Figure:
        key = f"scale.{len(self.figures) + 1}"
        if most is not None and unit in ("s", "ms"):
            most *= self._slack
        self.figures.append(Figure(key, title, unit, more_is_better, most, digits=digits))
        return self.figures[-1]


def _port(server: RunningServer) -> int:
    return urlsplit(server.base_url).port or 0


def _bytes_each(file: Path) -> float:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        count, snapshots = connection.execute("SELECT count(*), sum(length(snapshot)) FROM responses").fetchone()
        items = connection.execute("SELECT sum(length(body)) FROM items").fetchone()[0]
    return (snapshots + items) / count


async def _answers(port: int, name: str) -> None:
    async with connections(port, 1) as (connection,):
        await connection.request(get(f"/v1/responses/{name}"))


async def _for_a_while(port: int, beside: Beside) -> Beside:
    running = asyncio.create_task(beside.run(port))
    await asyncio.sleep(BESIDE_SECONDS)
    beside.stopped = True
    await running
    return beside


def _expire(file: Path, names: Sequence[str]) -> None:
    """Let the time of these responses be up; no server has the file."""
    with closing(sqlite3.connect(file)) as connection, connection:
        statement = "UPDATE responses SET expires_at = 1 WHERE tenant = 'default' AND id = ?"
        connection.executemany(statement, ((name,) for name in names))


async def _until_swept(port: int, beside: Beside, file: Path) -> float:
    """Let clients go on until nothing is left whose time is up; the seconds that removing it took."""
    running = asyncio.create_task(beside.run(port))
    began = 0.0
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            query = "SELECT count(*) FROM responses WHERE gone = 0 AND expires_at = 1"
            first = left = connection.execute(query).fetchone()[0]
            while left:
                await asyncio.sleep(0.05)
                assert not running.done()
                left = connection.execute(query).fetchone()[0]
                began = began or (time.monotonic() if left < first else 0.0)
    finally:
        beside.stopped = True
        await running
    return time.monotonic() - began

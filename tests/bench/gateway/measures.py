"""The measurements of traffic: whole answers, deltas in bursts and one at a time, and what comes first of a stream."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.bench.gateway.rows import Row
from tests.bench.gateway.sides import FLOOR, OURS, PEER, UPSTREAM, Sides, asked
from tests.bench.gateway.upstream import asking
from tests.bench.load import Connection, LoadError
from tests.bench.process import Target

__all__ = ["Bursts", "First", "Measure", "Paced", "Spent", "Whole", "spend"]

CLIENTS: Final = 16
DELTAS: Final = 200
_EVENT_MARK: Final = b"event: response.output_text.delta"
_CHUNK_MARK: Final = b'"content":"w'


class _Counting(Connection):
    """A connection that also counts deltas; `mark` is what each of them has once."""

    def __init__(self, mark: bytes) -> None:
        super().__init__()
        self._mark = mark
        self._end = b""
        self.deltas = 0
        self.first_at = self.text_at = 0.0

    def begin(self) -> None:
        """Count anew."""
        self.deltas, self._end = 0, b""
        self.first_at = self.text_at = 0.0

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        joined = self._end + body
        found = joined.count(self._mark)
        self._end = joined[-len(self._mark) + 1 :]
        if not self.first_at or (found and not self.text_at):
            now = time.monotonic()
            self.first_at = self.first_at or now
            if found:
                self.text_at = now
        self.deltas += found


@dataclass
class Spent:
    """What some seconds of load came to: answers and deltas, by the clock and by the server's CPU time."""

    answers: int
    deltas: int
    seconds: float
    cpu: float


async def spend(side: str, target: Target, request: bytes, clients: int, seconds: float, deltas: int = 0) -> Spent:
    """Send the request from so many clients for that time; each answer must have so many deltas.

    Raises:
        LoadError: an answer is not whole.
    """
    answers = 0
    cpu, began = target.cpu(), time.monotonic()
    end = began + seconds
    opened = await _opened(side, target, clients)

    async def client(connection: _Counting) -> None:
        nonlocal answers
        while True:
            connection.begin()
            await connection.request(request)
            if connection.deltas != deltas:
                raise LoadError(f"{side}: {connection.deltas} deltas of {deltas}")
            answers += 1
            if time.monotonic() >= end:
                return

    try:
        await asyncio.gather(*map(client, opened))
    finally:
        for connection in opened:
            connection.close()
    return Spent(answers, answers * deltas, time.monotonic() - began, target.cpu() - cpu)


async def _opened(side: str, target: Target, count: int) -> list[_Counting]:
    mark = _CHUNK_MARK if side == UPSTREAM else _EVENT_MARK
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(lambda: _Counting(mark), "127.0.0.1", target.port))[1] for _ in range(count)]


class Measure:
    """Takes one sample of each of its rows a round; what is made of others comes in `conclude`."""

    name = ""

    def __init__(self, sides: Sides, *, quick: bool) -> None:
        self.sides = sides
        self.quick = quick
        self.rows: list[Row] = []

    def row(self, title: str, unit: str, *, more: bool = False, aim: float | None = None, digits: int = 2) -> Row:
        """A row, in the order of the table."""
        row = Row(title, unit, more, aim, digits)
        self.rows.append(row)
        return row

    def each(self) -> Iterator[tuple[str, Target]]:
        """The servers that were started."""
        for side in self.sides.servers:
            yield side, self.sides.started[side]

    async def warm(self) -> None:
        """Let the servers get used to the load."""

    async def round(self) -> None:
        """Take one sample of each row."""

    def conclude(self) -> None:
        """Work out the rows that are made of others."""


class Whole(Measure):
    """Whole answers of 16 words."""

    name = "whole"
    _COUNTS = (1, 16, 64)

    def __init__(self, sides: Sides, *, quick: bool) -> None:
        super().__init__(sides, quick=quick)
        self._rate = {
            n: self.row(f"whole answers, {n} clients", "answers/s", more=True, digits=0) for n in self._COUNTS
        }
        self._cpu = {n: self.row(f"CPU of one, {n} clients", "ms") for n in self._COUNTS}
        self._ratio = self.row("whole answers, 16 clients, ours : codex-relay", "ratio", more=True, aim=1 / 3)
        self._cpu_ratio = self.row("the same by CPU time", "ratio", more=True, aim=1 / 3)

    async def warm(self) -> None:
        for side, target in self.each():
            await spend(side, target, asked(side, asking()), CLIENTS, 0.3)

    async def round(self) -> None:
        for clients in self._COUNTS:
            for side, target in self.each():
                spent = await spend(side, target, asked(side, asking()), clients, 0.3 if self.quick else 1.5)
                self._rate[clients].add(side, spent.answers / spent.seconds)
                self._cpu[clients].add(side, spent.cpu * 1000 / spent.answers)

    def conclude(self) -> None:
        _conclude(self._ratio, self._rate[16].ratio(PEER))
        _conclude(self._cpu_ratio, self._cpu[16].ratio(OURS, of=PEER))


class Bursts(Measure):
    """Streams of 200 words that come as fast as they are taken."""

    name = "bursts"

    def __init__(self, sides: Sides, *, quick: bool) -> None:
        super().__init__(sides, quick=quick)
        self._rate = self.row("deltas, 16 streams of 200", "deltas/s", more=True, aim=70_000, digits=0)
        self._cpu = self.row("CPU of a delta, 16 streams of 200", "µs", aim=14, digits=1)
        self._ratio = self.row("deltas, ours : codex-relay", "ratio", more=True, aim=1)
        self._cpu_ratio = self.row("the same by CPU time", "ratio", more=True, aim=1)

    async def warm(self) -> None:
        for side, target in self.each():
            await spend(side, target, asked(side, asking(DELTAS), stream=True), CLIENTS, 0.3, DELTAS)

    async def round(self) -> None:
        for side, target in self.each():
            request = asked(side, asking(DELTAS), stream=True)
            spent = await spend(side, target, request, CLIENTS, 0.3 if self.quick else 2.0, DELTAS)
            self._rate.add(side, spent.deltas / spent.seconds)
            self._cpu.add(side, spent.cpu * 1e6 / spent.deltas)

    def conclude(self) -> None:
        _conclude(self._ratio, self._rate.ratio(PEER))
        _conclude(self._cpu_ratio, self._cpu.ratio(OURS, of=PEER))


class Paced(Measure):
    """Deltas that come one at a time, on 16 streams."""

    name = "paced"
    _PAUSES = (5, 25)

    def __init__(self, sides: Sides, *, quick: bool) -> None:
        super().__init__(sides, quick=quick)
        self._cpu = {n: self.row(f"CPU of a delta, 16 streams, {n} ms apart", "µs", digits=1) for n in self._PAUSES}
        self._ratio = {n: self.row(f"{n} ms apart, ours : floor", "ratio", aim=1.5) for n in self._PAUSES}

    async def round(self) -> None:
        for pause in self._PAUSES:
            deltas = (100 if self.quick else 1500) // pause
            for side, target in self.each():
                request = asked(side, asking(deltas, pause), stream=True)
                spent = await spend(side, target, request, CLIENTS, 0, deltas)
                self._cpu[pause].add(side, spent.cpu * 1e6 / spent.deltas)

    def conclude(self) -> None:
        for pause in self._PAUSES:
            _conclude(self._ratio[pause], self._cpu[pause].ratio(FLOOR))


class First(Measure):
    """What comes first of one stream alone: its first event, and its first text."""

    name = "first"

    def __init__(self, sides: Sides, *, quick: bool) -> None:
        super().__init__(sides, quick=quick)
        self._event = self.row("first event, one stream", "ms")
        self._text = self.row("first text, one stream", "ms")
        self._added = self.row("first event, beyond the upstream's", "ms", aim=1)
        self._text_added = self.row("first text, beyond the upstream's", "ms", aim=4)

    async def round(self) -> None:
        for side, target in [(UPSTREAM, self.sides.upstream), *self.each()]:
            request = asked(side, asking(8), stream=True)
            events: list[float] = []
            texts: list[float] = []
            connection = (await _opened(side, target, 1))[0]
            for _ in range(20 if self.quick else 150):
                connection.begin()
                began = time.monotonic()
                await connection.request(request)
                events.append(connection.first_at - began)
                texts.append(connection.text_at - began)
            connection.close()
            self._event.add(side, statistics.median(events) * 1000)
            self._text.add(side, statistics.median(texts) * 1000)

    def conclude(self) -> None:
        for row, added in ((self._event, self._added), (self._text, self._text_added)):
            alone = row.best(UPSTREAM)
            for side in self.sides.servers:
                best = row.best(side)
                if best is not None and alone is not None:
                    added.add(side, best - alone)


def _conclude(row: Row, value: float | None) -> None:
    if value is not None:
        row.add(OURS, value)

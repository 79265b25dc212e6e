"""The probe of background responses: how many of their events become durable for each CPU-second."""

from __future__ import annotations

from tests.bench.load import drive, post
from tests.bench.probe import CLIENTS, MODEL, Bench, Probe, per_cpu_second
from tests.bench.process import Target

__all__ = ["Background"]

WORDS = 1_000
PAUSE_MS = 2


class Background(Probe):
    """Streams of background responses at 16 clients, whose readers see only what is on disk."""

    name = "background"

    def __init__(self) -> None:
        super().__init__()
        ceiling = "12k, each event awaited; 398k, batches as rows"
        self._bursts = self.figure("durable background events, SQLite", "events/CPU-s", aim=10_000, beside=ceiling)
        self._paced = self.figure("durable background events 2 ms apart, 16 streams, SQLite", "events/CPU-s")
        self._wall = self.figure("the first of these, by the clock", "events/s")

    async def prepare(self, bench: Bench) -> None:
        self._burst = _stream(f"!COUNT {WORDS}")
        self._slow = _stream(f"!SLOW {PAUSE_MS}\n!COUNT {WORDS // 2}")
        await self._events(bench.sqlite(self), self._burst, bench.seconds(0.5))

    async def round(self, bench: Bench) -> None:
        target = bench.sqlite(self)
        seconds = bench.seconds(3.0)
        rates: list[float] = []

        async def work() -> float:
            tally = await drive(target.port, CLIENTS, seconds, lambda: self._burst)
            rates.append(tally.events / seconds)
            return tally.events

        self._bursts.samples.append(await per_cpu_second(target, work))
        self._wall.samples.append(rates[0])
        self._paced.samples.append(await self._events(target, self._slow, 0))

    async def _events(self, target: Target, request: bytes, seconds: float) -> float:
        async def work() -> float:
            return (await drive(target.port, CLIENTS, seconds, lambda: request)).events

        return await per_cpu_second(target, work)


def _stream(text: str) -> bytes:
    return post("/v1/responses", {"model": MODEL, "input": text, "stream": True, "background": True})

"""Probes of the traffic: whole answers, live events in bursts and one at a time, and replays."""

from __future__ import annotations

from typing import Any

from tests.bench.load import connections, drive, get, post
from tests.bench.probe import CLIENTS, MODEL, Bench, Probe, per_cpu_second
from tests.bench.process import Target
from tests.bench.report import Figure

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser

__all__ = ["Bursts", "Paced", "Posts", "Replay"]

RESPONSES = "/v1/responses"
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
LONG = 1000
"""Words of a long answer."""


def whole(text: str, **more: Any) -> bytes:
    """A request for a whole answer."""
    return post(RESPONSES, {"model": MODEL, "input": text, **more})


def stream(text: str) -> bytes:
    """A request for a stream."""
    return post(RESPONSES, {"model": MODEL, "input": text, "stream": True})


def ruled(count: int, size: int, pause: float = 0.0, join: int = 1, *, handed: bool = False) -> bytes:
    """A request for a stream of the ruler's."""
    more = "&handed=1" if handed else ""
    return get(f"/stream?count={count}&size={size}&pause={pause}&join={join}{more}")


class Posts(Probe):
    """Whole answers of 16 words at 16 clients."""

    name = "post"

    def __init__(self) -> None:
        super().__init__()
        ceiling = "raw 21k, Starlette 14.6k"
        self._raw = self.figure("POST, raw ASGI (the ruler)", "answers/CPU-s", beside=ceiling)
        self._memory = self.figure("POST whole answers, memory", "answers/CPU-s", aim=4000, beside=ceiling)
        self._sqlite = self.figure("POST whole answers, SQLite", "answers/CPU-s", aim=2000, beside="floor 4.4–4.6k")
        self._unstored = self.figure("POST whole answers, store: false", "answers/CPU-s")

    async def prepare(self, bench: Bench) -> None:
        raw = post("/post", {"model": MODEL, "input": WORDS})
        self._runs = [
            (self._raw, bench.ruler(), raw),
            (self._memory, bench.memory(self), whole("!TEXT " + WORDS)),
            (self._sqlite, bench.sqlite(self), whole("!TEXT " + WORDS)),
            (self._unstored, bench.memory(self), whole("!TEXT " + WORDS, store=False)),
        ]
        for _, target, request in self._runs:
            await drive(target.port, CLIENTS, bench.seconds(0.8), lambda request=request: request)

    async def round(self, bench: Bench) -> None:
        for figure, target, request in self._runs:

            async def work(target: Target = target, request: bytes = request) -> float:
                return (await drive(target.port, CLIENTS, bench.seconds(2.0), lambda: request)).answers

            figure.samples.append(await per_cpu_second(target, work))


async def _events(target: Target, request: bytes, seconds: float) -> float:
    async def work() -> float:
        return (await drive(target.port, CLIENTS, seconds, lambda: request)).events

    return await per_cpu_second(target, work)


class Bursts(Probe):
    """Live events as fast as they come: streams of 1,000 words, of which the engine gives many at once."""

    name = "burst"

    def __init__(self) -> None:
        super().__init__()
        aim = "raw uncoalesced 264k, coalesced 780k"
        self._memory = self.figure("live events in bursts, memory", "events/CPU-s", aim=110_000, beside=aim)
        self._sqlite = self.figure("live events in bursts, SQLite", "events/CPU-s", beside=aim)

    async def prepare(self, bench: Bench) -> None:
        self._request = stream(f"!COUNT {LONG}")
        for target in (bench.memory(self), bench.sqlite(self)):
            await _events(target, self._request, bench.seconds(0.5))

    async def round(self, bench: Bench) -> None:
        for figure, target in ((self._memory, bench.memory(self)), (self._sqlite, bench.sqlite(self))):
            figure.samples.append(await _events(target, self._request, bench.seconds(1.5)))


class Paced(Probe):
    """Live events one at a time, beside a raw sender of frames of the same size with the same pauses.

    A pause of 1 µs is one turn of the event loop: every event is a wake-up and a write of its own, without a timer.
    """

    name = "paced"
    _PAUSE = 0.002
    _TURN = 0.000_001

    def __init__(self) -> None:
        super().__init__()
        more: dict[str, Any] = {"more_is_better": False, "digits": 1}
        self._ours = self.figure("live events 2 ms apart, 16 streams", "CPU µs an event", **more)
        self._raw = self.figure("the same, raw ASGI (the ruler)", "CPU µs an event", **more)
        self._handed = self.figure("the same, raw ASGI, made by another task", "CPU µs an event", **more)
        more["digits"] = 2
        self._ratio = self.figure("events 2 ms apart, ours : raw", "ratio", aim=1.5, beside="two lines above", **more)
        self._handed_ratio = self.figure("events 2 ms apart, ours : raw, by another task", "ratio", **more)
        self._turns = self.figure(
            "live events, one a loop turn", "events/CPU-s", beside="81–120k uncoalesced; goal ≥ 40k"
        )
        self._raw_turns = self.figure("the same, raw ASGI (the ruler)", "events/CPU-s", beside="120k")
        self._turn_ratio = self.figure("one a loop turn, ours : raw", "ratio", beside="the line above", **more)

    async def prepare(self, bench: Bench) -> None:
        count = LONG // 8 if bench.quick else LONG
        ours = bench.memory(self)
        async with connections(ours.port, 1) as opened:
            sizes = await opened[0].request(stream(f"!COUNT {count}"))
        size = round(sizes.bytes / sizes.events)
        self._requests = {
            self._ours.key: (ours, stream(f"!SLOW {self._PAUSE * 1000:g}\n!COUNT {count}")),
            self._raw.key: (bench.ruler(), ruled(sizes.events, size, self._PAUSE)),
            self._handed.key: (bench.ruler(), ruled(sizes.events, size, self._PAUSE, handed=True)),
            self._turns.key: (ours, stream(f"!SLOW {self._TURN * 1000:g}\n!COUNT {count}")),
            self._raw_turns.key: (bench.ruler(), ruled(sizes.events, size, self._TURN)),
        }
        for key in (self._turns.key, self._raw_turns.key):
            await _events(*self._requests[key], bench.seconds(0.3))

    async def round(self, bench: Bench) -> None:
        for figure in (self._ours, self._raw, self._handed):
            # One stream for each client: they take as long as their pauses.
            rate = await _events(*self._requests[figure.key], 0)
            figure.samples.append(1e6 / rate)
        for figure in (self._turns, self._raw_turns):
            figure.samples.append(await _events(*self._requests[figure.key], bench.seconds(1.0)))

    def conclude(self) -> None:
        if self._ours.value and self._raw.value:
            self._ratio.samples.append(self._ours.value / self._raw.value)
        if self._ours.value and self._handed.value:
            self._handed_ratio.samples.append(self._ours.value / self._handed.value)
        if self._turns.value and self._raw_turns.value:
            self._turn_ratio.samples.append(self._raw_turns.value / self._turns.value)


class Replay(Probe):
    """Stored events, sent again: all of a response of 1,000 words, and its second half."""

    name = "replay"

    def __init__(self) -> None:
        super().__init__()
        ceiling = "raw 264k, coalesced 780k"
        self._raw = self.figure("raw ASGI, one write an event (the ruler)", "events/CPU-s", beside="264k")
        self._joined = self.figure("raw ASGI, 64 events a write (the ruler)", "events/CPU-s", beside="780k at ten")
        self._memory = self.figure("replayed events, memory", "events/CPU-s", aim=250_000, beside=ceiling)
        self._sqlite = self.figure("replayed events, SQLite", "events/CPU-s", aim=250_000, beside=ceiling)
        self._after = self.figure("replayed with starting_after, SQLite", "events/CPU-s", aim=250_000, beside=ceiling)

    async def prepare(self, bench: Bench) -> None:
        for _, target, request in await self._runs(bench):
            await _events(target, request, bench.seconds(0.2))

    async def round(self, bench: Bench) -> None:
        for figure, target, request in await self._runs(bench):
            figure.samples.append(await _events(target, request, bench.seconds(0.8)))

    async def _runs(self, bench: Bench) -> list[tuple[Figure, Target, bytes]]:
        """The figures with their requests, over fresh responses: other probes make the memory store evict old ones."""
        memory, sqlite = (
            f"{await _stored(bench.memory(self))}?stream=true",
            f"{await _stored(bench.sqlite(self))}?stream=true",
        )
        return [
            (self._raw, bench.ruler(), ruled(LONG, 200)),
            (self._joined, bench.ruler(), ruled(LONG, 200, join=64)),
            (self._memory, bench.memory(self), get(memory)),
            (self._sqlite, bench.sqlite(self), get(sqlite)),
            (self._after, bench.sqlite(self), get(f"{sqlite}&starting_after={LONG // 2}")),
        ]


async def _stored(target: Target) -> str:
    """The path of a fresh stored response of 1,000 words, a delta each as it was streamed."""
    async with connections(target.port, 1) as opened:
        reply = await opened[0].request(stream(f"!COUNT {LONG}"), keep=True)
    first = SSEParser().feed(bytes(reply.body))[0]
    return f"{RESPONSES}/{loads(first.data)['response']['id']}"

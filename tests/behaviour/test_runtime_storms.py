"""Storms: two servers over one store that fails at random, while responses are begun, read, cancelled, taken and left.

Whatever happens, every response ends once, its log is whole, and nobody was told what the store has otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from antiphon.errors import APIError, UnavailableError
from antiphon.http.app import create_app
from antiphon.http.telemetry import Telemetry
from antiphon.protocol.response import TERMINAL_STATUSES
from antiphon.protocol.sse import SSEParser
from antiphon.runtime import journal, runner, strays, upkeep
from antiphon.runtime.recovery import RESTARTED
from antiphon.runtime.service import Service
from antiphon.settings import Settings
from antiphon.store.memory import MemoryStore
from support.inprocess import InProcess
from support.unsteady import AWAY, OURS, UnsteadyStore, eventually, frames_of, served

requirement = pytest.mark.requirement

SETTINGS = Settings(drain_timeout=0, lease_seconds=60, background_workers=3, background_queue=50)
WRITES = ("create_response", "append_events", "finish_response", "claim")
READS = ("get_response", "events")
ENDS = ("response.completed", "response.incomplete", "response.failed")


class Weather:
    """Makes calls of a store slow, and some of them fail, before they had their effect or after it."""

    def __init__(self, random_: random.Random, store: UnsteadyStore) -> None:
        self.random = random_
        self.store = store

    def begin(self) -> None:
        for method in WRITES:
            self.store.around[method] = self._around(0.15, 0.15)
        for method in READS:
            self.store.around[method] = self._around(0.05, 0.0)

    def end(self) -> None:
        self.store.around.clear()

    def _around(self, before: float, after: float) -> Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]:
        async def around(call: Callable[[], Awaitable[Any]]) -> Any:
            for _ in range(self.random.randrange(3)):
                await asyncio.sleep(0)
            chance = self.random.random()
            if chance < before:
                raise AWAY
            found = await call()
            if chance > 1.0 - after:
                raise AWAY
            return found

        return around


class Reader:
    """A client that reads a stream, and after each cut goes on after the last number that it has seen."""

    def __init__(self, background: bool) -> None:
        self.background = background
        self.content = b""
        self.name = ""
        self.last = -1
        self.over = self.failed = False

    async def begin(self, service: Service, body: dict[str, Any]) -> None:
        status, content = await exchange(service, "POST", "/v1/responses", body)
        if status != 200:
            self.over = True
            return
        self._take(content)

    async def go_on(self, service: Service) -> None:
        if self.over or not self.name:
            return
        path = f"/v1/responses/{self.name}?stream=true&starting_after={self.last}"
        status, content = await exchange(service, "GET", path)
        if status == 200:
            self._take(content)

    def _take(self, content: bytes) -> None:
        for frame in SSEParser().feed(content):
            if frame.data == "[DONE]":
                continue
            event = msgspec.json.decode(frame.data)
            assert event["sequence_number"] == self.last + 1, (self.name, event)
            self.last += 1
            self.content += f"event: {frame.event}\ndata: {frame.data}\n\n".encode()
            if self.last == 0:
                self.name = event["response"]["id"]
            if event["type"] in ENDS:
                self.over, self.failed = True, event["type"] == ENDS[-1]


async def exchange(service: Service, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """The status and what came of the body, also where the answer was cut off."""
    path, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
    inbox = [{"type": "http.request", "body": b"" if body is None else msgspec.json.encode(body), "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if inbox:
            return inbox.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await create_app(service)(scope, receive, send)
    if not sent:
        return 0, b""
    return sent[0]["status"], b"".join(bytes(message.get("body", b"")) for message in sent[1:])


class Storm:
    """The servers, the clients and what they do."""

    def __init__(self, seed: int, stack: AsyncExitStack) -> None:
        self.random = random.Random(seed)
        self.store = UnsteadyStore(shared=True)
        self.weather = Weather(self.random, self.store)
        self.stack = stack
        self.servers: list[InProcess] = []
        self.readers: list[Reader] = []
        self.cancelled: dict[str, dict[str, Any]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.talks: list[str] = []

    async def start_server(self) -> None:
        self.servers.append(await self.stack.enter_async_context(served(self.store, SETTINGS)))

    def service(self) -> Service:
        return self.random.choice(self.servers).service

    def running(self) -> list[str]:
        return [key[1] for key in self.store._running]

    async def act(self) -> None:
        act = self.random.choices(
            [self.create, self.cancel, self.steal, self.restart, self.poll], weights=[8, 3, 4, 1, 3]
        )[0]
        await act()

    async def create(self) -> None:
        reader = Reader(self.random.random() < 0.6)
        text = self.random.choice(["!COUNT 90", "!SLOW 1\n!COUNT 30", "!REASON hm\n!TEXT all is well", "!FAIL oh"])
        body = {"model": "scripted", "input": text, "stream": True, "background": reader.background}
        if self.random.random() < 0.3:
            body["conversation"] = self.random.choice(self.talks)
        self.readers.append(reader)
        self.tasks.append(asyncio.create_task(reader.begin(self.service(), body)))

    async def cancel(self) -> None:
        running = self.running()
        if running:
            self.tasks.append(asyncio.create_task(self._cancel(self.service(), self.random.choice(running))))

    async def _cancel(self, service: Service, name: str) -> None:
        status, content = await exchange(service, "POST", f"/v1/responses/{name}/cancel")
        if status == 200:
            self.cancelled[name] = msgspec.json.decode(content)

    async def steal(self) -> None:
        """A server takes a response for an orphan, whose owner lives."""
        running = self.running()
        if not running:
            return
        name = self.random.choice(running)
        row = self.store._running[OURS.tenant, name]
        takeover = self.service()._takeover
        assert takeover is not None
        self.tasks.append(asyncio.create_task(_quietly(takeover.end(OURS, name, row.fence, RESTARTED))))

    async def restart(self) -> None:
        old = self.servers.pop(0)
        stopping = asyncio.create_task(old.service.close())
        await self.start_server()
        await stopping
        assert not old.service._runs
        assert not old.service._tasks
        # What it has left behind, the others find at their next look.
        for orphan in await MemoryStore.orphans(self.store, {_owner(one.service) for one in self.servers}):
            takeover = self.service()._takeover
            assert takeover is not None
            await _quietly(takeover.take(orphan))

    async def poll(self) -> None:
        running = self.running()
        if running:
            await exchange(self.service(), "GET", f"/v1/responses/{self.random.choice(running)}")


def _owner(service: Service) -> str:
    assert service._takeover is not None
    return service._takeover.owner


async def _quietly(work: Awaitable[Any]) -> None:
    with contextlib.suppress(APIError):
        await work


def left(service: Service) -> list[Any]:
    """What is still held in a server."""
    assert service._takeover is not None
    assert service.conversations is not None
    workers = service.workers
    return [
        *service._runs,
        *service._takeover.strays._found,
        *service.conversations._held,
        *[None] * (service.admission.running + workers.running + workers.waiting + workers._reserved),
    ]


async def at_rest(storm: Storm) -> bool:
    await asyncio.sleep(0)
    return all(not left(one.service) for one in storm.servers)


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What the servers would log, which takes its time; what they wait for comes soon."""
    found: list[BaseException] = []
    monkeypatch.setattr(Telemetry, "fault", lambda self, message, error: found.append(error))
    monkeypatch.setattr(journal, "RETRY_SECONDS", 0.005)
    monkeypatch.setattr(runner, "FINISH_AGAIN_SECONDS", 0.005)
    monkeypatch.setattr(strays, "PAUSE_SECONDS", 0.005)
    monkeypatch.setattr(strays, "LATE_SECONDS", 0.2)
    monkeypatch.setattr(upkeep, "RETRY_SECONDS", 0.005)
    return found


@requirement("storm:whole")
@pytest.mark.parametrize("seed", range(8))
async def test_every_response_ends_once_and_nobody_was_told_otherwise(seed: int, faults: list[BaseException]):
    async with AsyncExitStack() as stack:
        storm = Storm(seed, stack)
        await storm.start_server()
        await storm.start_server()
        for _ in range(2):
            answer = await storm.servers[0].client.post("/conversations", json={})
            storm.talks.append(answer.json()["id"])
        storm.weather.begin()
        for _ in range(60):
            await storm.act()
            for _ in range(storm.random.randrange(6)):
                await asyncio.sleep(0.002)
        storm.weather.end()
        await asyncio.wait_for(asyncio.gather(*storm.tasks), 30)

        async def ended() -> bool:
            return not storm.store._running

        await eventually(ended)
        for reader in storm.readers:
            if reader.background:
                await reader.go_on(storm.service())
        for name, told in storm.cancelled.items():
            assert msgspec.json.decode(await stored_snapshot(storm.store, name)) == told
        for reader in storm.readers:
            await check(storm.store, reader)
        for key in list(storm.store._rows):
            await check_log(storm.store, key[1])

        for talk in storm.talks:
            await check_talk(storm.store, talk)
        await eventually(lambda: at_rest(storm))
        # The store's faults and no others.
        assert {type(error) for error in faults} <= {UnavailableError}


async def stored_snapshot(store: UnsteadyStore, name: str) -> bytes:
    row = await store.get_response(OURS, name)
    assert row is not None
    return row.snapshot


async def check(store: UnsteadyStore, reader: Reader) -> None:
    """What a client has read has an end, and is what the store has; a foreground one may have failed for it alone."""
    if not reader.name:
        return
    assert reader.over, reader.name
    whole = frames_of(await store.events(OURS, reader.name))
    if reader.background or not reader.failed:
        assert reader.content == whole


async def check_talk(store: UnsteadyStore, talk: str) -> None:
    """A conversation has what its ended responses took in and gave, and nothing of those that failed."""
    ids = await store.conversation_item_ids(OURS, talk)
    assert ids is not None
    rows = [row for row in store._rows.values() if row.conversation_id == talk]
    expected = {item.key[1] for row in rows if row.status in ("completed", "incomplete") for item in row.items()}
    assert (len(ids), set(ids)) == (len(expected), expected)


async def check_log(store: UnsteadyStore, name: str) -> None:
    """A log without gaps, whose one terminal event has the final object."""
    row = await store.get_response(OURS, name)
    assert row is not None
    assert row.status in TERMINAL_STATUSES
    frames = SSEParser().feed(frames_of(await store.events(OURS, name)))
    events = [msgspec.json.decode(frame.data) for frame in frames]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] in ENDS for event in events].count(True) == 1
    assert events[-1]["response"] == msgspec.json.decode(row.snapshot)

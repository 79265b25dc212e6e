"""The health of an upstream: what takes it out of service, and what brings it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from antiphon.engines.upstream.client import UpstreamTarget
from antiphon.engines.upstream.engine import ChatEngine
from antiphon.engines.upstream.health import Health
from antiphon.engines.upstream.profiles import PROFILES
from antiphon.prompt.prompt import ChatMessage, Prompt


class Upstream:
    """Something to probe; each change is put into `changes`."""

    def __init__(self, seconds: float) -> None:
        self.answers = True
        self.probes = 0
        self.changes: asyncio.Queue[bool] = asyncio.Queue()
        self.probed = asyncio.Event()
        self.health = Health(self._probe, self.changes.put_nowait, seconds=seconds)

    async def _probe(self) -> bool:
        self.probes += 1
        self.probed.set()
        return self.answers

    async def change(self) -> bool:
        async with asyncio.timeout(10):
            return await self.changes.get()


@pytest.fixture
async def idle() -> AsyncIterator[Upstream]:
    """One that is watched closely."""
    upstream = Upstream(0.002)
    await upstream.health.begin()
    yield upstream
    await upstream.health.close()


@pytest.fixture
async def busy() -> AsyncIterator[Upstream]:
    """One that is never idle for long enough to be watched."""
    upstream = Upstream(60.0)
    await upstream.health.begin()
    yield upstream
    await upstream.health.close()


@pytest.mark.requirement("routing:health")
async def test_an_upstream_that_nobody_asks_is_known_to_be_gone_and_to_be_back(idle: Upstream):
    assert idle.health.up
    idle.answers = False
    assert await idle.change() is False
    assert not idle.health.up
    assert idle.probes >= 4
    idle.answers = True
    assert await idle.change() is True
    assert await idle.health.wait(0)


@pytest.mark.requirement("routing:health")
async def test_one_probe_that_fails_is_forgiven_where_turns_are_answered(idle: Upstream):
    idle.answers = False
    while idle.probes < 30:
        idle.probed.clear()
        await idle.probed.wait()
        # Two in a row at the most.
        idle.answers = idle.probes % 3 == 0
    assert idle.health.up
    assert idle.changes.empty()


@pytest.mark.requirement("upstream:breaker")
async def test_a_failure_is_doubted_and_three_in_a_row_are_not(busy: Upstream):
    busy.health.failed()
    while busy.probes < 2:
        busy.probed.clear()
        await busy.probed.wait()
    await asyncio.sleep(0)
    assert busy.health.up
    busy.health.succeeded()
    for _ in range(3):
        busy.health.failed()
    assert await busy.change() is False
    # It answers, and so it is asked again; but one more failure is enough.
    assert await busy.change() is True
    busy.health.failed()
    assert await busy.change() is False


@pytest.mark.requirement("routing:health")
async def test_nothing_is_probed_once_it_is_closed(idle: Upstream):
    await idle.health.close()
    assert not idle.health.up
    probes = idle.probes
    for _ in range(20):
        await asyncio.sleep(0)
    idle.answers = False
    # A turn that had begun before.
    idle.health.failed()
    for _ in range(20):
        await asyncio.sleep(0)
    assert idle.probes == probes
    assert idle.changes.empty()


@pytest.mark.requirement("routing:health")
async def test_an_upstream_that_answers_a_turn_is_there_though_it_answers_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("antiphon.engines.upstream.elsewhere._PROBE_SECONDS", 0.05)
    free = asyncio.Event()
    closed: list[asyncio.Future[None]] = []

    async def one_at_a_time(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        closed.append(asyncio.ensure_future(writer.wait_closed()))
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/models" not in head:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            while not free.is_set():
                writer.write(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
                await asyncio.sleep(0.01)
        await free.wait()
        writer.close()

    server = await asyncio.start_server(one_at_a_time, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    engine = ChatEngine("far", UpstreamTarget(url), PROFILES["generic"])
    await engine.start()
    assert not engine.ready
    turn = await engine.prepare(Prompt([ChatMessage("user", "Hi")]))

    async def read() -> None:
        async with aclosing(engine.generate(turn)) as stream:
            async for _ in stream:
                pass

    reading = asyncio.create_task(read())
    assert await engine.wait_ready(10)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    free.set()
    await engine.close()
    server.close()
    await asyncio.gather(*closed, return_exceptions=True)
    await asyncio.sleep(0)

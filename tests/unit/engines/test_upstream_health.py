"""The health of an upstream: what takes it out of service, and what brings it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from antiphon.engines.upstream.health import Health


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

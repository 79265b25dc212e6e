"""A server that takes over much shows that it is alive all the while."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from antiphon.protocol.ids import new_id
from antiphon.runtime.lease import Lease
from antiphon.runtime.observer import Observer
from antiphon.store.base import NewResponse, RunningResponse
from support.stores import Clock
from support.unsteady import OURS, Faults, UnsteadyStore

requirement = pytest.mark.requirement


@requirement("lease:busy")
async def test_a_takeover_that_takes_longer_than_a_lease_does_not_let_it_run_out():
    store, clock = UnsteadyStore(shared=True), Clock()
    for _ in range(40):
        await store.create_response(OURS, NewResponse(new_id("resp"), None, "in_progress", 1, b"{}", (), owner="gone"))
    beats: dict[int, float] = {}
    slow = asyncio.Lock()

    async def take(orphan: RunningResponse) -> None:
        async with slow:
            beats.setdefault(store._owners[lease.owner], clock.now)
            clock.now += 0.5
            await asyncio.sleep(0)

    lease = Lease(store, Observer(), 10.0, take, clock)
    await store.join(lease.owner)
    await lease.look()
    # That took 20 seconds, with a sign of life every second.
    times = list(beats.values())
    assert times[0] + 19.0 <= times[-1] <= times[0] + 20.0
    assert max(after - before for before, after in pairwise(times)) <= 1.0


@requirement("lease:start")
@pytest.mark.parametrize("shared", [False, True])
async def test_a_store_that_cannot_be_written_at_a_start_is_tried_again_until_all_is_taken_over(shared: bool):
    store = UnsteadyStore(shared=shared)
    names = [new_id("resp") for _ in range(3)]
    for name in names:
        await store.create_response(OURS, NewResponse(name, None, "in_progress", 1, b"{}", (), owner="gone"))
    if shared:
        await store.join("gone")
    store.around["claim"] = Faults(4)
    taken: list[str] = []
    all_taken = asyncio.Event()

    async def take(orphan: RunningResponse) -> None:
        assert await store.claim(orphan.scope, orphan.id, orphan.fence, lease.owner) is not None
        taken.append(orphan.id)
        if len(taken) == len(names):
            all_taken.set()

    # Where others share the store, an owner that never gave a sign of life is dead after the time of a lease.
    lease = Lease(store, Observer(), 0.1, take)
    await lease.start()
    assert taken == []
    await asyncio.wait_for(all_taken.wait(), 10)
    assert sorted(taken) == sorted(names)
    task = lease._task
    assert task is not None
    if not shared:
        await asyncio.wait_for(task, 10)
    await lease.stop()
    assert task.done()


@requirement("lease:together")
async def test_what_was_left_is_taken_over_together_and_one_that_cannot_be_keeps_none_back():
    store = UnsteadyStore()
    names = [new_id("resp") for _ in range(100)]
    for name in names:
        await store.create_response(OURS, NewResponse(name, None, "in_progress", 1, b"{}", (), owner="gone"))
    taken: list[str] = []
    most = running = 0

    async def take(orphan: RunningResponse) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        if orphan.id == names[7]:
            raise ValueError(orphan.id)
        taken.append(orphan.id)

    faults: list[str] = []

    class Told(Observer):
        def fault(self, message: str, error: BaseException) -> None:
            faults.append(str(error))

    lease = Lease(store, Told(), 10.0, take)
    await lease.start()
    assert taken == [*names[:7], *names[8:]]
    assert faults == [names[7]]
    assert 1 < most < len(names)
    await lease.stop()

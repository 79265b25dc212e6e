"""A server that takes over much shows that it is alive all the while."""

from __future__ import annotations

from itertools import pairwise

import pytest

from antiphon.protocol.ids import new_id
from antiphon.runtime.lease import Lease
from antiphon.runtime.observer import Observer
from antiphon.store.base import NewResponse, RunningResponse
from support.stores import Clock
from support.unsteady import OURS, UnsteadyStore

requirement = pytest.mark.requirement


@requirement("lease:busy")
async def test_a_takeover_that_takes_longer_than_a_lease_does_not_let_it_run_out():
    store, clock = UnsteadyStore(shared=True), Clock()
    for _ in range(40):
        await store.create_response(OURS, NewResponse(new_id("resp"), None, "in_progress", 1, b"{}", (), owner="gone"))
    beats: dict[int, float] = {}

    async def take(orphan: RunningResponse) -> None:
        beats.setdefault(store._owners[lease.owner], clock.now)
        clock.now += 0.5

    lease = Lease(store, Observer(), 10.0, take, clock)
    await store.join(lease.owner)
    await lease.look()
    # That took 20 seconds, with a sign of life every second.
    times = list(beats.values())
    assert times[0] + 19.0 <= times[-1] <= times[0] + 20.0
    assert max(after - before for before, after in pairwise(times)) <= 1.0

"""Event logs have a time of their own, counted from the end of their response, which stays."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.store.base import Store
from support.stores import OURS, Clock, Make, batch, begun, ended, frames, ids, look_up, size


async def logged(store: Store, name: str, parent: str | None = None) -> None:
    await store.create_response(OURS, begun(name, parent, events=[batch(0, b"created")]))
    await store.append_events(OURS, name, batch(1, b"delta"))
    await store.finish_response(OURS, ended(name, events=[batch(2, b"completed")]))


@pytest.mark.requirement("store:events:ttl")
async def test_a_log_goes_its_time_after_the_end_and_the_response_stays(make_exact: Make, clock: Clock) -> None:
    store = await make_exact(event_ttl_seconds=60)
    await logged(store, "a")
    before = await size(store)
    clock.now += 59
    await store.sweep(clock())
    assert await frames(store, "a") == b"createddeltacompleted"
    row = await look_up(store, "a")
    assert not row.events_expired

    clock.now += 1
    await store.sweep(clock())
    assert await store.events(OURS, "a") == []
    assert await store.last_sequence(OURS, "a") == -1
    assert await size(store) == before - len(b"createddeltacompleted")
    row = await look_up(store, "a")
    assert row.events_expired
    assert (row.status, row.snapshot) == ("completed", b'{"ended":"a"}')
    assert await ids(store, "a") == ["a"]
    await store.sweep(clock())
    assert await store.delete_response(OURS, "a")
    assert await size(store) == 0


@pytest.mark.requirement("store:events:ttl")
async def test_the_log_of_a_running_response_stays_however_old(make: Make, clock: Clock) -> None:
    store = await make(event_ttl_seconds=60)
    await store.create_response(OURS, begun("a", events=[batch(0, b"created")]))
    clock.now += 1000
    await store.sweep(clock())
    assert await frames(store, "a") == b"created"
    await store.finish_response(OURS, ended("a", events=[batch(1, b"completed")]))
    await store.sweep(clock())
    assert await frames(store, "a") == b"createdcompleted"
    clock.now += 60
    await store.sweep(clock())
    assert (await look_up(store, "a")).events_expired


@pytest.mark.requirement("store:events:ttl")
async def test_only_logs_whose_time_is_over_go(make: Make, clock: Clock) -> None:
    store = await make(event_ttl_seconds=60)
    await store.create_response(OURS, begun("slow", events=[batch(0, b"created")]))
    await asyncio.gather(*(logged(store, f"r{number}") for number in range(230)))
    clock.now += 30
    await store.finish_response(OURS, ended("slow"))
    await store.create_finished_response(OURS, begun("whole"), ended("whole", events=[batch(0, b"all")]))
    clock.now += 30
    await store.sweep(clock())
    assert [await frames(store, name) for name in ("slow", "whole")] == [b"created", b"all"]
    rows = [await look_up(store, f"r{number}") for number in range(230)]
    assert all(row.events_expired for row in rows)
    clock.now += 30
    await store.sweep(clock())
    assert [await frames(store, name) for name in ("slow", "whole")] == [b"", b""]


@pytest.mark.requirement("store:events:ttl")
async def test_without_a_limit_logs_stay(make: Make, clock: Clock) -> None:
    store = await make()
    await logged(store, "a")
    clock.now += 1e9
    await store.sweep(clock())
    assert await frames(store, "a") == b"createddeltacompleted"
    assert not (await look_up(store, "a")).events_expired


@pytest.mark.requirement("store:events:ttl")
async def test_bytes_that_a_log_gave_back_make_room_for_others(make_exact: Make, clock: Clock) -> None:
    store = await make_exact(event_ttl_seconds=60, max_bytes=400)
    for name in "ab":
        await store.create_finished_response(OURS, begun(name), ended(name, events=[batch(0, b"e" * 100)]))
    clock.now += 60
    await store.sweep(clock())
    for name in "cd":
        await store.create_finished_response(OURS, begun(name), ended(name, events=[batch(0, b"e" * 60)]))
    assert [name for name in "abcd" if await store.get_response(OURS, name)] == ["a", "b", "c", "d"]


@pytest.mark.requirement("store:events:ttl")
async def test_a_deleted_or_evicted_response_has_no_log_to_expire(make: Make, clock: Clock) -> None:
    store = await make(event_ttl_seconds=60, max_entries=1)
    await logged(store, "a")
    await logged(store, "b", "a")
    await store.delete_response(OURS, "b")
    clock.now += 60
    await store.sweep(clock())
    assert await size(store) == 0

"""Responses that are kept for a time after their end, whatever the limit of age says."""

from __future__ import annotations

import pytest

from antiphon.store.base import Store
from support.stores import OURS, Clock, Make, add, batch, begun, ended, frames, look_up, size


async def temporary(store: Store, name: str, seconds: float) -> None:
    await store.create_response(OURS, begun(name, keep_seconds=seconds))
    await store.append_events(OURS, name, batch(0, b"e0"))


async def there(store: Store, *names: str) -> list[str]:
    return [name for name in names if await store.get_response(OURS, name) is not None]


@pytest.mark.requirement("store:temporary")
async def test_a_temporary_response_says_so(store: Store) -> None:
    await temporary(store, "a", 600)
    assert (await look_up(store, "a")).temporary
    await store.finish_response(OURS, ended("a"))
    assert (await look_up(store, "a")).temporary
    await add(store, "b")
    assert not (await look_up(store, "b")).temporary


@pytest.mark.requirement("store:temporary")
@pytest.mark.parametrize("ttl", [None, 1.0, 1e6])
async def test_it_goes_that_long_after_its_end_whatever_the_limit_of_age(
    make: Make, clock: Clock, ttl: float | None
) -> None:
    store = await make(ttl_seconds=ttl)
    await temporary(store, "a", 600)
    clock.now += 5000
    await store.sweep(clock())
    assert await there(store, "a") == ["a"]
    await store.finish_response(OURS, ended("a"))
    clock.now += 599
    await store.sweep(clock())
    assert await frames(store, "a") == b"e0"
    assert await there(store, "a") == ["a"]
    clock.now += 1
    assert await there(store, "a") == []
    assert await store.events(OURS, "a") == []
    await store.sweep(clock())
    assert await size(store) == 0


@pytest.mark.requirement("store:temporary")
async def test_one_that_begins_and_ends_at_once_is_kept_as_long(make: Make, clock: Clock) -> None:
    store = await make(ttl_seconds=30)
    await store.create_finished_response(OURS, begun("a", keep_seconds=60), ended("a"))
    await store.create_finished_response(OURS, begun("b", keep_seconds=20), ended("b"))
    await add(store, "c")
    clock.now += 25
    assert await there(store, "a", "b", "c") == ["a", "c"]
    clock.now += 25
    assert await there(store, "a", "b", "c") == ["a"]
    clock.now += 25
    await store.sweep(clock())
    assert await there(store, "a", "b", "c") == []
    assert await size(store) == 0


@pytest.mark.requirement("store:temporary")
async def test_times_of_all_lengths_are_kept_side_by_side(make: Make, clock: Clock) -> None:
    store = await make(ttl_seconds=40)
    start = clock.now
    names = [f"r{seconds}" for seconds in (50, 10, 30, 20)]
    for name in names:
        await temporary(store, name, int(name[1:]))
        await store.finish_response(OURS, ended(name))
    await add(store, "plain")
    for passed, kept in ((10, ["r50", "r30", "r20", "plain"]), (25, ["r50", "r30", "plain"]), (45, ["r50"]), (50, [])):
        clock.now = start + passed
        assert await there(store, *names, "plain") == kept
    await store.sweep(clock())
    assert await size(store) == 0


@pytest.mark.requirement("store:temporary")
async def test_the_order_of_ends_counts_and_not_that_of_beginnings(store: Store, clock: Clock) -> None:
    for name in "abc":
        await temporary(store, name, 60)
    for name in "cab":
        await store.finish_response(OURS, ended(name))
        clock.now += 10
    assert await there(store, *"abc") == ["a", "b", "c"]
    clock.now += 30
    assert await there(store, *"abc") == ["a", "b"]
    clock.now += 10
    assert await there(store, *"abc") == ["b"]
    clock.now += 10
    assert await there(store, *"abc") == []


@pytest.mark.requirement("store:temporary")
async def test_it_counts_and_is_evicted_as_any_other(make: Make) -> None:
    store = await make(max_entries=2)
    await temporary(store, "a", 600)
    await add(store, "b")
    await add(store, "c")
    assert await there(store, "a", "b", "c") == ["a", "c"]
    await store.finish_response(OURS, ended("a"))
    await add(store, "d")
    assert await there(store, "a", "c", "d") == ["a", "d"]
    await add(store, "e")
    await add(store, "f")
    assert await there(store, "a", "d", "e", "f") == ["e", "f"]


@pytest.mark.requirement("store:temporary")
async def test_it_can_be_deleted_before_its_time(make: Make, clock: Clock) -> None:
    store = await make()
    await temporary(store, "a", 600)
    await store.finish_response(OURS, ended("a"))
    assert await store.delete_response(OURS, "a")
    assert await size(store) == 0
    clock.now += 600
    assert await store.sweep(clock()) == 0

"""What only the store in memory has: it lets go of everything, and never walks over all rows."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from antiphon.store.base import StoreLimits
from antiphon.store.memory import MemoryStore
from antiphon.store.memory_rows import ResponseRow
from support.stores import OURS, Clock, add, begun, ended


class WatchedRow(ResponseRow):
    """A row that can be watched by a weak reference."""

    __slots__ = ("__weakref__",)


@pytest.mark.requirement("store:memory:forgets")
async def test_rows_that_were_removed_are_not_held_until_they_would_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.store.memory.ResponseRow", WatchedRow)
    store = MemoryStore(StoreLimits(max_entries=2, ttl_seconds=3600), Clock())
    watched: list[weakref.ref[WatchedRow]] = []
    for number in range(20):
        await store.create_response(OURS, begun(f"r{number}"))
        watched.append(weakref.ref(store._rows["ours", f"r{number}"]))
        await store.finish_response(OURS, ended(f"r{number}"))
    gc.collect()
    assert sum(reference() is not None for reference in watched) == 2


@pytest.mark.requirement("store:memory:clock")
async def test_the_age_of_a_response_is_counted_by_a_clock_that_never_goes_back() -> None:
    store = MemoryStore(StoreLimits(ttl_seconds=3600))
    assert store._clock is time.monotonic
    await add(store, "a")
    # A sweep with any wall clock, however wrong, removes nothing before its time.
    assert await store.sweep(1e12) == 0
    assert await store.get_response(OURS, "a") is not None


@pytest.mark.requirement("store:memory:volatile")
async def test_it_says_that_it_keeps_nothing_and_keeps_nothing() -> None:
    store = MemoryStore(StoreLimits())
    await store.open()
    await add(store, "a")
    await store.create_response(OURS, begun("b"))
    status = await store.status()
    assert (status.location, status.durable, status.responses) == ("memory", False, 2)
    await store.close()
    assert await store.get_response(OURS, "a") is None
    assert await store.orphans([]) == []


@pytest.mark.requirement("store:memory:constant")
async def test_a_call_looks_at_as_many_rows_in_a_full_store_as_in_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def looks(entries: int) -> int:
        clock = Clock()
        store = MemoryStore(StoreLimits(max_entries=entries, ttl_seconds=1e9), clock)
        for number in range(entries):
            await add(store, f"r{number}")
        count = 0
        get = ResponseRow.__getattribute__

        def counted(row: ResponseRow, name: str) -> object:
            nonlocal count
            count += 1
            return get(row, name)

        with monkeypatch.context() as patch:
            patch.setattr(ResponseRow, "__getattribute__", counted)
            await add(store, "new", f"r{entries - 1}")
            await store.get_response(OURS, "new")
            await store.delete_response(OURS, "new")
        return count

    assert await looks(2000) == await looks(20)

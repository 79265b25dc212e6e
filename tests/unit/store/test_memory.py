"""What only the store in memory has: it lets go of everything, and never walks over all rows."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from antiphon.store.base import IdempotencyRecord, StoreLimits
from antiphon.store.memory import MemoryStore
from antiphon.store.memory_rows import ResponseRow
from support.stores import OURS, Clock, add, batch, begun, ended


class WatchedRow(ResponseRow):
    """A row that can be watched by a weak reference."""

    __slots__ = ("__weakref__",)


@pytest.mark.requirement("store:memory:forgets")
async def test_rows_that_were_removed_are_not_held_until_they_would_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.store.memory.ResponseRow", WatchedRow)
    store = MemoryStore(StoreLimits(max_entries=2, ttl_seconds=3600, event_ttl_seconds=3600), Clock())
    watched: list[weakref.ref[WatchedRow]] = []
    for number in range(20):
        name = f"r{number}"
        keep_seconds = float(number) if number % 3 == 0 else None
        await store.create_response(OURS, begun(name, conversation_id="t", keep_seconds=keep_seconds))
        watched.append(weakref.ref(store._rows["ours", name]))
        await store.finish_response(OURS, ended(name, events=[batch(0, b"e0")]))
    gc.collect()
    assert sum(reference() is not None for reference in watched) == 2


@pytest.mark.requirement("store:memory:forgets", "store:lease:plan")
async def test_what_only_a_running_response_needs_goes_with_its_end() -> None:
    store = MemoryStore(StoreLimits())
    await store.create_response(OURS, begun("a", plan=b"all that it takes", conversation_id="t"))
    await store.finish_response(OURS, ended("a"))
    assert store._rows["ours", "a"].plan == b""
    assert (store._running, store._locked) == ({}, {})


@pytest.mark.requirement("store:memory:forgets", "store:idempotency:expired")
async def test_records_of_idempotency_keys_go_as_new_ones_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.store.memory_registers.MOST_RECORDS", 10)
    clock = Clock()
    store = MemoryStore(StoreLimits(max_entries=2), clock, clock)
    for number in range(30):
        kept = IdempotencyRecord(f"k{number}", b"digest", f"r{number}", clock() + 4.5)
        await store.create_finished_response(OURS, begun(f"r{number}", idempotency=kept), ended(f"r{number}"))
        clock.now += 1 if number < 20 else 0
        assert len(store._records) <= 10
        if number == 19:
            assert len(store._records) == 5
    assert [key for _, key in store._records] == [f"k{number}" for number in range(20, 30)]


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

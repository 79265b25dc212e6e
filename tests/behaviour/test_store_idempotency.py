"""Idempotency keys: one key stands for one response until its record has expired."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import ConflictError
from antiphon.store.base import IdempotencyRecord, Store
from support.stores import OURS, THEIRS, Clock, add, begun, ended, look_up, size


def record(key: str, name: str, clock: Clock, seconds: float = 100) -> IdempotencyRecord:
    return IdempotencyRecord(key, b"\x00digest of " + name.encode(), name, clock() + seconds)


async def create(store: Store, name: str, kept: IdempotencyRecord, *, whole: bool) -> None:
    if whole:
        await store.create_finished_response(OURS, begun(name, idempotency=kept), ended(name))
    else:
        await store.create_response(OURS, begun(name, idempotency=kept))


@pytest.mark.requirement("store:idempotency")
@pytest.mark.parametrize("whole", [False, True])
async def test_a_key_stands_for_the_response_that_came_with_it(store: Store, clock: Clock, whole: bool) -> None:
    assert await store.find_idempotent(OURS, "k", clock()) is None
    first = record("k", "a", clock)
    await create(store, "a", first, whole=whole)
    assert await store.find_idempotent(OURS, "k", clock()) == first
    assert await store.find_idempotent(OURS, "other", clock()) is None
    assert await store.find_idempotent(THEIRS, "k", clock()) is None


@pytest.mark.requirement("store:idempotency")
@pytest.mark.parametrize("whole", [False, True])
async def test_another_response_by_that_key_is_refused_whole(store: Store, clock: Clock, whole: bool) -> None:
    first = record("k", "a", clock)
    await create(store, "a", first, whole=False)
    before = await store.status()
    with pytest.raises(ConflictError) as refusal:
        await create(store, "b", record("k", "b", clock), whole=whole)
    assert refusal.value.code == "idempotency_key_in_use"
    assert await store.status() == before
    assert await store.get_response(OURS, "b") is None
    assert await store.find_idempotent(OURS, "k", clock()) == first
    await create(store, "b", record("k2", "b", clock), whole=whole)


@pytest.mark.requirement("store:idempotency")
async def test_the_same_key_of_another_tenant_is_another_key(store: Store, clock: Clock) -> None:
    await create(store, "a", record("k", "a", clock), whole=True)
    theirs = record("k", "b", clock)
    await store.create_response(THEIRS, begun("b", idempotency=theirs))
    assert await store.find_idempotent(THEIRS, "k", clock()) == theirs
    ours = await store.find_idempotent(OURS, "k", clock())
    assert ours is not None
    assert ours.response_id == "a"


@pytest.mark.requirement("store:idempotency")
async def test_of_many_responses_by_one_key_at_once_one_begins(store: Store, clock: Clock) -> None:
    calls = (
        create(store, f"r{number}", record("k", f"r{number}", clock), whole=bool(number % 2)) for number in range(8)
    )
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(result, ConflictError) for result in results) == 7
    kept = await store.find_idempotent(OURS, "k", clock())
    assert kept is not None
    assert results[int(kept.response_id[1:])] is None
    assert (await store.status()).responses == 1


@pytest.mark.requirement("store:idempotency:expired")
async def test_a_record_that_has_expired_is_not_found_and_is_replaced(store: Store, clock: Clock) -> None:
    await create(store, "a", record("k", "a", clock), whole=True)
    clock.now += 99
    assert await store.find_idempotent(OURS, "k", clock()) is not None
    with pytest.raises(ConflictError):
        await create(store, "b", record("k", "b", clock), whole=True)
    clock.now += 1
    assert await store.find_idempotent(OURS, "k", clock()) is None
    second = record("k", "b", clock)
    await create(store, "b", second, whole=True)
    assert await store.find_idempotent(OURS, "k", clock()) == second
    with pytest.raises(ConflictError):
        await create(store, "c", record("k", "c", clock), whole=True)


@pytest.mark.requirement("store:idempotency:expired")
async def test_a_sweep_leaves_records_that_have_not_expired(store: Store, clock: Clock) -> None:
    for seconds in (10, 100, 20, 200):
        await create(store, f"r{seconds}", record(f"k{seconds}", f"r{seconds}", clock, seconds), whole=True)
    clock.now += 50
    await store.sweep(clock())
    found = [await store.find_idempotent(OURS, f"k{seconds}", clock()) for seconds in (10, 20, 100, 200)]
    assert [one and one.response_id for one in found] == [None, None, "r100", "r200"]


@pytest.mark.requirement("store:idempotency")
async def test_a_response_that_is_refused_for_another_reason_leaves_no_record(store: Store, clock: Clock) -> None:
    await add(store, "a")
    with pytest.raises(ConflictError):
        await create(store, "a", record("k", "a", clock), whole=False)
    await store.create_response(OURS, begun("b", conversation_id="t"))
    with pytest.raises(ConflictError) as refusal:
        await store.create_response(OURS, begun("c", conversation_id="t", idempotency=record("k", "c", clock)))
    assert refusal.value.code == "conversation_locked"
    assert await store.find_idempotent(OURS, "k", clock()) is None


@pytest.mark.requirement("store:idempotency")
async def test_a_request_that_is_sent_again_hears_of_its_key_first(store: Store, clock: Clock) -> None:
    first = begun("a", conversation_id="t", idempotency=record("k", "a", clock))
    await store.create_response(OURS, first)
    again = begun("b", conversation_id="t", idempotency=record("k", "b", clock))
    with pytest.raises(ConflictError) as refusal:
        await store.create_response(OURS, again)
    # Not `conversation_locked`: the answer to it is the first response, and not to try later.
    assert refusal.value.code == "idempotency_key_in_use"


@pytest.mark.requirement("store:idempotency")
async def test_a_record_outlives_its_response(store: Store, clock: Clock) -> None:
    await create(store, "a", record("k", "a", clock), whole=True)
    await store.delete_response(OURS, "a")
    assert await size(store) == 0
    kept = await store.find_idempotent(OURS, "k", clock())
    # Whoever sends the request again learns that the response is gone, and does not pay for it twice.
    assert kept is not None
    assert kept.response_id == "a"
    with pytest.raises(ConflictError):
        await create(store, "b", record("k", "b", clock), whole=True)
    await add(store, "c")
    assert (await look_up(store, "c")).status == "completed"

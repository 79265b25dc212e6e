"""Who runs a response: owners, fences, and what is left over of an owner that is gone."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import ConflictError
from antiphon.store.base import Scope, Store, StoredItem
from support.stores import OURS, THEIRS, Clock, Make, add, batch, begun, ended, frames, look_up, size, talk


async def owned(store: Store, name: str, owner: str, **fields: object) -> None:
    await store.create_response(OURS, begun(name, owner=owner, **fields))


async def left(store: Store, *owners: str) -> list[str]:
    """The ids of what none of these owners runs."""
    return [one.id for one in await store.orphans(owners)]


@pytest.mark.requirement("store:lease:fence")
async def test_a_response_begins_with_the_first_fence_and_its_owner(store: Store) -> None:
    await owned(store, "a", "first")
    row = await look_up(store, "a")
    assert (row.owner, row.fence) == ("first", 1)
    await add(store, "b")
    row = await look_up(store, "b")
    assert (row.owner, row.fence) == ("", 1)


@pytest.mark.requirement("store:lease:claim")
async def test_a_claim_raises_the_fence_and_gives_the_plan_to_the_new_owner(store: Store) -> None:
    await owned(store, "a", "first", plan=b"\x00 all that it takes \xff", status="queued", conversation_id="talk")
    claimed = await store.claim(OURS, "a", 1, "second")
    assert claimed is not None
    assert claimed.plan == b"\x00 all that it takes \xff"
    assert claimed.response == await look_up(store, "a")
    row = claimed.response
    assert (row.id, row.status, row.owner, row.fence) == ("a", "queued", "second", 2)
    assert (row.snapshot, row.conversation_id) == (b'{"begun":"a"}', "talk")

    again = await store.claim(OURS, "a", 2, "third")
    assert again is not None
    assert (again.response.owner, again.response.fence, again.plan) == ("third", 3, claimed.plan)


@pytest.mark.requirement("store:lease:claim")
@pytest.mark.parametrize("fence", [0, 1, 3])
async def test_a_claim_with_another_fence_takes_nothing(store: Store, fence: int) -> None:
    await owned(store, "a", "first")
    assert await store.claim(OURS, "a", 1, "second") is not None
    assert await store.claim(OURS, "a", fence, "third") is None
    row = await look_up(store, "a")
    assert (row.owner, row.fence) == ("second", 2)


@pytest.mark.requirement("store:lease:claim")
async def test_of_many_claims_at_once_one_wins(store: Store) -> None:
    await owned(store, "a", "first")
    owners = [f"replica {number}" for number in range(8)]
    claims = await asyncio.gather(*(store.claim(OURS, "a", 1, owner) for owner in owners))
    (won,) = [claim for claim in claims if claim is not None]
    assert won.response == await look_up(store, "a")
    assert won.response.fence == 2


@pytest.mark.requirement("store:lease:claim")
async def test_what_has_ended_or_is_gone_cannot_be_claimed(store: Store) -> None:
    await owned(store, "a", "first")
    await store.finish_response(OURS, ended("a"))
    assert await store.claim(OURS, "a", 1, "second") is None
    await store.delete_response(OURS, "a")
    assert await store.claim(OURS, "a", 1, "second") is None
    assert await store.claim(OURS, "never", 1, "second") is None


@pytest.mark.requirement("store:lease:fence")
async def test_an_owner_that_was_only_slow_cannot_write_any_more(store: Store) -> None:
    await owned(store, "a", "slow", status="queued")
    assert await store.append_events(OURS, "a", batch(0, b"e0"), fence=1)
    assert await store.claim(OURS, "a", 1, "quick") is not None
    before = await store.status()

    assert not await store.append_events(OURS, "a", batch(1, b"late"), fence=1, status="in_progress")
    # A batch out of order is no conflict either: whoever has lost the response has nothing to learn from it.
    assert not await store.append_events(OURS, "a", batch(0, b"late"), fence=1)
    assert not await store.finish_response(OURS, ended("a", "failed", [batch(1, b"late")], fence=1))
    assert not await store.append_events(OURS, "a", batch(1, b"early"), fence=3)
    assert not await store.finish_response(OURS, ended("a", "failed", fence=3))
    assert await store.status() == before
    assert (await look_up(store, "a")).status == "queued"

    assert await store.append_events(OURS, "a", batch(1, b"e1"), fence=2, status="in_progress")
    assert await store.finish_response(OURS, ended("a", events=[batch(2, b"e2")], fence=2))
    assert await frames(store, "a") == b"e0e1e2"
    row = await look_up(store, "a")
    assert (row.status, row.fence) == ("completed", 2)
    assert not await store.finish_response(OURS, ended("a", "failed", fence=2))


@pytest.mark.requirement("store:lease:fence")
async def test_of_a_write_and_a_claim_at_once_the_log_keeps_what_was_acknowledged(store: Store) -> None:
    for number in range(10):
        name = f"r{number}"
        await owned(store, name, "slow")
        calls = [store.append_events(OURS, name, batch(0, b"e0"), fence=1), store.claim(OURS, name, 1, "quick")]
        written, claimed = await asyncio.gather(*(calls if number % 2 else calls[::-1]))
        if not number % 2:
            written, claimed = claimed, written
        assert claimed
        assert await frames(store, name) == (b"e0" if written else b"")


@pytest.mark.requirement("store:lease:plan")
async def test_a_plan_is_not_kept_beyond_the_end(store: Store) -> None:
    await owned(store, "a", "first", plan=b"plan" * 1000)
    await store.finish_response(OURS, ended("a"))
    kept = await size(store)
    await store.delete_response(OURS, "a")
    await owned(store, "a", "first")
    await store.finish_response(OURS, ended("a"))
    assert await size(store) == kept


@pytest.mark.requirement("store:lease:orphans")
async def test_orphans_are_what_none_of_the_owners_runs_oldest_first(store: Store, clock: Clock) -> None:
    for name, owner in (("z", "one"), ("a", "two"), ("y", "three"), ("b", "one"), ("ended", "one")):
        await owned(store, name, owner)
        clock.now += 1
    await store.create_response(THEIRS, begun("b", owner="two", status="queued"))
    await store.finish_response(OURS, ended("ended"))
    await add(store, "whole")

    everything = await store.orphans([])
    assert [(one.scope.tenant, one.id, one.owner, one.fence) for one in everything] == [
        ("ours", "z", "one", 1),
        ("ours", "a", "two", 1),
        ("ours", "y", "three", 1),
        ("ours", "b", "one", 1),
        ("theirs", "b", "two", 1),
    ]
    assert await left(store, "one") == ["a", "y", "b"]
    assert await left(store, "one", "three", "nobody") == ["a", "b"]
    assert await left(store, "one", "two", "three") == []

    assert await store.claim(OURS, "z", 1, "three") is not None
    orphan = (await store.orphans({"one": 1, "two": 7}))[0]
    assert (orphan.id, orphan.owner, orphan.fence) == ("z", "three", 2)


@pytest.mark.requirement("store:lease:orphans")
async def test_there_may_be_more_orphans_than_one_read_brings(store: Store) -> None:
    await asyncio.gather(*(owned(store, f"r{number}", "gone") for number in range(300)))
    assert sorted(await left(store, "here")) == sorted(f"r{number}" for number in range(300))


@pytest.mark.requirement("store:lease:owners")
async def test_a_beat_raises_the_counter_of_an_owner(store: Store) -> None:
    await store.join("a")
    counters = [(await store.beat("a"))["a"] for _ in range(3)]
    assert counters == [counters[0], counters[0] + 1, counters[0] + 2]


@pytest.mark.requirement("store:lease:owners")
async def test_an_owner_that_leaves_is_known_to_be_gone_and_what_it_ran_waits(store: Store) -> None:
    await store.join("a")
    await owned(store, "r", "a")
    assert await left(store, *await store.beat("a")) == []
    await store.leave("a")
    await store.leave("a")
    await store.join("b")
    alive = await store.beat("b")
    assert "a" not in alive
    assert await left(store, *alive) == ["r"]


@pytest.mark.requirement("store:lease:owners")
async def test_in_a_store_of_one_process_the_one_that_joins_is_alone(store: Store) -> None:
    await store.join("first")
    await owned(store, "r", "first")
    await store.join("second")
    alive = await store.beat("second")
    # Where other processes write to it too, only they can tell that the first one has gone.
    assert set(alive) == ({"first", "second"} if store.shared else {"second"})
    assert await left(store, *alive) == ([] if store.shared else ["r"])


@pytest.mark.requirement("store:lease:limits")
async def test_what_waits_for_an_owner_is_neither_evicted_nor_expired(make: Make, clock: Clock) -> None:
    store = await make(max_entries=1, ttl_seconds=60)
    await owned(store, "a", "gone")
    clock.now += 120
    for number in range(3):
        await add(store, f"r{number}")
    await store.sweep(clock())
    assert await left(store) == ["a"]
    claimed = await store.claim(OURS, "a", 1, "next")
    assert claimed is not None
    assert await store.append_events(OURS, "a", batch(0, b"e0"), fence=2)


@pytest.mark.requirement("store:lease:conversation")
async def test_one_response_at_a_time_runs_in_a_conversation(store: Store) -> None:
    await store.create_conversation(OURS, talk("t"))
    await owned(store, "a", "one", conversation_id="t", status="queued")
    before = await store.status()
    for call in (
        store.create_response(OURS, begun("b", conversation_id="t")),
        store.create_finished_response(OURS, begun("b", conversation_id="t"), ended("b")),
    ):
        with pytest.raises(ConflictError) as refusal:
            await call
        assert (refusal.value.code, refusal.value.http_status) == ("conversation_locked", 409)
    assert await store.status() == before
    assert await store.get_response(OURS, "b") is None

    # Others are free, and the same name of another tenant is another conversation.
    await owned(store, "c", "one", conversation_id="other")
    await owned(store, "d", "one")
    await store.create_response(THEIRS, begun("b", conversation_id="t"))

    # A new owner keeps the conversation.
    assert await store.claim(OURS, "a", 1, "two") is not None
    with pytest.raises(ConflictError):
        await owned(store, "b", "one", conversation_id="t")
    assert await store.finish_response(OURS, ended("a", "failed", fence=2))
    await owned(store, "b", "one", conversation_id="t")
    assert (await look_up(store, "b")).conversation_id == "t"


@pytest.mark.requirement("store:lease:conversation")
async def test_of_many_responses_that_begin_in_a_conversation_at_once_one_does(store: Store) -> None:
    calls = (owned(store, f"r{number}", "one", conversation_id="t") for number in range(8))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(result, ConflictError) for result in results) == 7
    assert len(await left(store)) == 1


@pytest.mark.requirement("store:lease:conversation")
async def test_ended_responses_do_not_lock_their_conversation(store: Store) -> None:
    for name in "abc":
        whole = begun(name, conversation_id="t"), ended(name)
        await store.create_finished_response(OURS, *whole)
    await owned(store, "d", "one", conversation_id="t")


@pytest.mark.requirement("store:lease:fence")
async def test_a_foreign_tenant_claims_nothing_and_its_fences_are_its_own(store: Store) -> None:
    await owned(store, "a", "one")
    assert await store.claim(THEIRS, "a", 1, "thief") is None
    await store.create_response(THEIRS, begun("a", items=[StoredItem("x", b"1")], owner="two"))
    assert await store.claim(THEIRS, "a", 1, "three") is not None
    row = await store.get_response(Scope("ours", "some key"), "a")
    assert row is not None
    assert (row.owner, row.fence) == ("one", 1)

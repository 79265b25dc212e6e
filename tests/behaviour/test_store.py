"""What every store does with responses, their items and their events."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.errors import ConflictError, InvalidRequestError, UnavailableError
from antiphon.store.base import Store, StoredItem, StoreLimits
from support.stores import KINDS, OURS, Clock, Make, add, batch, begun, ended, frames, ids, look_up, make_store, size


@pytest.mark.requirement("store:response:lifecycle")
async def test_a_response_is_found_when_it_begins_and_again_when_it_has_ended(store: Store) -> None:
    await store.create_response(OURS, begun("a"))
    running = await store.get_response(OURS, "a")
    assert running is not None
    assert (running.status, running.snapshot) == ("in_progress", b'{"begun":"a"}')

    assert await store.finish_response(OURS, ended("a"))
    final = await store.get_response(OURS, "a")
    assert final is not None
    assert (final.id, final.parent_id, final.status, final.created_at) == ("a", None, "completed", 1000)
    assert final.snapshot == b'{"ended":"a"}'


@pytest.mark.requirement("store:response:first-end-stays")
async def test_the_first_terminal_state_stays(store: Store) -> None:
    await store.create_response(OURS, begun("a"))
    assert await store.finish_response(OURS, ended("a", "cancelled"))
    assert not await store.finish_response(OURS, ended("a", "completed", [batch(0, b"late")]))
    final = await store.get_response(OURS, "a")
    assert final is not None
    assert final.status == "cancelled"
    assert await store.events(OURS, "a") == []


@pytest.mark.requirement("store:response:first-end-stays")
async def test_of_many_ends_at_once_one_wins(store: Store) -> None:
    await store.create_response(OURS, begun("a"))
    results = await asyncio.gather(*(store.finish_response(OURS, ended("a")) for _ in range(8)))
    assert sum(results) == 1


@pytest.mark.requirement("store:response:end-again")
async def test_a_response_whose_end_was_refused_can_still_be_ended(store: Store) -> None:
    await store.create_response(OURS, begun("a"))
    await store.append_events(OURS, "a", batch(0, b"e0"))
    before = await store.status()
    for events in ([batch(0, b"again")], [batch(1, b"e1"), batch(1, b"twice")]):
        with pytest.raises(ConflictError):
            await store.finish_response(OURS, ended("a", events=events))
        assert await store.status() == before
    running = await store.get_response(OURS, "a")
    assert running is not None
    assert running.status == "in_progress"

    assert await store.finish_response(OURS, ended("a", "failed", [batch(1, b"e1")]))
    assert not await store.finish_response(OURS, ended("a", "failed", [batch(1, b"e1")]))
    assert [one.body for one in await store.events(OURS, "a")] == [b"e0", b"e1"]
    assert not await store.finish_response(OURS, ended("never"))


@pytest.mark.requirement("store:response:finished")
async def test_a_response_that_begins_and_ends_at_once_is_stored_whole(store: Store) -> None:
    events = [batch(0, b"one", b"two"), batch(2, b"three")]
    await store.create_finished_response(OURS, begun("a"), ended("a", "incomplete", events))
    found = await store.get_response(OURS, "a")
    assert found is not None
    assert (found.status, found.snapshot) == ("incomplete", b'{"ended":"a"}')
    assert [kept.body for kept in await store.events(OURS, "a")] == [b"onetwo", b"three"]
    (turn,) = await store.chain(OURS, "a")
    assert (list(turn.input_items), list(turn.output_items)) == ([b'"question a"'], [b'"answer a"'])


@pytest.mark.requirement("store:response:id-taken")
async def test_an_id_that_is_taken_is_a_conflict_and_changes_nothing(store: Store) -> None:
    await add(store, "a")
    before = await store.status()
    with pytest.raises(ConflictError):
        await store.create_response(OURS, begun("a", items=[StoredItem("other", b"1")]))
    assert await store.status() == before
    assert await store.get_items(OURS, ["other"]) == {}


@pytest.mark.requirement("store:events:append")
async def test_events_come_back_byte_for_byte_from_any_number(store: Store) -> None:
    await store.create_response(OURS, begun("a"))
    await store.append_events(OURS, "a", batch(0, b"e0\n", b"e1\n"))
    await store.append_events(OURS, "a", batch(2, b"e2\x00\xff"))
    await store.finish_response(OURS, ended("a", events=[batch(3, b"e3", b"e4")]))

    kept = await store.events(OURS, "a")
    assert [(one.first_sequence, one.body, list(one.offsets)) for one in kept] == [
        (0, b"e0\ne1\n", [0, 3]),
        (2, b"e2\x00\xff", [0]),
        (3, b"e3e4", [0, 2]),
    ]
    assert [one.first_sequence for one in await store.events(OURS, "a", after=0)] == [0, 2, 3]
    assert [one.first_sequence for one in await store.events(OURS, "a", after=1)] == [2, 3]
    assert [one.first_sequence for one in await store.events(OURS, "a", after=3)] == [3]
    assert await store.events(OURS, "a", after=4) == []


@pytest.mark.requirement("store:events:append")
async def test_a_long_log_comes_back_whole(store: Store) -> None:
    await store.create_response(OURS, begun("a"))
    await asyncio.gather(*(store.append_events(OURS, "a", batch(n, b"%d" % n)) for n in range(150)))
    assert [one.body for one in await store.events(OURS, "a", after=9)] == [b"%d" % n for n in range(10, 150)]


@pytest.mark.requirement("store:events:contiguous")
async def test_events_follow_each_other_without_a_gap_and_once(store: Store) -> None:
    await store.create_response(OURS, begun("a"))
    for wrong in (1, 7):
        with pytest.raises(ConflictError):
            await store.append_events(OURS, "a", batch(wrong, b"wrong"))
    assert await store.append_events(OURS, "a", batch(0, b"e0", b"e1", b"e2"))
    before = await store.status()
    for wrong in (0, 1, 2, 4):
        with pytest.raises(ConflictError):
            await store.append_events(OURS, "a", batch(wrong, b"wrong"), status="queued")
        with pytest.raises(ConflictError):
            await store.finish_response(OURS, ended("a", events=[batch(wrong, b"wrong")]))
        assert await store.status() == before
    assert (await look_up(store, "a")).status == "in_progress"
    assert await store.append_events(OURS, "a", batch(3, b"e3"))
    assert await frames(store, "a") == b"e0e1e2e3"


@pytest.mark.requirement("store:events:contiguous")
async def test_a_response_that_begins_with_a_gap_is_refused_whole(store: Store) -> None:
    with pytest.raises(ConflictError):
        await store.create_response(OURS, begun("a", events=[batch(1, b"e1")]))
    with pytest.raises(ConflictError):
        await store.create_response(OURS, begun("a", events=[batch(0, b"e0"), batch(2, b"e2")]))
    with pytest.raises(ConflictError):
        await store.create_finished_response(
            OURS, begun("a", events=[batch(0, b"e0")]), ended("a", events=[batch(0, b"again")])
        )
    assert await store.get_response(OURS, "a") is None
    assert await store.orphans([]) == []
    status = await store.status()
    assert (status.responses, status.items, status.bytes) == (0, 0, 0)
    await add(store, "a")


@pytest.mark.requirement("store:events:begin")
async def test_the_first_events_are_durable_with_the_response(store: Store) -> None:
    await store.create_response(OURS, begun("a", events=[batch(0, b"created", b"queued"), batch(2, b"running")]))
    assert await frames(store, "a") == b"createdqueuedrunning"
    assert await store.append_events(OURS, "a", batch(3, b"more"))
    await store.create_finished_response(
        OURS, begun("b", events=[batch(0, b"first")]), ended("b", events=[batch(1, b"last")])
    )
    assert await frames(store, "b") == b"firstlast"


@pytest.mark.requirement("store:events:last")
async def test_the_number_of_the_last_event_is_known_without_reading_any(store: Store) -> None:
    assert await store.last_sequence(OURS, "never") == -1
    await store.create_response(OURS, begun("a"))
    assert await store.last_sequence(OURS, "a") == -1
    await store.append_events(OURS, "a", batch(0, b"e0", b"e1", b"e2"))
    assert await store.last_sequence(OURS, "a") == 2
    await store.append_events(OURS, "a", batch(3, b"e3"))
    assert await store.last_sequence(OURS, "a") == 3
    await store.finish_response(OURS, ended("a", events=[batch(4, b"e4", b"e5")]))
    assert await store.last_sequence(OURS, "a") == 5
    await store.delete_response(OURS, "a")
    assert await store.last_sequence(OURS, "a") == -1


@pytest.mark.requirement("store:events:sampled")
async def test_what_was_sampled_is_kept_until_the_end_and_no_longer(store: Store) -> None:
    await store.create_response(OURS, begun("a", events=[batch(0, b"e0", sampled=b"seed")]))
    await store.append_events(OURS, "a", batch(1, b"e1"))
    await store.append_events(OURS, "a", batch(2, b"e2", sampled=b"\x00\xff"))
    assert [one.sampled for one in await store.events(OURS, "a")] == [b"seed", b"", b"\x00\xff"]
    await store.finish_response(OURS, ended("a", events=[batch(3, b"e3", sampled=b"last")]))
    assert [one.sampled for one in await store.events(OURS, "a")] == [b""] * 4
    assert await frames(store, "a") == b"e0e1e2e3"


@pytest.mark.requirement("store:events:status")
async def test_a_batch_may_bring_a_new_status(store: Store) -> None:
    await store.create_response(OURS, begun("a", status="queued"))
    await store.append_events(OURS, "a", batch(0, b"e0"))
    assert (await look_up(store, "a")).status == "queued"
    await store.append_events(OURS, "a", batch(1, b"e1"), status="in_progress")
    assert (await look_up(store, "a")).status == "in_progress"
    await store.append_events(OURS, "a", batch(2, b"e2"))
    assert (await look_up(store, "a")).status == "in_progress"


@pytest.mark.requirement("store:events:ended")
async def test_a_response_that_has_ended_or_is_gone_takes_no_more_events(store: Store) -> None:
    await add(store, "a")
    assert not await store.append_events(OURS, "a", batch(0, b"late"), status="in_progress")
    assert not await store.append_events(OURS, "never", batch(0, b"late"))
    assert await store.events(OURS, "a") == []
    assert (await look_up(store, "a")).status == "completed"


@pytest.mark.requirement("store:chain:walk")
async def test_a_chain_is_a_walk_from_the_oldest_turn_and_leaves_branches_out(store: Store) -> None:
    await add(store, "a")
    await add(store, "b", "a")
    await add(store, "sibling", "a")
    await add(store, "c", "b")
    turns = await store.chain(OURS, "c")
    assert [(turn.id, turn.parent_id, turn.status) for turn in turns] == [
        ("a", None, "completed"),
        ("b", "a", "completed"),
        ("c", "b", "completed"),
    ]
    assert [list(turn.output_items) for turn in turns] == [[b'"answer a"'], [b'"answer b"'], [b'"answer c"']]
    assert await ids(store, "never") == []


@pytest.mark.requirement("store:chain:walk")
async def test_a_chain_of_any_length_keeps_its_order_and_the_order_of_items(store: Store) -> None:
    parent = None
    for number in range(100):
        name = f"r{number:03}"
        inputs = [StoredItem(f"{name}_i{n}", b"in %d %d \x00\xff" % (number, n)) for n in range(3)]
        outputs = [StoredItem(f"{name}_o{n}", b"out %d %d" % (number, n)) for n in range(number % 3)]
        await store.create_finished_response(OURS, begun(name, parent, inputs), ended(name, items=outputs))
        parent = name
    turns = await store.chain(OURS, "r099")
    assert [turn.id for turn in turns] == [f"r{number:03}" for number in range(100)]
    for number, turn in enumerate(turns):
        assert list(turn.input_items) == [b"in %d %d \x00\xff" % (number, n) for n in range(3)]
        assert list(turn.output_items) == [b"out %d %d" % (number, n) for n in range(number % 3)]


@pytest.mark.requirement("store:chain:item-ids")
async def test_the_ids_of_a_chain_are_its_input_in_order_and_each_stands_once(store: Store) -> None:
    parent = None
    expected: list[str] = []
    again = StoredItem("again", b"sent with every turn")
    for number in range(100):
        name = f"r{number:03}"
        inputs = [StoredItem(f"{name}_i{n}", b"in") for n in range(number % 4)]
        outputs = [StoredItem(f"{name}_o{n}", b"out") for n in range(number % 3)]
        await store.create_finished_response(OURS, begun(name, parent, [*inputs, again]), ended(name, items=outputs))
        own = [item.id for item in inputs]
        assert await store.input_item_ids(OURS, name) == list(dict.fromkeys([*expected, *own, "again"]))
        expected += [*own, "again", *(item.id for item in outputs)]
        parent = name
    assert await store.input_item_ids(OURS, "never") == []


@pytest.mark.requirement("store:chain:item-ids")
async def test_an_output_that_is_sent_again_as_input_stands_where_it_comes_first(store: Store) -> None:
    await add(store, "a")
    await add(store, "branch", "a")
    await store.create_response(OURS, begun("b", "a", [StoredItem("in_b", b"1"), StoredItem("out_a", b"2")]))
    assert await store.input_item_ids(OURS, "b") == ["in_a", "out_a", "in_b"]
    await store.finish_response(OURS, ended("b"))
    assert await store.input_item_ids(OURS, "b") == ["in_a", "out_a", "in_b"]


@pytest.mark.requirement("store:chain:item-ids")
async def test_the_ids_of_a_chain_keep_what_deleted_ancestors_said(store: Store) -> None:
    await add(store, "a")
    await add(store, "b", "a")
    await store.delete_response(OURS, "a")
    found = await store.input_item_ids(OURS, "b")
    assert found == ["in_a", "out_a", "in_b"]
    assert list(await store.get_items(OURS, found[:2])) == ["in_a", "out_a"]
    await store.delete_response(OURS, "b")
    assert await store.input_item_ids(OURS, "b") == []


@pytest.mark.requirement("store:chain:growth")
async def test_storage_of_a_turn_does_not_grow_with_depth(store: Store) -> None:
    await add(store, "r000")
    grown: list[int] = []
    for number in range(1, 60):
        before = await size(store)
        await add(store, f"r{number:03}", f"r{number - 1:03}")
        grown.append(await size(store) - before)
    assert len(set(grown)) == 1


@pytest.mark.requirement("store:chain:walk")
async def test_a_turn_without_items_is_still_a_turn(store: Store) -> None:
    await store.create_finished_response(OURS, begun("a", items=[]), ended("a", items=[]))
    (turn,) = await store.chain(OURS, "a")
    assert (turn.id, list(turn.input_items), list(turn.output_items)) == ("a", [], [])


@pytest.mark.requirement("store:items:shared")
async def test_an_item_that_several_responses_name_is_kept_once_and_as_long_as_one_of_them(make_exact: Make) -> None:
    store = await make_exact()
    shared = [StoredItem("shared", b"first body")]
    await store.create_finished_response(OURS, begun("a", items=shared), ended("a", items=[]))
    before = await size(store)
    again = [StoredItem("shared", b"another body"), StoredItem("shared", b"first body")]
    await store.create_finished_response(OURS, begun("b", items=again), ended("b", items=[]))
    assert await size(store) - before == len(b'{"ended":"b"}')
    (turn,) = await store.chain(OURS, "b")
    assert list(turn.input_items) == [b"first body", b"first body"]

    await store.delete_response(OURS, "a")
    assert await store.get_items(OURS, ["shared", "never"]) == {"shared": b"first body"}
    await store.delete_response(OURS, "b")
    assert await store.get_items(OURS, ["shared"]) == {}
    assert await size(store) == 0


@pytest.mark.requirement("store:delete")
async def test_a_deleted_response_is_gone_at_once_and_its_items_with_it(store: Store) -> None:
    await add(store, "a")
    assert await store.delete_response(OURS, "a")
    assert not await store.delete_response(OURS, "a")
    assert await store.get_response(OURS, "a") is None
    assert await store.chain(OURS, "a") == []
    assert await store.events(OURS, "a") == []
    assert await store.get_items(OURS, ["in_a", "out_a"]) == {}
    status = await store.status()
    assert (status.responses, status.items, status.bytes) == (0, 0, 0)


@pytest.mark.requirement("store:delete:running")
@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_a_running_response_is_not_deleted(store: Store, status: str) -> None:
    await store.create_response(OURS, begun("a", status=status))
    await store.append_events(OURS, "a", batch(0, b"e0"))
    before = await store.status()
    with pytest.raises(InvalidRequestError) as refusal:
        await store.delete_response(OURS, "a")
    assert (refusal.value.code, refusal.value.message) == (
        "response_in_progress",
        "Cannot delete an in-flight response.",
    )
    assert await store.status() == before
    assert (await look_up(store, "a")).status == status
    assert await store.finish_response(OURS, ended("a"))
    assert await store.delete_response(OURS, "a")
    assert not await store.append_events(OURS, "a", batch(1, b"e1"))
    assert not await store.finish_response(OURS, ended("a"))
    assert await store.get_response(OURS, "a") is None
    assert await size(store) == 0


@pytest.mark.requirement("store:tombstone:chain")
async def test_a_deleted_ancestor_stays_in_the_chain_of_its_descendants(store: Store) -> None:
    await add(store, "a")
    await add(store, "b", "a")
    await add(store, "c", "b")
    assert await store.delete_response(OURS, "a")
    assert await store.delete_response(OURS, "b")
    assert await store.get_response(OURS, "a") is None
    assert await ids(store, "c") == ["a", "b", "c"]
    assert await store.get_items(OURS, ["in_a"]) == {"in_a": b'"question a"'}


@pytest.mark.requirement("store:tombstone:removal")
async def test_gone_ancestors_are_removed_with_the_last_descendant_that_needs_them(store: Store) -> None:
    for name, parent in (("a", None), ("b", "a"), ("left", "b"), ("right", "b")):
        await add(store, name, parent)
    await store.delete_response(OURS, "a")
    await store.delete_response(OURS, "b")
    await store.delete_response(OURS, "left")
    assert await ids(store, "right") == ["a", "b", "right"]
    assert await store.get_items(OURS, ["in_left"]) == {}
    await store.delete_response(OURS, "right")
    assert await store.chain(OURS, "a") == []
    assert await size(store) == 0


@pytest.mark.requirement("store:tombstone:retained")
async def test_history_stays_whole_while_a_turn_on_top_of_it_is_being_made(store: Store) -> None:
    await add(store, "a")
    await add(store, "b", "a")
    with store.retain(OURS, "b"):
        await store.delete_response(OURS, "a")
        await store.delete_response(OURS, "b")
        assert await store.get_response(OURS, "b") is None
        await add(store, "c", "b")
    assert await ids(store, "c") == ["a", "b", "c"]
    await store.delete_response(OURS, "c")
    assert await size(store) == 0


@pytest.mark.requirement("store:tombstone:retained")
async def test_history_that_was_retained_in_vain_is_removed_after_all(store: Store, clock: Clock) -> None:
    await add(store, "a")
    with store.retain(OURS, "a"), store.retain(OURS, "a"), store.retain(OURS, "never"):
        await store.delete_response(OURS, "a")
        await store.sweep(clock())
        assert await ids(store, "a") in (["a"], [])
        assert await size(store) > 0
    await store.sweep(clock())
    assert await size(store) == 0


@pytest.mark.requirement("store:tombstone:retained")
async def test_a_row_that_is_gone_and_retained_anew_stays_until_it_is_let_go(store: Store, clock: Clock) -> None:
    await add(store, "a")
    await add(store, "b", "a")
    with store.retain(OURS, "b"):
        await store.delete_response(OURS, "b")
        await store.delete_response(OURS, "a")
        with store.retain(OURS, "a"):
            pass
        await store.sweep(clock())
        assert await store.get_items(OURS, ["in_a", "in_b"]) != {}
        await add(store, "c", "b")
    await store.sweep(clock())
    assert await ids(store, "c") == ["a", "b", "c"]
    await store.delete_response(OURS, "c")
    assert await size(store) == 0


@pytest.mark.requirement("store:lru")
async def test_the_least_recently_used_response_goes_when_there_are_too_many(make: Make) -> None:
    store = await make(max_entries=3)
    for name in "abc":
        await add(store, name)
    await store.get_response(OURS, "a")
    await add(store, "d")
    assert [name for name in "abcd" if await store.get_response(OURS, name)] == ["a", "c", "d"]


@pytest.mark.requirement("store:lru:chained")
async def test_being_chained_to_counts_as_a_use(make: Make) -> None:
    store = await make(max_entries=3)
    for name in "abc":
        await add(store, name)
    await add(store, "d", "a")
    assert await store.get_response(OURS, "b") is None
    assert await store.get_response(OURS, "a") is not None


@pytest.mark.requirement("store:lru:running")
async def test_a_running_response_is_never_evicted(make: Make) -> None:
    store = await make(max_entries=1)
    await store.create_response(OURS, begun("running"))
    await add(store, "a")
    await add(store, "b")
    assert [name for name in ("running", "a", "b") if await store.get_response(OURS, name)] == ["running"]
    await store.finish_response(OURS, ended("running"))
    assert await store.get_response(OURS, "running") is not None


@pytest.mark.requirement("store:tombstone:chain")
async def test_eviction_never_breaks_a_younger_response_of_the_chain(make: Make) -> None:
    store = await make(max_entries=2)
    await add(store, "r0")
    for number in range(1, 10):
        await add(store, f"r{number}", f"r{number - 1}")
    assert await store.get_response(OURS, "r7") is None
    assert await ids(store, "r9") == [f"r{number}" for number in range(10)]


@pytest.mark.requirement("store:bytes")
async def test_the_least_recently_used_responses_go_when_they_hold_too_many_bytes(make: Make) -> None:
    store = await make(max_bytes=200)
    for name in "abcdefgh":
        await add(store, name)
        assert await size(store) <= 200
    assert await store.get_response(OURS, "a") is None
    assert await store.get_response(OURS, "h") is not None


@pytest.mark.requirement("store:bytes:chain")
async def test_a_chain_cannot_grow_beyond_the_bytes_that_are_allowed(make: Make) -> None:
    store = await make(max_bytes=2000)
    parent = None
    for number in range(200):
        name = f"r{number}"
        if parent is not None and await store.get_response(OURS, parent) is None:
            parent = None
        await add(store, name, parent)
        assert await size(store) <= 2000
        parent = name


@pytest.mark.requirement("store:bytes:zero")
async def test_with_no_bytes_a_response_still_runs_to_its_end_and_is_gone_then(make: Make) -> None:
    store = await make(max_bytes=0)
    await store.create_response(OURS, begun("a"))
    await store.append_events(OURS, "a", batch(0, b"e0"))
    assert await store.get_response(OURS, "a") is not None
    assert await store.finish_response(OURS, ended("a"))
    assert await store.get_response(OURS, "a") is None
    await add(store, "b")
    assert await store.get_response(OURS, "b") is None
    assert await size(store) == 0


@pytest.mark.requirement("store:ttl")
async def test_a_response_expires_by_its_age_however_often_it_is_used(make: Make, clock: Clock) -> None:
    store = await make(ttl_seconds=60)
    await add(store, "a")
    clock.now += 59
    assert await store.get_response(OURS, "a") is not None
    clock.now += 1
    assert await store.get_response(OURS, "a") is None
    assert await store.chain(OURS, "a") == []
    assert await store.events(OURS, "a") == []
    assert not await store.delete_response(OURS, "a")
    await store.sweep(clock())
    assert await size(store) == 0


@pytest.mark.requirement("store:ttl:chain")
async def test_an_expired_ancestor_stays_in_the_chain_of_a_younger_response(make: Make, clock: Clock) -> None:
    store = await make(ttl_seconds=60)
    await add(store, "a")
    clock.now += 40
    await add(store, "b", "a")
    clock.now += 40
    for _ in range(2):
        assert await store.get_response(OURS, "a") is None
        assert await ids(store, "b") == ["a", "b"]
        assert await ids(store, "a") == ["a"]
        await store.sweep(clock())
    clock.now += 40
    assert await store.chain(OURS, "b") == []
    await store.sweep(clock())
    assert await size(store) == 0


@pytest.mark.requirement("store:ttl:running")
async def test_a_running_response_does_not_expire_before_its_end(make: Make, clock: Clock) -> None:
    store = await make(ttl_seconds=60)
    await store.create_response(OURS, begun("a"))
    clock.now += 120
    await store.sweep(clock())
    assert await store.get_response(OURS, "a") is not None
    assert await store.finish_response(OURS, ended("a"))
    assert await store.get_response(OURS, "a") is None
    await store.sweep(clock())
    assert await size(store) == 0


@pytest.mark.requirement("store:sweep")
async def test_a_sweep_removes_all_that_has_expired_and_nothing_else(make: Make, clock: Clock) -> None:
    store = await make(ttl_seconds=60)
    await asyncio.gather(*(add(store, f"old{number}") for number in range(450)))
    clock.now += 30
    await add(store, "young")
    clock.now += 30
    assert await store.sweep(clock()) == 450
    assert await store.sweep(clock()) == 0
    status = await store.status()
    assert (status.responses, status.items) == (1, 2)


@pytest.mark.requirement("store:closed")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "memory" not in kind])
async def test_a_store_that_is_not_open_yet_asks_for_another_try(kind: str, tmp_path: Path, clock: Clock) -> None:
    store = make_store(kind, tmp_path, StoreLimits(), clock)
    for call in (store.get_response(OURS, "a"), store.create_response(OURS, begun("a"))):
        with pytest.raises(UnavailableError, match="try again"):
            await call

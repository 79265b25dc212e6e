"""The journal against a store that fails or is slow: nothing is lost, written twice, or written before its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from antiphon.engines.base import Sampled
from antiphon.protocol.ids import new_id
from antiphon.runtime.journal import MOST_EVENTS, Journal, batch_of
from antiphon.runtime.observer import Observer
from antiphon.runtime.upkeep import Upkeep
from antiphon.store.base import EventBatch, FinishedResponse, NewResponse
from support.unsteady import AWAY, OURS, Faults, Gate, UnsteadyStore, eventually, frames_of

requirement = pytest.mark.requirement


def frame(number: int) -> bytes:
    return b"event: response.output_text.delta\ndata: {%d}\n\n" % number


async def begun(store: UnsteadyStore, frames: list[bytes], told: Callable[[int | None], None]) -> Journal:
    """A journal of a response that runs in a store, with no event yet."""
    name = new_id("resp")
    await store.create_response(OURS, NewResponse(name, None, "in_progress", 1000, b"{}", ()))
    return Journal(
        store, OURS, name, frames, fence=1, delay=0.001, flush=True, durable=0, told=told, failed=lambda error: None
    )


def drawn(batches: list[EventBatch]) -> tuple[list[int], str, int]:
    """The tokens and the text that batches keep, and the count at their end."""
    kept = [msgspec.msgpack.decode(one.sampled) for one in batches if one.sampled]
    return [token for one in kept for token in one[0]], "".join(one[1] for one in kept), kept[-1][2]


@requirement("journal:end")
async def test_what_is_logged_after_a_write_was_due_is_left_to_the_end_if_that_comes_first():
    store, frames = UnsteadyStore(), [frame(number) for number in range(MOST_EVENTS)]
    told: list[int | None] = []
    journal = await begun(store, frames, told.append)
    # The write is due, but its task has not begun when the terminal event is appended and the run settles.
    journal.note()
    frames.append(b"event: response.completed\ndata: {}\n\n")
    assert await journal.settle()
    written = frames_of(await store.events(OURS, journal._id))
    assert b"response.completed" not in written
    assert written + b"".join(batch.body for batch in journal.rest()) == b"".join(frames)
    assert len(frames) not in told


@requirement("journal:unsure")
@pytest.mark.parametrize("got_through", [True, False])
async def test_a_write_whose_outcome_is_not_known_is_looked_up_before_more_is_written(got_through: bool):
    store, frames = UnsteadyStore(), [frame(0)]
    told: list[int | None] = []
    journal = await begun(store, frames, told.append)
    sampled = journal.sampled
    sampled.tokens, sampled.text, sampled.generated = [7], ["a"], 1
    gate = Gate()

    async def lost(call):
        await gate(call if got_through else _nothing)
        store.around.clear()
        raise AWAY

    store.around["append_events"] = lost
    journal.note()
    await gate.entered.wait()
    # More comes while it is under way, and belongs to the next write.
    frames.append(frame(1))
    sampled.tokens.append(8)
    sampled.text.append("b")
    sampled.generated = 2
    gate.opened.set()

    async def all_there() -> bool:
        return journal.durable == len(frames)

    await eventually(all_there)
    batches = await store.events(OURS, journal._id)
    assert frames_of(batches) == b"".join(frames)
    assert drawn(batches) == ([7, 8], "ab", 2)
    assert told[-1] == len(frames)


@requirement("journal:unsure")
async def test_the_end_does_not_repeat_what_a_write_of_unknown_outcome_has_left():
    store, frames = UnsteadyStore(), [frame(0)]
    journal = await begun(store, frames, lambda durable: None)
    store.around["append_events"] = Faults(after=True)
    journal.note()
    writing = await eventually(lambda: _value(journal._writing))
    await eventually(lambda: _value(store.around["append_events"].left == 0))
    frames.append(frame(1))
    assert await journal.settle()
    assert writing.done()
    assert [batch.body for batch in journal.rest()] == [frame(1)]


@requirement("journal:unsure")
async def test_what_another_owner_wrote_under_the_same_numbers_is_not_taken_for_ours():
    store, frames = UnsteadyStore(), [frame(0)]
    told: list[int | None] = []
    journal = await begun(store, frames, told.append)
    gate = Gate()

    async def lost(call):
        await gate(_nothing)
        raise AWAY

    store.around["append_events"] = lost
    journal.note()
    await gate.entered.wait()
    store.around.clear()
    assert await store.claim(OURS, journal._id, 1, "another") is not None
    assert await store.append_events(OURS, journal._id, batch_of([frame(9)]), fence=2)
    gate.opened.set()
    await eventually(lambda: _value(journal.lost))
    assert told == [None]


@requirement("journal:unsure")
async def test_what_ends_while_a_failed_write_is_looked_up_is_left_to_the_end():
    store, frames = UnsteadyStore(), [frame(0)]
    journal = await begun(store, frames, lambda durable: None)
    gate = Gate()
    store.around["append_events"], store.around["events"] = Faults(), gate
    journal.note()
    await gate.entered.wait()
    frames.append(b"event: response.completed\ndata: {}\n\n")
    settling = asyncio.create_task(journal.settle())
    await asyncio.sleep(0)
    gate.opened.set()
    assert await settling
    assert await store.events(OURS, journal._id) == []
    assert frames_of(journal.rest()) == b"".join(frames)


@requirement("journal:lost")
async def test_an_owner_whose_fence_was_raised_is_told_once_and_writes_no_more():
    store, frames = UnsteadyStore(), [frame(0)]
    told: list[int | None] = []
    journal = await begun(store, frames, told.append)
    assert await store.claim(OURS, journal._id, 1, "another") is not None
    journal.note()
    await eventually(lambda: _value(journal.lost))
    frames.append(frame(1))
    journal.note()
    assert not await journal.settle()
    assert told == [None]
    assert await store.events(OURS, journal._id) == []


async def _nothing() -> None:
    return None


async def _value(value: object) -> object:
    await asyncio.sleep(0)
    return value


@requirement("journal:owed")
@pytest.mark.parametrize("there", [0, 1, 2, 3])
async def test_an_end_that_is_owed_is_written_after_what_a_lost_write_has_left(there: int):
    store, frames = UnsteadyStore(), [frame(number) for number in range(3)]
    journal = await begun(store, frames, lambda durable: None)
    finished = FinishedResponse(journal._id, "failed", 1001, b"{}", (), [batch_of(frames)])
    upkeep = Upkeep(store, Observer())
    upkeep.owe(OURS, finished)
    if there:
        assert await store.append_events(OURS, journal._id, batch_of(frames[:there]))
    await upkeep.settle(OURS, journal._id)
    assert frames_of(await store.events(OURS, journal._id)) == b"".join(frames)
    row = await store.get_response(OURS, journal._id)
    assert row is not None
    assert (row.status, upkeep.owed(OURS, journal._id)) == ("failed", None)


@requirement("journal:turns")
async def test_a_turn_that_begins_while_a_batch_of_the_one_before_is_written_loses_nothing():
    store, gate, frames = UnsteadyStore(), Gate(), [frame(0)]
    journal = await begun(store, frames, lambda durable: None)
    journal.sampled.tokens += [1, 2, 3]
    journal.sampled.generated = 3
    store.around["append_events"] = gate
    journal.note()
    await gate.entered.wait()
    journal.begin_turn(Sampled())
    journal.sampled.tokens.append(4)
    journal.sampled.text.append("d")
    journal.sampled.generated = 1
    frames.append(frame(1))
    gate.opened.set()
    await eventually(lambda: _value(journal.durable == 2))
    assert drawn((await store.events(OURS, journal._id))[1:]) == ([4], "d", 1)

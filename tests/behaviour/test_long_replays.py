"""Long logs: they are read some batches at a time, whoever replays them, and the bytes are the same."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from antiphon.http.app import create_app
from antiphon.protocol.ids import new_id
from antiphon.protocol.json import encode
from antiphon.protocol.response import Response
from antiphon.runtime.bells import Bells
from antiphon.runtime.journal import batch_of
from antiphon.runtime.live import MOST_AT_ONCE, LiveLog
from antiphon.runtime.observer import Observer
from antiphon.runtime.replays import Replays
from antiphon.runtime.tail import BATCHES_A_STEP, stored_batches, stored_tail
from antiphon.runtime.upkeep import Upkeep
from antiphon.store.base import EventBatch, FinishedResponse, NewResponse, Scope, Store
from support.inprocess import inprocess_app
from support.stores import OURS, begun, ended, look_up

requirement = pytest.mark.requirement

BATCHES = 3 * BATCHES_A_STEP + 7
DONE = b"data: [DONE]\n\n"


def frame(number: int) -> bytes:
    return b"event: e\ndata: %d %s\n\n" % (number, b"x" * 100)


def some(first: int, count: int = 4) -> EventBatch:
    return batch_of([frame(number) for number in range(first, first + count)], first)


async def log(store: Store, name: str, batches: int = BATCHES) -> bytes:
    """Write a log of so many batches of four; its bytes."""
    await store.create_response(OURS, begun(name))
    await asyncio.gather(*[store.append_events(OURS, name, some(4 * number)) for number in range(batches)])
    return b"".join(frame(number) for number in range(4 * batches))


def tail(store: Store, name: str, after: int = -1, bells: Bells | None = None) -> AsyncIterator[list[EventBatch]]:
    return stored_tail(store, bells or Bells(), OURS, name, after, silence_seconds=60.0, stopped=lambda: False)


def body_of(pages: list[list[EventBatch]]) -> bytes:
    return b"".join(batch.body for page in pages for batch in page)


@requirement("store:events:some")
async def test_some_batches_are_given_where_only_some_are_asked_for(store: Store) -> None:
    whole = await log(store, "a")
    assert [len(await store.events(OURS, "a", -1, most)) for most in (1, 5, 40, 1000)] == [1, 5, 40, BATCHES]
    assert [one.first_sequence for one in await store.events(OURS, "a", 5, 3)] == [4, 8, 12]
    assert await store.events(OURS, "a", 4 * BATCHES - 1, 5) == []
    found: list[EventBatch] = []
    while some_more := await store.events(OURS, "a", found[-1].last_sequence if found else -1, 7):
        found += some_more
    assert body_of([found]) == whole
    assert found == await store.events(OURS, "a")


@requirement("replay:bounded")
async def test_a_tail_holds_some_batches_at_a_time_to_the_end(store: Store) -> None:
    whole = await log(store, "a")
    await store.finish_response(OURS, ended("a", events=[some(4 * BATCHES)]))
    whole += some(4 * BATCHES).body
    pages = [page async for page in tail(store, "a")]
    assert [len(page) for page in pages] == [BATCHES_A_STEP] * 3 + [8]
    assert body_of(pages) == whole
    assert [page async for page in tail(store, "a", 4 * BATCHES + 3)] == []
    # Batches that end with a full step are followed by nothing, and not by an empty one, which would be a silence.
    whole = await log(store, "b", 2 * BATCHES_A_STEP)
    await store.finish_response(OURS, ended("b"))
    assert [len(page) async for page in tail(store, "b")] == [BATCHES_A_STEP] * 2


@requirement("replay:bounded")
async def test_a_tail_goes_on_with_what_is_written_while_it_reads(store: Store) -> None:
    await log(store, "a", BATCHES_A_STEP)
    bells = Bells()
    reader = tail(store, "a", bells=bells)
    pages = [await anext(reader)]
    for number in range(BATCHES_A_STEP, BATCHES):
        await store.append_events(OURS, "a", some(4 * number))
    await store.finish_response(OURS, ended("a"))
    pages += [page async for page in reader]
    assert body_of(pages) == b"".join(frame(number) for number in range(4 * BATCHES))
    assert max(len(page) for page in pages) == BATCHES_A_STEP


@requirement("replay:bounded")
async def test_what_a_store_does_not_have_yet_comes_after_all_that_it_has(store: Store) -> None:
    whole = await log(store, "a")
    upkeep = Upkeep(store, Observer())
    upkeep.owe(OURS, ended("a", events=[some(4 * BATCHES)]))
    replays = Replays(store, Bells(), upkeep, 60.0, lambda: False)
    replay = await replays.stored(OURS, await look_up(store, "a"), -1)
    pages = [page async for page in replay.tail(-1)]
    assert max(len(page) for page in pages) == BATCHES_A_STEP
    assert body_of(pages) == whole + some(4 * BATCHES).body
    assert [page async for page in stored_batches(store, OURS, "nothing", -1)] == []


@requirement("replay:bounded")
def test_a_live_log_is_read_some_frames_at_a_time() -> None:
    class Frames:
        def __init__(self) -> None:
            self.frames = [b"%d" % number for number in range(2 * MOST_AT_ONCE + 5)]

    log = Frames()
    live = LiveLog(log)
    live.close()
    found: list[bytes] = []
    while frames := live.slice(len(found)):
        assert len(frames) <= MOST_AT_ONCE
        found += frames
    assert found == log.frames


@requirement("replay:bounded")
async def test_the_memory_of_a_replay_does_not_grow_with_its_log(tmp_path: Path) -> None:
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as api:
        store, scope = api.service.store, Scope("default")
        assert store is not None
        peaks: list[int] = []
        for batches in (2 * BATCHES_A_STEP, 20 * BATCHES_A_STEP):
            name = new_id("resp")
            object_ = encode(Response(name, 1, "scripted", status="completed"))
            await store.create_response(scope, NewResponse(name, None, "in_progress", 1, object_, ()))
            for first in range(0, batches, 64):
                await asyncio.gather(
                    *[store.append_events(scope, name, some(16 * n, 16)) for n in range(first, first + 64)]
                )
            await store.finish_response(scope, FinishedResponse(name, "completed", 1, object_, (), ()))
            want = sha256(b"".join(frame(number) for number in range(16 * batches)) + DONE)
            peak, got = await replayed(create_app(api.service), name)
            assert got == want.digest()
            peaks.append(peak)
        assert peaks[1] < peaks[0] + 100_000


async def replayed(app: Any, name: str) -> tuple[int, bytes]:
    """The most memory that a replay takes, in bytes, and the digest of what it sends."""
    got = sha256()
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/v1/responses/{name}",
        "query_string": b"stream=true",
        "headers": [(b"host", b"127.0.0.1")],
    }
    asked = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not asked.is_set():
            asked.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        return await asyncio.get_running_loop().create_future()

    async def send(message: dict[str, Any]) -> None:
        got.update(message.get("body", b""))

    tracemalloc.start()
    try:
        await app(scope, receive, send)
        return tracemalloc.get_traced_memory()[1], got.digest()
    finally:
        tracemalloc.stop()

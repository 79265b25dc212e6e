"""Clients that begin and go away by the thousand: nothing of them is left in the server."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from antiphon.runtime.live import LiveLog
from antiphon.runtime.service import Service
from antiphon.settings import Settings
from antiphon.store.sqlite import SQLiteStore
from support.listening import Client, Listening, listening_app

AT_ONCE = 40
BACKGROUND = 1_000
READERS = 500
PATIENCE = 90.0


def held(service: Service) -> dict[str, int]:
    """What a server holds for clients and runs; connections that were just closed may still be on their way out."""
    gc.collect()
    logs = [thing for thing in gc.get_objects() if isinstance(thing, LiveLog)]
    store = service.store
    return {
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": len(asyncio.all_tasks()),
        "runs": len(service._runs),
        "tasks of the service": len(service._tasks),
        "bells": sum(len(waiting) for waiting in service._bells._waiting.values()),
        "live logs": len(logs),
        "readers that wait": sum(not future.done() for log in logs for future in log._waiting),
        "places": service.admission.running + service.workers.running + service.workers.waiting,
        "reserved": service.workers._reserved,
        "retained": len(store._open().rows.removal.retained) if isinstance(store, SQLiteStore) else 0,
    }


async def settled(service: Service, expected: dict[str, int]) -> dict[str, int]:
    """What is held, once that is what is expected, or does not come to it in time."""
    deadline = time.monotonic() + PATIENCE
    while (now := held(service)) != expected and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return now


async def idle(service: Service) -> None:
    """Wait until nothing runs, and the connections have gone."""
    deadline = time.monotonic() + PATIENCE
    fewest = len(asyncio.all_tasks())
    while time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        now = len(asyncio.all_tasks())
        if not service.running and now == fewest:
            return
        fewest = now
    raise TimeoutError("the server did not come to rest")


async def by_the_thousand(count: int, one: Callable[[], Awaitable[None]]) -> None:
    """Do something so often, some at a time."""
    left = iter(range(count))

    async def worker(numbers: Iterable[int]) -> None:
        for _ in numbers:
            await one()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker(left))


async def begin(app: Listening, said: str) -> str:
    """The id of a background response."""
    client = await Client.connect(app.port)
    client.send("POST", "/responses", {"model": "scripted", "input": said, "background": True})
    status, body = await client.answer()
    await client.leave()
    assert status == 200, body
    return json.loads(body)["id"]


async def cancel(app: Listening, name: str) -> None:
    client = await Client.connect(app.port)
    client.send("POST", f"/responses/{name}/cancel")
    status, body = await client.answer()
    await client.leave()
    assert (status, json.loads(body)["status"]) == (200, "cancelled")


async def begin_and_leave(app: Listening) -> None:
    client = await Client.connect(app.port)
    body = {"model": "scripted", "input": "!COUNT 5", "background": True, "stream": True}
    client.send("POST", "/responses", body)
    await client.read_until(b"response.created")
    await client.leave()


async def begin_and_cancel(app: Listening) -> None:
    await cancel(app, await begin(app, "!SLOW 20\n!COUNT 1000"))


async def read_and_leave(app: Listening, name: str) -> None:
    client = await Client.connect(app.port)
    client.send("GET", f"/responses/{name}?stream=true")
    await client.read_until(b"response.in_progress")
    await client.leave()


async def stream_and_leave(app: Listening) -> None:
    client = await Client.connect(app.port)
    client.send("POST", "/responses", {"model": "scripted", "input": "!SLOW 20\n!COUNT 1000", "stream": True})
    await client.read_until(b"response.output_text.delta")
    await client.leave()


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Listening]:
    """A server that has begun and ended some responses of each kind."""
    store = "memory" if request.param == "memory" else str(tmp_path / "state.db")
    async with listening_app(Settings(store=store, background_queue=BACKGROUND)) as listening:
        await by_the_thousand(2 * AT_ONCE, lambda: begin_and_leave(listening))
        await by_the_thousand(AT_ONCE, lambda: stream_and_leave(listening))
        await idle(listening.service)
        yield listening


@pytest.mark.requirement("fault:leaks")
async def test_background_streams_that_were_left_leave_nothing(app: Listening):
    before = held(app.service)
    await by_the_thousand(BACKGROUND, lambda: begin_and_leave(app))
    assert await settled(app.service, before) == before


@pytest.mark.requirement("fault:leaks")
async def test_background_responses_that_were_cancelled_leave_nothing(app: Listening):
    before = held(app.service)
    await by_the_thousand(BACKGROUND, lambda: begin_and_cancel(app))
    assert await settled(app.service, before) == before


@pytest.mark.requirement("fault:leaks", "replay:left")
@pytest.mark.parametrize("said", ["!SLOW 5\n!COUNT 100000", "!SLOW 60000\n!COUNT 2"], ids=["talking", "silent"])
async def test_readers_that_leave_a_running_response_leave_nothing(app: Listening, said: str):
    before = held(app.service)
    name = await begin(app, said)
    running = {**before, **{what: before[what] + 1 for what in ("tasks", "runs", "live logs", "places")}}
    assert await settled(app.service, running) == running
    await by_the_thousand(READERS, lambda: read_and_leave(app, name))
    assert await settled(app.service, running) == running
    await cancel(app, name)
    assert await settled(app.service, before) == before


@pytest.mark.requirement("fault:leaks", "replay:left")
async def test_readers_that_leave_what_another_server_runs_leave_nothing(app: Listening):
    before = held(app.service)
    name = await begin(app, "!SLOW 60000\n!COUNT 2")
    for run in app.service._runs.values():
        run.lose()
    del run
    await idle(app.service)
    await by_the_thousand(READERS, lambda: read_and_leave(app, name))
    assert await settled(app.service, before) == before
    await cancel(app, name)
    assert await settled(app.service, before) == before


@pytest.mark.requirement("fault:leaks")
async def test_foreground_streams_that_were_left_leave_nothing(app: Listening):
    before = held(app.service)
    await by_the_thousand(READERS, lambda: stream_and_leave(app))
    assert await settled(app.service, before) == before

"""A wall clock that jumps by a day under a running server: nothing that runs, waits or is counted notices it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.following import Follower
from support.postgres import cluster
from support.server import RunningServer, running_server, wait_until
from support.wall_clock import WallClock, wall_clock

DAY = 24 * 3600
JUMPS = pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
SAID = "!SLOW 5\n!COUNT 500"
TEXT = " ".join(str(number) for number in range(1, 501))
A_MINUTE = 60
"""Requests that a key with limits may make: that many at once, and then one a second."""


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return wall_clock(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def server(clock: WallClock, file: Path) -> Iterator[RunningServer]:
    """A server whose wall clock is the test's, with one background worker."""
    arguments = ["--model", "scripted", "--store", str(file), "--background-workers", "1"]
    with running_server(arguments, environment=clock.environment) as running:
        yield running
    assert running.process.returncode == 0
    assert "Traceback" not in "".join(running.lines)


def create(server: RunningServer, said: str = "hi", key: str = "none", **fields: Any) -> httpx2.Response:
    body = {"model": "scripted", "input": said, **fields}
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.post(f"{server.base_url}/responses", json=body, headers=headers, timeout=30)


def get(server: RunningServer, name: str) -> httpx2.Response:
    return httpx2.get(f"{server.base_url}/responses/{name}", timeout=30)


def follow(server: RunningServer, said: str = SAID, **fields: Any) -> Follower:
    body = {"model": "scripted", "input": said, "stream": True, **fields}
    return Follower(server.base_url, "POST", "/responses", body)


def is_whole(server: RunningServer, stream: Follower) -> None:
    """The stream came to its end with every event once, and is what is stored."""
    stream.end(30)
    assert [event["sequence_number"] for event in stream.events] == list(range(len(stream.frames)))
    ended = stream.events[-1]["response"]
    assert (ended["status"], ended["output_text"]) == ("completed", TEXT)
    assert get(server, stream.id).json() == ended
    assert Follower(server.base_url, "GET", f"/responses/{stream.id}?stream=true").end() == stream.frames


@pytest.mark.requirement("fault:clock:running")
@JUMPS
def test_what_runs_and_what_waits_goes_on(server: RunningServer, clock: WallClock, jump: int):
    before = create(server).json()
    streams = [follow(server), follow(server, background=True)]
    for stream in streams:
        stream.wait_for(20)
    # This one waits for the one worker.
    streams.append(follow(server, background=True))
    streams[-1].wait_for(2)
    clock.jump(server.root, jump)
    after = create(server, "!ECHO", previous_response_id=before["id"]).json()
    assert after["created_at"] == pytest.approx(before["created_at"] + jump, abs=60)
    clock.jump(server.root, 0)
    back = create(server).json()
    clock.jump(server.root, jump)
    assert back["created_at"] == pytest.approx(before["created_at"], abs=60)
    for stream in streams:
        is_whole(server, stream)
    names = [before["id"], after["id"], back["id"], *(stream.id for stream in streams)]
    assert len(set(names)) == len(names)
    for response in (before, after, back):
        assert get(server, response["id"]).json() == response
    assert httpx2.get(f"{server.root}/ready").status_code == 200


@pytest.mark.requirement("fault:clock:limits")
@JUMPS
def test_the_limits_of_a_key_neither_start_anew_nor_hold_for_ever(
    server: RunningServer, clock: WallClock, file: Path, jump: int
):
    command = [sys.executable, "-m", "antiphon", "keys", "create", "--name", "limited", "--store", str(file)]
    command += ["--requests-per-minute", str(A_MINUTE)]
    key = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with httpx2.Client(base_url=server.base_url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:

        def ask() -> httpx2.Response:
            return client.post("/responses", json={"model": "scripted", "input": "hi", "store": False})

        def spend() -> int:
            """The number of requests that are let in, until one is not."""
            count = 0
            while (answer := ask()).status_code == 200:
                count += 1
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) <= 2
            return count

        began = time.monotonic()
        assert A_MINUTE <= spend() <= A_MINUTE + 1 + time.monotonic() - began
        spent = time.monotonic()
        clock.jump(server.root, jump)
        assert spend() <= 1 + time.monotonic() - spent
        wait_until(lambda: ask().status_code == 200, 20)


@pytest.mark.requirement("fault:clock:kept")
@JUMPS
def test_what_is_kept_for_a_time_goes_by_the_wall_clock(tmp_path: Path, clock: WallClock, jump: int):
    arguments = ["--model", "scripted", "--store", str(tmp_path / "short.db"), "--responses-store-ttl-secs", "7200"]
    arguments += ["--drain-timeout", "0"]
    with running_server(arguments, environment=clock.environment) as server:
        kept = create(server).json()
        running = follow(server, said="!SLOW 20\n!COUNT 2000", background=True)
        running.wait_for(10)
        clock.jump(server.root, jump)
        assert get(server, kept["id"]).status_code == (404 if jump > 0 else 200)
        assert get(server, running.id).json()["status"] == "in_progress", "what runs does not expire"
        new = create(server).json()
        assert get(server, new["id"]).json() == new


@pytest.mark.requirement("fault:clock:leases")
@JUMPS
def test_a_server_whose_clock_jumps_keeps_what_it_runs_and_takes_nothing(clock: WallClock, jump: int):
    shared = cluster()
    name = shared.create_database()
    arguments = ["--model", "scripted", "--store", shared.url(name), "--lease-seconds", "1"]
    with (
        running_server(arguments, environment=clock.environment) as jumping,
        running_server(arguments) as other,
    ):
        streams = [follow(server, background=True) for server in (jumping, other) for _ in range(3)]
        for stream in streams:
            stream.wait_for(20)
        clock.jump(jumping.root, jump)
        for stream in streams:
            stream.wait_for(300)
        clock.jump(jumping.root, 0)
        for stream in streams:
            is_whole(other, stream)
        assert shared.execute("SELECT count(*), max(fence) FROM responses", name) == "6|1"
    shared.drop_database(name)

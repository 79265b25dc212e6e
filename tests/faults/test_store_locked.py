"""A server whose file another program has locked: requests wait for a while, then they are told to come back."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.following import Follower
from support.server import RunningServer, running_server, wait_until

PATIENCE = 5.0
SLACK = 4.0
"""Seconds that a request may take beside its wait, on a machine that does other things too."""

SAID = "!SLOW 5\n!COUNT 300"
TEXT = " ".join(str(number) for number in range(1, 301))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def server(file: Path) -> Iterator[RunningServer]:
    """A server; what is in its file afterwards is whole."""
    with running_server(["--model", "scripted", "--store", str(file)]) as running:
        yield running
    assert running.process.returncode == 0
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM responses WHERE status = 'in_progress'").fetchone() == (0,)


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.base_url, timeout=60, limits=httpx2.Limits(max_connections=100)) as connected:
        yield connected


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another program that begins to write, and does not end."""
    with closing(sqlite3.connect(file, isolation_level=None, timeout=10)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def timed(client: httpx2.Client, **fields: Any) -> tuple[float, httpx2.Response]:
    """How long a request took, and its answer."""
    began = time.monotonic()
    answer = client.post("/responses", json={"model": "scripted", "input": "hi", **fields})
    return time.monotonic() - began, answer


@pytest.mark.requirement("fault:busy")
def test_requests_wait_for_a_lock_that_goes(client: httpx2.Client, server: RunningServer, file: Path):
    kept = timed(client)[1].json()
    background = Follower(server.base_url, "POST", "/responses", body(SAID, background=True))
    foreground = Follower(server.base_url, "POST", "/responses", body(SAID))
    background.wait_for(20)
    foreground.wait_for(20)
    with ThreadPoolExecutor(20) as pool:
        with locked(file):
            waiting = [pool.submit(timed, client, **fields) for fields in ({}, {"background": True}) for _ in range(10)]
            # Nothing of this needs the lock.
            assert client.get(f"/responses/{kept['id']}").json() == kept
            assert timed(client, store=False)[0] < SLACK
            background.quiet_for(1.0)
            assert not any(answer.done() for answer in waiting)
        answers = [future.result() for future in waiting]
    assert {answer.status_code for _, answer in answers} == {200}
    for stream in (background, foreground):
        stream.end()
        ended = stream.events[-1]["response"]
        assert (ended["status"], ended["output_text"]) == ("completed", TEXT)
        assert client.get(f"/responses/{ended['id']}").json() == ended
        assert Follower(server.base_url, "GET", f"/responses/{ended['id']}?stream=true").end() == stream.frames
    for _, answer in answers:
        name = answer.json()["id"]
        wait_until(lambda name=name: client.get(f"/responses/{name}").json()["status"] == "completed")


@pytest.mark.requirement("fault:busy", "store:sqlite:locked")
def test_requests_that_met_a_lock_that_stays_are_503_after_five_seconds(
    client: httpx2.Client, server: RunningServer, file: Path
):
    background = Follower(server.base_url, "POST", "/responses", body(SAID, background=True))
    foreground = Follower(server.base_url, "POST", "/responses", body(SAID))
    background.wait_for(20)
    foreground.wait_for(20)
    kinds: list[dict[str, Any]] = [{}, {"stream": True}, {"background": True}, {"background": True, "stream": True}]
    with ThreadPoolExecutor(20) as pool:
        with locked(file):
            began = time.monotonic()
            waiting = [pool.submit(timed, client, **kinds[number % 4]) for number in range(8)]
            # Half of them come later; none waits for the others' time too.
            background.quiet_for(PATIENCE / 2)
            waiting += [pool.submit(timed, client, **kinds[number % 4]) for number in range(8)]
            answers = [future.result() for future in waiting]
            assert time.monotonic() - began < 2 * PATIENCE + SLACK
            seen = background.quiet_for(0.1)
            shown = client.get(f"/responses/{background.id}").json()
            assert shown["status"] == "in_progress"
            foreground.end()
            assert foreground.events[-1]["type"] == "response.failed"
            assert client.get(f"/responses/{foreground.id}").json() == foreground.events[-1]["response"]
        for seconds, answer in answers:
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["retry-after"]) >= 1
            assert PATIENCE - 0.5 < seconds < PATIENCE + SLACK
    assert timed(client)[1].status_code == 200
    frames = background.end()
    assert len(frames) > seen
    ended = background.events[-1]["response"]
    assert (ended["status"], ended["output_text"]) == ("completed", TEXT)
    for stream in (background, foreground):
        path = f"/responses/{stream.id}"
        assert Follower(server.base_url, "GET", f"{path}?stream=true").end() == stream.frames
        assert client.get(path).json() == stream.events[-1]["response"]
        wait_until(lambda stream=stream: stored_status(file, stream.id) == stream.events[-1]["response"]["status"])


def body(said: str, **fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "input": said, "stream": True, **fields}


def stored_status(file: Path, name: str) -> str:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT status FROM responses WHERE id = ?", (name,)).fetchone()[0]

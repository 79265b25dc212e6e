"""A server whose disk is full for a while: who is refused, what waits, and that all goes on when there is space."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.following import Follower
from support.server import RunningServer, running_server, wait_until
from support.small_disk import Disk, SizeLimit, TinyFileSystem, can_mount

KINDS = ("limit", "file system")
DRAIN = 1
COUNTED = 400
SLOW = f"!SLOW 5\n!COUNT {COUNTED}"
TEXT = " ".join(str(number) for number in range(1, COUNTED + 1))
MOST_LINES = 60
QUIET = 1.5
"""Seconds of silence that mean that nothing more is written; the journal tries again every half a second."""


class Full:
    """A server on a small disk."""

    def __init__(self, server: RunningServer, disk: Disk, file: Path, client: httpx2.Client) -> None:
        self.server = server
        self.client = client
        self._disk = disk
        self._file = file

    def post(self, said: str = "hi", **fields: Any) -> httpx2.Response:
        return self.client.post("/responses", json={"model": "scripted", "input": said, **fields})

    def follow(self, said: str, **fields: Any) -> Follower:
        body = {"model": "scripted", "input": said, "stream": True, **fields}
        return Follower(self.server.base_url, "POST", "/responses", body)

    def get(self, name: str) -> dict[str, Any]:
        answer = self.client.get(f"/responses/{name}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def log(self, name: str) -> list[bytes]:
        return Follower(self.server.base_url, "GET", f"/responses/{name}?stream=true").end()

    def fill(self) -> None:
        """Fill the disk, to the last write that fits."""
        self._disk.fill(self.server.process.pid)
        deadline = time.monotonic() + 60
        while self.post("!TEXT " + "much " * 1000).status_code == 200:
            assert time.monotonic() < deadline

    def free(self) -> None:
        """Make space again."""
        self._disk.free(self.server.process.pid)

    def durable(self, name: str) -> int:
        """How many events of a response are on the disk."""
        query = "SELECT max(last_seq) FROM event_batches JOIN responses AS r ON r.n = response WHERE r.id = ?"
        return 1 + self._disk.query(self._file, query, name)[0][0]

    def check_file(self) -> None:
        """Have SQLite look at every page."""
        assert self._disk.query(self._file, "PRAGMA integrity_check") == [["ok"]]


@contextmanager
def disk_of(kind: str, folder: Path) -> Iterator[Disk]:
    if kind == "limit":
        yield SizeLimit(folder)
        return
    reason = can_mount(folder)
    if reason is not None:
        pytest.skip(reason)
    with TinyFileSystem.mounted(folder) as disk:
        yield disk


@contextmanager
def serving(disk: Disk, *, is_full: bool = False) -> Iterator[Full]:
    """A server over the disk, which may be full when it starts."""
    file = disk.folder / "state.db"
    arguments = ["--model", "scripted", "--store", str(file), "--drain-timeout", str(DRAIN)]
    with (
        running_server(arguments, prefix=disk.prefix_when_full if is_full else disk.prefix) as server,
        httpx2.Client(base_url=server.base_url, timeout=30) as client,
    ):
        yield Full(server, disk, file, client)
    assert server.process.returncode in (0, -signal.SIGKILL)
    assert len(server.lines) < MOST_LINES, "what lasts is not told each time"
    assert str(disk.folder) not in "".join(server.lines).replace(f"kept in {file}", "")


@pytest.fixture(params=KINDS)
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Full]:
    """A server on a disk that can be filled; in the end there is space again, and it works."""
    with disk_of(request.param, tmp_path) as disk, serving(disk) as served:
        yield served
        served.check_file()
        assert served.post().status_code == 200


def refused(answer: httpx2.Response) -> None:
    """A 503 that says when to come back, and no more than that of the disk."""
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["retry-after"]) >= 1
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "/" not in error["message"]


@pytest.mark.requirement("fault:disk-full:refused")
def test_nothing_is_acknowledged_that_cannot_be_stored_and_the_rest_goes_on(full: Full):
    kept = full.post().json()
    full.fill()
    for fields in ({}, {"stream": True}, {"background": True}, {"background": True, "stream": True}):
        refused(full.post(**fields))
    refused(full.client.post("/conversations", json={}))
    refused(full.client.delete(f"/responses/{kept['id']}"))
    assert full.get(kept["id"]) == kept
    assert full.post(store=False).json()["status"] == "completed"
    assert full.follow("!COUNT 3", store=False).end()
    full.free()
    after = full.post(previous_response_id=kept["id"]).json()
    assert full.get(after["id"]) == after
    assert full.client.delete(f"/responses/{kept['id']}").status_code == 200


@pytest.mark.requirement("fault:disk-full:foreground")
def test_a_foreground_stream_that_meets_a_full_disk_ends_as_failed_and_stays_so(full: Full):
    stream = full.follow(SLOW)
    stream.wait_for(20)
    full.fill()
    frames = stream.end()
    ended = stream.events[-1]
    assert ended["type"] == "response.failed"
    assert full.get(stream.id) == ended["response"]
    full.free()
    wait_until(lambda: full.durable(stream.id) == len(frames))
    assert full.get(stream.id) == ended["response"]
    assert full.log(stream.id) == frames


@pytest.mark.requirement("fault:disk-full:background")
@pytest.mark.parametrize("ends", [False, True], ids=["runs on", "ends meanwhile"])
def test_a_background_response_waits_for_space_shows_what_is_durable_and_goes_on(full: Full, ends: bool):
    said = SLOW if not ends else "!SLOW 5\n!COUNT 120"
    stream = full.follow(said, background=True)
    stream.wait_for(20)
    full.fill()
    name = stream.id
    seen = stream.quiet_for(QUIET)
    assert seen == full.durable(name)
    shown = full.get(name)
    assert shown["status"] == "in_progress"
    late = Follower(full.server.base_url, "GET", f"/responses/{name}?stream=true&starting_after=4")
    late.wait_for(seen - 5)
    assert late.frames == stream.frames[5:]
    full.free()
    frames = stream.end()
    assert [event["sequence_number"] for event in stream.events] == list(range(len(frames)))
    ended = stream.events[-1]["response"]
    assert ended["status"] == "completed"
    assert ended["output_text"] == (TEXT if not ends else TEXT[: TEXT.index(" 121")])
    assert late.end() == frames[5:]
    assert full.log(name) == frames
    assert full.get(name) == ended


@pytest.mark.requirement("fault:disk-full:cancel")
def test_a_cancellation_on_a_full_disk_is_a_503_and_works_when_there_is_space(full: Full):
    stream = full.follow(SLOW, background=True)
    stream.wait_for(20)
    full.fill()
    began = time.monotonic()
    refused(full.client.post(f"/responses/{stream.id}/cancel"))
    assert time.monotonic() - began < 30
    seen = stream.quiet_for(QUIET)
    assert full.get(stream.id)["status"] == "in_progress"
    full.free()
    cancelled = full.client.post(f"/responses/{stream.id}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    frames = stream.end()
    assert len(frames) > seen
    assert stream.events[-1]["response"] == cancelled.json()
    assert full.get(stream.id) == cancelled.json()
    assert full.log(stream.id) == frames


@pytest.mark.requirement("fault:disk-full:stop")
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_with_a_full_disk_stops_in_time_and_the_next_one_goes_on(kind: str, tmp_path: Path):
    with disk_of(kind, tmp_path) as disk:
        with serving(disk) as full:
            stream = full.follow(SLOW, background=True)
            broken = full.follow(SLOW)
            stream.wait_for(20)
            broken.wait_for(20)
            full.fill()
            began = time.monotonic()
            full.server.process.send_signal(signal.SIGTERM)
            assert full.server.process.wait(60) == 0
            assert time.monotonic() - began < DRAIN + 20
            stream.end()
            assert stream.events[-1]["type"] != "response.completed"
            failed = broken.end()
            full.free()
        with serving(disk) as full:
            wait_until(lambda: full.get(stream.id)["status"] == "completed")
            assert full.get(stream.id)["output_text"] == TEXT
            whole = full.log(stream.id)
            assert whole[: len(stream.frames)] == stream.frames
            assert full.get(broken.id)["status"] == "failed"
            assert full.log(broken.id)[:2] == failed[:2]
            full.check_file()


@pytest.mark.requirement("fault:disk-full:start")
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_starts_over_a_full_disk_and_takes_up_what_was_left_when_there_is_space(kind: str, tmp_path: Path):
    with disk_of(kind, tmp_path) as disk:
        with serving(disk) as full:
            kept = full.post().json()
            streams = [full.follow(SLOW, background=True) for _ in range(3)]
            broken = full.follow(SLOW)
            for stream in (*streams, broken):
                stream.wait_for(20)
            full.fill()
            full.server.process.kill()
            full.server.process.wait()
        with serving(disk, is_full=True) as full:
            assert full.get(kept["id"]) == kept
            refused(full.post())
            assert full.post(store=False).json()["status"] == "completed"
            assert {full.get(stream.id)["status"] for stream in (*streams, broken)} == {"in_progress"}
            full.free()
            wait_until(lambda: full.get(broken.id)["status"] == "failed")
            assert full.get(broken.id)["error"]["code"] == "server_restarted"
            for stream in streams:
                wait_until(lambda stream=stream: full.get(stream.id)["status"] == "completed")
                assert full.get(stream.id)["output_text"] == TEXT
                assert full.log(stream.id)[: len(stream.frames)] == stream.frames
            full.check_file()

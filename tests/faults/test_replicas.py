"""Two servers over one PostgreSQL database: what one began, the other shows, ends and goes on with."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser
from support.postgres import cluster
from support.server import RunningServer, running_server, wait_until

LEASE = 1.0


@pytest.fixture
def database() -> Iterator[str]:
    """The address of an empty database."""
    shared = cluster()
    name = shared.create_database(empty=True)
    yield shared.url(name)
    shared.drop_database(name)


@contextmanager
def replicas(database: str, **options: Any) -> Iterator[tuple[RunningServer, RunningServer]]:
    """Two servers; each is killed at the end, whatever state a test has left it in."""
    arguments = ["--model", "scripted", "--store", database, "--lease-seconds", str(LEASE)]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    with (
        running_server(arguments, stop_signal=signal.SIGKILL) as first,
        running_server(arguments, stop_signal=signal.SIGKILL) as second,
    ):
        yield first, second


class Reader(threading.Thread):
    """Reads a stream to its end, beside the test; `frames` are the whole frames so far."""

    def __init__(self, server: RunningServer, response_id: str, after: int = -1) -> None:
        super().__init__(daemon=True)
        self._url = f"{server.base_url}/responses/{response_id}?stream=true&starting_after={after}"
        self.content = b""
        self.ended_at = 0.0
        self.start()

    def run(self) -> None:
        try:
            with httpx2.stream("GET", self._url, timeout=60) as answer:
                for chunk in answer.iter_bytes():
                    self.content += chunk
        except httpx2.HTTPError:
            # Its server was killed.
            pass
        self.ended_at = time.monotonic()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [loads(frame.data) for frame in SSEParser().feed(self.content) if frame.data != "[DONE]"]

    def whole(self) -> bytes:
        """All bytes, once the stream has ended."""
        self.join(60)
        assert not self.is_alive()
        return self.content


def begin(server: RunningServer, said: str, **fields: Any) -> str:
    """The id of a background response."""
    body = {"model": "scripted", "input": said, "background": True, **fields}
    answer = httpx2.post(f"{server.base_url}/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def get(server: RunningServer, response_id: str) -> dict[str, Any]:
    answer = httpx2.get(f"{server.base_url}/responses/{response_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.requirement("replicas:shared")
def test_what_one_server_runs_the_other_shows_streams_and_cancels(database: str):
    with replicas(database) as (first, second):
        name = begin(first, "!SLOW 10\n!COUNT 5000")
        wait_until(lambda: bool(get(second, name)["output"]))
        assert get(second, name)["status"] == "in_progress"
        here, there = Reader(first, name), Reader(second, name)
        wait_until(lambda: len(there.events) > 30 and len(here.events) > 30)
        resumed = Reader(second, name, after=20)
        began = time.monotonic()
        cancelled = httpx2.post(f"{second.base_url}/responses/{name}/cancel").json()
        assert cancelled["status"] == "cancelled"
        assert here.whole() == there.whole()
        resumed.whole()
        assert [event["sequence_number"] for event in resumed.events] == list(range(21, len(here.events)))
        # Readers on both servers get the end within a second of the cancellation.
        assert max(here.ended_at, there.ended_at) - began < 3.0
        assert here.events[-1] == there.events[-1]
        assert (here.events[-1]["type"], here.events[-1]["response"]) == ("response.incomplete", cancelled)
        assert get(first, name) == get(second, name) == cancelled


@pytest.mark.requirement("replicas:takeover")
def test_what_a_killed_server_ran_goes_on_on_the_other(database: str):
    with replicas(database) as (first, second):
        name = begin(first, "!SLOW 10\n!COUNT 300")
        seen = Reader(second, name)
        wait_until(lambda: len(seen.events) > 40)
        first.process.kill()
        first.process.wait(10)
        whole = seen.whole()
        last = get(second, name)
        assert last["status"] == "completed"
        assert last["output_text"] == " ".join(str(number) for number in range(1, 301))
        assert Reader(second, name).whole() == whole
        assert [event["sequence_number"] for event in seen.events] == list(range(len(seen.events)))


@pytest.mark.requirement("replicas:fence")
def test_a_paused_owner_cannot_write_when_it_wakes(database: str):
    with replicas(database) as (first, second):
        name = begin(first, "!SLOW 10\n!COUNT 400")
        here, there = Reader(first, name), Reader(second, name)
        wait_until(lambda: len(there.events) > 40)
        first.process.send_signal(signal.SIGSTOP)
        try:
            # The other server takes it over, and ends it, while its first owner sleeps.
            whole = there.whole()
            last = get(second, name)
            assert last["status"] == "completed"
        finally:
            first.process.send_signal(signal.SIGCONT)
        # It wakes, believes that it still runs the response, and is refused; its reader gets the stored rest.
        assert here.whole() == whole
        assert get(first, name) == get(second, name) == last
        assert last["output_text"] == " ".join(str(number) for number in range(1, 401))
        assert "Traceback" not in "".join(first.lines)


@pytest.mark.requirement("replicas:locks")
def test_locks_and_keys_hold_over_both_servers(database: str):
    with replicas(database) as (first, second):
        conversation = httpx2.post(f"{first.base_url}/conversations", json={}).json()["id"]
        name = begin(first, "!SLOW 20\n!COUNT 2000", conversation=conversation)
        body = {"model": "scripted", "input": "hi", "conversation": conversation}
        locked = httpx2.post(f"{second.base_url}/responses", json=body)
        assert (locked.status_code, locked.json()["error"]["code"]) == (409, "conversation_locked")
        httpx2.post(f"{second.base_url}/responses/{name}/cancel")
        assert httpx2.post(f"{second.base_url}/responses", json=body).status_code == 200
        headers = {"Idempotency-Key": "once"}
        body = {"model": "scripted", "input": "only once"}
        answers = [httpx2.post(f"{s.base_url}/responses", json=body, headers=headers) for s in (first, second)]
        assert answers[0].json() == answers[1].json()
        deleted = httpx2.delete(f"{second.base_url}/responses/{answers[0].json()['id']}")
        assert deleted.status_code == 200
        assert httpx2.get(f"{first.base_url}/responses/{answers[0].json()['id']}").status_code == 404

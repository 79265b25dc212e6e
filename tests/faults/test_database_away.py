"""A server whose PostgreSQL goes away and comes back: it says so, loses nothing, and needs no restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser
from support.postgres import Cluster, cluster
from support.server import RunningServer, running_server, wait_until
from support.timing import TRIES, seconds_until


@pytest.fixture
def postgres() -> Iterator[Cluster]:
    """The cluster of the session, which runs again after the test."""
    running = cluster()
    yield running
    running.restart()


@pytest.fixture
def served(postgres: Cluster) -> Iterator[RunningServer]:
    database = postgres.create_database()
    # With a key of its own: without one, a server must ask its store whether there are keys.
    arguments = ["--model", "scripted", "--store", postgres.url(database), "--api-key", "secret"]
    with running_server(arguments) as server:
        yield server
        postgres.restart()
    postgres.drop_database(database)


def ready(server: RunningServer) -> tuple[int, str]:
    answer = httpx2.get(f"{server.root}/ready")
    return answer.status_code, answer.json()["status"]


KEY = {"Authorization": "Bearer secret"}


def create(server: RunningServer, **fields: Any) -> httpx2.Response:
    body = {"model": "scripted", "input": "!COUNT 3", **fields}
    return httpx2.post(f"{server.base_url}/responses", json=body, headers=KEY, timeout=30)


def get(server: RunningServer, response_id: str, **query: str) -> httpx2.Response:
    return httpx2.get(f"{server.base_url}/responses/{response_id}", params=query, headers=KEY, timeout=30)


@pytest.mark.requirement("fault:database:away", "store:postgresql:away")
def test_without_its_database_a_server_is_not_ready_within_a_second_and_answers_503(
    postgres: Cluster, served: RunningServer
) -> None:
    kept = create(served).json()
    for _ in range(TRIES):
        wait_until(lambda: ready(served) == (200, "ready"))
        postgres.stop()
        noticed = seconds_until(lambda: ready(served) == (503, "store unreachable"))
        if noticed < 1.0:
            break
        postgres.start()
    assert noticed < 1.0

    began_at = time.monotonic()
    with ThreadPoolExecutor() as threads:
        created, found = threads.submit(create, served), threads.submit(get, served, kept["id"])
        assert create(served, store=False).json()["status"] == "completed"
    assert time.monotonic() - began_at < 15.0
    for refused in (created.result(), found.result()):
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "service_unavailable"
        assert str(postgres.folder) not in refused.text

    postgres.start()
    wait_until(lambda: ready(served) == (200, "ready"))
    assert get(served, kept["id"]).json() == kept
    assert create(served, previous_response_id=kept["id"]).json()["status"] == "completed"


@pytest.mark.requirement("fault:database:restart", "store:postgresql:restart")
def test_a_background_stream_goes_on_over_a_restart_of_the_database(postgres: Cluster, served: RunningServer) -> None:
    body = {"model": "scripted", "input": "!SLOW 5\n!COUNT 400", "background": True, "stream": True}
    content = b""
    restarted = False
    with httpx2.stream("POST", f"{served.base_url}/responses", json=body, headers=KEY, timeout=60) as answer:
        for chunk in answer.iter_bytes():
            content += chunk
            if not restarted and len(content) > 10_000:
                restarted = True
                postgres.restart()
    events = [loads(frame.data) for frame in SSEParser().feed(content) if frame.data != "[DONE]"]
    assert restarted
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    final = events[-1]["response"]
    assert (events[-1]["type"], final["status"]) == ("response.completed", "completed")
    assert get(served, final["id"]).json() == final
    assert get(served, final["id"], stream="true").content == content

"""A server that is told to stop while it answers: nothing is lost, nobody waits for ever, and the log stays clean."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser
from support.following import Follower
from support.raw_http import raw_connection
from support.server import RunningServer, running_server, wait_until


class Stream:
    """The events of a stream, read as a test asks for them."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._parser = SSEParser()
        self.events: list[dict[str, Any]] = []
        self.done = False

    def read(self, wanted: str | None = None) -> dict[str, Any]:
        """The last event, once one of that type has come, or the stream has ended."""
        for chunk in self._chunks:
            for frame in self._parser.feed(chunk):
                self.done = self.done or frame.data == "[DONE]"
                if frame.data != "[DONE]":
                    self.events.append(loads(frame.data))
            if any(event["type"] == wanted for event in self.events):
                break
        return self.events[-1]


@contextmanager
def streaming(server: RunningServer, words: str) -> Iterator[tuple[httpx2.Client, Stream]]:
    """A client of the server, and a stream of it that has begun."""
    with httpx2.Client(base_url=server.base_url, timeout=30) as client:
        body = {"model": "scripted", "input": words, "stream": True}
        with client.stream("POST", "/responses", json=body) as reply:
            stream = Stream(reply.iter_bytes())
            stream.read("response.output_text.delta")
            yield client, stream


def stops_cleanly(server: RunningServer, seconds: float = 60) -> None:
    """Wait until the process has ended as it should."""
    assert server.process.wait(seconds) == 0
    wait_until(lambda: server.lines[-1] == "Stopped.\n")
    text = "".join(server.lines)
    for word in ("Traceback", "Cancelled", "ERROR", "error"):
        assert word not in text


@pytest.mark.requirement("http:stop:drain")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_is_finished_and_nothing_new_is_begun(tmp_path: Path, number: signal.Signals):
    with (
        running_server(["--model", "scripted", "--store", str(tmp_path / "state.db")]) as server,
        streaming(server, "!SLOW 20\n!COUNT 100") as (client, stream),
    ):
        kept = client.post("/responses", json={"model": "scripted", "input": "hi"}).json()
        server.process.send_signal(number)
        ready = f"{server.root}/ready"
        wait_until(lambda: client.get(ready).status_code == 503)
        assert client.get(ready).json() == {"status": "stopping"}
        refused = client.post("/responses", json={"model": "scripted", "input": "hi"})
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get(f"/responses/{kept['id']}").json() == kept, "look-ups go on"
        assert client.get(f"{server.root}/health").status_code == 200
        last = stream.read()
        assert (last["type"], stream.done) == ("response.completed", True)
        stops_cleanly(server)
    assert any("Stopping: 1 response may go on for up to 30 s." in line for line in server.lines)


@pytest.mark.requirement("http:stop:cancel")
def test_what_runs_too_long_gets_its_end_and_is_stored(tmp_path: Path):
    arguments = ["--model", "scripted", "--store", str(tmp_path / "state.db")]
    with (
        running_server([*arguments, "--drain-timeout", "0.2"]) as server,
        streaming(server, "!SLOW 20\n!COUNT 100000") as (_, stream),
    ):
        server.process.send_signal(signal.SIGTERM)
        last = stream.read()
        assert stream.done
        assert last["response"]["status"] == "cancelled"
        stops_cleanly(server)
    with running_server(arguments) as server:
        kept = httpx2.get(f"{server.base_url}/responses/{last['response']['id']}").json()
    assert kept == last["response"]


@pytest.mark.requirement("http:stop:hurry")
def test_a_second_signal_ends_what_runs_at_once_and_it_is_stored(tmp_path: Path):
    arguments = ["--model", "scripted", "--store", str(tmp_path / "state.db")]
    with running_server(arguments) as server, streaming(server, "!SLOW 20\n!COUNT 100000") as (client, stream):
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: client.get(f"{server.root}/ready").status_code == 503)
        began = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        stops_cleanly(server)
        assert time.monotonic() - began < 10, "and not after the 30 s of the drain timeout"
        with contextlib.suppress(httpx2.RequestError):
            stream.read()
    with running_server(arguments) as server:
        kept = httpx2.get(f"{server.base_url}/responses/{stream.events[0]['response']['id']}").json()
    assert kept["status"] == "cancelled"


@pytest.mark.requirement("http:stop:drain")
def test_clients_that_hold_a_connection_do_not_hold_the_server():
    with (
        running_server(["--model", "scripted", "--store", "memory", "--drain-timeout", "0.2"]) as server,
        raw_connection(server.base_url) as body,
        raw_connection(server.base_url) as idle,
    ):
        idle.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        idle.read_until(b"ok")
        body.send(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        server.process.send_signal(signal.SIGTERM)
        stops_cleanly(server)


class Background:
    """A background response, and a reader that follows it until the server stops."""

    def __init__(self, server: RunningServer, words: int) -> None:
        self.text = " ".join(str(number) for number in range(1, words + 1))
        body = {"model": "scripted", "input": f"!SLOW 10\n!COUNT {words}", "stream": True, "background": True}
        self.reader = Follower(server.base_url, "POST", "/responses", body)
        self.reader.wait_for(2)
        self.id = self.reader.id

    def goes_on(self, client: httpx2.Client) -> None:
        """The next server has completed it: what was read before is the beginning of its log, byte for byte."""
        path = f"/responses/{self.id}"
        wait_until(lambda: client.get(path).json()["status"] == "completed")
        ended = client.get(path).json()
        assert ended["output_text"] == self.text
        whole = Follower(str(client.base_url).rstrip("/"), "GET", f"{path}?stream=true")
        seen = self.reader.frames
        assert whole.end()[: len(seen)] == seen
        assert [event["sequence_number"] for event in whole.events] == list(range(len(whole.frames)))
        assert whole.events[-1]["response"] == ended
        rest = Follower(str(client.base_url).rstrip("/"), "GET", f"{path}?stream=true&starting_after={len(seen) - 1}")
        assert seen + rest.end() == whole.frames


def refused_while_stopping(client: httpx2.Client, **fields: Any) -> None:
    """A request that would begin a response is told to go elsewhere."""
    answer = client.post("/responses", json={"model": "scripted", "input": "hi", **fields})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.requirement("http:stop:background", "background:restart")
def test_background_responses_go_on_at_the_next_start_and_foreground_ones_are_finished(tmp_path: Path):
    arguments = ["--model", "scripted", "--store", str(tmp_path / "state.db"), "--background-workers", "2"]
    with (
        running_server([*arguments, "--drain-timeout", "3"]) as server,
        streaming(server, "!SLOW 10\n!COUNT 100") as (client, foreground),
    ):
        # The last two wait for a worker.
        begun = [Background(server, 700 if number < 2 else 20) for number in range(4)]
        for response in begun[:2]:
            response.reader.wait_for(30)
        server.process.send_signal(signal.SIGTERM)
        told_at = time.monotonic()
        wait_until(lambda: client.get(f"{server.root}/ready").status_code == 503)
        for fields in ({}, {"stream": True}, {"background": True}, {"store": False}):
            refused_while_stopping(client, **fields)
        assert client.get(f"/responses/{begun[0].id}").json()["status"] == "in_progress", "look-ups go on"
        assert client.get(f"/responses/{begun[3].id}").json()["status"] == "queued"
        last = foreground.read()
        assert (last["type"], foreground.done) == ("response.completed", True)
        stops_cleanly(server)
        assert 2.5 < time.monotonic() - told_at < 15
        for response in begun:
            response.reader.end(5)
            assert response.reader.events[-1]["type"] != "response.completed"
    assert any("responses may go on for up to 3 s." in line for line in server.lines)
    with running_server(arguments) as server, httpx2.Client(base_url=server.base_url, timeout=30) as client:
        for response in begun:
            response.goes_on(client)


@pytest.mark.requirement("http:stop:background", "http:stop:drain")
def test_a_server_waits_for_background_responses_that_come_to_their_end_in_time(tmp_path: Path):
    arguments = ["--model", "scripted", "--store", str(tmp_path / "state.db"), "--background-workers", "1"]
    with running_server(arguments) as server:
        begun = [Background(server, 40) for _ in range(3)]
        server.process.send_signal(signal.SIGTERM)
        for response in begun:
            response.reader.end(20)
            assert response.reader.events[-1]["type"] == "response.completed"
        stops_cleanly(server)
    with running_server(arguments) as server, httpx2.Client(base_url=server.base_url, timeout=30) as client:
        for response in begun:
            response.goes_on(client)


@pytest.mark.requirement("http:stop:background", "http:stop:hurry")
def test_a_second_signal_leaves_background_responses_to_the_next_start_at_once(tmp_path: Path):
    arguments = ["--model", "scripted", "--store", str(tmp_path / "state.db"), "--background-workers", "2"]
    with running_server(arguments) as server, httpx2.Client(base_url=server.base_url, timeout=30) as client:
        begun = [Background(server, 300) for _ in range(3)]
        begun[0].reader.wait_for(30)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: client.get(f"{server.root}/ready").status_code == 503)
        told_at = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        stops_cleanly(server)
        assert time.monotonic() - told_at < 10
    with running_server(arguments) as server, httpx2.Client(base_url=server.base_url, timeout=30) as client:
        for response in begun:
            response.goes_on(client)

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


def stops_cleanly(server: RunningServer, seconds: float = 20) -> None:
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

"""A server in front of an upstream that is killed in the middle of background responses."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser
from support.server import RunningServer, running_server, wait_until
from support.upstream import Exchange, FakeUpstream, fake_upstream, said

SEEN = 30
"""Events that a client has before the server is killed."""

COUNT = "!SLOW 5\n!COUNT 150"


@contextmanager
def upstream_apart() -> Iterator[FakeUpstream]:
    """An upstream in a thread of its own, since the servers here are waited for."""
    made: list[FakeUpstream] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with fake_upstream() as upstream:
            made.append(upstream)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield made[0]
    finally:
        over.set()
        thread.join(10)


def front(folder: Path, upstream: str, model: str, engine: str = "chat", profile: str = "openai") -> list[str]:
    """The arguments of a server before that upstream."""
    config = folder / "antiphon.toml"
    named = {"name": "far", "engine": engine, "profile": profile, "base_url": upstream, "upstream_model": model}
    lines = [f'{name} = "{value}"\n' for name, value in named.items()]
    config.write_text("".join(["[[models]]\n", *lines]), encoding="utf-8")
    return ["--config", str(config), "--store", str(folder / "state.db")]


def events_of(data: bytes) -> list[dict[str, Any]]:
    return [loads(frame.data) for frame in SSEParser().feed(data) if frame.data != "[DONE]"]


def begin_and_kill(server: RunningServer, asked: str) -> tuple[str, bytes]:
    """The id of a background stream, and what came of it until its server was killed."""
    body = {"model": "far", "input": asked, "background": True, "stream": True}
    came = b""
    with httpx2.stream("POST", f"{server.base_url}/responses", json=body, timeout=30) as stream:
        for chunk in stream.iter_bytes():
            came += chunk
            if came.count(b"\n\n") > SEEN:
                server.process.send_signal(signal.SIGKILL)
                server.process.wait(10)
                break
    came = came[: came.rindex(b"\n\n") + 2]
    return events_of(came)[0]["response"]["id"], came


def ended(server: RunningServer, name: str) -> dict[str, Any]:
    """The response once it has ended."""
    found: list[dict[str, Any]] = []

    def over() -> bool:
        found.append(httpx2.get(f"{server.base_url}/responses/{name}").json())
        return found[-1]["status"] not in ("queued", "in_progress")

    wait_until(over, 30)
    return found[-1]


@pytest.mark.requirement("upstream:resume")
def test_a_turn_of_an_upstream_is_run_again_and_what_was_told_is_not_told_again(
    scripted_server: str, tmp_path: Path
) -> None:
    whole = httpx2.post(f"{scripted_server}/responses", json={"model": "scripted", "input": COUNT}, timeout=60).json()
    arguments = front(tmp_path, scripted_server, "scripted")
    with running_server(arguments, stop_signal=signal.SIGKILL) as server:
        name, came = begin_and_kill(server, COUNT)
    with running_server(arguments) as server:
        response = ended(server, name)
        replayed = httpx2.get(f"{server.base_url}/responses/{name}?stream=true").content
    assert (response["status"], response["output_text"]) == ("completed", whole["output_text"])
    assert replayed.startswith(came)
    events = events_of(replayed)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event["delta"] for event in events if event["type"].endswith("text.delta")) == whole["output_text"]


@pytest.mark.requirement("upstream:resume")
def test_one_that_says_something_else_when_it_is_run_again_ends_as_failed(tmp_path: Path) -> None:
    async def counts_and_stalls(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.events(*({"choices": [{"delta": {"content": f"{number} "}}]} for number in range(2 * SEEN)))
        await exchange.gone.wait()

    with upstream_apart() as upstream:
        arguments = front(tmp_path, upstream.url, "m")
        upstream.behave = counts_and_stalls
        with running_server(arguments, stop_signal=signal.SIGKILL) as server:
            name, came = begin_and_kill(server, "Count")
        upstream.behave = said("0 1 2 ", "and so on")
        with running_server(arguments) as server:
            response = ended(server, name)
            replayed = httpx2.get(f"{server.base_url}/responses/{name}?stream=true").content
    assert (response["status"], response["error"]["code"]) == ("failed", "resume_diverged")
    assert response["output_text"].startswith("0 1 2 3 4 ")
    assert replayed.startswith(came)
    assert len(upstream.asked) == 2


def answers_of(server: str) -> float:
    """How many responses have ended at a server."""
    text = httpx2.get(server.removesuffix("/v1") + "/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("antiphon:request_success_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.mark.requirement("responses-upstream:kept:crash")
def test_a_response_that_the_upstream_keeps_is_read_on_and_not_run_again(scripted_server: str, tmp_path: Path) -> None:
    whole = "".join(f"{number} " for number in range(1, 151)).strip()
    before = answers_of(scripted_server)
    arguments = front(tmp_path, scripted_server, "scripted", "responses", "antiphon")
    with running_server(arguments, stop_signal=signal.SIGKILL) as server:
        name, came = begin_and_kill(server, COUNT)
    with running_server(arguments) as server:
        response = ended(server, name)
        replayed = httpx2.get(f"{server.base_url}/responses/{name}?stream=true").content
    assert (response["status"], response["output_text"]) == ("completed", whole)
    assert replayed.startswith(came)
    events = events_of(replayed)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event["delta"] for event in events if event["type"].endswith("text.delta")) == whole
    assert answers_of(scripted_server) == before + 1

"""A server killed in mid-sentence of a real model: the response goes on from the tokens that were drawn."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from antiphon.engines.base import Sampled
from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.machine.deltas import TextDelta
from antiphon.prompt.prompt import ChatMessage, Prompt, Sampling
from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser
from antiphon.runtime.journal import sampled_of
from antiphon.settings import Settings
from antiphon.store.base import Scope, StoreLimits
from antiphon.store.sqlite import SQLiteStore
from support.server import RunningServer, running_server, wait_until

SAID = "Tell me a long story about a lighthouse keeper and the sea."
TOKENS = 110
SEEN = 25


def request(**more: Any) -> dict[str, Any]:
    """A long answer at temperature 0."""
    body = {"model": "smollm", "input": SAID, "temperature": 0, "max_output_tokens": TOKENS, "stream": True}
    return {**body, **more}


def arguments(model: Path, store: Path) -> list[str]:
    return ["--model", str(model), "--alias", f"smollm={model}", "--store", str(store), "--threads", "1"]


class Reader:
    """The frames of a stream, as they come."""

    def __init__(self) -> None:
        self._parser = SSEParser()
        self.events: list[dict[str, Any]] = []

    def feed(self, chunk: bytes) -> int:
        """Take bytes in; how many deltas of text have come."""
        self.events += [loads(frame.data) for frame in self._parser.feed(chunk) if frame.data != "[DONE]"]
        return sum(event["type"] == "response.output_text.delta" for event in self.events)


def read_some(client: httpx2.Client, reader: Reader, **more: Any) -> None:
    """Read a stream until some text has come."""
    with client.stream("POST", "/responses", json=request(**more)) as stream:
        for chunk in stream.iter_bytes():
            if reader.feed(chunk) >= SEEN:
                return


def read_rest(client: httpx2.Client, reader: Reader) -> dict[str, Any]:
    """Read the same stream to its end; the response of its last event."""
    name, last = reader.events[0]["response"]["id"], reader.events[-1]["sequence_number"]
    with client.stream("GET", f"/responses/{name}?stream=true&starting_after={last}") as stream:
        assert stream.status_code == 200
        for chunk in stream.iter_bytes():
            reader.feed(chunk)
    return reader.events[-1]["response"]


def logged(store: Path, name: str) -> Sampled:
    """What was drawn, as the file of a dead server has it."""

    async def read() -> Sampled:
        opened = SQLiteStore(store, StoreLimits())
        await opened.open()
        try:
            sampled, _ = sampled_of(await opened.events(Scope("default"), name))
            return sampled
        finally:
            await opened.close()

    return asyncio.run(read())


def continued(model: Path, sampled: Sampled) -> str:
    """The whole text that the engine itself gives for the same prompt tokens and these output tokens after them."""

    async def generate() -> str:
        engine = LlamaCppEngine(model, Settings(threads=1))
        await engine.start()
        try:
            prompt = Prompt(
                messages=[ChatMessage("user", SAID)], sampling=Sampling(temperature=0.0), max_output_tokens=TOKENS
            )
            turn = await engine.prepare(prompt)
            turn.sampled = sampled
            return "".join(
                [
                    delta.text
                    async for deltas in engine.generate(turn)
                    for delta in deltas
                    if isinstance(delta, TextDelta)
                ]
            )
        finally:
            await engine.close()

    return asyncio.run(generate())


def check(reader: Reader, final: dict[str, Any]) -> None:
    """One log without a gap or a repetition, and all of it is in the response."""
    assert [event["sequence_number"] for event in reader.events] == list(range(len(reader.events)))
    deltas = "".join(event["delta"] for event in reader.events if event["type"] == "response.output_text.delta")
    assert deltas == final["output_text"]
    assert final["usage"]["output_tokens"] <= TOKENS
    assert (final["status"], final["incomplete_details"]) in (
        ("incomplete", {"reason": "max_output_tokens"}),
        ("completed", None),
    )


@pytest.mark.requirement("fault:real-resume")
def test_after_a_kill_in_mid_sentence_the_response_goes_on_as_the_engine_would(smollm2_path: Path, tmp_path: Path):
    store = tmp_path / "state.db"
    reader = Reader()
    with (
        running_server(arguments(smollm2_path, store), stop_signal=signal.SIGKILL) as server,
        httpx2.Client(base_url=server.base_url, timeout=60) as client,
    ):
        engines = psutil.Process(server.process.pid).children(recursive=True)
        read_some(client, reader, background=True)
        server.process.kill()
        server.process.wait(10)
        psutil.wait_procs(engines, timeout=20)
    sampled = logged(store, reader.events[0]["response"]["id"])
    assert sampled.generated >= SEEN
    delivered = list(reader.events)
    with (
        running_server(arguments(smollm2_path, store)) as server,
        httpx2.Client(base_url=server.base_url, timeout=60) as client,
    ):
        final = read_rest(client, reader)
        assert reader.events[: len(delivered)] == delivered
        check(reader, final)
    assert final["output_text"] == continued(smollm2_path, sampled)


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.requirement("fault:real-child-resume")
def test_after_a_kill_of_the_engine_alone_the_response_goes_on(smollm2_path: Path, tmp_path: Path, background: bool):
    reader = Reader()
    with (
        running_server(arguments(smollm2_path, tmp_path / "state.db")) as server,
        httpx2.Client(base_url=server.base_url, timeout=60) as client,
        client.stream("POST", "/responses", json=request(background=background)) as stream,
    ):
        killed = False
        for chunk in stream.iter_bytes():
            if reader.feed(chunk) >= SEEN and not killed:
                killed = True
                kill_engine(server)
        final = reader.events[-1]["response"]
        assert killed
        check(reader, final)
        wait_until(lambda: "restarted" in "".join(server.lines))


def kill_engine(server: RunningServer) -> None:
    """Kill the process that has the model."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    assert children
    for child in children:
        child.kill()

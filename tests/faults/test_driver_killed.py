"""The driver while its server is killed and started again: its caller sees nothing of it."""

from __future__ import annotations

import signal
import socket
import threading
from pathlib import Path

import pytest

from antiphon.client.chunks import ContentChunk
from antiphon.client.client import Client, Limits
from antiphon.client.response import Response
from support.server import running_server, wait_until

requirement = pytest.mark.requirement
WORDS = [f"{number} " for number in range(1, 200)] + ["200"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@requirement("driver:resume")
@pytest.mark.parametrize("seen", [5, 60, 150])
def test_a_stream_goes_on_over_the_death_of_its_server(tmp_path: Path, seen: int) -> None:
    arguments = ["--port", str(free_port()), "--model", "scripted", "--store", str(tmp_path / "antiphon.db")]
    words: list[str] = []
    answers: list[Response] = []

    def read(base_url: str) -> None:
        limits = Limits(max_retries=8)
        with Client(base_url, provider="antiphon", model="scripted", limits=limits) as client:
            stream = client.stream("!SLOW 10\n!COUNT 200")
            words.extend(chunk.text for chunk in stream if isinstance(chunk, ContentChunk))
            answers.append(stream.response())
            assert client.retrieve(answers[0].response_id or "") == answers[0]

    with running_server(arguments) as server:
        reader = threading.Thread(target=read, args=(server.base_url,))
        reader.start()
        wait_until(lambda: len(words) >= seen)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with running_server(arguments):
        reader.join(60)
    assert words == WORDS
    assert [answer.text for answer in answers] == ["".join(WORDS)]

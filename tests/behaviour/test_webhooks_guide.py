"""The guide to webhooks, as it is written: its table, its receiver and a real server."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from support.server import running_server, wait_until

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "webhooks.md"


def block(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return found[0]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


@pytest.mark.requirement("webhooks:guide", "webhooks:restart")
def test_the_receiver_of_the_guide_hears_of_a_response_though_the_server_was_killed(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "antiphon.toml"
    config.write_text(block("toml").replace("9000", port), encoding="utf-8")
    arguments = ["--config", str(config), "--model", "scripted", "--store", str(tmp_path / "state.db")]
    arguments += ["--allow-outbound", "127.0.0.1"]
    body = {"model": "scripted", "input": "!TEXT done", "background": True}

    # Nobody listens yet: the attempt fails, and the server is killed with the event in its store.
    with running_server(arguments, stop_signal=signal.SIGKILL) as server, httpx2.Client(timeout=30) as client:
        made = client.post(f"{server.base_url}/responses", json=body).json()["id"]
        counted = 'antiphon:webhook_attempts_total{outcome="failed"}'
        wait_until(lambda: counted in client.get(f"{server.root}/metrics").text)
        server.process.kill()

    receiver = subprocess.Popen(
        [sys.executable, "-c", block("py").replace("9000", port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        with running_server(arguments):
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == f"response.completed {made}\n"
    finally:
        receiver.kill()
        receiver.wait()
        if receiver.stdout is not None:
            receiver.stdout.close()

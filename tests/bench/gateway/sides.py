"""What is measured side by side: the upstream alone, the floor, the peer and our server, each on the servers' core."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench.load import post
from tests.bench.process import Cores, Target, antiphon

__all__ = ["FLOOR", "OURS", "PEER", "UPSTREAM", "Sides", "asked", "get_json"]

UPSTREAM, FLOOR, PEER, OURS = "upstream", "floor", "codex-relay", "antiphon"
MODEL = "dummy"
_PATIENCE = 20.0
_RELAY = Path(sys.prefix) / "relay" / "bin" / "codex-relay"


class Sides:
    """Starts what is asked for; the upstream, which all stand before, runs on the load's core."""

    def __init__(self, directory: Path) -> None:
        self.cores = Cores()
        self.directory = directory
        self._stack = contextlib.ExitStack()
        self._count = 0
        self.upstream = self._stack.enter_context(_printed("tests.bench.gateway.upstream", []))
        self.base_url = f"http://127.0.0.1:{self.upstream.port}/v1"
        self.started: dict[str, Target] = {UPSTREAM: self.upstream}

    @property
    def servers(self) -> list[str]:
        """The names of those that were started, without the upstream."""
        return [name for name in self.started if name != UPSTREAM]

    def start(self) -> None:
        """Start one of each; without `codex-relay` the peer is left out."""
        for name in (FLOOR, PEER, OURS):
            if name != PEER or _RELAY.exists():
                self.started[name] = self._stack.enter_context(self.fresh(name))

    @contextlib.contextmanager
    def fresh(self, name: str, program: Sequence[str] = ()) -> Iterator[Target]:
        """A server with an empty store; `program` is what Python runs for it, in place of the server itself."""
        self._count += 1
        place = self.directory / f"{name}-{self._count}"
        place.mkdir()
        if name == OURS:
            config = place / "antiphon.toml"
            config.write_text(f'[[models]]\nname = "{MODEL}"\nengine = "chat"\nbase_url = "{self.base_url}"\n')
            arguments = ["--config", str(config), "--store", str(self.database(place)), "--data-dir", str(place)]
            with antiphon(self.cores, arguments, **({"program": program} if program else {})) as target:
                yield Target(target.port, target.pid, self.database(place))
            return
        with self.cores.for_server():
            if name == FLOOR:
                arguments = [str(self.database(place)), self.base_url]
                started = _printed("tests.bench.gateway.floor", arguments, program)
            else:
                started = _relay(self.base_url, place)
        with started as target:
            yield Target(target.port, target.pid, place)

    def database(self, place: Path) -> Path:
        """The file of a server's store."""
        return place / "store.db"

    def close(self) -> None:
        """End all."""
        self._stack.close()
        self.cores.release()


def asked(name: str, text: str, *, stream: bool = False, **more: Any) -> bytes:
    """The request for an answer of that side."""
    if name == UPSTREAM:
        return post("/v1/chat/completions", {"model": MODEL, "stream": stream, "messages": [_message(text)]})
    return post("/v1/responses", {"model": MODEL, "input": text, "stream": stream, **more})


def get_json(target: Target, path: str) -> Any:
    """What a GET answers."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", target.port, timeout=_PATIENCE)) as connection:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


def _message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@contextlib.contextmanager
def _printed(module: str, arguments: Sequence[str], program: Sequence[str] = ()) -> Iterator[Target]:
    """A process that prints its port first."""
    command = [sys.executable, *program, module] if program else [sys.executable, "-m", module]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with process.stdout as output:
            line = output.readline()
        if not line.strip().isdigit():
            raise RuntimeError(f"{module} did not start.")
        yield Target(int(line), process.pid)
    finally:
        _end(process)


@contextlib.contextmanager
def _relay(base_url: str, place: Path) -> Iterator[Target]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    history = ["--history-store", "disk", "--history-dir", str(place)]
    command = [str(_RELAY), "--port", str(port), "--upstream", base_url, "--api-key", "x", *history]
    quiet = {"RUST_LOG": "error"}
    process = subprocess.Popen(
        command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **quiet}
    )
    try:
        _wait_for(port)
        yield Target(port, process.pid)
    finally:
        _end(process)


def _wait_for(port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), 1)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.002)
        else:
            connection.close()
            return


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    process.wait(_PATIENCE)

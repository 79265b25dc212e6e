"""A server in a process of its own, as a user would run it, for tests that go over a socket."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["RunningServer", "running_server"]

_STARTED = re.compile(r"answers at (http://\S+)")
START_SECONDS = 60.0
STOP_SECONDS = 60.0


@dataclass
class RunningServer:
    """A started server: its base URL (ending in `/v1`), its process and the lines that it printed."""

    base_url: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        """The URL without `/v1`."""
        return self.base_url.removesuffix("/v1")


@contextmanager
def running_server(
    arguments: Sequence[str],
    *,
    environment: dict[str, str] | None = None,
    stop_signal: int = signal.SIGTERM,
    program: Sequence[str] = ("-m", "antiphon"),
    prefix: Sequence[str] = (),
) -> Iterator[RunningServer]:
    """Run `antiphon serve` on a free port; it is ended, and must end, when the block does.

    `program` is what Python runs: another one may prepare the process, and then call the command line. `prefix` is a
    command that becomes the server, such as `nsenter`.
    """
    process = subprocess.Popen(
        [*prefix, sys.executable, *program, "serve", "--port", "0", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # No test is to fetch the embedding model of documents by the way.
        env={"ANTIPHON_DOCUMENT_EMBEDDING": "none", **os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
    )
    lines: list[str] = []
    found: list[str] = []
    ready = threading.Event()
    reader = threading.Thread(target=_read, args=(process, lines, found, ready), daemon=True)
    reader.start()
    try:
        ready.wait(START_SECONDS)
        if not found:
            raise RuntimeError("The server did not start:\n" + "".join(lines))
        yield RunningServer(found[0], process, lines)
    finally:
        if process.poll() is None:
            process.send_signal(stop_signal)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            reader.join(STOP_SECONDS)
            if process.stdout is not None:
                process.stdout.close()


def _read(process: subprocess.Popen[str], lines: list[str], found: list[str], ready: threading.Event) -> None:
    if process.stdout is None:
        return
    for line in process.stdout:
        lines.append(line)
        match = _STARTED.search(line)
        if match:
            found.append(match.group(1))
            ready.set()
    ready.set()


def wait_until(condition: object, seconds: float = 60.0) -> None:
    """Wait until a callable gives something true.

    Raises:
        TimeoutError: it did not within that time.
    """
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true in time")
        threading.Event().wait(0.01)

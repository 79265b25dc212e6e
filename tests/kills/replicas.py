"""Servers that are killed and started again: one over a SQLite file, or several over one database."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

__all__ = ["Replica"]

_STARTED = re.compile(r"answers at (http://\S+)")
START_SECONDS = 60.0


class Replica:
    """One server process after another, with the same arguments, each on a free port."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        self._process: subprocess.Popen[str] | None = None
        self.base_url = ""
        self.lines: list[str] = []

    @property
    def pid(self) -> int:
        """The number of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    @property
    def up(self) -> bool:
        """Whether a process runs and has said where it answers."""
        return self._process is not None and self._process.poll() is None and bool(self.base_url)

    def start(self) -> None:
        """Start, and wait until it answers."""
        self.base_url = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", "serve", "--port", "0", *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        ready = threading.Event()
        lines: list[str] = []
        self.lines = lines
        threading.Thread(target=_read, args=(self, self._process, lines, ready), daemon=True).start()
        if not ready.wait(START_SECONDS) or not self.base_url:
            self.kill()
            raise RuntimeError("The server did not start:\n" + "".join(lines[-40:]))

    def kill(self) -> None:
        """`kill -9`, and wait until it is dead."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()
        self.base_url = ""

    def stop(self) -> None:
        """End it as an operator would."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


def _read(replica: Replica, process: subprocess.Popen[str], lines: list[str], ready: threading.Event) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            lines.append(line)
            found = _STARTED.search(line)
            if found:
                replica.base_url = found.group(1)
                ready.set()
    ready.set()

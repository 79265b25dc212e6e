"""Processes under measurement: started on a core of their own, with the CPU time of the whole tree."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from tests.support.server import running_server

__all__ = ["Cores", "Target", "antiphon", "cpu_seconds", "ruler"]


class Cores:
    """The first core is the servers', the last one the load's; without two cores nothing is pinned."""

    def __init__(self) -> None:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
        self._all = set(cores)
        self.server = {cores[0]} if len(cores) > 1 else set()
        self.load = {cores[-1]} if len(cores) > 1 else set()

    @contextlib.contextmanager
    def for_server(self) -> Iterator[None]:
        """What is started inside inherits the servers' core, with every thread that it will have."""
        self._pin(self.server)
        try:
            yield
        finally:
            self._pin(self.load)

    @contextlib.contextmanager
    def for_all(self) -> Iterator[None]:
        """What is started inside may run anywhere."""
        self.release()
        try:
            yield
        finally:
            self._pin(self.load)

    def release(self) -> None:
        """Back to all cores."""
        self._pin(self._all)

    def _pin(self, cores: set[int]) -> None:
        if cores:
            os.sched_setaffinity(0, cores)

    def __str__(self) -> str:
        return f"servers on core {min(self.server)}, load on core {min(self.load)}" if self.load else "not pinned"


@dataclass
class Target:
    """A server to send load to; `place` is where it keeps what it stores."""

    port: int
    pid: int
    place: Path | None = None

    def cpu(self) -> float:
        """CPU seconds used so far by its process tree."""
        return cpu_seconds(self.pid)


@contextlib.contextmanager
def antiphon(
    cores: Cores, arguments: Sequence[str], *, pinned: bool = True, program: Sequence[str] = ("-m", "antiphon")
) -> Iterator[Target]:
    """`antiphon serve` with these arguments; not `pinned`, it and its engine take the cores that they get.

    `program` is what Python runs, which calls the command line in the end.
    """
    with contextlib.ExitStack() as stack:
        with cores.for_server() if pinned else cores.for_all():
            server = stack.enter_context(running_server(arguments, program=program))
        yield Target(urlsplit(server.base_url).port or 0, server.process.pid)


@contextlib.contextmanager
def ruler(cores: Cores) -> Iterator[Target]:
    """The raw ASGI application of `ruler.py`."""
    with cores.for_server():
        process = subprocess.Popen([sys.executable, "-m", "tests.bench.ruler"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with process.stdout as output:
            line = output.readline()
        if not line.strip().isdigit():
            raise RuntimeError("The ruler did not start.")
        yield Target(int(line), process.pid)
    finally:
        process.terminate()
        process.wait(20)


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its descendants; of one that has ended, none."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += _own_cpu(process)
    return total


def _own_cpu(process: psutil.Process) -> float:
    if sys.platform == "linux":
        # The kernel's clock of a process, as clock_getcpuclockid(3) names it, is finer than psutil's ticks of 10 ms.
        with contextlib.suppress(OSError):
            return time.clock_gettime(~process.pid << 3 | 2)
    times = process.cpu_times()
    return times.user + times.system

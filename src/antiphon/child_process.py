"""A process of our own that does jobs which may kill it: started, asked over its pipes, and killed.

What reads or checks something that a caller made runs in such a process, under limits that it sets for itself. That it
ends is its answer then: whoever asked finds the answer cut short. It runs a module of this package, with no file of the
working directory in the way, it is deaf to the terminal's Ctrl-C, which is meant for the server, and none of the
server's keys are in its environment: what it reads may turn it against us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Final

__all__ = ["ChildProcess", "bare_environment", "engine_environment"]

_LINE = 64 * 1024
_NEEDED: Final = frozenset(
    {
        "DYLD_LIBRARY_PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "PATH",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONUTF8",
        "TMPDIR",
        "VIRTUAL_ENV",
    }
)
_SECRET: Final = ("CREDENTIAL", "DATABASE", "DSN", "KEY", "PASS", "SECRET", "TOKEN")
_OURS: Final = ("ANTIPHON_", "PG")


def bare_environment() -> dict[str, str]:
    """The variables that Python needs to run a module of ours, and no other."""
    return {name: value for name, value in os.environ.items() if name in _NEEDED}


def engine_environment() -> dict[str, str]:
    """All variables but those of the server and those whose names speak of secrets.

    What steers an engine and its devices has too many names to list.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(_OURS) and not any(word in name.upper() for word in _SECRET)
    }


class ChildProcess:
    """One life of a process, with pipes to its standard input and output; what it says on the error output is lost."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process has no pipes")
        self._process = process
        self._stdin = stdin
        self._stdout = stdout

    @classmethod
    async def start(cls, module: str, *, longest_line: int = _LINE) -> ChildProcess:
        """Start `python -m module`; a line of its output has at most so many bytes.

        Raises:
            OSError: it cannot be started.
        """
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                module,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=longest_line,
                env=bare_environment(),
                start_new_session=True,
            )
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended."""
        return self._process.returncode is not None

    async def ask_line(self, job: bytes) -> bytes:
        """The line that answers a job of one line; shorter, or empty, where the process ended over it.

        Both the job and the answer end with a line feed. An answer that is too long for a line is empty.
        """
        await self._send(job)
        try:
            return await self._stdout.readline()
        except ValueError:
            return b""

    async def ask_all(self, job: bytes, most: int) -> bytes:
        """All that it says to its only job, which ends with its standard input; empty where that is more than `most`.

        It is to answer after it has read everything, or not at all.
        """
        await self._send(job)
        self._stdin.close()
        found = bytearray()
        while len(found) <= most and (chunk := await self._stdout.read(_LINE)):
            found += chunk
        return bytes(found) if len(found) <= most else b""

    async def feed(self, data: bytes) -> bool:
        """Give it more of its input, as fast as it takes it; False where it has ended."""
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except ConnectionError:
            return False
        return True

    def end_input(self) -> None:
        """Nothing more of its input comes."""
        self._stdin.close()

    async def read_line(self) -> bytes:
        """The next line that it says; shorter, or empty, where it has ended or the line is too long."""
        try:
            return await self._stdout.readline()
        except ValueError:
            return b""

    async def end(self) -> None:
        """Kill it and free what belongs to it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._stdin.close()

    async def _send(self, job: bytes) -> None:
        # One that has ended takes nothing: its answer says so.
        with contextlib.suppress(ConnectionError):
            self._stdin.write(job)
            await self._stdin.drain()

"""A box of bubblewrap from outside: it is asked over its pipes, stopped while nobody asks, and killed when it is late.

Nothing here waits for the goodwill of what is inside: each question has a time, and when that is over the process, its
group and its control group are killed (hosted-tools.md A4: a traced init hung its caller for ten minutes).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.tools.code.cgroups import Group
from antiphon.tools.code.sandbox import Box, BoxEndedError, Cell, Listed, Ran

__all__ = ["PipedBox", "Pipes", "abandon", "open_pipes"]

Pipes = tuple[asyncio.StreamReader, asyncio.ReadTransport, asyncio.StreamWriter]
"""What a process says, the transport that brings it, and what it is told."""

_LINE = 4 * 1024 * 1024
_MOST_LISTED = 1_000
_GRACE = 3.0
_FILE_SECONDS = 20.0
_REAP_SECONDS = 10.0
_GROUP_ENDS = 100


class _Answer(msgspec.Struct):
    """Anything that the inside says; what it must be is checked here, and nothing of it is a path of ours."""

    stdout: str = ""
    stderr: str = ""
    result: str | None = None
    error: str | None = None
    timed_out: bool = False
    images: list[str] = []
    files: list[tuple[str, int, str]] = []
    exit_code: int | None = None
    ok: bool = False
    size: int = 0


_READ = msgspec.json.Decoder(_Answer)


class PipedBox(Box):
    """One life of a box."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: Pipes,
        group: Group | None,
    ) -> None:
        self._process = process
        self._reader, self._read_pipe, self._writer = pipes
        self._group = group
        self._ended = ""
        self._asking = asyncio.Lock()
        self._reaped: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it still runs, as far as is known."""
        return not self._ended and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process outside."""
        return self._process.pid

    async def run(self, code: str, seconds: float) -> Cell:
        """Run a cell."""
        said, _ = await self._ask({"op": "run", "code": code, "seconds": seconds}, seconds + _GRACE)
        return Cell(
            said.stdout, said.stderr, said.result, said.error, said.timed_out, said.images[:64], _listed(said.files)
        )

    async def shell(self, command: str, seconds: float, most: int) -> Ran:
        """Run a command of the shell."""
        asked = {"op": "shell", "command": command, "seconds": seconds, "most": most}
        said, _ = await self._ask(asked, seconds + _GRACE)
        return Ran(said.stdout, said.stderr, said.exit_code)

    async def list_files(self) -> Sequence[Listed]:
        """The files in the work folder."""
        said, _ = await self._ask({"op": "list"}, _FILE_SECONDS)
        return _listed(said.files)

    async def put(self, path: str, data: bytes) -> bool:
        """Write a file below the work folder."""
        said, _ = await self._ask({"op": "put", "path": path, "size": len(data)}, _FILE_SECONDS, data)
        return said.ok

    async def read(self, path: str, most: int) -> bytes | None:
        """A file below the work folder."""
        said, data = await self._ask({"op": "read", "path": path, "most": most}, _FILE_SECONDS, most=most)
        return data if said.ok else None

    async def remove(self, path: str) -> None:
        """Remove a file below the work folder."""
        await self._ask({"op": "remove", "path": path}, _FILE_SECONDS)

    async def begin(self, first: dict[str, Any], seconds: float, gate: bytes = b"") -> None:
        """Open its gate, send what it needs to know before it is asked anything, and wait until it answers.

        Raises:
            BoxEndedError: it did not come to that.
        """
        self._writer.write(gate + msgspec.json.encode(first) + b"\n")
        await self._ask({"op": "list"}, seconds)

    async def close(self) -> None:
        """Kill it and wait until nothing of it is left, for a while."""
        self.kill("It was closed.")
        if self._reaped is not None:
            await asyncio.shield(self._reaped)

    def kill(self, why: str) -> None:
        """Kill all of it at once; the reason is for whoever asked."""
        if self._reaped is not None:
            return
        self._ended = why
        self._signal(signal.SIGKILL)
        self._writer.close()
        self._reaped = asyncio.create_task(self._reap())

    async def _ask(
        self, asked: dict[str, Any], seconds: float, data: bytes = b"", most: int = 0
    ) -> tuple[_Answer, bytes]:
        async with self._asking:
            if not self.alive:
                self.kill("It has ended.")
                raise BoxEndedError(self._ended)
            try:
                async with asyncio.timeout(seconds):
                    return await self._exchange(asked, data, most)
            except TimeoutError:
                self.kill("It did not come to an end in its time, and was ended.")
            except asyncio.IncompleteReadError:
                self.kill(self._how_it_ended())
            except (ConnectionError, ValueError, asyncio.LimitOverrunError, msgspec.DecodeError):
                self.kill("It broke off.")
            except BaseException:
                # Whoever asked has gone, and the answer would be taken for that to the next question.
                self.kill("It was left in the middle of its work.")
                raise
            raise BoxEndedError(self._ended)

    async def _exchange(self, asked: dict[str, Any], data: bytes, most: int) -> tuple[_Answer, bytes]:
        self._signal(signal.SIGCONT)
        self._writer.write(msgspec.json.encode(asked) + b"\n" + data)
        await self._writer.drain()
        said = _READ.decode(await self._reader.readuntil(b"\n"))
        if not 0 <= said.size <= most:
            raise ValueError("it sends what was not asked for")
        found = await self._reader.readexactly(said.size) if said.size else b""
        # What it has left running goes on when it is asked again, and takes no time until then.
        self._signal(signal.SIGSTOP)
        return said, found

    def _how_it_ended(self) -> str:
        if self._group is not None and self._group.killed_for_memory():
            return "It used more memory than it may, and was ended."
        return "It ended by itself or was killed, perhaps because it used more than it may."

    def _signal(self, number: int) -> None:
        if self._process.returncode is not None:
            return
        if self._group is not None:
            self._group.signal(number)
        elif number != signal.SIGKILL:
            for pid in _descendants(self._process.pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        if number == signal.SIGKILL:
            # The rest dies with it: it is their init's parent, and dies with the namespace.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    async def _reap(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _REAP_SECONDS)
        self._read_pipe.close()
        for _ in range(_GROUP_ENDS):
            if self._group is None or self._group.remove():
                return
            self._group.signal(signal.SIGKILL)
            await asyncio.sleep(0.02)


async def open_pipes(process: subprocess.Popen[bytes]) -> Pipes:
    """Streams over the pipes of a process."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE)
    read_pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
    try:
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
    except BaseException:
        read_pipe.close()
        raise
    return reader, read_pipe, asyncio.StreamWriter(transport, protocol, None, loop)


async def abandon(process: subprocess.Popen[bytes], group: Group | None) -> None:
    """Kill a process that is no box yet, and wait until nothing of it is left, for a while."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        await asyncio.to_thread(process.wait, _REAP_SECONDS)
    if group is not None:
        group.remove()


def _listed(files: list[tuple[str, int, str]]) -> list[Listed]:
    return [Listed(path, size, version) for path, size, version in files[:_MOST_LISTED] if size >= 0]


def _descendants(pid: int) -> list[int]:
    """A process and all that came from it, as far as the system tells."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
            found += [int(child) for child in children.split()]
        if len(found) > 10_000:
            break
    return found

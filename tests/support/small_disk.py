"""Disks that are full when a test says so, for a server in a process of its own.

`SizeLimit` lets the process write to no file beyond its first bytes, which every system can do. `TinyFileSystem` is a
file system of some megabytes that only the server sees, where this system lets us mount one.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Disk", "SizeLimit", "TinyFileSystem", "can_mount"]

MEGABYTES = 24
FEW_BYTES = 40_000
"""Enough for the index of SQLite's log, without which it opens nothing, and less than what has been written by then."""

_QUERY = """
import json, sqlite3, sys
file, statement, values = sys.argv[1:]
connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
print(json.dumps(connection.execute(statement, json.loads(values)).fetchall()))
"""


class Disk(ABC):
    """A folder for a server; `prefix` goes before the server's command. A full one takes no more after some writes.

    `prefix_when_full` is for a server that starts while it is full.
    """

    prefix: Sequence[str] = ()
    prefix_when_full: Sequence[str] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def fill(self, pid: int) -> None:
        """Let nothing more be written by that process, but for what fits into what its files have already."""

    @abstractmethod
    def free(self, pid: int) -> None:
        """Let it write again."""

    def query(self, file: Path, statement: str, *values: Any) -> list[list[Any]]:
        """The rows that a statement finds in a SQLite file of the folder, while a server may have it."""
        arguments = [str(file), statement, json.dumps(values)]
        command = [*self.prefix, sys.executable, "-c", _QUERY, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


class SizeLimit(Disk):
    """A limit of the process on the sizes of files."""

    prefix_when_full = ("prlimit", f"--fsize={FEW_BYTES}:")

    def fill(self, pid: int) -> None:
        _limit(pid, FEW_BYTES)

    def free(self, pid: int) -> None:
        # The limit of a process that has ended has gone with it.
        with contextlib.suppress(ProcessLookupError):
            _limit(pid, resource.RLIM_INFINITY)


class TinyFileSystem(Disk):
    """A file system in memory, in a namespace that a process of ours holds open."""

    def __init__(self, folder: Path, holder: int) -> None:
        super().__init__(folder)
        # The folder as the holder sees it.
        self._inside = Path(f"/proc/{holder}/root") / folder.relative_to("/")
        self.prefix = ("nsenter", "--mount", *_user_namespace("--preserve-credentials"), "--target", str(holder))
        self.prefix_when_full = self.prefix

    def fill(self, pid: int) -> None:
        with (self._inside / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(bytes(4096)):
                pass

    def free(self, pid: int) -> None:
        (self._inside / "ballast").unlink()

    @classmethod
    @contextmanager
    def mounted(cls, folder: Path) -> Iterator[TinyFileSystem]:
        """One at that folder, which must be there."""
        script = f"mount -t tmpfs -o size={MEGABYTES}m tmpfs '{folder}' && echo mounted && exec cat"
        command = ["unshare", "--mount", *_user_namespace("--map-root-user"), "sh", "-c", script]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stderr is not None
            if holder.stdout.readline() != "mounted\n":
                raise OSError(holder.stderr.read())
            try:
                yield cls(folder, holder.pid)
            finally:
                holder.stdin.close()


def can_mount(folder: Path) -> str | None:
    """Why no file system can be mounted here; None where one can."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "unshare and nsenter are not installed"
    try:
        with TinyFileSystem.mounted(folder):
            return None
    except OSError as error:
        return f"this system lets us mount nothing ({str(error).strip()})"


def _user_namespace(how: str) -> list[str]:
    return [] if os.geteuid() == 0 else ["--user", how]


def _limit(pid: int, size: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))

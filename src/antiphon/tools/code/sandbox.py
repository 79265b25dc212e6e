"""The interface of sandboxes: where code of a model runs, and what it leaves (issue 6, section 6).

A `Backend` starts `Box`es. A box is one process, or a group of them, that keeps its variables from cell to cell and its
files until it ends. What is in a box is not believed: whatever it says may be a lie about itself, and nothing that it
says is a path, a name or a size of the machine around it. A box that does not answer in time is killed from outside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct

__all__ = [
    "MOST_OUTPUT",
    "WORK_FOLDER",
    "Backend",
    "Box",
    "BoxEndedError",
    "BoxLimits",
    "Cell",
    "Listed",
    "NoSandboxError",
    "Ran",
]

WORK_FOLDER = "/mnt/data"
"""Where the files of a container are, as the code sees it."""

MOST_OUTPUT = 64 * 1024
"""Bytes that are kept of each output of a cell or of a command."""


class NoSandboxError(Exception):
    """There is nothing that the code could be run in; the message says why and what to do."""


class BoxEndedError(Exception):
    """A box ended over what it was asked, or was killed because it did not answer; the message says how."""


class BoxLimits(Struct, frozen=True):
    """What one box may take: bytes of memory and of files, processes, and seconds for a cell."""

    memory: int
    disk: int
    processes: int = 64
    seconds: float = 30.0


class Listed(Struct, frozen=True):
    """A file in a box, as the box says: its path below the work folder, its size, and what changes when it does."""

    path: str
    size: int
    version: str


class Cell(Struct, frozen=True):
    """What a cell gave. `result` is how its last expression prints, `error` the traceback that ended it.

    `images` are paths of the files that it showed as pictures. `files` is all that is in the work folder now.
    """

    stdout: str = ""
    stderr: str = ""
    result: str | None = None
    error: str | None = None
    timed_out: bool = False
    images: Sequence[str] = ()
    files: Sequence[Listed] = ()


class Ran(Struct, frozen=True):
    """What a shell command gave; `exit_code` is None where it was killed because its time was over."""

    stdout: str
    stderr: str
    exit_code: int | None


class Box(ABC):
    """A running sandbox. Whoever has it asks one thing at a time.

    Every method raises `BoxEndedError` where the box ended, or had to be killed.
    """

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it still runs, as far as is known."""

    @abstractmethod
    async def run(self, code: str, seconds: float) -> Cell:
        """Run a cell of Python for at most so many seconds."""

    async def shell(self, command: str, seconds: float, most: int) -> Ran:
        """Run a command of the shell; at most so many bytes are kept of each output."""
        raise NotImplementedError

    async def list_files(self) -> Sequence[Listed]:
        """The files in the work folder."""
        return ()

    async def put(self, path: str, data: bytes) -> bool:
        """Write a file below the work folder; False where there is no room for it."""
        return False

    async def read(self, path: str, most: int) -> bytes | None:
        """A file below the work folder; None where it is none, or has more than `most` bytes."""
        return None

    async def remove(self, path: str) -> None:  # noqa: B027 - a box without files has nothing to do
        """Remove a file below the work folder."""

    @abstractmethod
    async def close(self) -> None:
        """End it, whatever it does, and free what belongs to it."""


class Backend(ABC):
    """A kind of sandbox, found to work."""

    name: str
    """What the operator knows it by: `bwrap` or `monty`."""

    shell: bool
    """Whether it runs commands of a shell."""

    files: bool
    """Whether its boxes have a work folder."""

    finding: str
    """What it is and what bounds it, for the operator."""

    advice: str = ""
    """What the operator can do to bound it better."""

    cannot: str = ""
    """What the model is told that it cannot do."""

    @abstractmethod
    async def start(self, limits: BoxLimits) -> Box:
        """Start a box.

        Raises:
            BoxEndedError: it did not start.
        """

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of everything."""

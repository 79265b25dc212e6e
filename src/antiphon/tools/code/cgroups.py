"""What bounds the memory and the processes of a box: control groups of version 2 or 1, or none.

A group belongs to one box. It is made below the group that the server is in, or the one above where a service manager
gave that to it, and goes with its box. Where neither can be made, limits of single processes are all that is left.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from antiphon.tools.code.sandbox import BoxLimits

__all__ = ["Group", "Groups"]

_ROOT = Path("/sys/fs/cgroup")
_SWEEPS = 20
_LEFT = re.compile(r"antiphon-(\d+)-\d+")


class Group:
    """The control groups of one box: one folder, or with version 1 one for each kind of limit."""

    def __init__(self, folders: Sequence[Path], version: int) -> None:
        self._folders = folders
        self._version = version

    def enter(self, pid: int) -> None:
        """Put a process in, and with it all that it starts from now on.

        Raises:
            OSError: that is not allowed.
        """
        for folder in self._folders:
            _write(folder / "cgroup.procs", str(pid))

    def members(self) -> set[int]:
        """The processes that are in it now."""
        try:
            # All its folders have the same.
            return {int(line) for line in (self._folders[-1] / "cgroup.procs").read_text().split()}
        except OSError:
            return set()

    def signal(self, number: int) -> None:
        """Send a signal to all of them, and to those that they started meanwhile."""
        if self._version == 2 and number == signal.SIGKILL:
            with contextlib.suppress(OSError):
                _write(self._folders[0] / "cgroup.kill", "1")
        told: set[int] = set()
        for _ in range(_SWEEPS):
            new = self.members() - told
            if not new:
                return
            for pid in new:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            told |= new

    def killed_for_memory(self) -> bool:
        """Whether a process of it was killed because the memory was used up."""
        for folder in self._folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    found = re.search(r"^oom_kill (\d+)", (folder / name).read_text(), re.MULTILINE)
                    if found is not None and int(found[1]):
                        return True
        return False

    def remove(self) -> bool:
        """Remove it; False where something is still in it."""
        gone = True
        for folder in self._folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone


class Groups:
    """Makes groups; `version` is 2, 1, or 0 where none can be made."""

    def __init__(self, root: Path = _ROOT, own: str | None = None) -> None:
        self.version = 0
        self._parents: dict[str, Path] = {}
        self._numbers = itertools.count(1)
        paths = _own_paths(own if own is not None else _read(Path("/proc/self/cgroup")))
        if (root / "cgroup.controllers").exists():
            parent = _second_version(root, paths.get("", "/"))
            if parent is not None:
                self.version, self._parents = 2, {"": parent}
        elif (parents := _first_version(root, paths)) is not None:
            self.version, self._parents = 1, parents
        for parent in self._parents.values():
            _remove_left(parent)

    def make(self, limits: BoxLimits) -> Group | None:
        """A group with these limits; None where none can be made."""
        name = f"antiphon-{os.getpid()}-{next(self._numbers)}"
        folders = [parent / name for parent in self._parents.values()]
        group = Group(folders, self.version)
        try:
            for folder in folders:
                folder.mkdir()
            if self.version == 2:
                _bound_second(folders[0], limits)
            elif self.version == 1:
                _bound_first(self._parents, name, limits)
        except OSError:
            group.remove()
            return None
        return group if folders else None


def _bound_second(folder: Path, limits: BoxLimits) -> None:
    _write(folder / "memory.max", str(limits.memory))
    _write(folder / "pids.max", str(limits.processes))
    for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
        with contextlib.suppress(OSError):  # the kernel may have been built without
            _write(folder / name, value)


def _bound_first(parents: dict[str, Path], name: str, limits: BoxLimits) -> None:
    memory = parents["memory"] / name
    _write(memory / "memory.limit_in_bytes", str(limits.memory))
    with contextlib.suppress(OSError):  # the kernel may count no swap
        _write(memory / "memory.memsw.limit_in_bytes", str(limits.memory))
    _write(parents["pids"] / name / "pids.max", str(limits.processes))


def _own_paths(text: str) -> dict[str, str]:
    """The path of this process in each hierarchy, by controller; that of version 2 is under the empty name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _first_version(root: Path, paths: dict[str, str]) -> dict[str, Path] | None:
    parents: dict[str, Path] = {}
    for controller in ("memory", "pids"):
        base = root / controller
        own = base / paths.get(controller, "/").lstrip("/")
        parent = own if own.is_dir() else base
        if not os.access(parent, os.W_OK) or not _can_make(parent):
            return None
        parents[controller] = parent
    return parents


def _second_version(root: Path, path: str) -> Path | None:
    own = root / path.lstrip("/")
    for parent in (own, own.parent):
        if parent == root.parent or not os.access(parent, os.W_OK):
            continue
        # A group that has processes of its own cannot hand its controllers down, unless it is the first of all.
        with contextlib.suppress(OSError):
            _write(parent / "cgroup.subtree_control", "+memory +pids")
        handed = _read(parent / "cgroup.subtree_control").split()
        if {"memory", "pids"} <= set(handed) and _can_make(parent):
            return parent
    return None


def _can_make(parent: Path) -> bool:
    trial = parent / f"antiphon-{os.getpid()}-0"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def _remove_left(parent: Path) -> None:
    """Remove the groups of servers that are gone; their processes went with them."""
    for folder in parent.glob("antiphon-*-*"):
        name = _LEFT.fullmatch(folder.name)
        if name is not None and not Path(f"/proc/{name[1]}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _write(path: Path, value: str) -> None:
    with path.open("w") as file:
        file.write(value)

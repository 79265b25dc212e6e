"""The folder of a child's socket: open to nobody else, and removed also after a server that could not remove its own.

Its name has the server's process id, and the server holds a lock on it. The system frees the lock however the server
ends, so a folder that can be locked belongs to nobody any more; a process id alone would say nothing in a container
that shares its folder for temporary files with another. A locked folder is also left alone by what cleans such folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

__all__ = ["PrivateFolder", "remove_stale"]

_LONGEST = 64
_NAME = re.compile(r"antiphon-(\d+)-\w+")


class PrivateFolder:
    """A new folder of mode 0700 whose path leaves room for a socket's name."""

    def __init__(self, parent: Path | None = None) -> None:
        made: tuple[Path, int] | None = None
        # Between its making and its locking somebody else may take it for stale and remove it.
        while made is None:
            made = _make(parent or _parent())
        self.path, self._lock = made

    def close(self) -> None:
        """Remove it with what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_stale(parent: Path | None = None) -> None:
    """Remove the folders that servers of this user left behind; whatever else is there stays."""
    with contextlib.suppress(OSError):
        for path in (parent or _parent()).iterdir():
            match = _NAME.fullmatch(path.name)
            # A container's server has the same process id each time.
            if match and (int(match[1]) == os.getpid() or not _lives(int(match[1]))):
                with contextlib.suppress(OSError):
                    _remove(path)


def _make(parent: Path) -> tuple[Path, int] | None:
    """A new folder and the descriptor that locks it; None where it was removed meanwhile."""
    path = Path(tempfile.mkdtemp(prefix=f"antiphon-{os.getpid()}-", dir=parent))
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    # Without locks nothing is lost but the removal after a server that was killed.
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
    if path.is_dir():
        return path, lock
    os.close(lock)
    return None


def _parent() -> Path:
    # The path of a Unix socket has at most 104 to 108 bytes, and some systems have long names for temporary files.
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) <= _LONGEST else "/tmp")  # noqa: S108


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _remove(path: Path) -> None:
    # All through one descriptor: the name may come to mean something else meanwhile.
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(folder)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) != 0o700:
            return
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in os.listdir(folder):  # noqa: PTH208 - by descriptor
            if stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)
        # Empty only: what is not ours is not removed.
        path.rmdir()
    finally:
        os.close(folder)

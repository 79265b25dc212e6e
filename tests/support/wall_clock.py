"""A wall clock that a test sets, for a server in a process of its own; the monotonic clock goes on as it is.

It needs libfaketime. Where that is not installed the tests skip and say so, unless ANTIPHON_REQUIRE_FAKETIME=1 asks for
it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx2
import pytest

from support.server import wait_until

__all__ = ["WallClock", "wall_clock"]

_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib")


class WallClock:
    """`environment` makes a process use it."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._file = folder / "clock"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            # Seconds after which it looks at the file again.
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Else the times of files move too, and Python compiles all of them anew.
            "NO_FAKE_STAT": "1",
        }

    def jump(self, root: str, seconds: int) -> None:
        """Set it so many seconds away from the time that it is, and wait until the server of that URL shows it."""
        self.set(seconds)
        expected = datetime.now(UTC) + timedelta(seconds=seconds)

        def shown() -> bool:
            date = httpx2.get(f"{root}/health").headers["date"]
            return abs(parsedate_to_datetime(date) - expected) < timedelta(minutes=5)

        wait_until(shown)

    def set(self, seconds: int) -> None:
        """Set it so for a process that is yet to start."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._file)


def wall_clock(folder: Path) -> WallClock:
    """A clock whose setting lies in that folder; skips the test where there is no libfaketime."""
    found = [library for top in _FOLDERS for library in Path(top).glob("**/libfaketimeMT.so.1")]
    if not found:
        reason = "libfaketime is not installed (Debian has it in the package 'faketime')"
        if os.environ.get("ANTIPHON_REQUIRE_FAKETIME") == "1":
            pytest.fail(f"libfaketime is required: {reason}")
        pytest.skip(reason)
    return WallClock(found[0], folder)

"""Whether a client keeps up: with sending what it began, and with taking in what it is sent.

Whoever has a connection asks every moment. Times are seconds of the loop's clock.
"""

from __future__ import annotations

import asyncio
import sys

try:
    import fcntl
    import termios
except ImportError:  # Windows: a reader's progress is then seen only when it makes room in our own buffer.
    fcntl = termios = None

__all__ = ["Backlog", "Intake"]

MIN_PROGRESS = 1024


class Intake:
    """What a client sends: it must begin and end in time, or go on by at least 1 KiB in each such time."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._received_then = 0

    def restart(self) -> None:
        """Count anew: nothing is awaited, or something else is from now on."""
        self._since = None

    def late(self, now: float, timeout: float, received: int, *, may_go_on: bool = True) -> bool:
        """Whether the time is over; `received` counts all bytes so far, whose progress helps if it `may_go_on`."""
        progress = may_go_on and received - self._received_then >= MIN_PROGRESS
        if self._since is None or (progress and now - self._since >= timeout):
            self._since = now
            self._received_then = received
        return now - self._since >= timeout


class Backlog:
    """What a client was sent and has not taken in."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._size = 0

    def stuck(self, transport: asyncio.Transport, now: float, timeout: float) -> bool:
        """Whether nothing of it was taken in for that long."""
        size = transport.get_write_buffer_size()
        if not size:
            self._since = None
            return False
        backlog = size + _unsent(transport)
        if self._since is None or backlog < self._size:
            self._since = now
        self._size = backlog
        return now - self._since >= timeout


def _unsent(transport: asyncio.Transport) -> int:
    """What the kernel holds of the answer: it takes more from us only after a third of that has gone."""
    if fcntl is None or termios is None:
        return 0
    try:
        answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except (OSError, ValueError):
        return 0
    return int.from_bytes(answer, sys.byteorder)

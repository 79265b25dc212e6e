"""Tells the service manager that started a server, such as systemd, when it answers and when it stops."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from antiphon.cli.terminal import TerminalAnnouncer

__all__ = ["ADDRESS", "ServerAnnouncer", "notify"]

ADDRESS = "NOTIFY_SOCKET"
"""The environment variable that names the socket of the service manager, where there is one (sd_notify(3))."""

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> bool:
    """Send one datagram to the service manager; False where nobody asked for it, or it cannot be reached.

    A server is not ended because nobody listens to how it is: a manager that waits in vain ends it by its own rules.
    """
    address = os.environ.get(ADDRESS, "")
    if not address.startswith(("/", "@")) or not hasattr(socket, "AF_UNIX"):
        return False
    if address.startswith("@"):  # A name in Linux's abstract namespace.
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.connect(address)
            told.sendall(state.encode())
    except OSError:
        return False
    return True


class ServerAnnouncer(TerminalAnnouncer):
    """Tells the terminal how a server starts and stops, and the service manager that it did."""

    def started(self, base_url: str, models: Sequence[str], state: str) -> None:
        """The server answers, and its models are loaded."""
        super().started(base_url, models, state)
        notify(f"{READY}\nSTATUS=Answers at {base_url}")

    def stopping(self, running: int, seconds: float) -> None:
        """The server was told to stop, and waits for what runs."""
        super().stopping(running, seconds)
        notify(f"{STOPPING}\nSTATUS=Waits for {running} responses")

    def stopped(self) -> None:
        """The server has ended because it was told to."""
        super().stopped()
        notify(STOPPING)

"""HTTP by hand over a socket: what no client library would send, or not so slowly."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

__all__ = ["RawConnection", "raw_connection"]

DEADLINE = 60.0


class RawConnection:
    """One connection to a server; what it sends is the test's, byte for byte."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.received = b""

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def read_until(self, mark: bytes) -> bytes:
        """All that came, once it holds the mark."""
        while mark not in self.received:
            chunk = self.socket.recv(65_536)
            if not chunk:
                raise EOFError(f"the connection ended after {self.received!r}")
            self.received += chunk
        return self.received

    def rest(self) -> bytes:
        """All that came, once the server has ended the connection."""
        while chunk := self.socket.recv(65_536):
            self.received += chunk
        return self.received

    def refusal(self) -> tuple[int, dict[str, Any]]:
        """The status and the error object of the last answer on a connection that the server ends."""
        head, _, body = self.rest().rpartition(b"\r\n\r\n")
        assert b"x-request-id: req_" in head
        assert b"connection: close" in head
        return int(head.rpartition(b"HTTP/1.1 ")[2][:3]), json.loads(body)["error"]


@contextmanager
def raw_connection(base_url: str, receive_buffer: int | None = None) -> Iterator[RawConnection]:
    """A connection to the server of a URL; a small receive buffer makes a slow reader of it."""
    parts = urlsplit(base_url)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connected:
        if receive_buffer is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connected.settimeout(DEADLINE)
        connected.connect((parts.hostname, parts.port))
        yield RawConnection(connected)

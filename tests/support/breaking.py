"""A proxy that breaks connections after so many bytes of an answer, or lets them stall there."""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

__all__ = ["BreakingProxy", "Cut", "breaking_proxy"]

_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Cut:
    """What becomes of one connection: after so many bytes it is `reset`, closed, or it stalls."""

    after: int
    how: str = "reset"


@dataclass
class BreakingProxy:
    """`base_url` leads to the server; each connection takes the next of `cuts`, and those after the last are whole."""

    base_url: str
    cuts: deque[Cut] = field(default_factory=deque)
    requests: list[str] = field(default_factory=list)
    made: int = 0


@contextmanager
def breaking_proxy(base_url: str) -> Iterator[BreakingProxy]:
    """Such a proxy before that server, until the block ends."""
    parts = urlsplit(base_url)
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = BreakingProxy(f"http://127.0.0.1:{listener.getsockname()[1]}{parts.path}")
    target = (parts.hostname or "", parts.port or 80)
    stopped = threading.Event()
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            cut = proxy.cuts.popleft() if proxy.cuts else None
            proxy.made += 1
            thread = threading.Thread(target=_serve, args=(proxy, client, target, cut, stopped), daemon=True)
            threads.append(thread)
            thread.start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield proxy
    finally:
        stopped.set()
        # A listener that is only closed goes on waiting in its accept.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(5)
        for thread in threads:
            thread.join(5)


def _serve(
    proxy: BreakingProxy, client: socket.socket, target: tuple[str, int], cut: Cut | None, stopped: threading.Event
) -> None:
    with closing(client), closing(socket.create_connection(target)) as server:
        upward = threading.Thread(target=_upward, args=(proxy, client, server), daemon=True)
        upward.start()
        try:
            left = cut.after if cut is not None else None
            while left is None or left > 0:
                data = server.recv(65536 if left is None else min(left, 65536))
                if not data:
                    return
                client.sendall(data)
                left = None if left is None else left - len(data)
            if cut is not None and cut.how == "stall":
                stopped.wait(20)
            elif cut is not None and cut.how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:
            return
        finally:
            # Closing alone would not end the other thread's wait, and until that ends it closes nothing.
            _shut(server, socket.SHUT_RDWR)
            _shut(client, socket.SHUT_RD if cut is not None and cut.how == "reset" else socket.SHUT_RDWR)
            upward.join(5)


def _upward(proxy: BreakingProxy, client: socket.socket, server: socket.socket) -> None:
    try:
        while data := client.recv(65536):
            line = data.split(b"\r\n", 1)[0].decode(errors="replace")
            if line.endswith("HTTP/1.1"):
                proxy.requests.append(line.removesuffix(" HTTP/1.1"))
            server.sendall(data)
    except OSError:
        pass
    _shut(server, socket.SHUT_RDWR)


def _shut(end: socket.socket, how: int) -> None:
    try:
        end.shutdown(how)
    except OSError:
        return

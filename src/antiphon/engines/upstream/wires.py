"""HTTP/1.1 to one upstream, as lean as it can be: a pool of connections, each of which carries one exchange at a time.

Rule 1: a connection serves again only where its answer came to its end and nothing followed it.
Rule 2: an upstream may be silent for so long, while it is waited for and all that was sent to it is taken in.
Rule 3: what nobody has read yet is bounded: beyond that, the upstream has to wait.
Rule 4: what came before a fault is read before the fault is raised.
Rule 5: an upstream may close a connection that has served while the next request is on its way; that request is sent
once more.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httptools

__all__ = [
    "Answer",
    "BrokenError",
    "ExhaustedError",
    "GarbledError",
    "SilentError",
    "UnreachableError",
    "UntrustedError",
    "WireError",
    "Wires",
]

_LARGE: Final = 32 * 1024
"""Bytes of a body that is not copied behind its head."""

_MOST_HEAD: Final = 64 * 1024
_MOST_UNREAD: Final = 256 * 1024
_STEPS: Final = 8
"""How often in the time of a limit it is looked at."""

_LONGEST_STEP: Final = 0.5
_DRAIN_SECONDS: Final = 1.0
"""How long the end of an answer is waited for whose last event has come."""

_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class WireError(Exception):
    """An exchange that came to nothing."""


class UnreachableError(WireError):
    """No connection could be made."""


class UntrustedError(WireError):
    """The certificate is not valid for the name."""


class ExhaustedError(WireError):
    """No further connection can be had in this process."""


class BrokenError(WireError):
    """The connection ended before the answer did."""


class _StaleError(BrokenError):
    """A connection that had served before ended before anything of the answer came."""


class SilentError(WireError):
    """Nothing came for too long."""


class GarbledError(WireError):
    """What came is not HTTP."""


class Wires:
    """The connections to one upstream.

    `headers` go with every request. Seconds: to connect, of silence that are borne, and that a connection is kept
    for its next use.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        most: int,
        connect_timeout: float,
        idle_timeout: float,
        kept: float,
    ) -> None:
        url = urlsplit(base_url)
        self._secure = url.scheme == "https"
        host = url.hostname or ""
        self._host = host if host.isascii() else host.encode("idna").decode()
        self._port = url.port or (443 if self._secure else 80)
        named = f"[{self._host}]" if ":" in self._host else self._host
        named += "" if url.port is None else f":{url.port}"
        lines = {"host": named, "user-agent": "antiphon", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._most = most
        self._connect_timeout = connect_timeout
        self.idle_timeout = idle_timeout
        self._kept = kept
        self._step = min(_LONGEST_STEP, idle_timeout / _STEPS, kept / _STEPS)
        self._timer: asyncio.TimerHandle | None = None
        self._context: ssl.SSLContext | None = None
        self._open: set[Answer] = set()
        self._free: list[Answer] = []
        self._count = 0
        self._closed = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> Answer:
        """Send a request for a path, and wait for the head of its answer. Leave it in any case.

        Raises:
            WireError: there is no answer.
            ValueError: a header holds what no header may.
        """
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            raise ValueError("a header of a request is not printable ASCII")
        more = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        size = "" if body is None else f"content-length: {len(body)}\r\n"
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{more}{size}\r\n".encode("latin-1")
        request = (head,) if body is None else (head, body) if len(body) > _LARGE else (head + body,)
        try:
            return await self._begun(request)
        except _StaleError:
            # Those that have waited longer for their next use are no better.
            for wire in list(self._free):
                wire.close()
        return await self._begun(request)

    def answering(self, seconds: float) -> bool:
        """Whether there is an answer that goes on, and of which something has come within that time."""
        now = asyncio.get_running_loop().time()
        return any(wire.answering(now, seconds) for wire in self._open)

    async def close(self) -> None:
        """Close every connection, and make no more; who reads from one gets an error."""
        self._closed = True
        for wire in list(self._open):
            wire.close()
        # A transport tells that it has closed a moment later.
        await asyncio.sleep(0)

    async def _begun(self, request: Sequence[bytes]) -> Answer:
        wire = await self._wire()
        try:
            await wire.begin(request)
        except BaseException:
            wire.leave()
            raise
        return wire

    async def _wire(self) -> Answer:
        while True:
            if self._closed:
                raise UnreachableError
            while self._free:
                wire = self._free.pop()
                if wire.usable:
                    return wire
            if self._count < self._most:
                return await self._connected()
            try:
                async with asyncio.timeout(self.idle_timeout):
                    await self._freed()
            except TimeoutError:
                raise ExhaustedError from None

    async def _freed(self) -> None:
        """Wait for a connection that another request is done with."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()
            raise

    async def _connected(self) -> Answer:
        loop = asyncio.get_running_loop()
        if self._secure and self._context is None:
            self._context = ssl.create_default_context()
            self._context.set_alpn_protocols(["http/1.1"])
        self._count += 1
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, wire = await loop.create_connection(
                    lambda: Answer(self),
                    self._host,
                    self._port,
                    ssl=self._context,
                    server_hostname=self._host if self._secure else None,
                )
        except BaseException as error:
            self._gone(None)
            if isinstance(error, OSError | UnicodeError):
                raise _unconnected(error) from None
            raise
        self._open.add(wire)
        if self._timer is None:
            self._timer = loop.call_later(self._step, self._look)
        return wire

    def _look(self) -> None:
        """Every moment: end what is silent, and what nobody has used again."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for wire in list(self._open):
            wire.look(now, self.idle_timeout, self._kept)
        self._timer = loop.call_later(self._step, self._look) if self._open else None

    # What its connections tell it

    def free(self, wire: Answer) -> None:
        """A connection can serve again."""
        self._free.append(wire)
        self._wake()

    def gone(self, wire: Answer) -> None:
        """A connection has ended."""
        if wire in self._open:
            self._open.discard(wire)
            self._gone(wire)

    def _gone(self, wire: Answer | None) -> None:
        self._count -= 1
        if wire in self._free:
            self._free.remove(wire)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class Answer(asyncio.Protocol):
    """A connection, and the answer that it carries now."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._chunks: list[bytes] = []
        # A piece of the body, of which a stream has as many as it has events: no function of ours is called for one.
        self.on_body = self._chunks.append
        self._parser = httptools.HttpResponseParser(self)
        self._unread = self._whole = self._begun = 0
        self._fault: WireError | None = None
        self._lost = False
        # No exchange yet.
        self._busy = self._left = False
        self._headed = self._ended = True
        self._head_size = 0
        self._framed = self._keeps = True
        self._unsent = 0
        self._heard = self._loop.time()
        self.status = 0
        self.headers: dict[str, str] = {}
        """Of the answer, by lower-case name; of one that is repeated, the last."""
        self.paused = False
        """Whether the upstream has to wait until more of the answer is read."""

    # What the client calls

    @property
    def usable(self) -> bool:
        """Whether another request can be sent on it."""
        return not (self._lost or self._busy or self._fault is not None or self._transport.is_closing())

    def answering(self, now: float, seconds: float) -> bool:
        """See `Wires.answering`."""
        return self._headed and not (self._ended or self._left) and now - self._heard < seconds

    @property
    def content_type(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def begin(self, request: Sequence[bytes]) -> None:
        """Send a request, in pieces, and wait for the head of its answer.

        Raises:
            WireError: there is none.
        """
        self._busy, self._left = True, False
        self._begun += 1
        self._headed = self._ended = False
        self._head_size = self._unsent = 0
        self.status, self.headers = 0, {}
        self._heard = self._loop.time()
        if len(request) == 1:
            self._transport.write(request[0])
        else:
            self._transport.writelines(request)
        while not self._headed:
            await self._more()

    async def read(self) -> bytes:
        """What has come of the body since the last read, or comes next; nothing at its end.

        Raises:
            WireError: it broke off.
        """
        while not self._chunks:
            if self._ended:
                return b""
            await self._more()
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._unread = 0
        if self.paused:
            self.paused = False
            self._heard = self._loop.time()
            self._transport.resume_reading()
        return data

    def leave(self, *, ended: bool = False) -> None:
        """Be done with the answer.

        Its connection is closed unless all of it has come, or its last event has (`ended`): then the rest is read, so
        that it serves again.
        """
        if self._left:
            return
        self._left = True
        self._chunks.clear()
        self._unread = 0
        if self._ended:
            self._finish()
        elif not ended or self.paused or self._fault is not None:
            self.close()
        else:
            self._heard = self._loop.time()

    def close(self) -> None:
        """Close the connection at once."""
        self._fail(BrokenError())

    def look(self, now: float, idle: float, kept: float) -> None:
        """Called every moment, with the seconds that may be silent, and that it is kept."""
        if not self._busy:
            if now - self._heard >= kept:
                self.close()
        elif self._left:
            if now - self._heard >= _DRAIN_SECONDS:
                self.close()
        elif self._waiter is None:
            # Nobody waits: it is not the upstream that is slow.
            self._heard = now
        elif now - self._heard >= idle:
            self._fail(SilentError())
        else:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent:
                self._heard = now
            self._unsent = unsent

    async def _more(self) -> None:
        if self._fault is not None:
            raise self._fault
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, fault: WireError) -> None:
        if self._fault is None:
            self._fault = fault
        if not self._lost:
            self._transport.abort()
        self._wires.gone(self)
        self._wake()

    def _finish(self) -> None:
        """The exchange is over, and its answer came to its end."""
        if self._lost or self._fault is not None or not self._framed or not self._keeps:
            self.close()
            return
        if self._transport.get_write_buffer_size():
            # It may never be read what the answer did not wait for.
            self.close()
            return
        self._busy = False
        self._heard = self._loop.time()
        self._wires.free(self)

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when it is open."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called for bytes that came."""
        if not self._busy or self._ended:
            # Nothing was asked.
            self._framed = False
            if not self._busy:
                self.close()
            return
        self._heard = self._loop.time()
        size = len(data)
        self._unread += size
        if not self._headed:
            self._head_size += size
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(GarbledError())
            return
        if self._left:
            self._chunks.clear()
        elif self._ended:
            # What follows the answer is no part of it.
            del self._chunks[self._whole :]
        if not self._headed and self._head_size > _MOST_HEAD:
            self._fail(GarbledError())
        elif self._left and self._ended:
            self._finish()
        elif self._headed:
            if self._unread > _MOST_UNREAD and not self.paused and not self._ended:
                self.paused = True
                self._transport.pause_reading()
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when it has ended."""
        self._lost = True
        if self._headed and not self._framed and exc is None and self._fault is None:
            # Where no length is given, this is the end.
            self._ended = True
        stale = self._begun > 1 and not (self._headed or self._head_size)
        self._fail(_StaleError() if stale else BrokenError())

    # What httptools calls

    def on_message_begin(self) -> None:
        """A head begins; after the answer there is to be none."""
        if self._ended:
            self._framed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if not self._headed:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is here; a status below 200 is not the answer's."""
        status = self._parser.get_status_code()
        if self._ended or status < 200:
            self.headers = {} if not self._ended else self.headers
            return
        self.status, self._headed = status, True
        self._keeps = self._parser.should_keep_alive()
        headers = self.headers
        self._framed = (
            status in (204, 304) or "content-length" in headers or "chunked" in headers.get("transfer-encoding", "")
        )

    def on_message_complete(self) -> None:
        """The answer came to its end."""
        if self._headed and not self._ended:
            self._ended = True
            self._whole = len(self._chunks)


def _unconnected(error: OSError | UnicodeError) -> WireError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return UntrustedError()
    if isinstance(error, OSError) and error.errno in _OURS:
        return ExhaustedError()
    return UnreachableError()

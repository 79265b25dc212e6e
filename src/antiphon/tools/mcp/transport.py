"""The HTTP of the MCP library, by way of the guarded client: the library asks, and where it may is decided here.

Every request goes to the origin that the server's URL names, at an address that was vetted for it; a redirect out of
it is never followed, and a body that grows too long is cut off while it comes. What the library does not tell of a
fault, such as the status of an answer, is noted in the `Trouble` of the call that it is of.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Final

import httpx2

from antiphon.errors import OutboundError, OutboundRefusedError
from antiphon.outbound.answer import OutboundStream
from antiphon.outbound.client import OutboundClient
from antiphon.outbound.target import Target, parse_target

__all__ = ["MOST_BYTES", "GuardedTransport", "Trouble", "trouble"]

MOST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one answer: of a result, a list, or all that a stream of events brings."""

CLOSING_SECONDS: Final = 2.0
MOST_RESUMED: Final = 3
"""How often an answer that broke off may be asked for again; the library would go on for as long as a server likes."""

MOST_ASKED: Final = 1_000
"""Requests of one call, and of the answers to what a server asks of its client."""

_NO_ANSWER: Final = 599
_PLAIN: Final = frozenset({"", "identity"})
_DROPPED: Final = frozenset({"host", "accept-encoding", "connection", "user-agent", "content-length"})


class Trouble:
    """What went wrong in HTTP beneath a call: the status of an answer, or why there was none."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.message: str | None = None
        self.asked = 0
        self.resumed = 0
        self.happened = asyncio.Event()

    def note(self, status: int | None, message: str | None = None) -> None:
        """Keep what is known of it."""
        self.status = status or self.status
        self.message = message or self.message
        self.happened.set()


trouble: ContextVar[Trouble | None] = ContextVar("trouble", default=None)
"""The trouble of whoever asks now; the library's tasks inherit it."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Asks one origin through the guarded client; an answer must begin within so many seconds.

    `ended` is there where all answers come over one stream, as with SSE, and is called when that ends.
    """

    def __init__(
        self, client: OutboundClient, url: str, seconds: float, *, ended: Callable[[], None] | None = None
    ) -> None:
        self._client = client
        self._origin: Target = parse_target(url)
        self._seconds = seconds
        self._ended = ended

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; where that fails there is an answer that says so, since the library outlives only those."""
        noted = trouble.get() or Trouble()
        if not self._may(request, noted):
            return httpx2.Response(405)
        body = await request.aread()
        headers = {name: value for name, value in request.headers.items() if name not in _DROPPED}
        seconds = CLOSING_SECONDS if request.method == "DELETE" else self._seconds
        try:
            url = str(request.url)
            if not parse_target(url).same_origin(self._origin):
                raise OutboundRefusedError("The server leads to another one, which is not asked.")
            async with asyncio.timeout(seconds):
                answer = await self._client.begin(request.method, url, headers=headers, body=body or None)
        except OutboundError as error:
            noted.note(None, str(error))
            return httpx2.Response(_NO_ANSWER)
        except TimeoutError:
            noted.note(None, "The server was too slow.")
            return httpx2.Response(_NO_ANSWER)
        if answer.status >= 300 and request.method == "POST":
            noted.note(answer.status)
        elif noted.status is not None and request.method == "POST":
            # A redirect within the origin that was followed.
            noted.status = None
        ended = self._ended if request.method == "GET" else None
        headers = dict(answer.headers)
        if headers.pop("content-encoding", "").lower() not in _PLAIN:
            answer.close()
            noted.note(None, "The server compressed its answer, which it was asked not to do.")
            return httpx2.Response(_NO_ANSWER)
        return httpx2.Response(answer.status, headers=headers, stream=_Body(answer, noted, ended))

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.close()

    def _may(self, request: httpx2.Request, noted: Trouble) -> bool:
        """Whether a request is one that a call needs, and not what a server would keep this one busy with."""
        noted.asked += 1
        if noted.asked > MOST_ASKED:
            noted.note(None, "The server asked for too much.")
            return False
        if request.method != "GET" or self._ended is not None:
            return True
        # A standing stream is for what servers say unasked, which nobody here listens to.
        noted.resumed += "last-event-id" in request.headers
        return "last-event-id" in request.headers and noted.resumed <= MOST_RESUMED


class _Body(httpx2.AsyncByteStream):
    def __init__(self, answer: OutboundStream, noted: Trouble, ended: Callable[[], None] | None) -> None:
        self._answer = answer
        self._noted = noted
        self._ended = ended

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer.chunks(MOST_BYTES):
                yield chunk
        except OutboundError as error:
            self._noted.note(None, str(error))
            # The one kind of error that the library takes for a bad answer, and not for its own end.
            raise httpx2.StreamError(str(error)) from None
        finally:
            if self._ended is not None:
                self._ended()

    async def aclose(self) -> None:
        self._answer.close()

"""An upstream over HTTP: one pool of connections, and streams of events within limits of size and time.

Nothing of the environment is used, no redirect is followed, and the key goes to the one address that the settings name
(faults B3 24). Closing a stream closes its connection, which is how an upstream learns that nobody listens any more; a
connection whose stream has come to its end is used again.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, cast

import aiohttp
import msgspec
from msgspec import Struct

from antiphon.engines.base import EngineLostError
from antiphon.engines.upstream.wire import DONE_EVENT, Models, decode_models
from antiphon.engines.upstream.words import INVALID, UPSTREAM_ERROR, told_words, upstream_fault
from antiphon.errors import EngineError
from antiphon.protocol.json import encode
from antiphon.protocol.sse import ServerSentEvent, SSEError, SSEParser

__all__ = ["UpstreamClient", "UpstreamLostError", "UpstreamMissingError", "UpstreamRefusedError", "UpstreamTarget"]

_MOST_CONNECTIONS: Final = 512
_MOST_EVENT: Final = 16 * 1024 * 1024
_MOST_ANSWER: Final = 256 * 1024 * 1024
_MOST_REFUSAL: Final = 64 * 1024
_MOST_MODELS: Final = 4 * 1024 * 1024
_MOST_LEAVING: Final = 64
_DRAIN_SECONDS: Final = 1.0
_KEPT_SECONDS: Final = 4.0
"""Seconds that a connection waits for its next use: servers of Python close theirs after five."""

_GONE: Final = frozenset({502, 503, 504})
"""What a proxy answers where what it stands for is not there."""

_REFUSED: Final = frozenset({400, 422})
_BUSY: Final = 503
_MISSING: Final = 404
_TYPES: Final = {401: "authentication_error", 403: "permission_error", 409: "conflict_error", 429: "rate_limit_error"}
_MOST_RETRY_SECONDS: Final = 3_600.0
_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class UpstreamTarget(Struct, frozen=True):
    """Where an upstream is: its URL up to `/v1`, its key, and seconds: to connect, and of silence that are borne.

    `query` is what every URL ends with, and `key_header` the header of the key where it is no bearer's.
    """

    base_url: str
    key: str = ""
    connect_timeout: float = 5.0
    idle_timeout: float = 120.0
    query: str = ""
    key_header: str | None = None

    def url(self, path: str) -> str:
        """The URL of a path below that of the upstream."""
        mark = "&" if "?" in path else "?"
        return f"{self.base_url}{path}{mark}{self.query}" if self.query else self.base_url + path

    def credentials(self) -> dict[str, str]:
        """The header that holds the key, where there is one."""
        if not self.key:
            return {}
        return {"authorization": f"Bearer {self.key}"} if self.key_header is None else {self.key_header: self.key}


class UpstreamLostError(EngineLostError):
    """The upstream cannot be reached, or broke the connection off."""

    default_code = "upstream_lost"


class UpstreamRefusedError(EngineError):
    """The upstream does not take the request as it is; nothing was generated."""


class UpstreamMissingError(EngineError):
    """The upstream has nothing under that name."""


class UpstreamClient:
    """Calls to one upstream."""

    def __init__(self, target: UpstreamTarget) -> None:
        self._target = target
        self._session: aiohttp.ClientSession | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close every connection."""
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def models(self, seconds: float) -> Models | None:
        """What it says of its models; None where it does not answer within that time.

        Any answer that is no failure of the server is one: not every upstream has such a list.
        """
        try:
            async with (
                asyncio.timeout(seconds),
                self._opened().get(self._target.url("/models"), allow_redirects=False) as response,
            ):
                if response.status >= 500:
                    return None
                body = await _bounded(response, _MOST_MODELS)
                return decode_models(body) if response.status == 200 else Models()
        except EngineError:
            return Models()
        except (aiohttp.ClientError, OSError, ValueError):
            # A timeout is an OSError.
            return None

    async def stream(
        self, body: Mapping[str, Any] | None, path: str = "/chat/completions", headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Sequence[ServerSentEvent]]:
        """The events of a streamed answer, in lists of what one read brought; without a body it is only looked up.

        An upstream that answers with the whole of it gives one event.

        Raises:
            UpstreamLostError: it cannot be reached, or breaks off.
            UpstreamRefusedError: it does not take the request as it is.
            UpstreamMissingError: it does not have what is looked up, or no such model.
            EngineError: it refuses for another reason, is silent for too long, or what it sends is no stream of events.
        """
        response: aiohttp.ClientResponse | None = None
        ended = False
        try:
            method, data = ("GET", None) if body is None else ("POST", BytesIO(encode(body)))
            response = await self._opened().request(
                method, self._target.url(path), data=data, headers=headers, allow_redirects=False
            )
            if response.status != 200:
                raise _refusal(response.status, await _bounded(response, _MOST_REFUSAL), response.headers)
            if response.content_type == "application/json":
                whole = await _bounded(response, _MOST_EVENT)
                yield [ServerSentEvent("message", whole.decode())]
                return
            parser, size = SSEParser(_MOST_EVENT), 0
            async for data in response.content.iter_any():
                size += len(data)
                if size > _MOST_ANSWER:
                    raise EngineError("The upstream sent more than an answer can be.", code=INVALID)
                events = parser.feed(data)
                if events:
                    ended = events[-1].data == DONE_EVENT
                    yield events
        except (SSEError, UnicodeDecodeError):
            raise EngineError("The upstream sent what is no stream of events.", code=INVALID) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from None
        finally:
            if response is not None:
                self._leave(response, ended=ended)

    def _leave(self, response: aiohttp.ClientResponse, *, ended: bool) -> None:
        """Close the connection, unless all events have come: then its end is waited for, so that it is used again."""
        if not ended or response.content.at_eof() or len(self._leaving) >= _MOST_LEAVING:
            response.close()
            return
        task = asyncio.create_task(_drained(response))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
            headers |= self._target.credentials()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS, keepalive_timeout=_KEPT_SECONDS),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._target.connect_timeout, sock_read=self._target.idle_timeout
                ),
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session

    def _broken(self, error: aiohttp.ClientError | OSError) -> EngineError:
        """What a call that had no whole answer tells of the upstream."""
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return UpstreamLostError("The upstream cannot be reached.")
        if isinstance(error, TimeoutError):
            return EngineError(
                f"The upstream was silent for {self._target.idle_timeout:g} seconds.", code="upstream_timeout"
            )
        if isinstance(error, OSError) and error.errno in _OURS:
            return EngineError("The server has no connection left for the upstream.")
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return EngineError("The certificate of the upstream is not valid for its name.", code=UPSTREAM_ERROR)
        if isinstance(error, aiohttp.ClientConnectorError):
            return UpstreamLostError("The upstream cannot be reached.")
        if isinstance(error, aiohttp.ClientResponseError):
            return EngineError("The upstream does not answer in HTTP.", code=INVALID)
        return UpstreamLostError("The upstream broke the connection off.")


async def _drained(response: aiohttp.ClientResponse) -> None:
    """Read what stands behind the last event, which is nothing; else close the connection."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in response.content.iter_any():
                pass
    except (aiohttp.ClientError, OSError):
        pass
    finally:
        # At its end it has gone back to the pool already.
        response.close()


async def _bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) > most:
            raise EngineError("The upstream sent more than an answer can be.", code=INVALID)
    return bytes(body)


def _refusal(status: int, body: bytes, headers: Mapping[str, str]) -> EngineError:
    """The error for an answer that is none; who waits for the whole answer gets its status too."""
    fault = _fault(status, body)
    if status >= 400 and status not in _GONE - {_BUSY}:
        fault.refused, fault.http_status = True, status
        fault.type = _TYPES.get(status, "invalid_request_error" if status < 500 else fault.type)
        fault.retry_after = _retry_seconds(headers)
    return fault


def _retry_seconds(headers: Mapping[str, str]) -> float | None:
    """After how long the upstream says that it may be asked again."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            # It says nothing, or a date.
            continue
        if 0 < seconds <= _MOST_RETRY_SECONDS:
            return seconds
    return None


def _fault(status: int, body: bytes) -> EngineError:
    """What such an answer means here; what an upstream says of our key is for nobody else."""
    if status in (401, 403):
        return EngineError("The upstream does not accept the key of this server.", code="upstream_unauthorized")
    if status in _GONE:
        return UpstreamLostError(f"The upstream answers {status}.")
    lead = f"The upstream answers {status}"
    if status < 400:
        return EngineError(f"{lead}, which is no answer to a request.", code=INVALID)
    fault = upstream_fault(_said(body), lead=lead)
    if fault.code != UPSTREAM_ERROR:
        return fault
    if status == 429:
        fault.code = "rate_limit_exceeded"
    elif status in _REFUSED:
        return UpstreamRefusedError(fault.message, code=fault.code)
    elif status == _MISSING:
        return UpstreamMissingError(fault.message, code=fault.code)
    return fault


def _said(body: bytes) -> Any:
    try:
        said: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return told_words(body.decode(errors="replace"))
    if not isinstance(said, dict):
        return said
    fields = cast("dict[str, Any]", said)
    return fields.get("error") or fields

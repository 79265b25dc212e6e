"""An upstream over HTTP: one pool of connections, and streams of events within limits of size and time.

Nothing of the environment is used, no redirect is followed, and the key goes to the one address that the settings name
(faults B3 24). Closing a stream closes its connection, which is how an upstream learns that nobody listens any more; a
connection whose stream has come to its end is used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self, cast
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from antiphon.engines.base import EngineLostError
from antiphon.engines.upstream.wire import DONE_EVENT, Models, decode_models
from antiphon.engines.upstream.wires import (
    Answer,
    ExhaustedError,
    GarbledError,
    SilentError,
    UnreachableError,
    UntrustedError,
    WireError,
    Wires,
)
from antiphon.engines.upstream.words import INVALID, UPSTREAM_ERROR, told_words, upstream_fault
from antiphon.errors import EngineError
from antiphon.protocol.json import encode
from antiphon.protocol.sse import ServerSentEvent, SSEError, SSEParser

__all__ = [
    "UpstreamClient",
    "UpstreamEvents",
    "UpstreamLostError",
    "UpstreamMissingError",
    "UpstreamRefusedError",
    "UpstreamTarget",
    "bounded",
]

_MOST_CONNECTIONS: Final = 512
_MOST_EVENT: Final = 16 * 1024 * 1024
_MOST_ANSWER: Final = 256 * 1024 * 1024
_MOST_REFUSAL: Final = 64 * 1024
_MOST_MODELS: Final = 4 * 1024 * 1024
_KEPT_SECONDS: Final = 4.0
"""Seconds that a connection waits for its next use: servers of Python close theirs after five."""

_SAFE: Final = "/%:@!$&'()*+,;=~-._"
_VERSION: Final = "/v1"
_GONE: Final = frozenset({502, 503, 504})
"""What a proxy answers where what it stands for is not there."""

_REFUSED: Final = frozenset({400, 422})
_BUSY: Final = 503
_MISSING: Final = 404
_TYPES: Final = {401: "authentication_error", 403: "permission_error", 409: "conflict_error", 429: "rate_limit_error"}
_MOST_RETRY_SECONDS: Final = 3_600.0


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
        self._path = quote(urlsplit(target.base_url).path.rstrip("/"), safe=_SAFE)
        self._root = self._path.removesuffix(_VERSION)
        headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
        self._wires = Wires(
            target.base_url,
            {**headers, "accept-encoding": "identity", **target.credentials()},
            most=_MOST_CONNECTIONS,
            connect_timeout=target.connect_timeout,
            idle_timeout=target.idle_timeout,
            kept=_KEPT_SECONDS,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._wires.close()

    def answering(self, seconds: float) -> bool:
        """Whether it goes on with an answer, of which something has come within that time."""
        return self._wires.answering(seconds)

    async def models(self, seconds: float) -> Models | None:
        """What it says of its models; None where it does not answer within that time.

        Any answer that is no failure of the server is one: not every upstream has such a list.
        """
        try:
            async with asyncio.timeout(seconds):
                answer = await self.ask("/models")
                try:
                    if answer.status >= 500:
                        return None
                    body = await bounded(answer, _MOST_MODELS)
                    return decode_models(body) if answer.status == 200 else Models()
                finally:
                    answer.leave()
        except EngineError:
            return Models()
        except (WireError, TimeoutError):
            return None

    def stream(
        self,
        body: Mapping[str, Any] | None,
        path: str,
        headers: Mapping[str, str] | None = None,
        taken: Callable[[], None] | None = None,
    ) -> UpstreamEvents:
        """The events of a streamed answer; without a body it is only looked up. They are to be closed in any case.

        `taken` is called when the upstream has answered, and has not refused.
        """
        return UpstreamEvents(self, body, path, headers or {}, taken)

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        root: bool = False,
    ) -> Answer:
        """The answer of the upstream to a request, to be left in any case.

        A path of the `root` is beside `/v1`, not below it.

        Raises:
            WireError: there is none.
        """
        place = (self._root if root else self._path) + self._target.url(path).removeprefix(self._target.base_url)
        method, data = ("GET", None) if body is None else ("POST", encode(body))
        return await self._wires.ask(method, place, data, headers or {})

    def broken(self, error: WireError) -> EngineError:
        """What a call that had no whole answer tells of the upstream."""
        if isinstance(error, UnreachableError):
            return UpstreamLostError("The upstream cannot be reached.")
        if isinstance(error, SilentError):
            return EngineError(
                f"The upstream was silent for {self._target.idle_timeout:g} seconds.", code="upstream_timeout"
            )
        if isinstance(error, ExhaustedError):
            return EngineError("The server has no connection left for the upstream.")
        if isinstance(error, UntrustedError):
            return EngineError("The certificate of the upstream is not valid for its name.", code=UPSTREAM_ERROR)
        if isinstance(error, GarbledError):
            return EngineError("The upstream does not answer in HTTP.", code=INVALID)
        return UpstreamLostError("The upstream broke the connection off.")


class UpstreamEvents:
    """The events of one answer, in lists of what one read brought; an answer that is not streamed is one event.

    It is no generator, since one costs several times as much, and this is asked for every read.

    Raises, while it is iterated:
        UpstreamLostError: it cannot be reached, or breaks off.
        UpstreamRefusedError: it does not take the request as it is.
        UpstreamMissingError: it does not have what is looked up, or no such model.
        EngineError: it refuses for another reason, is silent for too long, or what it sends is no stream of events.
    """

    def __init__(
        self,
        client: UpstreamClient,
        body: Mapping[str, Any] | None,
        path: str,
        headers: Mapping[str, str],
        taken: Callable[[], None] | None,
    ) -> None:
        self._client = client
        self._request = path, body, headers
        self._taken = taken
        self._answer: Answer | None = None
        self._parser = SSEParser(_MOST_EVENT)
        self._size = 0
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[ServerSentEvent]:
        try:
            answer = self._answer or await self._ask()
            if answer.content_type == "application/json":
                return await self._whole(answer)
            while data := await answer.read():
                self._size += len(data)
                if self._size > _MOST_ANSWER:
                    raise EngineError("The upstream sent more than an answer can be.", code=INVALID)
                events = self._parser.feed(data)
                if events:
                    self._ended = events[-1].data == DONE_EVENT
                    return events
        except WireError as error:
            raise self._client.broken(error) from None
        except (SSEError, UnicodeDecodeError):
            raise EngineError("The upstream sent what is no stream of events.", code=INVALID) from None
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Close the connection, unless all events have come: then its end is waited for, so that it is used again."""
        if self._answer is not None:
            self._answer.leave(ended=self._ended)

    async def _ask(self) -> Answer:
        answer = self._answer = await self._client.ask(*self._request)
        if answer.status != 200:
            raise _refusal(answer.status, await bounded(answer, _MOST_REFUSAL), answer.headers)
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise EngineError("The upstream answers in an encoding that it was not asked for.", code=INVALID)
        if self._taken is not None:
            self._taken()
        return answer

    async def _whole(self, answer: Answer) -> Sequence[ServerSentEvent]:
        if self._ended:
            raise StopAsyncIteration
        whole = await bounded(answer, _MOST_EVENT)
        self._ended = True
        return [ServerSentEvent("message", whole.decode())]


async def bounded(answer: Answer, most: int) -> bytes:
    """The body of an answer.

    Raises:
        WireError: it broke off.
        EngineError: it has more bytes than that.
    """
    body = bytearray()
    while data := await answer.read():
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
    if status == _MISSING:
        return UpstreamMissingError(fault.message, code=fault.code)
    if fault.code != UPSTREAM_ERROR:
        return fault
    if status == 429:
        fault.code = "rate_limit_exceeded"
    elif status in _REFUSED:
        return UpstreamRefusedError(fault.message, code=fault.code)
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

"""The two shells around httpx2: each carries out one step, and says what went wrong in the driver's terms."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import httpx2

from antiphon.client.errors import BodyError, TransportError
from antiphon.client.steps import Answer, Ask, Pause, Read, Step

__all__ = ["CONNECT_SECONDS", "MAX_BODY", "AsyncConnection", "Connection", "telling"]

CONNECT_SECONDS: Final = 5.0
"""How long a connection may take to be made."""

MAX_BODY = 256 * 1024 * 1024
"""The longest body of a whole answer, in bytes."""


class Connection:
    """One call over a synchronous client; at most one stream is open."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client
        self._response: httpx2.Response | None = None
        self._bytes: Iterator[bytes] = iter(())

    def perform(self, step: Step) -> Any:
        """Do it, and give what came of it.

        Raises:
            TransportError: the endpoint could not be reached, broke off or was too slow.
            BodyError: its answer is too large.
        """
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        with telling():
            return next(self._bytes, b"") if isinstance(step, Read) else self._ask(step)

    def close(self) -> None:
        """Close what is open."""
        response, self._response = self._response, None
        if response is not None:
            response.close()

    def _ask(self, step: Step) -> Answer:
        assert isinstance(step, Ask)  # noqa: S101 - the caller hands on all others
        self.close()
        request = self._client.build_request(
            step.method, step.url, headers=step.headers, content=step.body, timeout=self._timeout(step)
        )
        response = self._client.send(request, stream=True)
        if step.streamed and _is_stream(response):
            self._response = response
            self._bytes = response.iter_bytes()
            return _answer(response, b"", is_open=True)
        try:
            body = bytearray()
            end = None if step.seconds is None else time.monotonic() + step.seconds
            for piece in response.iter_bytes():
                _grow(body, piece)
                if end is not None and time.monotonic() > end:
                    raise TransportError("The endpoint was too slow.", timeout=True)
            return _answer(response, bytes(body))
        finally:
            response.close()

    def _timeout(self, step: Ask) -> httpx2.Timeout:
        """The client's own, but none of it longer than the step may wait."""
        own, most = self._client.timeout, step.seconds
        if most is None:
            return own
        waits = {name: most if wait is None else min(wait, most) for name, wait in own.as_dict().items()}
        return httpx2.Timeout(**waits)


class AsyncConnection:
    """One call over an asynchronous client; at most one stream is open."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._response: httpx2.Response | None = None
        self._bytes: AsyncIterator[bytes] | None = None

    async def perform(self, step: Step) -> Any:
        """Do it, and give what came of it.

        Raises:
            TransportError: the endpoint could not be reached, broke off or was too slow.
            BodyError: its answer is too large.
        """
        if isinstance(step, Pause):
            await anyio.sleep(step.seconds)
            return None
        with telling():
            if isinstance(step, Read):
                return b"" if self._bytes is None else await anext(self._bytes, b"")
            return await self._ask(step)

    async def close(self) -> None:
        """Close what is open."""
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    async def _ask(self, step: Step) -> Answer:
        assert isinstance(step, Ask)  # noqa: S101 - the caller hands on all others
        await self.close()
        request = self._client.build_request(step.method, step.url, headers=step.headers, content=step.body)
        response = await self._client.send(request, stream=True)
        if step.streamed and _is_stream(response):
            self._response = response
            self._bytes = response.aiter_bytes()
            return _answer(response, b"", is_open=True)
        try:
            body = bytearray()
            async for piece in response.aiter_bytes():
                _grow(body, piece)
            return _answer(response, bytes(body))
        finally:
            await response.aclose()


def _grow(body: bytearray, piece: bytes) -> None:
    body += piece
    if len(body) > MAX_BODY:
        raise BodyError(f"The endpoint's answer is larger than {MAX_BODY} bytes.")


def _is_stream(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "")
    return 200 <= response.status_code < 300 and not kind.startswith("application/json")


def _answer(response: httpx2.Response, body: bytes, *, is_open: bool = False) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status_code, headers, body, is_open)


@contextmanager
def telling() -> Generator[None]:
    """Says in the driver's terms what goes wrong with httpx2 inside of the block."""
    try:
        yield
    except httpx2.TimeoutException as error:
        raise TransportError(f"The endpoint was too slow ({type(error).__name__}).", timeout=True) from error
    except (httpx2.RequestError, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise TransportError(
            f"The endpoint could not be reached, or broke off ({type(error).__name__}: {error})."
        ) from error

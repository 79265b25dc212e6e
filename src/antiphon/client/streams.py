"""Streamed answers: an iterator of chunks that has the whole answer at its end, synchronous and asynchronous."""

from __future__ import annotations

import contextlib
from collections import deque
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
import httpx2

from antiphon.client.chunks import Chunk
from antiphon.client.connection import AsyncConnection, Connection
from antiphon.client.deadline import AsyncLine, AsyncTimed, Line, Timed
from antiphon.client.driver import Driver
from antiphon.client.errors import DriverError, TransportError
from antiphon.client.response import Response
from antiphon.client.steps import Emit, Player, Steps
from antiphon.client.stream import StreamDecoder

__all__ = ["AsyncStream", "Stream", "Streamed"]

CANCEL_SECONDS = 5.0
"""How long leaving a stream early may take."""


class Streamed(Protocol):
    """A call that a stream plays."""

    decoder: StreamDecoder

    @property
    def to_cancel(self) -> str | None:
        """The id of the response that is to be cancelled if the caller leaves now; None where there is nothing to."""
        ...

    def steps(self) -> Steps[Response]:
        """The chunks of the stream, and at its end the answer."""
        ...


class _Streaming:
    """What both kinds have in common: where the stream stands."""

    def __init__(self, driver: Driver, call: Streamed) -> None:
        self._driver = driver
        self._call = call
        self._player: Player[Response] = Player(call.steps())
        self._ready: deque[Chunk] = deque()
        self._closed = False

    @property
    def response_id(self) -> str | None:
        """The id of the answer, as soon as it is known."""
        return self._call.decoder.response_id

    def snapshot(self) -> Response:
        """The answer as far as it has come."""
        return self._call.decoder.snapshot()


class Stream(_Streaming):
    """A streamed answer. Iterate it for its chunks; `response()` is the answer that they make.

    Who leaves early calls `close`, or uses `with`: the endpoint stops too.
    """

    def __init__(
        self,
        driver: Driver,
        call: Streamed,
        client: httpx2.Client,
        line: Line | None = None,
        *,
        total: float | None = None,
    ) -> None:
        super().__init__(driver, call)
        self._client = client
        self._connection = Timed(line or Connection(client), total)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        while not self._ready:
            if self._closed or not self._advance():
                raise StopIteration
        return self._ready.popleft()

    def response(self) -> Response:
        """The answer; chunks that nobody has taken yet are passed over.

        Raises:
            DriverError: as the stream itself does.
        """
        while not self._player.ended and not self._closed:
            self._advance()
        return self._player.value if self._player.ended else self.snapshot()

    def close(self) -> None:
        """Leave; an answer that has not ended, and that nobody else waits for, is cancelled."""
        if self._closed:
            return
        self._closed = True
        self._player.close()
        self._connection.close()
        response_id = self._call.to_cancel
        if response_id is not None:
            with contextlib.suppress(DriverError):
                self._cancel(response_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        # Who breaks out of a loop over a stream has left it too.
        with contextlib.suppress(Exception):
            self.close()

    def _advance(self) -> bool:
        """Go on until there are chunks; False at the end."""
        result: Any = None
        failure: TransportError | None = None
        try:
            while (step := self._player.next(result, failure)) is not None:
                if isinstance(step, Emit):
                    self._ready.extend(step.chunks)
                    return True
                result = failure = None
                try:
                    result = self._connection.perform(step)
                except TransportError as error:
                    failure = error
        except BaseException:
            self.close()
            raise
        self._connection.close()
        return False

    def _cancel(self, response_id: str) -> None:
        player = Player(self._driver.cancel(response_id))
        connection = Connection(self._client)
        try:
            step = player.next()
            if step is not None:
                connection.perform(step)
        finally:
            player.close()
            connection.close()


class AsyncStream(_Streaming):
    """A streamed answer. Iterate it for its chunks; `response()` is the answer that they make.

    Who leaves early calls `close`, or uses `async with`: the endpoint stops too. A task that is cancelled while it
    waits for a chunk leaves so as well.
    """

    def __init__(
        self,
        driver: Driver,
        call: Streamed,
        client: httpx2.AsyncClient,
        line: AsyncLine | None = None,
        *,
        total: float | None = None,
    ) -> None:
        super().__init__(driver, call)
        self._client = client
        self._connection = AsyncTimed(line or AsyncConnection(client), total)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while not self._ready:
            if self._closed or not await self._advance():
                raise StopAsyncIteration
        return self._ready.popleft()

    async def response(self) -> Response:
        """The answer; chunks that nobody has taken yet are passed over.

        Raises:
            DriverError: as the stream itself does.
        """
        while not self._player.ended and not self._closed:
            await self._advance()
        return self._player.value if self._player.ended else self.snapshot()

    async def close(self) -> None:
        """Leave; an answer that has not ended, and that nobody else waits for, is cancelled."""
        if self._closed:
            return
        self._closed = True
        self._player.close()
        with anyio.move_on_after(CANCEL_SECONDS, shield=True):
            await self._connection.close()
            response_id = self._call.to_cancel
            if response_id is not None:
                with contextlib.suppress(DriverError):
                    await self._cancel(response_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _advance(self) -> bool:
        """Go on until there are chunks; False at the end."""
        result: Any = None
        failure: TransportError | None = None
        try:
            while (step := self._player.next(result, failure)) is not None:
                if isinstance(step, Emit):
                    self._ready.extend(step.chunks)
                    return True
                result = failure = None
                try:
                    result = await self._connection.perform(step)
                except TransportError as error:
                    failure = error
        except BaseException:
            await self.close()
            raise
        await self._connection.close()
        return False

    async def _cancel(self, response_id: str) -> None:
        player = Player(self._driver.cancel(response_id))
        connection = AsyncConnection(self._client)
        try:
            step = player.next()
            if step is not None:
                await connection.perform(step)
        finally:
            player.close()
            await connection.close()

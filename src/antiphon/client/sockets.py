"""Sessions over a WebSocket: many answers over one connection, synchronous and asynchronous."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias, Unpack

import anyio
import httpx2
from anyio.abc import TaskGroup, TaskStatus

from antiphon.client.connection import AsyncConnection, Connection, telling
from antiphon.client.driver import Driver
from antiphon.client.encode import Conversation
from antiphon.client.errors import DriverError, TransportError
from antiphon.client.options import Options
from antiphon.client.request import Request
from antiphon.client.response import Response
from antiphon.client.socketcall import SocketCall, SocketState
from antiphon.client.steps import Answer, Connect, Read, Send, Step
from antiphon.client.streams import AsyncStream, Stream

if TYPE_CHECKING:
    from httpx2.websockets import WebSocketSession

__all__ = ["AsyncSession", "Session"]

_MAX_MESSAGE: Final = 64 * 1024 * 1024
MakeRequest = Callable[[Conversation, "str | None", Mapping[str, Any]], Request]


class _Socket:
    """The socket of a session, synchronous."""

    def __init__(self, client: httpx2.Client, silence: float) -> None:
        self._client = client
        self._silence = silence
        self._stack = ExitStack()
        self._socket: WebSocketSession | None = None

    def perform(self, step: Step) -> Any:
        """Do it, and give what came of it."""
        if isinstance(step, Connect):
            return self._connect(step)
        if self._socket is None or not isinstance(step, Send | Read):
            return Connection(self._client).perform(step)
        from httpx2.websockets import HTTPXWSException

        try:
            if isinstance(step, Send):
                return self._socket.send_text(step.message.decode())
            seconds = self._silence if step.seconds is None else min(self._silence, step.seconds)
            return self._socket.receive_text(seconds).encode()
        except TimeoutError:
            self.close()
            raise TransportError("The endpoint said nothing for too long.", timeout=True) from None
        except HTTPXWSException as error:
            self.close()
            raise TransportError(f"The connection broke off ({type(error).__name__}).") from error

    def close(self) -> None:
        """Close the connection."""
        self._socket = None
        stack, self._stack = self._stack, ExitStack()
        stack.close()

    def _connect(self, step: Connect) -> Answer:
        self.close()
        from httpx2.websockets import WebSocketUpgradeError

        try:
            with telling():
                opened = self._client.websocket(step.url, headers=step.headers, max_message_size_bytes=_MAX_MESSAGE)
                self._socket = self._stack.enter_context(opened)
        except WebSocketUpgradeError as error:
            body = b""
            with suppress(httpx2.HTTPError, httpx2.StreamError):
                body = error.response.read()
            return Answer(error.response.status_code, dict(error.response.headers), body)
        return Answer(200, {})


class TextSocket(Protocol):
    """An open WebSocket of texts."""

    async def send_text(self, text: str, /) -> None:
        """Send a message."""
        ...

    async def receive_text(self, seconds: float, /) -> str:
        """The next message; a `TimeoutError` where none comes in that time."""
        ...


Opens: TypeAlias = Callable[[Connect], AbstractAsyncContextManager[TextSocket]]
"""What opens a WebSocket."""


class _AsyncSocket:
    """The socket of a session, asynchronous; a task of its own holds it open, so that any may close it."""

    def __init__(self, client: httpx2.AsyncClient, silence: float, opens: Opens | None) -> None:
        self._client = client
        self._silence = silence
        self._opens = opens or self._over_http
        self.tasks: TaskGroup | None = None
        self._socket: TextSocket | None = None
        self._leave = anyio.Event()
        self._left = anyio.Event()

    async def perform(self, step: Step) -> Any:
        """Do it, and give what came of it."""
        if isinstance(step, Connect):
            return await self._connect(step)
        if self._socket is None or not isinstance(step, Send | Read):
            return await AsyncConnection(self._client).perform(step)
        from httpx2.websockets import HTTPXWSException

        try:
            if isinstance(step, Send):
                return await self._socket.send_text(step.message.decode())
            return (await self._socket.receive_text(self._silence)).encode()
        except TimeoutError:
            await self.close()
            raise TransportError("The endpoint said nothing for too long.", timeout=True) from None
        except HTTPXWSException as error:
            await self.close()
            raise TransportError(f"The connection broke off ({type(error).__name__}).") from error

    async def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket = None
            self._leave.set()
            await self._left.wait()

    async def _connect(self, step: Connect) -> Answer:
        await self.close()
        if self.tasks is None:
            raise DriverError("A session is used with `async with`.")
        from httpx2.websockets import HTTPXWSException, WebSocketUpgradeError

        self._leave, self._left = anyio.Event(), anyio.Event()
        try:
            with telling():
                self._socket = await self.tasks.start(self._hold, step, HTTPXWSException)
        except WebSocketUpgradeError as error:
            body = b""
            with suppress(httpx2.HTTPError, httpx2.StreamError):
                body = await error.response.aread()
            return Answer(error.response.status_code, dict(error.response.headers), body)
        return Answer(200, {})

    async def _hold(self, step: Connect, gone: type[Exception], *, task_status: TaskStatus[TextSocket]) -> None:
        leave, left = self._leave, self._left
        begun = False
        try:
            async with self._opens(step) as socket:
                begun = True
                task_status.started(socket)
                await leave.wait()
        except gone:
            # Who reads or writes is told by the socket itself.
            if not begun:
                raise
        finally:
            left.set()

    def _over_http(self, step: Connect) -> AbstractAsyncContextManager[TextSocket]:
        return self._client.websocket(step.url, headers=step.headers, max_message_size_bytes=_MAX_MESSAGE)


class _Lease:
    """The socket for one answer: it is closed only where the answer was left."""

    def __init__(self, socket: _Socket, call: SocketCall, state: SocketState) -> None:
        self._socket = socket
        self._call = call
        self._state = state
        self.perform = socket.perform

    def close(self) -> None:
        """Leave: what is still to come would be taken for the next answer."""
        if self._state.is_open and self._call.waiting:
            self._state.is_open = False
            self._socket.close()


class _AsyncLease:
    """The socket for one answer: it is closed only where the answer was left."""

    def __init__(self, socket: _AsyncSocket, call: SocketCall, state: SocketState) -> None:
        self._socket = socket
        self._call = call
        self._state = state
        self.perform = socket.perform

    async def close(self) -> None:
        """Leave: what is still to come would be taken for the next answer."""
        if self._state.is_open and self._call.waiting:
            self._state.is_open = False
            await self._socket.close()


class Session:
    """Answers one after the other over one WebSocket, which is opened with the first; use it with `with`.

    Each goes on from the last one of the context, although nothing is stored with `store=False`. An answer that is
    left early ends, and with it the connection; the next one opens another.
    """

    def __init__(
        self, driver: Driver, make: MakeRequest, client: httpx2.Client, silence: float, total: float | None = None
    ) -> None:
        self._driver = driver
        self._total = total
        self._make = make
        self._client = client
        self._socket = _Socket(client, silence)
        self._state = SocketState()

    def stream(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Stream:
        """The answer as it comes, as `Client.stream` gives it; one that went before is to have ended."""
        call = SocketCall(self._driver, self._make(context, model, options), self._state)
        line = _Lease(self._socket, call, self._state)
        return Stream(self._driver, call, self._client, line, total=self._total)

    def respond(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """The whole answer, as `Client.respond` gives it.

        Raises:
            DriverError: as there.
        """
        with self.stream(context, model=model, **options) as stream:
            return stream.response()

    def close(self) -> None:
        """Close the connection."""
        self._state.is_open = False
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncSession:
    """Answers one after the other over one WebSocket; all else is as with `Session`.

    It is to be used by one task, with `async with`.
    """

    def __init__(
        self,
        driver: Driver,
        make: MakeRequest,
        client: httpx2.AsyncClient,
        silence: float,
        total: float | None = None,
        *,
        opens: Opens | None = None,
    ) -> None:
        self._driver = driver
        self._total = total
        self._make = make
        self._client = client
        self._socket = _AsyncSocket(client, silence, opens)
        self._state = SocketState()

    def stream(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> AsyncStream:
        """The answer as it comes, as `AsyncClient.stream` gives it; one that went before is to have ended."""
        call = SocketCall(self._driver, self._make(context, model, options), self._state)
        line = _AsyncLease(self._socket, call, self._state)
        return AsyncStream(self._driver, call, self._client, line, total=self._total)

    async def respond(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """The whole answer, as `AsyncClient.respond` gives it.

        Raises:
            DriverError: as there.
        """
        async with self.stream(context, model=model, **options) as stream:
            return await stream.response()

    async def close(self) -> None:
        """Close the connection."""
        self._state.is_open = False
        with anyio.CancelScope(shield=True):
            await self._socket.close()

    async def __aenter__(self) -> Self:
        self._socket.tasks = anyio.create_task_group()
        await self._socket.tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        await self.close()
        tasks, self._socket.tasks = self._socket.tasks, None
        return None if tasks is None else await tasks.__aexit__(kind, error, at)

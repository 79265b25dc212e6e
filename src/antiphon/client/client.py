"""The clients: one endpoint, asked synchronously or asynchronously, and one normalized answer from each."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import anyio
import httpx2
from msgspec import Struct

from antiphon.client.connection import CONNECT_SECONDS, AsyncConnection, Connection
from antiphon.client.deadline import AsyncTimed, Timed
from antiphon.client.driver import Driver, StreamCall
from antiphon.client.encode import Conversation
from antiphon.client.errors import DriverError, TransportError
from antiphon.client.inprocess import Application, ApplicationTransport
from antiphon.client.options import Options
from antiphon.client.profiles import Profile, find_profile, guess_profile
from antiphon.client.request import Request
from antiphon.client.response import Response
from antiphon.client.retries import RetryPolicy
from antiphon.client.routes import Routes, auth_headers, find_key
from antiphon.client.sockets import AsyncSession, Session
from antiphon.client.steps import Player, Steps
from antiphon.client.streams import AsyncStream, Stream

__all__ = ["AsyncClient", "Client", "Limits"]

T = TypeVar("T")


class Limits(Struct, frozen=True):
    """How patient a client is.

    `silence` is the longest time in seconds without a byte from the endpoint, `connect` that for a connection.
    `max_retries` is how often a request is sent again, and a broken stream taken up again without getting further.
    `total` is how long a whole call may take in seconds, with all that it waits for and tries again; None is no end. A
    synchronous call that waits for bytes then is left when so many have gone by since it last asked.
    """

    silence: float = 600.0
    connect: float = CONNECT_SECONDS
    max_retries: int = 2
    total: float | None = None


DEFAULT_LIMITS = Limits()
"""As patient as OpenAI's own clients."""


class _Endpoint:
    """What both kinds of client know of their endpoint.

    `provider` is the name of a profile or one of your own; without it the host of `base_url` tells. `resume` False
    asks for no streams that could be taken up again. `repair_json` mends the JSON of structured answers first.

    Raises:
        DriverError: nobody knows where to ask, or what provider that is.
    """

    def __init__(
        self,
        base_url: str | None,
        api_key: str | None,
        provider: str | Profile | None,
        model: str | None,
        *,
        headers: Mapping[str, str] | None,
        limits: Limits,
        resume: bool,
        repair_json: bool,
    ) -> None:
        if provider is None:
            self.profile = guess_profile(base_url)
        else:
            self.profile = find_profile(provider) if isinstance(provider, str) else provider
        url = base_url or self.profile.base_url
        if url is None:
            raise DriverError(f"Say the `base_url`: that of {self.profile.name} is not the same for everyone.")
        self.model = model
        self.limits = limits
        self.driver = Driver(
            self.profile,
            Routes(url),
            {**auth_headers(self.profile, find_key(self.profile, api_key)), **(headers or {})},
            policy=RetryPolicy(limits.max_retries),
            resume=resume,
            repair_json=repair_json,
        )

    @property
    def timeout(self) -> httpx2.Timeout:
        """The limits in httpx2's terms."""
        return httpx2.Timeout(self.limits.silence, connect=self.limits.connect)

    def request(self, conversation: Conversation, model: str | None, options: Mapping[str, Any]) -> Request:
        """A request for a whole response."""
        return Request(self.profile, conversation, {**options, "stream": None}, model or self.model)

    def socket_request(self, conversation: Conversation, model: str | None, options: Mapping[str, Any]) -> Request:
        """A request for a response over a socket."""
        return Request(self.profile, conversation, options, model or self.model, websocket=True)

    def stream(self, conversation: Conversation, model: str | None, options: Mapping[str, Any]) -> StreamCall:
        """A request for a stream."""
        request = Request(self.profile, conversation, {**options, "stream": True}, model or self.model)
        return StreamCall(self.driver, request)


class Client:
    """Asks one endpoint.

        with Client("http://127.0.0.1:8080/v1", provider="antiphon", model="smollm2") as client:
            print(client.respond("Hello!").text)

    `http` is an httpx2 client of your own, which is then yours to close. The other parameters are those of the
    endpoint: `provider` is a profile or the name of one, guessed from the host where it is not given; `resume` False
    asks for no streams that can be taken up again; `repair_json` mends the JSON of structured answers.

    Raises:
        DriverError: nobody knows where to ask, or what provider that is.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str | Profile | None = None,
        model: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        resume: bool = True,
        repair_json: bool = False,
        http: httpx2.Client | None = None,
    ) -> None:
        self._endpoint = _Endpoint(
            base_url,
            api_key,
            provider,
            model,
            headers=headers,
            limits=limits,
            resume=resume,
            repair_json=repair_json,
        )
        self._own = http is None
        self._http = http or httpx2.Client(timeout=self._endpoint.timeout)

    @property
    def profile(self) -> Profile:
        """What the provider takes and can."""
        return self._endpoint.profile

    def respond(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """The whole answer; one with `background=True` is waited for.

        An answer that failed is one with a `problem`, see `Response.raise_for_problem`.

        Raises:
            EndpointError: the endpoint refused the request.
            TransportError: it could not be reached, broke off, or was too slow.
            BodyError: what came is no answer.
        """
        return self._play(self._endpoint.driver.respond(self._endpoint.request(context, model, options)))

    def stream(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Stream:
        """The answer as it comes: an iterator of chunks, whose `response()` is the whole of it."""
        endpoint = self._endpoint
        return Stream(
            endpoint.driver, endpoint.stream(context, model, options), self._http, total=endpoint.limits.total
        )

    def session(self) -> Session:
        """A WebSocket, for many answers one after the other."""
        endpoint = self._endpoint
        limits = endpoint.limits
        return Session(endpoint.driver, endpoint.socket_request, self._http, limits.silence, limits.total)

    def start(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """Begin an answer in the background, and give it as it stands; `wait` for its id gives the whole.

        Raises:
            DriverError: as `respond` does.
        """
        request = self._endpoint.request(context, model, {**options, "background": True})
        return self._play(self._endpoint.driver.respond(request, wait=False))

    def wait(self, response_id: str, *, text_format: Any = None) -> Response:
        """The answer of a response in the background, once it has ended.

        Raises:
            DriverError: as `respond` does.
        """
        return self._play(self._endpoint.driver.wait(response_id, text_format))

    def retrieve(self, response_id: str, *, text_format: Any = None) -> Response:
        """The answer of a response as it stands.

        Raises:
            DriverError: as `respond` does.
        """
        return self._play(self._endpoint.driver.retrieve(response_id, text_format))

    def cancel(self, response_id: str) -> Response:
        """End a response in the background, and give it as it ended.

        Raises:
            DriverError: as `respond` does.
        """
        return self._play(self._endpoint.driver.cancel(response_id))

    def delete(self, response_id: str) -> None:
        """Have a response forgotten.

        Raises:
            DriverError: as `respond` does.
        """
        self._play(self._endpoint.driver.delete(response_id))

    def compact(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """A conversation made short: `Context([answer.message])` stands for all of it.

        Raises:
            DriverError: as `respond` does.
        """
        return self._play(self._endpoint.driver.compact(context, options, model or self._endpoint.model))

    def close(self) -> None:
        """Close its connections."""
        if self._own:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _play(self, steps: Steps[T]) -> T:
        player = Player(steps)
        connection = Timed(Connection(self._http), self._endpoint.limits.total)
        result: Any = None
        failure: TransportError | None = None
        try:
            while (step := player.next(result, failure)) is not None:
                result = failure = None
                try:
                    result = connection.perform(step)
                except TransportError as error:
                    failure = error
            return player.value
        finally:
            player.close()
            connection.close()


class AsyncClient:
    """Asks one endpoint asynchronously; all else is as with `Client`.

    `app` is an ASGI application that is asked instead of a server, in this process; the client is then used with
    `async with`.

    Raises:
        DriverError: nobody knows where to ask, or what provider that is.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str | Profile | None = None,
        model: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        resume: bool = True,
        repair_json: bool = False,
        http: httpx2.AsyncClient | None = None,
        app: Application | None = None,
    ) -> None:
        self._endpoint = _Endpoint(
            base_url,
            api_key,
            provider,
            model,
            headers=headers,
            limits=limits,
            resume=resume,
            repair_json=repair_json,
        )
        self._own = http is None
        self._application = ApplicationTransport(app) if app is not None else None
        self._http = http or httpx2.AsyncClient(timeout=self._endpoint.timeout, transport=self._application)

    @property
    def profile(self) -> Profile:
        """What the provider takes and can."""
        return self._endpoint.profile

    async def respond(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """The whole answer, as `Client.respond` gives it.

        Raises:
            DriverError: as there.
        """
        return await self._play(self._endpoint.driver.respond(self._endpoint.request(context, model, options)))

    def stream(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> AsyncStream:
        """The answer as it comes: an iterator of chunks, whose `response()` is the whole of it."""
        endpoint = self._endpoint
        return AsyncStream(
            endpoint.driver, endpoint.stream(context, model, options), self._http, total=endpoint.limits.total
        )

    def session(self) -> AsyncSession:
        """A WebSocket, for many answers one after the other."""
        endpoint = self._endpoint
        limits = endpoint.limits
        opens = None if self._application is None else self._application.websocket
        return AsyncSession(
            endpoint.driver, endpoint.socket_request, self._http, limits.silence, limits.total, opens=opens
        )

    async def start(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """Begin an answer in the background, and give it as it stands; `wait` for its id gives the whole.

        Raises:
            DriverError: as `respond` does.
        """
        request = self._endpoint.request(context, model, {**options, "background": True})
        return await self._play(self._endpoint.driver.respond(request, wait=False))

    async def wait(self, response_id: str, *, text_format: Any = None) -> Response:
        """The answer of a response in the background, once it has ended.

        Raises:
            DriverError: as `respond` does.
        """
        return await self._play(self._endpoint.driver.wait(response_id, text_format))

    async def retrieve(self, response_id: str, *, text_format: Any = None) -> Response:
        """The answer of a response as it stands.

        Raises:
            DriverError: as `respond` does.
        """
        return await self._play(self._endpoint.driver.retrieve(response_id, text_format))

    async def cancel(self, response_id: str) -> Response:
        """End a response in the background, and give it as it ended.

        Raises:
            DriverError: as `respond` does.
        """
        return await self._play(self._endpoint.driver.cancel(response_id))

    async def delete(self, response_id: str) -> None:
        """Have a response forgotten.

        Raises:
            DriverError: as `respond` does.
        """
        await self._play(self._endpoint.driver.delete(response_id))

    async def compact(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """A conversation made short: `Context([answer.message])` stands for all of it.

        Raises:
            DriverError: as `respond` does.
        """
        return await self._play(self._endpoint.driver.compact(context, options, model or self._endpoint.model))

    async def close(self) -> None:
        """Close its connections."""
        if self._own:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        if self._own:
            await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._own:
            await self._http.__aexit__(kind, error, at)

    async def _play(self, steps: Steps[T]) -> T:
        player = Player(steps)
        connection = AsyncTimed(AsyncConnection(self._http), self._endpoint.limits.total)
        result: Any = None
        failure: TransportError | None = None
        try:
            while (step := player.next(result, failure)) is not None:
                result = failure = None
                try:
                    result = await connection.perform(step)
                except TransportError as error:
                    failure = error
            return player.value
        finally:
            player.close()
            with anyio.CancelScope(shield=True):
                await connection.close()

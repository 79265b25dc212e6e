"""A command's connection to a running server: its models, and the events of one streamed response."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, cast

import httpx2
import msgspec

from antiphon.access import is_loopback
from antiphon.errors import ConfigurationError
from antiphon.protocol.sse import SSEError, SSEParser

__all__ = ["LOOK_SECONDS", "Connection", "ServerError", "UnreachableError", "server_url"]


LOOK_SECONDS = 5.0
"""How long to wait for a server to say what it serves."""


class UnreachableError(Exception):
    """Nothing answers there, or the connection broke; the message is for people."""


class ServerError(Exception):
    """The server answers with an error; the message is the server's own."""

    def __init__(self, message: str, status: int | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def server_url(base_url: str) -> httpx2.URL:
    """The URL of a server up to its `/v1`, which may be left out.

    Raises:
        ConfigurationError: it is no URL of HTTP.
    """
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"'{base_url}' is not a URL: {error}.") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"'{base_url}' is not an http or https URL.")
    return url.copy_with(path="/v1") if url.path in ("", "/") else url


class Connection:
    """Talks to one server; a context manager."""

    def __init__(self, base_url: str, api_key: str | None = None) -> None:
        url = server_url(base_url)
        self._client = httpx2.Client(
            base_url=url,
            # As bytes: a key need not be ASCII.
            headers={b"Authorization": f"Bearer {api_key}".encode()} if api_key else {},
            # A slow model may be silent for long; a server that dies closes the connection.
            timeout=httpx2.Timeout(None, connect=5.0),
            # A proxy of the environment cannot reach this machine's own loopback.
            trust_env=not is_loopback(url.host),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()

    def models(self) -> list[str]:
        """The names that the server answers to, the generating model first.

        Raises:
            UnreachableError: nothing answers.
            ServerError: it answers with an error, or with what is no list of models.
        """
        with self._reaching():
            response = self._client.get("models", timeout=LOOK_SECONDS)
        if response.status_code != 200:
            raise _server_error(response)
        try:
            return [str(model["id"]) for model in response.json()["data"]]
        except (ValueError, LookupError, TypeError):
            raise ServerError("what answers there is not a server of the OpenAI API") from None

    def stream(self, body: Mapping[str, Any]) -> Generator[dict[str, Any]]:
        """The events of a response, as they come. Closing the generator leaves the response, and ends it.

        Raises:
            UnreachableError: nothing answers, or the connection breaks.
            ServerError: the server refuses the request.
        """
        parser = SSEParser()
        with self._reaching(), self._client.stream("POST", "responses", json={**body, "stream": True}) as response:
            if response.status_code != 200:
                response.read()
                raise _server_error(response)
            for chunk in response.iter_bytes():
                for event in parser.feed(chunk):
                    if event.data == "[DONE]":
                        return
                    yield _event(event.data)

    @contextmanager
    def _reaching(self) -> Generator[None]:
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise UnreachableError(f"No server answers at {self._client.base_url}.") from None
        except httpx2.RequestError as error:
            reason = str(error) or type(error).__name__
            raise UnreachableError(f"The connection to {self._client.base_url} broke: {reason}.") from None
        except SSEError as error:
            raise ServerError(str(error)) from None


def _event(data: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        raise ServerError("The server sent an event that is not JSON.") from None


def _server_error(response: httpx2.Response) -> ServerError:
    try:
        error = cast("dict[str, Any]", response.json()["error"])
        return ServerError(str(error["message"]), response.status_code, cast("str | None", error.get("code")))
    except (ValueError, LookupError, TypeError, AttributeError):
        return ServerError(f"The server answers {response.status_code}.", response.status_code)

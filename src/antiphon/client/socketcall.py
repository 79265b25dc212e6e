"""One answer over a WebSocket, as steps: the connection is opened where it is not, and is left open for the next."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.client.decode import decode, read_problem
from antiphon.client.driver import Driver
from antiphon.client.encode import socket_frame
from antiphon.client.errors import BodyError, EndpointError, StreamCutError, TransportError
from antiphon.client.formats import convert_object, format_schema
from antiphon.client.request import Request, to_wire
from antiphon.client.response import Response
from antiphon.client.steps import Emit, Read, Send, Steps
from antiphon.client.stream import StreamDecoder

__all__ = ["SocketCall", "SocketState"]

_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_EXPIRED: Final = "websocket_connection_limit_reached"


class SocketState(msgspec.Struct):
    """What the answers of one connection have in common: whether it is open."""

    is_open: bool = False


class SocketCall:
    """One streamed answer over a socket (E28); `decoder` knows how far it has come."""

    def __init__(self, driver: Driver, request: Request, state: SocketState) -> None:
        self._driver = driver
        self._request = request
        self._state = state
        self.waiting = False
        """Whether the endpoint still has something to say to this."""
        self.decoder = StreamDecoder(
            provider=driver.profile.name, schema=format_schema(request.wanted), repair_json=driver.repair_json
        )

    @property
    def to_cancel(self) -> str | None:
        """Nothing: an answer over a socket ends with it."""
        return None

    def steps(self) -> Steps[Response]:
        """The chunks of the answer, and at its end the answer.

        A connection that had gone, or that the endpoint says is too old, is opened anew, once.

        Raises:
            EndpointError: the endpoint refused the connection or the request.
            TransportError: it could not be reached.
            StreamCutError: the connection broke off in the middle.
            BodyError: what came is no event.
        """
        anew = False
        while True:
            used = self._state.is_open
            if not used:
                answer = yield from self._driver.ask(self._driver.connect())
                if not 200 <= answer.status < 300:
                    decode(answer.body, status=answer.status)
                self._state.is_open = True
            try:
                yield from self._exchange()
            except TransportError as error:
                self._state.is_open = False
                if not self.decoder.ended:
                    if self.decoder.response_id is not None:
                        raise self._cut() from error
                    if anew or not used:
                        raise
                    anew = True
                    continue
            except EndpointError as error:
                expired = error.code == _EXPIRED and not anew
                if expired:
                    self._state.is_open = False
                    anew = True
                elif not self._request.falls_back(error):
                    raise
                continue
            response = self.decoder.finish()
            convert_object(self._request.wanted, response)
            return response

    def _exchange(self) -> Steps[None]:
        """Send the request, and read until its answer has ended."""
        frame = to_wire(socket_frame(self._request.body))
        self.waiting = True
        yield Send(frame)
        while True:
            message: bytes = yield Read()
            try:
                event: dict[str, Any] = msgspec.json.decode(message, type=dict[str, Any])
            except msgspec.DecodeError:
                raise BodyError("What the endpoint sent over the socket is no event.") from None
            kind = event.get("type")
            if self.decoder.response_id is None and kind != "response.created":
                if kind == "error":
                    self.waiting = False
                    raise _refusal(event)
                # What is still said of an answer that was left.
                continue
            chunks = self.decoder.feed(event)
            # After an error `response.failed` comes, and must not be left for the next answer.
            self.waiting = kind not in _ENDS
            if chunks:
                yield Emit(chunks)
            if not self.waiting:
                return

    def _cut(self) -> StreamCutError:
        return StreamCutError(
            "The connection ended before the answer did.",
            response_id=self.decoder.response_id,
            last_sequence_number=self.decoder.last_sequence_number,
        )


def _refusal(event: dict[str, Any]) -> EndpointError:
    problem = read_problem(event, "")
    status = event.get("status")
    return EndpointError(
        status if isinstance(status, int) else 400,
        event,
        message=problem.message or None,
        code=problem.code,
        type=problem.type,
        param=problem.param,
    )

"""Calls of an endpoint as steps: what is sent, sent again, taken up again, and made of what comes. No I/O is here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon import __version__
from antiphon.client.decode import decode
from antiphon.client.encode import Conversation, encode_compact
from antiphon.client.errors import BodyError, EndpointError, StreamCutError, TransportError
from antiphon.client.formats import convert_object, format_schema
from antiphon.client.profiles import Profile
from antiphon.client.request import Request, to_wire
from antiphon.client.response import Response
from antiphon.client.retries import RetryPolicy
from antiphon.client.routes import Routes
from antiphon.client.steps import Answer, Ask, Connect, Emit, Pause, Read, Steps
from antiphon.client.stream import StreamDecoder
from antiphon.protocol.sse import SSEError, SSEParser

__all__ = ["Driver", "StreamCall"]

_RUNNING: Final = frozenset({"queued", "in_progress"})
_FIRST_POLL: Final = 0.1
_LONGEST_POLL: Final = 5.0
_POLL_GROWTH: Final = 1.5
_ENDS: Final = "[DONE]"
_MAX_EVENT: Final = 64 * 1024 * 1024


class Driver:
    """All calls of one endpoint. `resume` False asks for no stream in the background that the caller did not."""

    def __init__(
        self,
        profile: Profile,
        routes: Routes,
        headers: Mapping[str, str],
        *,
        policy: RetryPolicy,
        resume: bool = True,
        repair_json: bool = False,
    ) -> None:
        self.profile = profile
        self.routes = routes
        self.policy = policy
        self.resume = resume
        self.repair_json = repair_json
        self._headers = {"user-agent": f"antiphon/{__version__}", **headers}

    def respond(self, request: Request, *, wait: bool = True) -> Steps[Response]:
        """A whole answer; one that runs in the background is waited for, unless `wait` is False.

        Raises:
            EndpointError: the endpoint refused it.
            TransportError: it could not be reached.
            BodyError: what came is no answer.
        """
        while True:
            answer = yield from self.ask(self.post(request))
            try:
                response = self.read(answer, request.wanted if wait else None)
            except EndpointError as error:
                if not request.falls_back(error):
                    raise
                continue
            if not wait or response.response_id is None or response.status not in _RUNNING:
                return response
            return (yield from self.wait(response.response_id, request.wanted))

    def wait(self, response_id: str, wanted: Any = None) -> Steps[Response]:
        """The answer of a response in the background, once it has ended; it is asked for ever less often."""
        pause = _FIRST_POLL
        while True:
            answer = yield from self.ask(self._request("GET", self.routes.response(response_id)))
            response = self.read(answer, wanted)
            if response.status not in _RUNNING:
                return response
            yield Pause(_poll_after(answer.headers) or pause)
            pause = min(pause * _POLL_GROWTH, _LONGEST_POLL)

    def retrieve(self, response_id: str, wanted: Any = None) -> Steps[Response]:
        """The answer as it stands."""
        answer = yield from self.ask(self._request("GET", self.routes.response(response_id)))
        return self.read(answer, wanted)

    def cancel(self, response_id: str) -> Steps[Response]:
        """End a response in the background, and give it as it ended."""
        answer = yield from self.ask(self._request("POST", self.routes.cancel(response_id), b""))
        return self.read(answer, None)

    def delete(self, response_id: str) -> Steps[None]:
        """Have a response forgotten."""
        answer = yield from self.ask(self._request("DELETE", self.routes.response(response_id)))
        if not 200 <= answer.status < 300:
            decode(answer.body, status=answer.status)

    def compact(self, conversation: Conversation, options: Mapping[str, Any], model: str | None) -> Steps[Response]:
        """A compacted conversation (E25): the message of the answer stands for all of it."""
        body = to_wire(encode_compact(conversation, options, self.profile, model))
        answer = yield from self.ask(self._request("POST", self.routes.compact, body))
        response = self.read(answer, None)
        # It is not a response that one could go on from.
        response.message.metadata.response_id = None
        return response

    def ask(self, ask: Ask | Connect) -> Steps[Answer]:
        """The answer to a request, which is sent again where that may help."""
        attempt = 0
        while True:
            try:
                answer: Answer = yield ask
            except TransportError:
                seconds = self.policy.after_failure(attempt)
                if seconds is None:
                    raise
            else:
                seconds = None
                if not 200 <= answer.status < 300:
                    seconds = self.policy.after_status(attempt, answer.status, answer.headers)
                if seconds is None:
                    return answer
            yield Pause(seconds)
            attempt += 1

    def post(self, request: Request, *, streamed: bool = False) -> Ask:
        """The request that makes a response."""
        ask = self._request("POST", self.routes.responses, request.wire, streamed=streamed)
        if self.profile.idempotent and request.in_background:
            ask.headers["idempotency-key"] = request.key
        return ask

    def connect(self) -> Connect:
        """What opens a WebSocket."""
        return Connect(self.routes.socket, dict(self._headers))

    def replay(self, response_id: str, after: int) -> Ask:
        """The request for the events of a response after the one of that number."""
        url = self.routes.response(response_id, stream=True, starting_after=after)
        return self._request("GET", url, streamed=True)

    def read(self, answer: Answer, wanted: Any) -> Response:
        """The answer of a body, with its object as it was wanted."""
        response = decode(
            answer.body,
            status=answer.status,
            provider=self.profile.name,
            schema=format_schema(wanted),
            repair_json=self.repair_json,
        )
        convert_object(wanted, response)
        return response

    def _request(self, method: str, url: str, body: bytes | None = None, *, streamed: bool = False) -> Ask:
        headers = {**self._headers, "accept": "text/event-stream" if streamed else "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        return Ask(method, url, headers, body, streamed)


class StreamCall:
    """One streamed answer; `decoder` knows how far it has come."""

    def __init__(self, driver: Driver, request: Request) -> None:
        self._driver = driver
        self._request = request
        if driver.resume and driver.profile.resumes and driver.profile.background:
            request.run_in_background()
        self.decoder = StreamDecoder(
            provider=driver.profile.name, schema=format_schema(request.wanted), repair_json=driver.repair_json
        )

    @property
    def to_cancel(self) -> str | None:
        """The id of the response that is to be cancelled if the caller leaves now; None where there is nothing to."""
        if self._request.ends_with_caller and not self.decoder.ended:
            return self.decoder.response_id
        return None

    def steps(self) -> Steps[Response]:
        """The chunks of the stream, and at its end the answer.

        A stream that breaks off is taken up again where the endpoint can: each chunk comes once.

        Raises:
            EndpointError: the endpoint refused the request.
            TransportError: it could not be reached.
            StreamCutError: the stream broke off, and cannot be taken up again.
            BodyError: what came is no stream of events.
        """
        ask = self._driver.post(self._request, streamed=True)
        failures = 0
        while True:
            before = self.decoder.last_sequence_number
            cause: TransportError | None = None
            try:
                if (yield from self._attempt(ask)):
                    return self._finished()
            except TransportError as error:
                cause = error
            if self.decoder.ended:
                return self._finished()
            failures = 1 if self.decoder.last_sequence_number != before else failures + 1
            again = self._again()
            if again is None or failures > self._driver.policy.max_retries + 1:
                if cause is not None and self.decoder.response_id is None:
                    raise cause
                raise self._cut() from cause
            if failures > 1:
                yield Pause(self._driver.policy.pause(failures - 2))
            ask = again

    def _attempt(self, ask: Ask) -> Steps[bool]:
        """Read a stream as far as it goes; whether that is its end."""
        answer = yield from self._driver.ask(ask)
        if answer.open:
            return (yield from self._read())
        try:
            response = self._driver.read(answer, None)
        except EndpointError as error:
            if self.decoder.response_id is not None:
                raise self._cut() from error
            if not self._request.falls_back(error):
                raise
            return (yield from self._attempt(self._driver.post(self._request, streamed=True)))
        # Who does not stream sends the whole answer.
        name = response.status if response.status in ("incomplete", "failed") else "completed"
        body = msgspec.json.decode(answer.body)
        yield Emit(self.decoder.feed({"type": f"response.{name}", "response": body}))
        return True

    def _read(self) -> Steps[bool]:
        parser = SSEParser(_MAX_EVENT)
        while True:
            data: bytes = yield Read()
            if not data:
                return self.decoder.ended
            try:
                events = parser.feed(data)
            except SSEError as error:
                raise BodyError(f"What the endpoint sent is no stream of events: {error}") from None
            chunks = [chunk for event in events for chunk in self.decoder.feed(event)]
            if chunks:
                yield Emit(chunks)
            # After an error `response.failed` may follow, which says more.
            if any(event.data == _ENDS for event in events) or (self.decoder.ended and not self._failed()):
                return self.decoder.ended

    def _failed(self) -> bool:
        return bool(self.decoder.responses) and self.decoder.responses[-1].problem is not None

    def _again(self) -> Ask | None:
        """The request that takes the stream up again, if there is one."""
        profile = self._driver.profile
        if not (self._driver.resume and profile.resumes and self._request.in_background):
            return None
        identity, last = self.decoder.response_id, self.decoder.last_sequence_number
        if identity is None:
            return self._driver.post(self._request, streamed=True) if profile.idempotent else None
        return None if last is None else self._driver.replay(identity, last)

    def _cut(self) -> StreamCutError:
        return StreamCutError(
            "The stream ended before its answer did.",
            response_id=self.decoder.response_id,
            last_sequence_number=self.decoder.last_sequence_number,
        )

    def _finished(self) -> Response:
        response = self.decoder.finish()
        convert_object(self._request.wanted, response)
        return response


def _poll_after(headers: Mapping[str, str]) -> float | None:
    try:
        seconds = float(headers.get("openai-poll-after-ms", "")) / 1000
    except ValueError:
        return None
    return seconds if 0 < seconds <= 60 else None

"""Answers over a WebSocket as steps, without one: when it is opened, what is sent, and what is taken for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from antiphon.client.chunks import Chunk, ContentChunk
from antiphon.client.context import Context, assistant, user
from antiphon.client.driver import Driver
from antiphon.client.errors import BodyError, EndpointError, StreamCutError, TransportError
from antiphon.client.profiles import ANTIPHON
from antiphon.client.request import Request
from antiphon.client.response import Response
from antiphon.client.retries import RetryPolicy
from antiphon.client.routes import Routes
from antiphon.client.socketcall import SocketCall, SocketState
from antiphon.client.steps import Answer, Connect, Emit, Pause, Player, Read, Send, Steps

requirement = pytest.mark.requirement
BROKEN = TransportError("it broke off")
Message = dict[str, Any] | TransportError | bytes
Opening = Sequence[Message] | Answer | TransportError


def said(name: str, word: str, **fields: Any) -> list[Message]:
    """The events of an answer of one word."""
    part = {"type": "output_text", "text": word, "annotations": []}
    item = {"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": [part]}
    body = {"id": name, "object": "response", "model": "m", "status": "in_progress", "output": []}
    place = {"item_id": "msg", "output_index": 0, "content_index": 0}
    return [
        {"type": "response.created", "response": body},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "delta": word, **place},
        {"type": "response.completed", "response": {**body, "status": "completed", "output": [item], **fields}},
    ]


def refused(code: str, status: int = 400) -> Message:
    error = {"type": "invalid_request_error", "code": code, "message": "no", "param": None}
    return {"type": "error", "status": status, "error": error}


class Socket:
    """Plays calls against connections, each a list of messages, after which it breaks off."""

    def __init__(self, *connections: Opening) -> None:
        self.connections = list(connections)
        self.opened: list[Connect] = []
        self.sent: list[dict[str, Any]] = []
        self.chunks: list[Chunk] = []
        self.pauses = 0
        self._messages: list[Message] = []

    def play(self, steps: Steps[Response]) -> Response:
        player = Player(steps)
        result: Any = None
        failure: TransportError | None = None
        while (step := player.next(result, failure)) is not None:
            result = failure = None
            try:
                if isinstance(step, Connect):
                    result = self._connect(step)
                elif isinstance(step, Send):
                    self.sent.append(msgspec.json.decode(step.message))
                elif isinstance(step, Read):
                    result = self._next()
                elif isinstance(step, Emit):
                    self.chunks += step.chunks
                else:
                    assert isinstance(step, Pause)
                    self.pauses += 1
            except TransportError as error:
                failure = error
        return player.value

    def _connect(self, step: Connect) -> Answer:
        self.opened.append(step)
        found = self.connections.pop(0)
        if isinstance(found, TransportError):
            raise found
        if isinstance(found, Answer):
            return found
        self._messages = list(found)
        return Answer(200, {})

    def _next(self) -> bytes:
        found = self._messages.pop(0) if self._messages else BROKEN
        if isinstance(found, TransportError):
            raise found
        return found if isinstance(found, bytes) else msgspec.json.encode(found)


def call(state: SocketState, context: Any = "hi", **options: Any) -> SocketCall:
    driver = Driver(ANTIPHON, Routes("https://host/v1"), {"authorization": "Bearer k"}, policy=RetryPolicy())
    return SocketCall(driver, Request(ANTIPHON, context, options, "m", websocket=True), state)


@requirement("driver:sessions", "driver:E28")
def test_a_connection_is_opened_once_and_each_answer_asked_for_by_a_frame() -> None:
    socket, state = Socket([*said("r1", "one"), *said("r2", "two")]), SocketState()
    assert socket.play(call(state, stream=True, background=False).steps()).text == "one"
    assert socket.play(call(state, "on", store=False).steps()).text == "two"
    assert [chunk.text for chunk in socket.chunks if isinstance(chunk, ContentChunk)] == ["one", "two"]
    [opened] = socket.opened
    assert opened.url == "wss://host/v1/responses"
    assert opened.headers["authorization"] == "Bearer k"
    assert [frame["type"] for frame in socket.sent] == ["response.create"] * 2
    assert not {"stream", "background"} & socket.sent[0].keys()


@requirement("driver:sessions", "driver:E20")
def test_an_answer_goes_on_from_the_last_though_it_is_not_stored() -> None:
    socket, state = Socket([*said("r1", "one"), *said("r2", "two")]), SocketState()
    context = Context([user("hi")])
    context.append(socket.play(call(state, context, store=False).steps()).message, user("on"))
    socket.play(call(state, context, store=False).steps())
    assert (socket.sent[1]["previous_response_id"], socket.sent[1]["store"]) == ("r1", False)
    assert len(socket.sent[1]["input"]) == 1


@requirement("driver:sessions", "driver:fallbacks")
def test_what_the_connection_does_not_know_is_sent_again() -> None:
    message = assistant("yes")
    message.metadata.response_id = "r0"
    socket = Socket([refused("previous_response_not_found"), *said("r1", "one")])
    assert socket.play(call(SocketState(), [user("hi"), message, user("on")], store=False).steps()).text == "one"
    assert [len(frame["input"]) for frame in socket.sent] == [1, 3]
    assert len(socket.opened) == 1


@requirement("driver:sessions")
def test_a_refusal_leaves_the_connection_open() -> None:
    socket, state = Socket([refused("rate_limit_exceeded", 429), *said("r1", "one")]), SocketState()
    refusal = call(state)
    with pytest.raises(EndpointError) as caught:
        socket.play(refusal.steps())
    assert (caught.value.status, caught.value.code, caught.value.message) == (429, "rate_limit_exceeded", "no")
    assert not refusal.waiting
    assert socket.play(call(state).steps()).text == "one"
    assert len(socket.opened) == 1


@requirement("driver:sessions")
def test_a_connection_that_went_in_between_or_is_too_old_is_opened_anew() -> None:
    for end in ([], [refused("websocket_connection_limit_reached")]):
        socket, state = Socket([*said("r1", "one"), *end], said("r2", "two")), SocketState()
        socket.play(call(state).steps())
        assert socket.play(call(state).steps()).text == "two"
        assert len(socket.opened) == 2
        assert socket.sent[1] == socket.sent[2]


@requirement("driver:sessions")
def test_it_is_opened_anew_only_once() -> None:
    socket, state = Socket(said("r1", "one"), [], said("r2", "two")), SocketState()
    socket.play(call(state).steps())
    with pytest.raises(TransportError):
        socket.play(call(state).steps())
    assert not state.is_open
    assert socket.play(call(state).steps()).text == "two"
    expired = refused("websocket_connection_limit_reached")
    with pytest.raises(EndpointError):
        Socket([expired], [expired]).play(call(SocketState()).steps())


@requirement("driver:sessions", "driver:retries")
def test_the_handshake_is_tried_again_or_its_refusal_told() -> None:
    busy = Answer(503, {"retry-after-ms": "1"}, b'{"error":{"message":"busy"}}')
    socket = Socket(busy, BROKEN, said("r1", "one"))
    assert socket.play(call(SocketState()).steps()).text == "one"
    assert socket.pauses == 2
    with pytest.raises(EndpointError, match="401"):
        Socket(Answer(401, {}, b"")).play(call(SocketState()).steps())


@requirement("driver:sessions")
def test_a_cut_in_the_middle_is_told_and_the_next_answer_opens_another() -> None:
    socket, state = Socket(said("r1", "one")[:3], said("r2", "two")), SocketState()
    cut = call(state)
    with pytest.raises(StreamCutError) as caught:
        socket.play(cut.steps())
    assert caught.value.response_id == "r1"
    assert cut.waiting
    assert cut.to_cancel is None
    assert socket.play(call(state).steps()).text == "two"


@requirement("driver:sessions")
def test_what_is_still_said_of_an_answer_before_is_not_taken_for_the_next() -> None:
    late: Message = {"type": "response.output_text.delta", "delta": "old", "item_id": "m", "output_index": 0}
    socket = Socket([late, *said("r1", "one")])
    assert socket.play(call(SocketState()).steps()).text == "one"


@requirement("driver:sessions")
def test_an_answer_that_fails_is_read_to_its_end() -> None:
    error = {"type": "server_error", "code": "server_error", "message": "boom"}
    failed = {"id": "r1", "status": "failed", "error": error, "output": [], "usage": {"total_tokens": 7}}
    events: list[Message] = [
        said("r1", "one")[0],
        {"type": "error", "error": error},
        {"type": "response.failed", "response": failed},
    ]
    socket, state = Socket([*events, *said("r2", "two")]), SocketState()
    found = socket.play(call(state).steps())
    assert found.problem is not None
    assert (found.problem.message, found.usage.total_tokens) == ("boom", 7)
    assert socket.play(call(state).steps()).text == "two"
    # An endpoint that says no more than the error has failed as well.
    short = Socket(events[:2]).play(call(SocketState()).steps())
    assert short.problem is not None


@requirement("driver:sessions")
def test_what_is_no_event_is_told() -> None:
    for garbage in (b"<html>", b"[1]", b"\xff"):
        with pytest.raises(BodyError):
            Socket([garbage]).play(call(SocketState()).steps())

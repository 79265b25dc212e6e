"""WebSocket messages: what a client sends, and the frames that it gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import (
    ResponseSteerAcceptedEvent,
    ResponseSteerFailedEvent,
    ResponseSteerPendingEvent,
)
from openai.types.responses.responses_server_event import ResponseWsError

from antiphon.errors import InvalidRequestError, NotFoundError, RateLimitError
from antiphon.protocol.sse import encode_frame
from antiphon.protocol.websocket import (
    CreateMessage,
    MessageError,
    SteerMessage,
    Submission,
    decode_message,
    error_frame,
    event_frame,
    lane_suffix,
    steer_accepted,
    steer_failed,
    steer_pending,
)


def message(**fields: Any) -> bytes:
    return json.dumps({"type": "response.create", **fields}).encode()


def steer(**fields: Any) -> SteerMessage:
    decoded = decode_message(message(**{"type": "response.steer", "previous_response_id": "resp_1", **fields}))
    assert isinstance(decoded, SteerMessage)
    return decoded


def refused(data: bytes) -> tuple[str | None, str | None, str | None]:
    with pytest.raises(MessageError) as caught:
        decode_message(data)
    return caught.value.error.code, caught.value.error.param, caught.value.stream_id


@pytest.mark.requirement("websocket:message:create")
def test_a_create_keeps_its_whole_body_and_tells_its_lane_and_its_parent():
    data = message(stream_id="a.B_9-", previous_response_id="resp_1", input=[{"role": "user", "content": "hi"}])
    assert decode_message(data) == CreateMessage(data, "a.B_9-", "resp_1")


@pytest.mark.requirement("websocket:message:create")
def test_nulls_are_absent_and_a_parent_of_a_wrong_type_is_left_to_the_request():
    data = message(stream_id=None, previous_response_id=7)
    assert decode_message(data) == CreateMessage(data, None, None)


@pytest.mark.requirement("websocket:error:invalid-json")
@pytest.mark.parametrize("data", [b"", b"{", b'{"type":"response.create"', b"\xff", b"nul", b'{"x":' + b"[" * 100_000])
def test_what_is_not_json_is_refused(data: bytes):
    assert refused(data) == ("invalid_json", None, None)


@pytest.mark.requirement("websocket:error:unsupported-event-type")
@pytest.mark.parametrize(
    "data", [b"[]", b"7", b"{}", b'{"type":null}', b'{"type":7}', b'{"type":"response.cancel"}', b'{"type":""}']
)
def test_a_message_of_another_type_is_refused(data: bytes):
    assert refused(data) == ("unsupported_event_type", "type", None)


@pytest.mark.requirement("websocket:error:unsupported-event-type", "websocket:stream-id:echo")
def test_a_message_of_another_type_is_refused_in_its_lane():
    assert refused(message(type="x", stream_id="one")) == ("unsupported_event_type", "type", "one")


@pytest.mark.requirement("websocket:stream-id:form")
@pytest.mark.parametrize("value", ["", " ", "a b", "a/b", "ä", "a\n", "x" * 257, 7, [], {}, True])
def test_a_stream_id_of_another_form_is_refused(value: Any):
    assert refused(message(stream_id=value)) == ("invalid_stream_id", "stream_id", None)


@pytest.mark.requirement("websocket:stream-id:form")
@given(st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="_.-"), min_size=1, max_size=256))
def test_every_stream_id_of_the_form_is_a_lane(value: str):
    decoded = decode_message(message(stream_id=value))
    assert isinstance(decoded, CreateMessage)
    assert decoded.stream_id == value


@pytest.mark.requirement("websocket:steer:input")
@pytest.mark.parametrize(
    "value",
    [
        "more",
        [{"role": "user", "content": "more"}],
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "more"}]}],
    ],
)
def test_steering_input_is_messages_of_the_user(value: Any):
    decoded = steer(input=value)
    assert decoded.fault is None
    assert json.loads(decoded.input) == value
    (item,) = decoded.items
    assert (item.role, item.content[0].text) == ("user", "more")  # type: ignore[union-attr]


@pytest.mark.requirement("websocket:steer:input")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"input": ""},
        {"input": []},
        {"input": None},
        {"input": 7},
        {"input": [7]},
        {"input": [{"role": "assistant", "content": "x"}]},
        {"input": [{"role": "user"}]},
        {"input": [{"role": "user", "content": "x", "id": "msg_1"}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        {"input": [{"role": "user", "content": [7]}]},
        {"input": "x", "previous_response_id": None},
        {"input": "x", "previous_response_id": 7},
        {"input": "x", "stream_id": "one"},
        {"input": "x", "model": "scripted"},
    ],
)
def test_any_other_steer_says_what_is_wrong(fields: dict[str, Any]):
    decoded = steer(**fields)
    assert decoded.fault
    assert decoded.items == []


@pytest.mark.requirement("websocket:event:bytes")
def test_an_event_is_the_json_of_its_frame_and_names_its_lane():
    data = b'{"type":"response.output_text.delta","delta":"data: \\n\\n}","sequence_number":4}'
    frame = encode_frame(b"response.output_text.delta", data)
    assert event_frame(frame, lane_suffix(None)) == data
    assert event_frame(frame, lane_suffix("a.b")) == data[:-1] + b',"stream_id":"a.b"}'


@pytest.mark.requirement("websocket:error:frame")
def test_an_error_frame_has_a_status_a_code_and_its_lane():
    error = InvalidRequestError("No.", param="input", code="invalid_value")
    assert error_frame(error) == (
        b'{"type":"error","status":400,"error":{"type":"invalid_request_error","code":"invalid_value",'
        b'"message":"No.","param":"input"}}'
    )
    assert error_frame(error, "one").startswith(b'{"type":"error","status":400,"stream_id":"one","error":{')
    limited = json.loads(error_frame(RateLimitError("Later.", retry_after=0.2)))
    assert limited["error"]["headers"] == {"retry-after": "1"}
    assert json.loads(error_frame(InvalidRequestError("No.")))["error"]["code"] == "invalid_request_error"
    typed = ResponseWsError.model_validate_json(error_frame(NotFoundError("None."), "one"), strict=True)
    assert (typed.status, typed.stream_id, typed.error.code) == (404, "one", "not_found")
    uncached = json.loads(error_frame(NotFoundError("None.", code="previous_response_not_found")))
    assert uncached["status"] == 400


SUBMISSION = Submission("steer_1", "resp_1", b'[{"type":"message","role":"user","content":"more"}]', [])


@pytest.mark.requirement("websocket:steer:frames")
def test_the_frames_of_a_steer_are_those_of_the_sdk():
    accepted = steer_accepted(SUBMISSION, 7, "one")
    assert accepted == (
        b'{"type":"response.steer.accepted","sequence_number":7,'
        b'"steer":{"id":"steer_1","previous_response_id":"resp_1"},"stream_id":"one"}'
    )
    assert ResponseSteerAcceptedEvent.model_validate_json(accepted, strict=True).steer.id == "steer_1"
    stub = {"type": "function_call_output", "call_id": "call_1", "name": "look"}
    pending = ResponseSteerPendingEvent.model_validate_json(steer_pending(SUBMISSION, [stub], 7, None), strict=True)
    assert (pending.reason, pending.stream_id) == ("waiting_for_required_input", None)
    assert pending.required_input[0].model_dump() == stub
    failed = ResponseSteerFailedEvent.model_validate_json(
        steer_failed(SteerMessage("resp_1", b'"more"', [], None), "response_not_found", "None.", 0, None), strict=True
    )
    assert (failed.steer.id, failed.steer.input, failed.error.code) == (None, "more", "response_not_found")
    failed = ResponseSteerFailedEvent.model_validate_json(
        steer_failed(SUBMISSION, "successor_creation_failed", "No.", 3, "one"), strict=True
    )
    assert (failed.steer.id, failed.stream_id, failed.error.type) == ("steer_1", "one", "invalid_request_error")

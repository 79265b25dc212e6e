"""WebSocket messages (responses-api 7): what a client sends, decoded, and what it is sent beside the events of logs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.errors import APIError, InvalidRequestError
from antiphon.protocol.items import Item, Message, decode_item
from antiphon.protocol.json import decode_body, encode, quoted
from antiphon.protocol.parts import InputText

__all__ = [
    "CreateMessage",
    "MessageError",
    "SteerMessage",
    "Submission",
    "decode_message",
    "error_frame",
    "event_frame",
    "lane_suffix",
    "steer_accepted",
    "steer_failed",
    "steer_pending",
]

_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_STEER_PARTS = frozenset({"input_text", "input_image", "input_file"})
_STEER_KEYS = frozenset({"type", "previous_response_id", "input"})
_DATA = b"\ndata: "


class _Envelope(Struct):
    type: Raw = Raw(b"null")
    stream_id: Raw = Raw(b"null")
    previous_response_id: Raw = Raw(b"null")


class CreateMessage(Struct):
    """`response.create`: `body` is the whole message, whose other fields are those of `POST /v1/responses`."""

    body: bytes
    stream_id: str | None
    previous_response_id: str | None


class SteerMessage(Struct):
    """`response.steer`: the input as it came, to be given back, and as items; `fault` says why it cannot be used."""

    previous_response_id: str
    input: bytes
    items: list[Item]
    fault: str | None


class Submission(Struct):
    """Steering input that was accepted."""

    id: str
    previous_response_id: str
    input: bytes
    items: list[Item]


class MessageError(Exception):
    """A message that is no request; `stream_id` is its lane, where it names one."""

    def __init__(self, error: APIError, stream_id: str | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.stream_id = stream_id


_envelope = msgspec.json.Decoder(_Envelope)
_raw_object = msgspec.json.Decoder(dict[str, Raw])
_text = msgspec.json.Decoder(str)


def decode_message(data: bytes) -> CreateMessage | SteerMessage:
    """What a client sent, which must be UTF-8; of a `response.create` only what decides where it goes is decoded.

    Raises:
        MessageError: it is not JSON, of a type that is not known, or for a lane that cannot be.
    """
    try:
        envelope = decode_body(_envelope, data)
    except InvalidRequestError as error:
        raise MessageError(error if error.code == "invalid_json" else _unknown_type(None)) from None
    stream_id = _string(envelope.stream_id)
    lane = stream_id if stream_id is not None and _STREAM_ID.fullmatch(stream_id) else None
    kind = _string(envelope.type)
    if kind == "response.steer":
        return _steer(data, _string(envelope.previous_response_id))
    if kind != "response.create":
        raise MessageError(_unknown_type(kind), lane)
    if lane is None and bytes(envelope.stream_id) != b"null":
        raise MessageError(
            InvalidRequestError(
                "Invalid 'stream_id': 1 to 256 characters of A-Z, a-z, 0-9, '_', '.' and '-' are expected.",
                param="stream_id",
                code="invalid_stream_id",
            )
        )
    return CreateMessage(data, lane, _string(envelope.previous_response_id))


def _string(raw: Raw) -> str | None:
    try:
        return _text.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _unknown_type(kind: str | None) -> InvalidRequestError:
    said = f"Unsupported event type: '{quoted(kind)}'." if kind is not None else "A message needs a 'type'."
    return InvalidRequestError(
        f"{said} Supported types are: 'response.create' and 'response.steer'.",
        param="type",
        code="unsupported_event_type",
    )


def _steer(data: bytes, previous_response_id: str | None) -> SteerMessage:
    try:
        fields = decode_body(_raw_object, data)
    except InvalidRequestError as error:
        raise MessageError(error) from None
    given = fields.get("input", Raw(b'""'))
    message = SteerMessage(previous_response_id or "", bytes(given), [], None)
    unknown = sorted(fields.keys() - _STEER_KEYS)
    if unknown:
        message.fault = f"Unknown parameter: '{quoted(unknown[0])}'."
    elif previous_response_id is None:
        message.fault = "Invalid 'previous_response_id': the id of a response is expected."
    else:
        try:
            message.items = _steer_items(given)
        except InvalidRequestError as error:
            message.fault = error.message
    return message


class _SteerItem(Struct, forbid_unknown_fields=True):
    role: str
    content: str | list[Raw]
    type: str = "message"


class _PartHead(Struct):
    type: str | None = None


_steer_input = msgspec.json.Decoder(str | list[Raw])
_steer_item = msgspec.json.Decoder(_SteerItem)
_part_head = msgspec.json.Decoder(_PartHead)


def _steer_items(raw: Raw) -> list[Item]:
    """The input of a steer as items: a text, or messages of the user.

    Raises:
        InvalidRequestError: it is anything else.
    """
    given = decode_body(_steer_input, bytes(raw))
    if isinstance(given, str):
        if not given:
            raise InvalidRequestError("Invalid 'input': a text or messages of the user are expected.")
        return [Message(role="user", content=[InputText(text=given)])]
    if not given:
        raise InvalidRequestError("Invalid 'input': at least one message is expected.")
    return [_steer_message(item, f"input[{index}]") for index, item in enumerate(given)]


def _steer_message(raw: Raw, path: str) -> Item:
    message = decode_body(_steer_item, bytes(raw))
    if message.role != "user" or message.type != "message":
        raise InvalidRequestError(f"Invalid '{path}': only messages of the user can steer a response.")
    for part in message.content if isinstance(message.content, list) else ():
        if decode_body(_part_head, bytes(part)).type not in _STEER_PARTS:
            raise InvalidRequestError(f"Invalid '{path}.content': only text, images and files can steer a response.")
    return decode_item(raw, path)


class _ErrorBody(Struct):
    type: str
    code: str
    message: str
    param: str | None
    headers: dict[str, str] | UnsetType = UNSET


class _ErrorFrame(Struct, tag="error"):
    status: int
    stream_id: str | UnsetType
    error: _ErrorBody


def error_frame(error: APIError, stream_id: str | None = None) -> bytes:
    """The frame of a request that is refused, or of a message that is none."""
    body = _ErrorBody(error.type, error.code or error.type, error.message, error.param)
    if error.retry_after is not None:
        body.headers = {"retry-after": str(max(1, math.ceil(error.retry_after)))}
    # Over HTTP an id that is not there is a 404; here it asks the client to send the whole history (responses-api 7).
    status = 400 if error.code == "previous_response_not_found" else error.http_status
    return encode(_ErrorFrame(status, _lane(stream_id), body))


def lane_suffix(stream_id: str | None) -> bytes:
    """What ends the JSON of an event in that lane."""
    return b"}" if stream_id is None else b',"stream_id":"' + stream_id.encode() + b'"}'


def event_frame(frame: bytes, suffix: bytes) -> bytes:
    """The JSON of an event, of its frame in a log, with the suffix of its lane."""
    return frame[frame.index(_DATA) + len(_DATA) : -3] + suffix


class _Steer(Struct):
    id: str
    previous_response_id: str


class _Accepted(Struct, tag="response.steer.accepted"):
    sequence_number: int
    steer: _Steer
    stream_id: str | UnsetType


class _Pending(Struct, tag="response.steer.pending"):
    sequence_number: int
    steer: _Steer
    reason: str
    required_input: Sequence[dict[str, Any]]
    stream_id: str | UnsetType


class _FailedSteer(Struct):
    id: str | UnsetType
    previous_response_id: str
    input: Raw


class _SteerError(Struct):
    type: str
    code: str
    message: str


class _Failed(Struct, tag="response.steer.failed"):
    sequence_number: int
    steer: _FailedSteer
    error: _SteerError
    stream_id: str | UnsetType


def steer_accepted(submission: Submission, sequence_number: int, stream_id: str | None) -> bytes:
    """The frame that says that the server owns the input.

    `sequence_number` is here and below that of the last event of the response that was sent: these frames are not in
    its log, and have none of their own.
    """
    steer = _Steer(submission.id, submission.previous_response_id)
    return encode(_Accepted(sequence_number, steer, _lane(stream_id)))


def steer_pending(
    submission: Submission, required: Sequence[dict[str, Any]], sequence_number: int, stream_id: str | None
) -> bytes:
    """The frame that says that the input waits for the outputs of calls, whose stubs are `required`."""
    steer = _Steer(submission.id, submission.previous_response_id)
    return encode(_Pending(sequence_number, steer, "waiting_for_required_input", required, _lane(stream_id)))


def steer_failed(
    steer: SteerMessage | Submission, code: str, message: str, sequence_number: int, stream_id: str | None
) -> bytes:
    """The frame that gives the input back; it names the submission where that had been accepted."""
    identity = steer.id if isinstance(steer, Submission) else UNSET
    failed = _FailedSteer(identity, steer.previous_response_id, Raw(steer.input))
    error = _SteerError("invalid_request_error", code, message)
    return encode(_Failed(sequence_number, failed, error, _lane(stream_id)))


def _lane(stream_id: str | None) -> str | UnsetType:
    return UNSET if stream_id is None else stream_id

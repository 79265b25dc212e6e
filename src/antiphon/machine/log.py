"""The event log of one response: numbers events, checks them, folds them and encodes each exactly once.

`frames[n]` is the whole SSE frame of event n, as it is sent live, stored and replayed (law 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET

from antiphon.machine.fold import Fold
from antiphon.machine.transitions import Transitions
from antiphon.protocol import events as e
from antiphon.protocol.json import encode
from antiphon.protocol.response import IncompleteDetails, Response, ResponseError, Usage, output_text
from antiphon.protocol.sse import encode_frame

__all__ = ["DIALECTS", "Deltas", "EventLog", "dialect_of", "frame_parts", "tells_diffs"]

DIALECTS = ("openai", "openresponses")
"""What a log may call its events."""

_NAMES: dict[type, bytes] = {kind: kind.TYPE.encode() for kind in e.Event.__args__}

_HEADS: dict[type, bytes] = {kind: encode_frame(name, b"")[:-2] for kind, name in _NAMES.items()}
"""What stands before the data in the frame of an event."""

_EMPTY_DELTA = b'"delta":""'
_DELTA = b'"delta":'
_NO_NUMBER = b'"sequence_number":0'
_NUMBER = b'"sequence_number":'

_OPEN_RESPONSES_NAMES: dict[type, bytes] = {
    e.ReasoningTextDelta: b"response.reasoning.delta",
    e.ReasoningTextDone: b"response.reasoning.done",
}
"""What the Open Responses dialect calls the raw reasoning events (responses-api 8.4)."""

_OPENAI_NAMES: dict[bytes, bytes] = {renamed: _NAMES[kind] for kind, renamed in _OPEN_RESPONSES_NAMES.items()}

_DIFFS = (e.ApplyPatchDiffDelta, e.ApplyPatchDiffDone)

_EVENT = b"event: "
_DATA = b"\ndata: "


class Deltas:
    """The delta events of one open part or call, of which only text and number differ.

    The rest is encoded once, which makes a delta a third as dear; the bytes are those of the event itself (a test
    compares them).
    """

    __slots__ = ("_frames", "_head", "_middle", "_pieces", "_tail")

    def __init__(self, frames: list[bytes], frame: bytes, pieces: list[str]) -> None:
        self._frames = frames
        self._pieces = pieces
        self._head, rest = frame.split(_EMPTY_DELTA, 1)
        self._head += _DELTA
        self._middle, self._tail = rest.split(_NO_NUMBER, 1)
        self._middle += _NUMBER

    def append(self, text: str) -> None:
        """Append the event of more text; its part must still be open."""
        frames = self._frames
        self._pieces.append(text)
        frames.append(b"".join((self._head, encode(text), self._middle, b"%d" % len(frames), self._tail)))

    def extend(self, texts: Sequence[str]) -> None:
        """The same with each of these texts, at once."""
        frames, head, middle, tail = self._frames, self._head, self._middle, self._tail
        self._pieces += texts
        frames += [
            b"".join((head, encode(text), middle, b"%d" % number, tail))
            for number, text in enumerate(texts, len(frames))
        ]


class EventLog:
    """Append-only. The response object it folds is the one that lifecycle events carry.

    `dialect` is one of `DIALECTS` and fixed for the life of the log, as is whether it has the events of the `diffs` of
    patches, which only some clients know.
    """

    def __init__(self, response: Response, dialect: str = "openai", *, diffs: bool = True) -> None:
        self.frames: list[bytes] = []
        self.response = response
        self._fold = Fold()
        self._transitions = Transitions()
        self._renamed = _OPEN_RESPONSES_NAMES if dialect == "openresponses" else {}
        self._untold = () if diffs else _DIFFS

    @property
    def ended(self) -> bool:
        """Whether the terminal event has been appended."""
        return self._transitions.ended

    @property
    def can_go_on(self) -> bool:
        """Whether the log stands between two steps, so that an assembler can go on from here."""
        return self._transitions.between_steps

    def items(self) -> list[Any]:
        """All items by their `output_index`, those beside the output too, with all text that has arrived."""
        self._fold.snapshot()
        return self._fold.items()

    def append(self, event: Any) -> None:
        """Number, check, fold and encode one event, unless it is one that this log does not have.

        Raises:
            IllegalTransitionError: the event may not come here; the log is unchanged.
        """
        if self._untold and isinstance(event, self._untold):
            return
        self._transitions.move(event)
        event.sequence_number = len(self.frames)
        self.frames.append(self._encode(event))
        self._fold.apply(event)

    def deltas(self, event: Any) -> Deltas:
        """A writer of delta events like this one, which has no text; a delta moves no state, so one check serves all.

        Raises:
            IllegalTransitionError: such an event may not come here.
        """
        if isinstance(event, self._untold):
            return Deltas([], self._encode(event), [])
        self._transitions.move(event)
        return Deltas(self.frames, self._encode(event), self._fold.pieces(event))

    def open(self, queued: bool = False) -> None:
        """Append `response.created` and `response.in_progress`, or `response.queued` where the response has to wait."""
        if queued:
            self.response.status = "queued"
        self.append(e.ResponseCreated(response=self.response))
        if queued:
            self.append(e.ResponseQueued(response=self.response))
        else:
            self.append(e.ResponseInProgress(response=self.response))

    def start(self) -> None:
        """Append the `response.in_progress` of a response that was queued."""
        self.response.status = "in_progress"
        self.append(e.ResponseInProgress(response=self.response))

    def take_up(self, frame: bytes, event: Any) -> None:
        """Append an event of an earlier life of this log, with the exact bytes that it had then.

        Raises:
            IllegalTransitionError: the event may not come here; the log is unchanged.
        """
        self._transitions.move(event)
        if isinstance(event, e.ResponseCreated):
            self.response = event.response
        self.frames.append(frame)
        self._fold.apply(event)

    def snapshot(self) -> Response:
        """The response as it stands after the last event."""
        return self._fold.snapshot()

    def complete(self, usage: Usage, now: int) -> None:
        """End as `completed`; `now` in seconds since the epoch."""
        self.response.status = "completed"
        self.response.completed_at = now
        self._end(e.ResponseCompleted, usage)

    def incomplete(self, reason: str, usage: Usage | None) -> None:
        """End as `incomplete` for that reason."""
        self.response.status = "incomplete"
        self.response.incomplete_details = IncompleteDetails(reason)
        self._end(e.ResponseIncomplete, usage)

    def cancel(self, usage: Usage | None = None) -> None:
        """End as `cancelled`; its terminal event is `response.incomplete`, since no client knows another."""
        self.response.status = "cancelled"
        self._end(e.ResponseIncomplete, usage)

    def fail(self, error: ResponseError, usage: Usage | None = None) -> None:
        """End as `failed`: an `error` event in both shapes, then `response.failed` (responses-api 6.2)."""
        nested = {"type": error.type, "code": error.code, "message": error.message, "param": None}
        self.append(e.ErrorEvent(code=error.code, message=error.message, param=None, error=nested))
        self.response.status = "failed"
        self.response.error = error
        self._end(e.ResponseFailed, usage)

    def retract_end(self) -> None:
        """Take back a terminal event, and the `error` before it, that nobody has seen: the end could not be stored.

        Raises:
            LookupError: the log has not ended.
        """
        if not self.ended:
            raise LookupError("the log has not ended")
        self.frames.pop()
        if self.response.status == "failed":
            self.frames.pop()
        response = self.response
        self._transitions.reopen()
        response.status = "queued" if self._transitions.queued else "in_progress"
        response.error = response.incomplete_details = response.completed_at = response.usage = None
        response.output_text = UNSET

    def _end(self, kind: type[Any], usage: Usage | None) -> None:
        self.response.usage = usage
        self.response.output_text = output_text(self.response.output)
        self.append(kind(response=self.response))

    def _encode(self, event: object) -> bytes:
        kind = type(event)
        if isinstance(event, e.RawEvent):
            event.body["sequence_number"] = event.sequence_number
            return encode_frame(event.type.encode(), encode(event.body))
        data = encode(event)
        renamed = self._renamed.get(kind)
        if renamed is None:
            return b"%b%b\n\n" % (_HEADS[kind], data)
        return encode_frame(renamed, data.replace(_NAMES[kind], renamed, 1))


def dialect_of(frames: Iterable[bytes], default: str) -> str:
    """The dialect of a log by its frames; the default where none of them tells."""
    for frame in frames:
        name = frame[len(_EVENT) : frame.find(b"\n")]
        if name in _OPENAI_NAMES:
            return "openresponses"
        if name in _OPENAI_NAMES.values():
            return "openai"
    return default


def tells_diffs(frames: Iterable[bytes]) -> bool:
    """Whether there is an event of a patch's diff among the frames of a log."""
    names = {_NAMES[kind] for kind in _DIFFS}
    return any(frame[len(_EVENT) : frame.find(b"\n")] in names for frame in frames)


def frame_parts(frame: bytes) -> tuple[bytes, bytes]:
    """The name and the data of the event in a frame, with OpenAI's names whatever the dialect of the log.

    Raises:
        ValueError: this is no frame of a log.
    """
    head, found, data = frame.partition(_DATA)
    if not found or not head.startswith(_EVENT) or not data.endswith(b"\n\n"):
        raise ValueError("this is no frame of a log")
    name = head.removeprefix(_EVENT)
    original = _OPENAI_NAMES.get(name)
    if original is None:
        return name, data[:-2]
    return original, data[:-2].replace(name, original, 1)

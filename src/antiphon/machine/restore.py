"""A half-made response, made whole again from its durable events, so that it goes on where it stood.

The events of a stored response are enough: the log that is restored has the same frames, and what comes next has the
next number, the ids of what is open and the indexes that it would have had without the crash (architecture, "half-made
turn after a crash").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any, cast

import msgspec
from msgspec import Struct

from antiphon.machine.assembler import Assembler
from antiphon.machine.fold import Fold, fold
from antiphon.machine.log import EventLog, frame_parts
from antiphon.machine.standing import (
    COMMAND,
    CUSTOM,
    FUNCTION,
    HOSTED,
    PATCH,
    REASONING,
    REFUSAL,
    SHELL,
    SUMMARY,
    TEXT,
    Standing,
)
from antiphon.machine.suppressor import Suppressor, segments_of
from antiphon.protocol import events as e
from antiphon.protocol.events import decode_event
from antiphon.protocol.hosted import HOSTED_ITEMS, made_here
from antiphon.protocol.items import CustomToolCall, FunctionCall
from antiphon.protocol.parts import Logprob, Refusal, StreamLogprob, TopLogprob
from antiphon.protocol.response import Response

__all__ = ["FrameFold", "Restored", "fold_frames", "restore"]

_ADDED = e.OutputItemAdded.TYPE.encode()
_DONE = e.OutputItemDone.TYPE.encode()
_DELTAS = (
    e.OutputTextDelta,
    e.RefusalDelta,
    e.ReasoningTextDelta,
    e.ReasoningSummaryTextDelta,
    e.FunctionCallArgumentsDelta,
    e.CustomToolCallInputDelta,
    e.ShellCommandDelta,
    e.ApplyPatchDiffDelta,
)
_CALL_KINDS = {"shell_call": SHELL, "apply_patch_call": PATCH}
_CALLS = (*_CALL_KINDS, "local_shell_call", "computer_call", "tool_search_call")


class _RawItemEvent(Struct):
    output_index: int
    sequence_number: int
    item: dict[str, Any]


_raw_item = msgspec.json.Decoder(_RawItemEvent)


class Restored(Struct, frozen=True):
    """A log that stands where its durable events end, and the assembler that goes on with it."""

    log: EventLog
    assembler: Assembler

    def suppressor(self, first_item: int = 0, here: Collection[str] = ()) -> Suppressor:
        """What keeps a turn that yields its deltas from its start again from saying anything twice.

        `first_item` is the `output_index` at which the turn began: the items before it are none of its own. No more are
        those of the types `here`, which hosted tools made that run here.
        """
        segments = segments_of([item for item in self.log.items()[first_item:] if not made_here(item, here)])
        return Suppressor(
            segments, open_logprobs=self.assembler.open_logprobs, parallel_tool_calls=self.assembler.parallel_tool_calls
        )


def restore(
    frames: Sequence[bytes],
    dialect: str = "openai",
    *,
    diffs: bool = True,
    logprobs: bool = False,
    parallel_tool_calls: bool = True,
    input_tokens: int = 0,
    whole_parts: bool = False,
    seal: Callable[[str], str] | None = None,
) -> Restored:
    """The log whose first events are these frames, which end between two feeds of its assembler.

    The other arguments are those that log and assembler had before. Bytes of log probabilities are not in the events
    of an open part: they are taken from the tokens' text.

    Raises:
        ValueError: the frames are no beginning of a log, or end where nothing can go on.
        IllegalTransitionError: they do not follow each other.
    """
    if not frames:
        raise ValueError("a log without events cannot be restored")
    log = EventLog(Response(id="", created_at=0, model=""), dialect, diffs=diffs)
    standing = Standing()
    for frame, event in _events(frames):
        if event.sequence_number != len(log.frames):
            raise ValueError(f"event {len(log.frames)} is missing")
        log.take_up(frame, event)
        _follow(standing, event)
    if not log.can_go_on:
        raise ValueError("the log ends where nothing can go on")
    items = log.items()
    standing.output_index = len(items) - 1
    if standing.kind:
        standing.item = items[-1]
    assembler = Assembler(
        log,
        logprobs=logprobs,
        parallel_tool_calls=parallel_tool_calls,
        input_tokens=input_tokens,
        whole_parts=whole_parts,
        seal=seal,
    )
    assembler.take_up(standing)
    return Restored(log, assembler)


def fold_frames(frames: Sequence[bytes]) -> Response:
    """The response that the first frames of a log add up to, wherever they end; there must be at least one."""
    return fold(event for _, event in _events(frames))


class FrameFold:
    """The fold of a log that comes some frames at a time, as `fold_frames` is of a whole one."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._before = b""
        self._held: list[bytes] = []

    @property
    def empty(self) -> bool:
        """Whether no frame has come yet."""
        return not self._held

    def take(self, frames: Sequence[bytes]) -> None:
        """Take the next frames in; what the last one is may only show with the one after it."""
        known = [*self._held, *frames]
        for _, event in islice(_events(known, self._before), len(known) - 1):
            self._fold.apply(event)
        if len(known) > 1:
            self._before = frame_parts(known[-2])[0]
        self._held = known[-1:]

    def response(self) -> Response:
        """What all frames add up to; no more can be taken in after that.

        Raises:
            LookupError: none has come.
        """
        for _, event in _events(self._held, self._before):
            self._fold.apply(event)
        return self._fold.snapshot()


def _events(frames: Sequence[bytes], before: bytes = b"") -> Iterator[tuple[bytes, Any]]:
    """Each frame with its event; an item that ends where it begins is a raw one and stays the object that it is.

    `before` is the name of the event that came before them.
    """
    parts = [frame_parts(frame) for frame in frames]
    for place, (name, data) in enumerate(parts):
        raw: tuple[type[Any], bool] | None = None
        if name == _ADDED:
            raw = e.OutputItemAdded, place + 1 < len(parts) and parts[place + 1][0] == _DONE
        elif name == _DONE:
            raw = e.OutputItemDone, (parts[place - 1][0] if place else before) == _ADDED
        if raw is not None and raw[1]:
            read = _raw_item.decode(data)
            yield frames[place], raw[0](read.output_index, read.item, read.sequence_number)
        else:
            yield frames[place], decode_event(data)


def _follow(standing: Standing, event: Any) -> None:
    """Move what an assembler knows by one event."""
    if isinstance(event, _DELTAS):
        standing.tokens += 1
        standing.thinking += isinstance(event, e.ReasoningTextDelta | e.ReasoningSummaryTextDelta)
        if isinstance(event, e.OutputTextDelta):
            standing.logprobs += [_with_bytes(entry) for entry in event.logprobs]
        standing.pieces.append(event.delta)
    elif isinstance(event, e.ContentPartAdded):
        _open_part(standing, event)
    elif isinstance(event, e.AnnotationAdded):
        standing.annotations.append(event.annotation)
    elif isinstance(event, e.ReasoningSummaryPartAdded):
        standing.kind, standing.content_index, standing.pieces = SUMMARY, event.summary_index, []
    elif isinstance(event, e.OutputItemAdded):
        standing.pieces = []
        if isinstance(event.item, FunctionCall | CustomToolCall):
            standing.kind = CUSTOM if isinstance(event.item, CustomToolCall) else FUNCTION
            standing.calls += 1
        elif isinstance(event.item, dict):
            _open_item(standing, cast("dict[str, Any]", event.item))
    elif isinstance(event, e.ShellCommandAdded | e.ShellCommandDone) and standing.kind == HOSTED:
        pass
    elif isinstance(event, e.ShellCommandAdded):
        standing.kind = COMMAND
        standing.content_index = event.command_index
        standing.pieces = []
    elif isinstance(event, e.ShellCommandDone):
        standing.kind = SHELL
    elif isinstance(event, e.OutputItemDone):
        standing.kind = ""
        standing.pieces = []


def _open_item(standing: Standing, body: dict[str, Any]) -> None:
    kind = str(body.get("type"))
    if made_here(body, HOSTED_ITEMS):
        # One of an upstream's, which comes whole, is done before anything can go on.
        standing.kind = HOSTED
        return
    standing.kind = _CALL_KINDS.get(kind, "")
    standing.calls += kind in _CALLS


def _open_part(standing: Standing, event: e.ContentPartAdded) -> None:
    standing.content_index = event.content_index
    standing.pieces = []
    if event.part.__struct_config__.tag == "reasoning_text":
        standing.kind = REASONING
    elif isinstance(event.part, Refusal):
        standing.kind = REFUSAL
    else:
        standing.kind = TEXT
        standing.logprobs, standing.annotations = [], []


def _with_bytes(entry: StreamLogprob) -> Logprob:
    top = [TopLogprob(other.token, list(other.token.encode()), other.logprob) for other in entry.top_logprobs]
    return Logprob(entry.token, list(entry.token.encode()), entry.logprob, top)

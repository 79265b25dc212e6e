"""Keeps a turn that is run again from its start from saying twice what its log already holds.

The deltas may be cut in other places than before; only what they add up to is compared. What goes beyond the log is
passed on, and at the first difference the turn is given up: what was delivered is never contradicted (architecture,
"half-made turn after a crash").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from msgspec import UNSET, Struct

from antiphon.errors import DivergedError
from antiphon.machine.deltas import (
    AnnotationDelta,
    CallItemDelta,
    CommandStart,
    HostedEnd,
    HostedStart,
    MessageStart,
    PatchStart,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    Routed,
    ShellLimits,
    ShellStart,
    Stop,
    SummaryDelta,
    TextDelta,
    ThoughtEnd,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.standing import COMMAND, CUSTOM, FUNCTION, PATCH, REASONING, REFUSAL, SHELL, TEXT
from antiphon.protocol.items import CustomToolCall, FunctionCall, Message, Reasoning
from antiphon.protocol.parts import Logprob, Refusal

__all__ = ["Segment", "Suppressor", "segments_of"]

RAW: Final = "raw"

_KINDS: dict[type, str] = {TextDelta: TEXT, RefusalDelta: REFUSAL, ReasoningDelta: REASONING}


class Segment(Struct):
    """A part, a call or a whole raw item that the log holds; `whole` says that it takes no more.

    A call of the shell is a segment without text, and each of its commands one of its own. A patch is named by its
    operation, in the namespace of its path. `summary` are the parts of the summary of a thought, where the engine gave
    them, and `annotations` counts those of a text.
    """

    kind: str
    text: str = ""
    name: str = ""
    namespace: str | None = None
    body: Any = None
    whole: bool = True
    summary: Sequence[str] = ()
    annotations: int = 0


def segments_of(output: Sequence[Any]) -> list[Segment]:
    """What the items under `output` hold, in the order in which it was generated."""
    segments: list[Segment] = []
    for item in output:
        if isinstance(item, Message) and not isinstance(item.content, str):
            segments += [_part_segment(part) for part in item.content]
        elif isinstance(item, Reasoning):
            segments += _thought_segments(item)
        elif isinstance(item, FunctionCall):
            segments.append(Segment(FUNCTION, item.arguments, item.name, _namespace(item)))
        elif isinstance(item, CustomToolCall):
            segments.append(Segment(CUSTOM, item.input, item.name, _namespace(item)))
        else:
            segments += _body_segments(cast("dict[str, Any]", item))
    if segments and _status(output[-1]) == "in_progress":
        segments[-1].whole = False
    return segments


def _status(item: Any) -> Any:
    return cast("dict[str, Any]", item).get("status") if isinstance(item, dict) else getattr(item, "status", None)


def _body_segments(body: dict[str, Any]) -> list[Segment]:
    if body.get("type") == "shell_call":
        return [Segment(SHELL), *(Segment(COMMAND, text) for text in body["action"]["commands"])]
    if body.get("type") == "apply_patch_call":
        operation = body["operation"]
        return [Segment(PATCH, operation.get("diff") or "", operation["type"], operation["path"])]
    return [Segment(RAW, body=body)]


def _namespace(call: FunctionCall | CustomToolCall) -> str | None:
    return None if call.namespace is UNSET else call.namespace


def _thought_segments(item: Reasoning) -> list[Segment]:
    """The parts of a thought; its summary goes with the last of them."""
    summary = [part.text for part in item.summary or ()]
    texts = [part.text for part in item.content or ()] or ([""] if summary else [])
    segments = [Segment(REASONING, text) for text in texts]
    if segments:
        segments[-1].summary = summary
    return segments


def _part_segment(part: Any) -> Segment:
    if isinstance(part, Refusal):
        return Segment(REFUSAL, part.refusal)
    return Segment(TEXT, part.text, annotations=len(part.annotations or ()))


class Suppressor:
    """Compares the deltas of one turn with the segments that its log holds.

    `open_logprobs` is how many log probabilities the open text part has, None where none are logged;
    `parallel_tool_calls` as the assembler has it: calls that it leaves out are in no log.
    """

    def __init__(
        self, segments: Sequence[Segment], *, open_logprobs: int | None = 0, parallel_tool_calls: bool = True
    ) -> None:
        self._segments = segments
        self._parallel = parallel_tool_calls
        self._left_logprobs = open_logprobs
        self._next = 0
        self._current: Segment | None = None
        self._matched = 0
        self._summed: list[int] = []
        self._annotated = 0
        self._calls = 0
        self._caught_up = False
        self._announced: MessageStart | None = None

    @property
    def caught_up(self) -> bool:
        """Whether something new has been passed on; from then on everything is."""
        return self._caught_up

    def feed(self, deltas: Sequence[Routed]) -> list[Routed]:
        """Those of the deltas, or of their ends, that are not in the log yet.

        Raises:
            DivergedError: the turn says something else than the log, or ends before it.
        """
        fresh: list[Routed] = []
        for delta in deltas:
            passed = delta if self._caught_up else self._compare(delta)
            if passed is None:
                continue
            if self._announced is not None and _begins_message(passed):
                # It was known before its message was, which is new.
                fresh.append(self._announced)
                self._announced = None
            elif isinstance(passed, MessageStart):
                self._announced = None
            fresh.append(passed)
        return fresh

    def _compare(self, delta: Routed) -> Routed | None:
        if isinstance(delta, TextDelta | ReasoningDelta | RefusalDelta):
            return self._text(delta)
        if isinstance(delta, HostedStart | HostedEnd):
            # They are no part of what a model says; the assembler knows which of them were told.
            return delta
        if isinstance(delta, ToolCallDelta):
            return self._arguments(delta)
        if isinstance(delta, CommandStart | ShellLimits):
            return self._of_shell(delta)
        if isinstance(delta, SummaryDelta | AnnotationDelta):
            return self._beside(delta)
        if isinstance(delta, ThoughtEnd):
            return self._thought_end(delta)
        self._leave()
        if self._next == len(self._segments):
            return self._pass(delta)
        if isinstance(delta, Stop):
            raise _diverged("it ends before")
        if isinstance(delta, RawItemDelta):
            self._raw_item(delta)
        elif isinstance(delta, MessageStart):
            self._announced = delta
        else:
            self._call(delta)
        return None

    def _beside(self, delta: SummaryDelta | AnnotationDelta) -> Routed | None:
        """What goes with a thought or a text: the parts of its summary, its citations."""
        current = self._current
        if isinstance(delta, AnnotationDelta):
            self._annotated += 1
            if current is None or current.kind != TEXT or self._annotated <= current.annotations:
                return None
            if not self._is_last(current) or current.whole:
                raise _diverged("it has more citations")
            return self._pass(delta)
        if not delta.text:
            return None
        if current is None or current.kind != REASONING:
            self._leave()
            if self._next == len(self._segments):
                return self._pass(delta)
            current = self._enter(REASONING)
        return self._of_summary(delta, current)

    def _thought_end(self, delta: ThoughtEnd) -> Routed | None:
        """The end of a thought, where one is open; elsewhere it says nothing."""
        thought = self._current
        if thought is None or thought.kind != REASONING:
            return None
        self._leave()
        return self._pass(delta) if self._is_last(thought) and not thought.whole else None

    def _of_summary(self, delta: SummaryDelta, thought: Segment) -> Routed | None:
        begins = delta.begins or not self._summed
        if begins:
            self._summed.append(0)
        part, before = len(self._summed) - 1, self._summed[-1]
        held = thought.summary[part] if part < len(thought.summary) else ""
        known = held[before : before + len(delta.text)]
        if not delta.text.startswith(known):
            raise _diverged("it has another summary")
        self._summed[-1] += len(known)
        rest = delta.text[len(known) :]
        if not rest:
            return None
        if not self._is_last(thought) or thought.whole:
            raise _diverged("it has more of a summary")
        return self._pass(SummaryDelta(rest, begins and part > 0 and not known))

    def _of_shell(self, delta: CommandStart | ShellLimits) -> Routed | None:
        """What belongs to a call of the shell; of one that was left out nothing is in the log."""
        current = self._current
        if current is None or current.kind not in (SHELL, COMMAND):
            return None
        if isinstance(delta, ShellLimits):
            open_end = self._is_last(current) and not current.whole
            return self._pass(delta) if open_end else None
        self._leave()
        if self._next == len(self._segments):
            return self._pass(delta)
        self._enter(COMMAND)
        return None

    def _text(self, delta: TextDelta | ReasoningDelta | RefusalDelta) -> Routed | None:
        if not delta.text and not (isinstance(delta, TextDelta) and delta.logprobs):
            return None
        kind = _KINDS[type(delta)]
        # What is summed up is not thought on: more of it is another thought.
        if self._current is None or self._current.kind != kind or (kind == REASONING and self._summed):
            self._leave()
            if self._next == len(self._segments):
                return self._pass(delta)
            self._enter(kind)
        return self._match(delta)

    def _arguments(self, delta: ToolCallDelta) -> Routed | None:
        # The arguments of a call that was left out, or of none, are in no log.
        if self._current is None or self._current.kind not in (FUNCTION, CUSTOM, COMMAND, PATCH) or not delta.text:
            return None
        return self._match(delta)

    def _call(self, delta: ToolCallStart | ShellStart | PatchStart | CallItemDelta) -> None:
        if self._calls and not self._parallel:
            return
        self._calls += 1
        if isinstance(delta, CallItemDelta):
            self._raw_item(delta)
        elif isinstance(delta, ShellStart):
            self._enter(SHELL)
        else:
            if isinstance(delta, PatchStart):
                kind, name, place = PATCH, delta.operation, delta.path
            else:
                kind, name, place = CUSTOM if delta.custom else FUNCTION, delta.name, delta.namespace
            segment = self._enter(kind)
            if (segment.name, segment.namespace) != (name, place):
                raise _diverged("it calls another tool")
            if name == "delete_file" and kind == PATCH:
                self._current = None

    def _raw_item(self, delta: RawItemDelta | CallItemDelta) -> None:
        held: Any = self._enter(RAW).body
        self._current = None
        body = delta.body
        if isinstance(held, dict):
            # What the assembler gave it.
            given = ("id", "call_id", "status") if isinstance(delta, CallItemDelta) else ("id",)
            known = cast("dict[str, Any]", held)
            body = {**body, **{name: known[name] for name in given if not body.get(name) and name in known}}
        if body != held:
            raise _diverged("it has another item")

    def _match(self, delta: TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta) -> Routed | None:
        """Compare text with what is left of the current segment; the result is what goes beyond it."""
        segment = self._current
        assert segment is not None  # noqa: S101 - the callers have entered one
        text = delta.text
        held = segment.text[self._matched : self._matched + len(text)]
        if not text.startswith(held):
            raise _diverged("it has another text")
        self._matched += len(held)
        rest = text[len(held) :]
        entries = delta.logprobs if isinstance(delta, TextDelta) else None
        if not rest and not self._only_new_entries(segment, text, entries):
            if self._left_logprobs is not None and self._is_last(segment):
                self._left_logprobs -= len(entries or ())
            return None
        if not self._is_last(segment) or segment.whole:
            raise _diverged("it has more text")
        if isinstance(delta, TextDelta):
            return self._pass(TextDelta(rest, _of_end(delta.logprobs, len(rest)) if held else delta.logprobs))
        return self._pass(type(delta)(rest))

    def _only_new_entries(self, segment: Segment, text: str, entries: list[Logprob] | None) -> bool:
        """Whether this is nothing but log probabilities that the log does not have."""
        if text or not entries or not self._is_last(segment) or segment.whole or self._left_logprobs is None:
            return False
        return self._matched == len(segment.text) and len(entries) > self._left_logprobs

    def _is_last(self, segment: Segment) -> bool:
        return segment is self._segments[-1]

    def _enter(self, kind: str) -> Segment:
        segment = self._segments[self._next]
        if segment.kind != kind:
            raise _diverged(f"it has a {kind} where there was a {segment.kind}")
        self._next += 1
        self._current = segment
        if kind in (TEXT, REFUSAL):
            self._announced = None
        self._matched = self._annotated = 0
        self._summed.clear()
        return segment

    def _leave(self) -> None:
        """The turn is done with the current segment: the log must not hold more of it."""
        segment, self._current = self._current, None
        if segment is None:
            return
        if self._summed and self._summed != [len(part) for part in segment.summary]:
            raise _diverged("it has less of a summary")
        if self._matched == len(segment.text):
            return
        # The log closes a call without arguments with an empty object.
        if segment.kind == FUNCTION and segment.whole and not self._matched and segment.text == "{}":
            return
        raise _diverged("it has less text")

    def _pass(self, delta: Routed) -> Routed:
        self._caught_up = True
        return delta


def _begins_message(delta: Routed) -> bool:
    return isinstance(delta, TextDelta | RefusalDelta) and bool(delta.text or getattr(delta, "logprobs", None))


def _of_end(entries: list[Logprob] | None, length: int) -> list[Logprob] | None:
    """The log probabilities of the tokens that reach into so many last characters of a delta."""
    if entries is None:
        return None
    start = len(entries)
    while start and length > 0:
        start -= 1
        length -= len(entries[start].token)
    return entries[start:]


def _diverged(how: str) -> DivergedError:
    return DivergedError(f"The turn was run again after a crash and says something else than before: {how}.")

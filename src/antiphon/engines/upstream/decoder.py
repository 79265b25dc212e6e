"""From the events of a streamed chat completion to deltas, whichever server wrote them. Pure.

Rule 1: what the deltas add up to does not depend on how the bytes were cut, nor on whether events came one at a time.
Rule 2: deltas follow one another. While a call is told, pieces of a later call, and text, wait until its arguments are
complete JSON; at the end all of it is told in the order in which it began.
Rule 3: a turn ends by its finish reason, or by `[DONE]`; bytes that end before both are a failure.
Rule 4: thinking is what comes under its own name, or between markers at the start of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct

from antiphon.engines.upstream.callform import read_form
from antiphon.engines.upstream.calls import LEGACY_INDEX, Calls
from antiphon.engines.upstream.logprobs import read_logprobs, read_token_lists
from antiphon.engines.upstream.order import Order
from antiphon.engines.upstream.usage import UsageCount
from antiphon.engines.upstream.wire import DONE_EVENT, CallPiece, ChoicePiece, Chunk, Piece, Texts, decode_chunk
from antiphon.engines.upstream.words import INVALID, told_words, upstream_fault
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta, ReasoningDelta, RefusalDelta, Stop, TextDelta
from antiphon.machine.reasoning import CLOSE_MARKER, OPEN_MARKER, ReasoningSplitter
from antiphon.protocol.parts import Logprob
from antiphon.protocol.sse import ServerSentEvent

__all__ = ["ChatDecoder", "Reading"]

_ERROR: Final = "error"
_CUTS: Final = {"length": "length", "max_tokens": "length", "content_filter": "content_filter"}
_MOST_LEVELS: Final = 4
"""Levels of lists and parts around a text."""

_FAILURES: Final = frozenset({"error", "abort", "aborted", "cancelled"})


class Reading(Struct, frozen=True):
    """How a turn is to be read.

    `tools` are the tools that were declared, each with whether it is a custom one. `one_call` keeps the first call
    only. `form` says that the text is an object that says the call. `tags` says whether thinking may stand in the text,
    `primed` that the text begins inside it.
    """

    input_tokens: int
    tools: Mapping[str, bool] = {}
    one_call: bool = False
    logprobs: bool = False
    form: bool = False
    tags: bool = True
    primed: bool = False
    markers: tuple[str, str] = (OPEN_MARKER, CLOSE_MARKER)


class ChatDecoder:
    """Decodes one turn: events go in, deltas come out, the last of them a `Stop`."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._usage = UsageCount(reading.input_tokens)
        self._calls = Calls(reading.tools)
        self._begun = 0
        self._order = Order()
        self._splitter: ReasoningSplitter | None = None
        if reading.tags:
            self._splitter = ReasoningSplitter(*reading.markers, primed=reading.primed)
        self._logprobs: list[Logprob] = []
        self._after_thinking = self._thought = False
        self._blank: str | None = ""
        self._form: list[str] = []
        self._finish: str | None = None
        self._texts = Texts()
        self._plain = False
        self.done = False
        """Whether the `Stop` was given."""

    @property
    def finished(self) -> bool:
        """Whether the upstream has said how the turn ends; only usage may follow."""
        return self._finish is not None

    def read(self, events: Sequence[ServerSentEvent], deltas: list[Delta]) -> None:
        """Add the deltas of some events; those of the events before one at fault are added.

        Raises:
            EngineError: the upstream failed, or an event is no part of a chat completion.
        """
        pieces, read = self._usage.pieces, self._texts.read
        for event in events:
            if self._plain and event.event != _ERROR:
                text = read(event.data)
                if text:
                    pieces.append(text)
                    deltas.append(TextDelta(text))
                    continue
            deltas += self.feed(event.data, event.event)
            self._plain = self._speaks()

    def feed(self, data: str, event: str = "message") -> list[Delta]:
        """The deltas of one event.

        Raises:
            EngineError: the upstream failed, or the event is no part of a chat completion.
        """
        if self.done:
            return []
        if data.strip() == DONE_EVENT:
            return self._stop(self._finish or "stop")
        chunk = decode_chunk(data)
        if event == _ERROR and (chunk is None or not chunk.error):
            raise upstream_fault(told_words(data) if chunk is None else _fields(chunk))
        if chunk is None:
            raise EngineError("The upstream sent what is no part of a chat completion.", code=INVALID)
        if chunk.error:
            raise upstream_fault(chunk.error)
        if chunk.object == _ERROR:
            raise upstream_fault(_fields(chunk))
        self._usage.tell(chunk.usage, chunk.timings)
        for choice in chunk.choices or ():
            if not choice.index:
                self._choice(choice)
        return self._order.taken()

    def end(self) -> list[Delta]:
        """The last deltas, at the end of the bytes.

        Raises:
            EngineError: the turn had not ended.
        """
        if self.done:
            return []
        if self._finish is None:
            raise EngineError("The upstream ended in the middle of its answer.", code="upstream_lost")
        return self._stop(self._finish)

    def _speaks(self) -> bool:
        """Whether more text would be told as it comes, which is how most of an answer is read."""
        return not (
            self._reading.logprobs
            or self._reading.form
            or self._after_thinking
            or self._order.waits
            or self._blank is not None
            or self._finish is not None
            or (self._splitter is not None and not self._splitter.answering)
        )

    def _choice(self, choice: ChoicePiece) -> None:
        piece = choice.delta or choice.message
        if choice.logprobs is not None and self._reading.logprobs:
            told = choice.logprobs
            self._logprobs += read_logprobs(told.content)
            self._logprobs += read_token_lists(told.tokens, told.token_logprobs, told.top_logprobs)
        if piece is not None:
            self._piece(piece)
        elif choice.text:
            self._say(_text_of(choice.text))
        reason = choice.finish_reason
        if reason in _FAILURES:
            raise EngineError(f"The upstream ended its answer with '{told_words(str(reason))}'.", code="upstream_error")
        if reason:
            self._finish = _CUTS.get(reason, "stop")

    def _piece(self, piece: Piece) -> None:
        thought = _text_of(piece.reasoning_content) or _text_of(piece.reasoning)
        if thought:
            self._think(thought)
        if isinstance(piece.content, str):
            self._say(piece.content)
        else:
            for part in piece.content or ():
                self._part(part)
        if piece.refusal:
            self._usage.saw(piece.refusal)
            self._order.put(RefusalDelta(piece.refusal))
        pieces = list(piece.tool_calls or ())
        if piece.function_call is not None:
            pieces.append(CallPiece(LEGACY_INDEX, None, piece.function_call))
        if pieces:
            self._call(pieces)

    def _part(self, part: Any) -> None:
        if isinstance(part, str):
            self._say(part)
        if not isinstance(part, dict):
            return
        fields = cast("dict[str, Any]", part)
        kind = fields.get("type")
        if kind == "thinking":
            self._think(_text_of(fields.get("thinking")))
        elif kind == "refusal":
            self._piece(Piece(refusal=_text_of(fields.get("refusal"))))
        elif kind in (None, "text", "output_text"):
            self._say(_text_of(fields.get("text")))

    def _think(self, text: str) -> None:
        """Thinking under a name of its own; where that comes, none stands in the text."""
        self._end_tags()
        self._after_thinking = True
        if not self._thought:
            text = text.lstrip()
        if text:
            self._thought = True
            self._usage.saw(text, thinking=True)
            self._order.put(ReasoningDelta(text))

    def _say(self, text: str) -> None:
        if self._after_thinking:
            # Whitespace after thinking is no part of the answer (M16).
            text = text.lstrip()
            self._after_thinking = not text
        if not text:
            return
        if self._splitter is None:
            self._usage.saw(text)
            self._text(text)
            return
        self._usage.saw(text, thinking=self._splitter.thinking)
        self._put_split(self._splitter.feed(text))

    def _put_split(self, deltas: Iterable[ReasoningDelta | TextDelta]) -> None:
        for delta in deltas:
            if isinstance(delta, TextDelta):
                self._text(delta.text)
            else:
                self._logprobs.clear()
                self._order.put(delta)

    def _text(self, text: str) -> None:
        """Text, but blank text only with what follows it: beside calls it says nothing."""
        if self._reading.form:
            self._form.append(text)
            return
        if self._blank is not None:
            text, self._blank = self._blank + text, None
            if not text.strip():
                self._blank = text
                return
        self._order.put(TextDelta(text, self._with_logprobs()))

    def _end_tags(self) -> None:
        splitter, self._splitter = self._splitter, None
        if splitter is not None:
            self._put_split(splitter.finish())

    def _with_logprobs(self) -> list[Logprob] | None:
        if not self._reading.logprobs:
            return None
        logprobs, self._logprobs = self._logprobs, []
        return logprobs

    def _call(self, pieces: list[CallPiece]) -> None:
        self._end_tags()
        self._blank = ""
        for piece in pieces:
            if piece.function is not None and piece.function.arguments:
                self._usage.saw(str(piece.function.arguments))
            elif piece.custom is not None and piece.custom.input:
                self._usage.saw(piece.custom.input)
        for call in self._calls.add(pieces):
            self._begun += 1
            if self._begun == 1 or not self._reading.one_call:
                self._order.begin(call)
        self._order.advance()

    def _stop(self, reason: str) -> list[Delta]:
        self._end_tags()
        if self._blank and not self._begun:
            self._order.put(TextDelta(self._blank, self._with_logprobs()))
        stop = Stop(reason, self._usage.used())
        form = "".join(self._form)
        if form:
            call = read_form(form, dict(self._reading.tools), cut=stop.cut)
            for delta in [TextDelta(form)] if call is None else call:
                self._order.put(delta)
        self._order.end(cut=stop.cut)
        self.done = True
        return self._order.taken([stop])


def _fields(chunk: Chunk) -> dict[str, Any]:
    return {"message": chunk.message, "code": chunk.code, "type": chunk.type}


def _text_of(value: Any, levels: int = _MOST_LEVELS) -> str:
    """The text of a field that is one, or a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and levels:
        return "".join(_text_of(part, levels - 1) for part in cast("list[Any]", value))
    if isinstance(value, dict) and levels:
        return _text_of(cast("dict[str, Any]", value).get("text"), levels - 1)
    return ""

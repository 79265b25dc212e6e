"""From an engine's deltas to events: opens and closes items and parts, keeps ids, indexes and status right.

An item is open from its first delta until something else begins or the turn ends. A turn that is cut closes what is
open, with the status `incomplete`, also in the middle of thinking or of a call (M24).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from antiphon.machine.deltas import (
    Delta,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    Stop,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.log import Deltas, EventLog
from antiphon.protocol import events as e
from antiphon.protocol.ids import item_prefix, new_id
from antiphon.protocol.items import CustomToolCall, FunctionCall, Message, Reasoning
from antiphon.protocol.parts import Logprob, OutputText, ReasoningText, Refusal, StreamLogprob, StreamTopLogprob
from antiphon.protocol.response import (
    InputTokensDetails,
    OutputTokensDetails,
    ResponseError,
    Usage,
)

__all__ = ["Assembler", "Standing", "usage_of"]

NOTHING: Final = ""
TEXT: Final = "text"
REFUSAL: Final = "refusal"
REASONING: Final = "reasoning"
FUNCTION: Final = "function"
CUSTOM: Final = "custom"


class Standing(Struct):
    """Where an assembler stands between two deltas.

    `kind` is what is open, empty for nothing, `item` the open item and `pieces` the text that has come of it, of its
    last part; `logprobs` are those of that part. `calls`, `tokens` and `thinking` count the calls, and the deltas of
    all kinds and of thinking.
    """

    kind: str = NOTHING
    item: Any = None
    output_index: int = -1
    content_index: int = -1
    pieces: list[str] = msgspec.field(default_factory=list[str])
    logprobs: list[Logprob] = msgspec.field(default_factory=list[Logprob])
    calls: int = 0
    tokens: int = 0
    thinking: int = 0


class Assembler:
    """Turns the deltas of one turn into events of a log.

    `logprobs` says whether the request asked for them; `parallel_tool_calls` False lets only the first call of the
    turn through (responses-api 6.4). `input_tokens` are those of the prompt, for a turn that does not come to its end.
    `whole_parts` gives each part one delta event, at its end, for answers that nobody sees before their end. `seal`
    makes the `encrypted_content` of a reasoning item from its text, when it closes.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        logprobs: bool = False,
        parallel_tool_calls: bool = True,
        input_tokens: int = 0,
        whole_parts: bool = False,
        seal: Callable[[str], str] | None = None,
    ) -> None:
        self._log = log
        self._seal = seal
        self._whole_parts = whole_parts
        self._keep_logprobs = logprobs
        self._parallel = parallel_tool_calls
        self._calls = 0
        self._open = NOTHING
        self._item: Any = None
        self._item_id = ""
        self._output_index = -1
        self._content_index = -1
        self._pieces: list[str] = []
        self._deltas: Deltas | None = None
        self._logprobs: list[Logprob] = []
        self._input_tokens = input_tokens
        self._tokens = 0
        self._thinking = 0
        self.stopped: Stop | None = None

    @property
    def parallel_tool_calls(self) -> bool:
        """Whether a turn may have more than one call."""
        return self._parallel

    @property
    def open_logprobs(self) -> int:
        """How many log probabilities the open text part has; 0 where none is open."""
        return len(self._logprobs) if self._open == TEXT else 0

    def take_up(self, standing: Standing) -> None:
        """Go on where an earlier life of this assembler stood; its events are in the log."""
        self._open = standing.kind
        self._item = standing.item
        self._item_id = "" if standing.item is None else standing.item.id
        self._output_index = standing.output_index
        self._content_index = standing.content_index
        self._pieces = standing.pieces
        self._logprobs = standing.logprobs
        self._calls = standing.calls
        self._tokens = standing.tokens
        self._thinking = standing.thinking

    def feed(self, deltas: Sequence[Delta]) -> bool:
        """Take deltas in; True when the turn has ended, by a `Stop` or because no further call is allowed."""
        for delta in deltas:
            self._rules[type(delta)](self, delta)
            if self.stopped is not None:
                return True
        return False

    def finish(self, now: int) -> None:
        """Close what is open and append the terminal event that the `Stop` asks for.

        Raises:
            LookupError: the turn has not stopped.
        """
        stop = self.stopped
        if stop is None:
            raise LookupError("the turn has not stopped")
        usage = usage_of(stop)
        if stop.reason == "length":
            self._cut()
            self._log.incomplete("max_output_tokens", usage)
            return
        if self._output_index < 0:
            self._begin_text()
        self._close("completed")
        self._log.complete(usage, now)

    def fail(self, error: ResponseError) -> None:
        """Close what is open as `incomplete` and end the response as `failed`, with what was generated."""
        self._close("incomplete")
        self._log.fail(error, self._usage_so_far())

    def cancel(self) -> None:
        """Close what is open as `incomplete` and end the response as `cancelled`."""
        self._close("incomplete")
        self._log.cancel(self._usage_so_far())

    def steer(self) -> None:
        """Close what is open as `incomplete` and end the response as `incomplete`, because its client steers it."""
        self._close("incomplete")
        self._log.incomplete("steered", self._usage_so_far())

    def _usage_so_far(self) -> Usage:
        """What a turn that did not come to its end used: each delta that was seen counts for a token."""
        usage = TokenUsage(self._input_tokens, self._tokens, reasoning_tokens=self._thinking)
        return usage_of(self.stopped or Stop("stop", usage))

    def _cut(self) -> None:
        if self._open == NOTHING and self._output_index < 0:
            self._begin_text()
        self._close("incomplete")

    def _text(self, delta: TextDelta) -> None:
        if not delta.text and not delta.logprobs:
            return
        if self._open != TEXT:
            self._begin_text()
        logprobs: list[Logprob] = []
        if self._keep_logprobs and delta.logprobs:
            logprobs = delta.logprobs
            self._logprobs += logprobs
        self._more(delta.text, logprobs)

    def _refusal(self, delta: RefusalDelta) -> None:
        if not delta.text:
            return
        if self._open != REFUSAL:
            self._begin_part(REFUSAL)
        self._more(delta.text)

    def _reasoning(self, delta: ReasoningDelta) -> None:
        if not delta.text:
            return
        if self._open != REASONING:
            self._close("completed")
            self._add(Reasoning(id=new_id("rs"), content=[], status="in_progress"), REASONING)
            self._content_index = 0
            self._log.append(e.ContentPartAdded(self._item_id, self._output_index, 0, ReasoningText(text="")))
        self._thinking += 1
        self._more(delta.text)

    def _call(self, delta: ToolCallStart) -> None:
        self._close("completed")
        if self._calls and not self._parallel:
            return
        self._calls += 1
        call_id = new_id("call")
        item: FunctionCall | CustomToolCall
        if delta.custom:
            item = CustomToolCall(call_id=call_id, name=delta.name, input="", id=new_id("ctc"), status="in_progress")
        else:
            item = FunctionCall(call_id=call_id, name=delta.name, arguments="", id=new_id("fc"), status="in_progress")
        if delta.namespace is not None:
            item.namespace = delta.namespace
        self._add(item, CUSTOM if delta.custom else FUNCTION)

    def _arguments(self, delta: ToolCallDelta) -> None:
        if self._open in (FUNCTION, CUSTOM):
            self._more(delta.text)

    def _more(self, text: str, logprobs: Sequence[Logprob] = ()) -> None:
        self._pieces.append(text)
        self._tokens += 1
        if self._whole_parts:
            return
        if logprobs:
            self._log.append(self._delta(text, logprobs))
            return
        if self._deltas is None:
            self._deltas = self._log.deltas(self._delta("", ()))
        self._deltas.append(text)

    def _delta(self, text: str, logprobs: Sequence[Logprob]) -> object:
        """The event of more text of what is open."""
        kind = self._open
        if kind == TEXT:
            entries = [_without_bytes(entry) for entry in logprobs]
            return e.OutputTextDelta(self._item_id, self._output_index, self._content_index, text, entries)
        if kind == REASONING:
            return e.ReasoningTextDelta(self._item_id, self._output_index, self._content_index, text)
        if kind == FUNCTION:
            return e.FunctionCallArgumentsDelta(self._item_id, self._output_index, text)
        if kind == CUSTOM:
            return e.CustomToolCallInputDelta(self._item_id, self._output_index, text)
        return e.RefusalDelta(self._item_id, self._output_index, self._content_index, text)

    def _raw_item(self, delta: RawItemDelta) -> None:
        self._close("completed")
        body = delta.body
        if not body.get("id"):
            body = {**body, "id": new_id(item_prefix(str(body.get("type"))))}
        self._output_index += 1
        self._log.append(e.OutputItemAdded(output_index=self._output_index, item=body))
        self._log.append(e.OutputItemDone(output_index=self._output_index, item=body))

    def _stop(self, delta: Stop) -> None:
        self.stopped = delta

    def _begin_text(self) -> None:
        self._begin_part(TEXT)
        self._logprobs = []

    def _begin_part(self, kind: str) -> None:
        if self._open in (TEXT, REFUSAL):
            self._close_part()
            self._content_index += 1
        else:
            self._close("completed")
            self._add(Message(role="assistant", content=[], id=new_id("msg"), status="in_progress"), kind)
            self._content_index = 0
        self._open = kind
        part = Refusal(refusal="") if kind == REFUSAL else OutputText(text="")
        self._log.append(e.ContentPartAdded(self._item_id, self._output_index, self._content_index, part))

    def _add(self, item: Any, kind: str) -> None:
        self._open = kind
        self._item = item
        self._item_id = item.id
        self._output_index += 1
        self._pieces = []
        self._log.append(e.OutputItemAdded(output_index=self._output_index, item=item))

    def _close(self, status: str) -> None:
        if self._open == NOTHING:
            return
        if self._open in (FUNCTION, CUSTOM):
            self._close_call(status)
        else:
            text = self._close_part()
            if self._open == REASONING and self._seal is not None:
                self._item.encrypted_content = self._seal(text)
        self._item.status = status
        self._log.append(e.OutputItemDone(output_index=self._output_index, item=self._item))
        self._open = NOTHING

    def _close_part(self) -> str:
        text = self._whole_text()
        place = (self._item_id, self._output_index, self._content_index)
        if self._open == TEXT:
            self._log.append(e.OutputTextDone(*place, text, [_without_bytes(entry) for entry in self._logprobs]))
            part: Any = OutputText(text=text, logprobs=self._logprobs)
        elif self._open == REFUSAL:
            self._log.append(e.RefusalDone(*place, text))
            part = Refusal(refusal=text)
        else:
            self._log.append(e.ReasoningTextDone(*place, text))
            part = ReasoningText(text=text)
        self._log.append(e.ContentPartDone(*place, part))
        return text

    def _whole_text(self) -> str:
        text = "".join(self._pieces)
        if self._whole_parts and self._pieces:
            self._log.append(self._delta(text, self._logprobs))
        self._pieces = []
        self._deltas = None
        return text

    def _close_call(self, status: str) -> None:
        text = self._whole_text()
        if self._open == CUSTOM:
            self._item.input = text
            self._log.append(e.CustomToolCallInputDone(self._item_id, self._output_index, text))
            return
        if not text and status == "completed":
            text = "{}"
        self._item.arguments = text
        self._log.append(e.FunctionCallArgumentsDone(self._item_id, self._output_index, self._item.name, text))

    _rules: ClassVar[dict[type, Callable[[Assembler, Any], None]]] = {
        TextDelta: _text,
        ReasoningDelta: _reasoning,
        RefusalDelta: _refusal,
        ToolCallStart: _call,
        ToolCallDelta: _arguments,
        RawItemDelta: _raw_item,
        Stop: _stop,
    }


def _without_bytes(entry: Logprob) -> StreamLogprob:
    return StreamLogprob(
        entry.token, entry.logprob, [StreamTopLogprob(top.token, top.logprob) for top in entry.top_logprobs]
    )


def usage_of(stop: Stop) -> Usage:
    """The usage object of a turn; the total is input plus output."""
    counted = stop.usage
    return Usage(
        input_tokens=counted.input_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=counted.cached_tokens),
        output_tokens=counted.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=counted.reasoning_tokens),
        total_tokens=counted.input_tokens + counted.output_tokens,
    )

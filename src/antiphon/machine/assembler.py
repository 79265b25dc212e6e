"""From an engine's deltas to events: opens and closes items and parts, keeps ids, indexes and status right.

An item is open from its first delta until something else begins or the turn ends. A turn that is cut closes what is
open, with the status `incomplete`, also in the middle of thinking or of a call (M24).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from antiphon.machine.callitems import call_item, identity_of
from antiphon.machine.deltas import (
    CallItemDelta,
    CommandStart,
    PatchStart,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    Routed,
    ShellLimits,
    ShellStart,
    Stop,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.log import Deltas, EventLog
from antiphon.machine.usage import NOTHING_USED, added, usage_of
from antiphon.protocol import events as e
from antiphon.protocol.ids import item_prefix, new_id
from antiphon.protocol.items import CustomToolCall, FunctionCall, Message, Reasoning
from antiphon.protocol.parts import (
    Logprob,
    OutputText,
    ReasoningText,
    Refusal,
    StreamLogprob,
    StreamTopLogprob,
    SummaryText,
)
from antiphon.protocol.response import ResponseError, Usage

__all__ = ["Assembler", "Standing", "usage_of"]

NOTHING: Final = ""
TEXT: Final = "text"
REFUSAL: Final = "refusal"
REASONING: Final = "reasoning"
FUNCTION: Final = "function"
CUSTOM: Final = "custom"
SHELL: Final = "shell"
COMMAND: Final = "command"
PATCH: Final = "patch"


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
    """Turns the deltas of turns, one after another, into events of a log.

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
        self._limits: dict[str, int | None] = {}
        self._input_tokens = input_tokens
        self._tokens = 0
        self._thinking = 0
        self._spent = NOTHING_USED
        self._summary = ""
        self.stopped: Stop | None = None

    @property
    def thinking(self) -> bool:
        """Whether thinking is open."""
        return self._open == REASONING

    @property
    def thought(self) -> str:
        """The text of the thinking that is open."""
        return "".join(self._pieces)

    @property
    def spent(self) -> TokenUsage:
        """What earlier turns of the response used, and what was done beside its turns."""
        return self._spent

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
        self._item_id = "" if standing.item is None else identity_of(standing.item)
        self._output_index = standing.output_index
        self._content_index = standing.content_index
        self._pieces = standing.pieces
        self._logprobs = standing.logprobs
        self._calls = standing.calls
        self._tokens = standing.tokens
        self._thinking = standing.thinking

    def feed(self, deltas: Sequence[Routed]) -> bool:
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
        usage = usage_of(Stop(stop.reason, added(self._spent, stop.usage)))
        if stop.cut:
            self._cut()
            self._log.incomplete("max_output_tokens" if stop.reason == "length" else stop.reason, usage)
            return
        if self._output_index < 0:
            self._begin_text()
        self._close("completed")
        self._log.complete(usage, now)

    def end_turn(self) -> None:
        """Close what is open, since the turn that has stopped is not the last one.

        Raises:
            LookupError: the turn has not stopped.
        """
        if self.stopped is None:
            raise LookupError("the turn has not stopped")
        self._close("completed")
        self.spend(self.stopped.usage)
        self.stopped = None
        self.begin_turn(0)

    def begin_turn(self, input_tokens: int) -> None:
        """Expect the deltas of a further turn, whose prompt has so many tokens."""
        self._calls = self._tokens = self._thinking = 0
        self._input_tokens = input_tokens

    def spend(self, usage: TokenUsage) -> None:
        """Count what was used beside the turn that is fed."""
        self._spent = added(self._spent, usage)

    def summarize(self, summary: str) -> None:
        """Give the thinking that is open a summary, which is told when it ends."""
        self._summary = summary

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
        stop = self.stopped or Stop("stop", usage)
        return usage_of(Stop(stop.reason, added(self._spent, stop.usage)))

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

    def _may_call(self) -> bool:
        """Make room for a further call, if it is let through."""
        self._close("completed")
        if self._calls and not self._parallel:
            return False
        self._calls += 1
        return True

    def _call(self, delta: ToolCallStart) -> None:
        if not self._may_call():
            return
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
        if self._open in (FUNCTION, CUSTOM, COMMAND, PATCH):
            self._more(delta.text)

    def _shell(self, _: ShellStart) -> None:
        if self._may_call():
            action: dict[str, Any] = {"commands": [], "timeout_ms": None, "max_output_length": None}
            self._add(call_item("shell_call", action=action, environment={"type": "local"}), SHELL)

    def _command(self, _: CommandStart) -> None:
        if self._open not in (SHELL, COMMAND):
            return
        self._close_command()
        self._open = COMMAND
        self._content_index = len(self._item["action"]["commands"])
        self._log.append(e.ShellCommandAdded(self._output_index, self._content_index, ""))

    def _shell_limits(self, delta: ShellLimits) -> None:
        if self._open in (SHELL, COMMAND):
            # No event tells of them but the item's end.
            self._limits = {"timeout_ms": delta.timeout_ms, "max_output_length": delta.max_output_length}

    def _patch(self, delta: PatchStart) -> None:
        if self._may_call():
            operation = {"type": delta.operation, "path": delta.path}
            if delta.operation != "delete_file":
                operation["diff"] = ""
            self._add(call_item("apply_patch_call", operation=operation), PATCH)
            if delta.operation == "delete_file":
                self._close("completed")

    def _call_item(self, delta: CallItemDelta) -> None:
        if not self._may_call():
            return
        body = call_item(**delta.body)
        begun: dict[str, Any] = {**body, "arguments": {}} if "arguments" in body else body
        self._output_index += 1
        self._log.append(e.OutputItemAdded(output_index=self._output_index, item=begun))
        done = {**body, "status": "completed"}
        self._log.append(e.OutputItemDone(output_index=self._output_index, item=done))

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
        if kind == COMMAND:
            return e.ShellCommandDelta(self._output_index, self._content_index, text)
        if kind == PATCH:
            return e.ApplyPatchDiffDelta(self._item_id, self._output_index, text)
        return e.RefusalDelta(self._item_id, self._output_index, self._content_index, text)

    def _raw_item(self, delta: RawItemDelta) -> None:
        self._close("completed")
        body = delta.body
        if not body.get("id"):
            body = {**body, "id": new_id(item_prefix(str(body.get("type"))))}
        begun: dict[str, Any] = {**body, "status": "in_progress"} if delta.begins else body
        self._output_index += 1
        self._log.append(e.OutputItemAdded(output_index=self._output_index, item=begun))
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
        self._item_id = identity_of(item)
        self._output_index += 1
        self._pieces = []
        self._log.append(e.OutputItemAdded(output_index=self._output_index, item=item))

    def _close(self, status: str) -> None:
        if self._open == NOTHING:
            return
        if self._open in (FUNCTION, CUSTOM):
            self._close_call(status)
        elif self._open in (SHELL, COMMAND):
            self._close_command()
            self._item["action"].update(self._limits)
            self._limits = {}
        elif self._open == PATCH:
            self._close_patch()
        else:
            text = self._close_part()
            if self._open == REASONING:
                self._end_thinking(text)
        if self._open == PATCH and status == "incomplete":
            # OpenAI's types know no incomplete patch.
            status = "in_progress"
        if self._open in (SHELL, COMMAND, PATCH):
            self._item["status"] = status
        else:
            self._item.status = status
        self._log.append(e.OutputItemDone(output_index=self._output_index, item=self._item))
        self._open = NOTHING

    def _end_thinking(self, text: str) -> None:
        summary, self._summary = self._summary, ""
        if summary:
            place = (self._item_id, self._output_index, 0)
            part = SummaryText(summary)
            self._log.append(e.ReasoningSummaryPartAdded(*place, SummaryText("")))
            self._log.append(e.ReasoningSummaryTextDelta(*place, summary))
            self._log.append(e.ReasoningSummaryTextDone(*place, summary))
            self._log.append(e.ReasoningSummaryPartDone(*place, part))
            self._item.summary = [part]
        if self._seal is not None:
            self._item.encrypted_content = self._seal(text)

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

    def _close_command(self) -> None:
        if self._open == COMMAND:
            text = self._whole_text()
            self._item["action"]["commands"][self._content_index :] = [text]
            self._log.append(e.ShellCommandDone(self._output_index, self._content_index, text))

    def _close_patch(self) -> None:
        operation = self._item["operation"]
        if "diff" in operation:
            text = operation["diff"] = self._whole_text()
            self._log.append(e.ApplyPatchDiffDone(self._item_id, self._output_index, text))

    _rules: ClassVar[dict[type, Callable[[Assembler, Any], None]]] = {
        TextDelta: _text,
        ReasoningDelta: _reasoning,
        RefusalDelta: _refusal,
        ToolCallStart: _call,
        ToolCallDelta: _arguments,
        ShellStart: _shell,
        CommandStart: _command,
        ShellLimits: _shell_limits,
        PatchStart: _patch,
        CallItemDelta: _call_item,
        RawItemDelta: _raw_item,
        Stop: _stop,
    }


def _without_bytes(entry: Logprob) -> StreamLogprob:
    return StreamLogprob(
        entry.token, entry.logprob, [StreamTopLogprob(top.token, top.logprob) for top in entry.top_logprobs]
    )

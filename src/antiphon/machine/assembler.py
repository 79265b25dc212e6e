"""From an engine's deltas to events: opens and closes items and parts, keeps ids, indexes and status right.

An item is open from its first delta until something else begins or the turn ends. A turn that is cut closes what is
open, with the status `incomplete`, also in the middle of thinking or of a call (M24).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from antiphon.machine.callitems import call_item
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
    TokenUsage,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.hosted import begun_item, closing, opening
from antiphon.machine.log import EventLog
from antiphon.machine.opened import Opened
from antiphon.machine.standing import (
    COMMAND,
    CUSTOM,
    FUNCTION,
    HOSTED,
    NOTHING,
    PATCH,
    REASONING,
    REFUSAL,
    SHELL,
    SUMMARY,
    TEXT,
)
from antiphon.machine.usage import NOTHING_USED, added, usage_of
from antiphon.protocol import events as e
from antiphon.protocol.ids import item_prefix, new_id
from antiphon.protocol.items import CustomToolCall, FunctionCall
from antiphon.protocol.parts import (
    Logprob,
    ReasoningText,
    SummaryText,
)
from antiphon.protocol.response import ResponseError, Usage

__all__ = ["Assembler", "usage_of"]


class Assembler(Opened):
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
        super().__init__(log, whole_parts=whole_parts, seal=seal)
        self._keep_logprobs = logprobs
        self._parallel = parallel_tool_calls
        self._input_tokens = input_tokens
        self._spent = NOTHING_USED
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
    def answers(self) -> bool:
        """Whether text for the client is open, and says something."""
        return self._open in (TEXT, REFUSAL) and any(piece.strip() for piece in self._pieces)

    @property
    def spent(self) -> TokenUsage:
        """What earlier turns of the response used, and what was done beside its turns."""
        return self._spent

    @property
    def parallel_tool_calls(self) -> bool:
        """Whether a turn may have more than one call."""
        return self._parallel

    @property
    def open_logprobs(self) -> int | None:
        """How many log probabilities the open text part has; 0 where none is open, None where the log has none."""
        if not self._keep_logprobs:
            return None
        return len(self._logprobs) if self._open == TEXT else 0

    def feed(self, deltas: Sequence[Routed]) -> bool:
        """Take deltas in; True when the turn has ended, by a `Stop` or because no further call is allowed."""
        texts: list[str] = []
        for delta in deltas:
            if type(delta) is TextDelta and delta.logprobs is None and (texts or self._open == TEXT):
                # More of a text that is open already, which most deltas are.
                if delta.text:
                    texts.append(delta.text)
                continue
            if texts:
                self._many(texts)
                texts = []
            self._rules[type(delta)](self, delta)
            if self.stopped is not None:
                return True
        if texts:
            self._many(texts)
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

    def begin_turn(self, input_tokens: int, *, parallel_tool_calls: bool | None = None) -> None:
        """Expect the deltas of a further turn, whose prompt has so many tokens, and which may have other choices."""
        self._calls = self._tokens = self._thinking = 0
        self._input_tokens = input_tokens
        if parallel_tool_calls is not None:
            self._parallel = parallel_tool_calls

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
            self._think(REASONING)
            place = (self._item_id, self._output_index, self._content_index)
            self._log.append(e.ContentPartAdded(*place, ReasoningText(text="")))
        self._thinking += 1
        self._more(delta.text)

    def _summary_text(self, delta: SummaryDelta) -> None:
        if not delta.text:
            return
        if self._open != SUMMARY or delta.begins:
            self._think(SUMMARY)
            place = (self._item_id, self._output_index, self._content_index)
            self._log.append(e.ReasoningSummaryPartAdded(*place, SummaryText("")))
        self._thinking += 1
        self._pieces.append(delta.text)
        self._tokens += 1
        if not self._whole_parts:
            self._log.append(self._delta(delta.text, ()))

    def _thought_end(self, delta: ThoughtEnd) -> None:
        if self._open in (REASONING, SUMMARY):
            self._sealed = delta.sealed
            self._close("completed")

    def _message(self, delta: MessageStart) -> None:
        self._close("completed")
        self._phase = delta.phase

    def _annotation(self, delta: AnnotationDelta) -> None:
        if self._open == TEXT:
            place = (self._item_id, self._output_index, self._content_index)
            self._log.append(e.AnnotationAdded(*place, len(self._annotations), delta.annotation))
            self._annotations.append(delta.annotation)

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

    def _raw_item(self, delta: RawItemDelta) -> None:
        self._close("completed")
        body = delta.body
        if not body.get("id"):
            body = {**body, "id": new_id(item_prefix(str(body.get("type"))))}
        begun: dict[str, Any] = {**body, "status": "in_progress"} if delta.begins else body
        self._output_index += 1
        self._log.append(e.OutputItemAdded(output_index=self._output_index, item=begun))
        self._log.append(e.OutputItemDone(output_index=self._output_index, item=body))

    def _hosted_start(self, delta: HostedStart) -> None:
        body = delta.body
        if body["id"] in self._hosted:
            return
        self._close("completed")
        self._hosted.add(body["id"])
        self._add(begun_item(body), HOSTED)
        for event in opening(body, self._output_index):
            self._log.append(event)
        # Nothing of it is seen before it is done, but a run that is cut says what it was called with.
        self._item = {name: value for name, value in body.items() if not name.startswith("_")}

    def _hosted_end(self, delta: HostedEnd) -> None:
        """Close the item; what is not open any more was closed before a crash."""
        body = delta.body
        if self._open != HOSTED or body["id"] != self._item_id:
            return
        for event in closing(body, self._output_index):
            self._log.append(event)
        self._log.append(e.OutputItemDone(output_index=self._output_index, item=body))
        self._open = NOTHING

    def _stop(self, delta: Stop) -> None:
        self.stopped = delta

    _rules: ClassVar[dict[type, Callable[[Assembler, Any], None]]] = {
        TextDelta: _text,
        ReasoningDelta: _reasoning,
        RefusalDelta: _refusal,
        SummaryDelta: _summary_text,
        ThoughtEnd: _thought_end,
        MessageStart: _message,
        AnnotationDelta: _annotation,
        ToolCallStart: _call,
        ToolCallDelta: _arguments,
        ShellStart: _shell,
        CommandStart: _command,
        ShellLimits: _shell_limits,
        PatchStart: _patch,
        CallItemDelta: _call_item,
        HostedStart: _hosted_start,
        HostedEnd: _hosted_end,
        RawItemDelta: _raw_item,
        Stop: _stop,
    }

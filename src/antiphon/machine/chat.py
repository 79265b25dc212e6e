"""From engine deltas to chat completions: messages with text, thinking and calls, whole and in chunks.

The rules are those of responses, so that both say the same of the same turn: where calls may not be parallel only the
first is let through, a whole call without arguments has the empty object, and a turn without output is an empty text.
Whole items of a response that are neither text nor call have no place in a chat message and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType, field

from antiphon.machine.choices import Choices, Rules
from antiphon.machine.deltas import ReasoningDelta, RefusalDelta, Stop, TextDelta, ToolCallDelta, ToolCallStart
from antiphon.protocol.chat_answer import (
    AnswerHead,
    CallCustom,
    CallCustomDelta,
    CallDelta,
    CallFunction,
    CallFunctionDelta,
    ChatAnswer,
    ChatCall,
    ChatChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChoiceDelta,
)
from antiphon.protocol.ids import new_id
from antiphon.protocol.parts import Logprob

__all__ = ["ChatChoices"]


class _Call(Struct):
    id: str
    name: str
    custom: bool
    pieces: list[str] = field(default_factory=list[str])


class _Turn(Struct):
    """What one turn has said so far; `open` is the call that its next arguments are of."""

    text: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    refusal: list[str] = field(default_factory=list[str])
    logprobs: list[Logprob] = field(default_factory=list[Logprob])
    calls: list[_Call] = field(default_factory=list[_Call])
    open: _Call | None = None

    @property
    def silent(self) -> bool:
        return not (self.text or self.refusal or self.calls)


class ChatChoices(Choices):
    """The choices of a chat answer.

    `logprobs` says whether the request asked for them; `alias` whether thinking also goes by the name `reasoning`
    (M49); `parallel_tool_calls` False lets only the first call of a turn through.
    """

    def __init__(
        self,
        head: AnswerHead,
        inputs: Sequence[int],
        *,
        stream: bool,
        include_usage: bool = False,
        logprobs: bool = False,
        alias: bool = True,
        parallel_tool_calls: bool = True,
    ) -> None:
        super().__init__(head, inputs, stream=stream, include_usage=include_usage, turns_a_prompt=len(inputs))
        self._logprobs = logprobs
        self._alias = alias
        self._parallel = parallel_tool_calls
        self._turns = [_Turn() for _ in inputs]
        for index in range(len(inputs)):
            self._more(index, ChatDelta(role="assistant", content=None))

    def answer(self) -> ChatAnswer:
        """The whole answer; every turn must have ended."""
        head = self.head
        return ChatAnswer(
            id=head.id,
            object=head.object,
            created=head.created,
            model=head.model,
            system_fingerprint=head.system_fingerprint,
            choices=[self._choice(index, turn) for index, turn in enumerate(self._turns)],
            usage=self._chat_usage(),
        )

    def _choice(self, index: int, turn: _Turn) -> ChatChoice:
        thinking: str | UnsetType = "".join(turn.thinking) or UNSET
        stop = self.stops[index]
        return ChatChoice(
            index=index,
            message=ChatMessage(
                role="assistant",
                content="".join(turn.text) if turn.text or turn.silent else None,
                refusal="".join(turn.refusal) or None,
                reasoning_content=thinking,
                reasoning=thinking if self._alias else UNSET,
                tool_calls=[_whole(call) for call in turn.calls] or UNSET,
                florence2_result=UNSET if stop is None or stop.result is None else stop.result,
            ),
            logprobs=ChatLogprobs(turn.logprobs) if self._logprobs else None,
            finish_reason=self._reason(index),
        )

    def _reason(self, index: int) -> str:
        reason = super()._reason(index)
        return "tool_calls" if reason == "stop" and self._turns[index].calls else reason

    def _text(self, index: int, delta: TextDelta) -> None:
        self._close(index)
        if not delta.text and not delta.logprobs:
            return
        turn = self._turns[index]
        logprobs = delta.logprobs if self._logprobs else None
        turn.text.append(delta.text)
        turn.logprobs += logprobs or ()
        self._more(index, ChatDelta(content=delta.text), ChatLogprobs(logprobs) if logprobs else None)

    def _thinking(self, index: int, delta: ReasoningDelta) -> None:
        self._close(index)
        if delta.text:
            self._turns[index].thinking.append(delta.text)
            alias = delta.text if self._alias else UNSET
            self._more(index, ChatDelta(reasoning_content=delta.text, reasoning=alias))

    def _refusal(self, index: int, delta: RefusalDelta) -> None:
        self._close(index)
        if delta.text:
            self._turns[index].refusal.append(delta.text)
            self._more(index, ChatDelta(refusal=delta.text))

    def _call(self, index: int, delta: ToolCallStart) -> None:
        self._close(index)
        turn = self._turns[index]
        if turn.calls and not self._parallel:
            return
        name = f"{delta.namespace}__{delta.name}" if delta.namespace else delta.name
        call = turn.open = _Call(new_id("call"), name, delta.custom)
        turn.calls.append(call)
        more = CallDelta(len(turn.calls) - 1, id=call.id, type="custom" if call.custom else "function")
        if call.custom:
            more.custom = CallCustomDelta("", name=name)
        else:
            more.function = CallFunctionDelta("", name=name)
        self._more(index, ChatDelta(tool_calls=[more]))

    def _arguments(self, index: int, delta: ToolCallDelta) -> None:
        turn = self._turns[index]
        if turn.open is not None and delta.text:
            turn.open.pieces.append(delta.text)
            more = CallDelta(len(turn.calls) - 1)
            if turn.open.custom:
                more.custom = CallCustomDelta(delta.text)
            else:
                more.function = CallFunctionDelta(delta.text)
            self._more(index, ChatDelta(tool_calls=[more]))

    def _close(self, index: int) -> None:
        """The open call is whole."""
        turn = self._turns[index]
        if turn.open is not None and not turn.open.custom and not turn.open.pieces:
            self._arguments(index, ToolCallDelta("{}"))
        turn.open = None

    def _end(self, index: int, stop: Stop) -> None:
        if not stop.cut:
            self._close(index)
        if self._turns[index].silent:
            self._more(index, ChatDelta(content=""))
        self._chunk(ChoiceDelta(index, finish_reason=self._reason(index)))

    def _more(self, index: int, delta: ChatDelta, logprobs: ChatLogprobs | None = None) -> None:
        self._chunk(ChoiceDelta(index, delta, logprobs))

    _rules: ClassVar[Rules] = {
        TextDelta: _text,
        ReasoningDelta: _thinking,
        RefusalDelta: _refusal,
        ToolCallStart: _call,
        ToolCallDelta: _arguments,
    }


def _whole(call: _Call) -> ChatCall:
    text: Any = "".join(call.pieces)
    if call.custom:
        return ChatCall(call.id, "custom", custom=CallCustom(call.name, text))
    return ChatCall(call.id, "function", function=CallFunction(call.name, text))

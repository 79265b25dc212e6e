"""From engine deltas to the choices of an answer that is no response: what chat and text completions have in common.

Several turns may be generated at once, each a choice of the answer. Where the answer is streamed, every delta becomes a
frame, encoded once; the whole answer is there at the end in any case.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from antiphon.errors import APIError
from antiphon.machine.assembler import usage_of
from antiphon.machine.deltas import CUT_REASONS, Delta, Stop, TokenUsage
from antiphon.protocol.chat_answer import AnswerHead, ChatUsage, chat_usage
from antiphon.protocol.json import encode
from antiphon.protocol.response import Usage
from antiphon.protocol.sse import encode_data

__all__ = ["Choices", "Rules"]

Rules = Mapping[type, Callable[[Any, int, Any], None]]
"""What is done with each kind of delta, given the choices and the index of the turn."""

_REASONS = dict.fromkeys(CUT_REASONS, "length") | {"content_filter": "content_filter"}


class Choices(ABC):
    """The choices of one answer.

    `inputs` are the tokens of each turn's prompt, and `prompts` how many turns in a row have the same one: it counts
    once. `include_usage` gives a stream a last chunk with the usage.
    """

    def __init__(
        self,
        head: AnswerHead,
        inputs: Sequence[int],
        *,
        stream: bool,
        include_usage: bool = False,
        turns_a_prompt: int = 1,
    ) -> None:
        self.frames: list[bytes] = []
        """The frames of the stream so far."""
        self.head = head
        self._streamed = stream
        self._include_usage = include_usage
        self._turns_a_prompt = turns_a_prompt
        self._inputs = inputs
        self._counts = [0] * len(inputs)
        self.stops: list[Stop | None] = [None] * len(inputs)
        """How each turn ended, once it has."""
        # Only the choices of a chunk differ, so the rest is encoded once.
        self._before = encode(head)[:-1] + b',"choices":['
        self._after = b'],"usage":null}' if include_usage else b"]}"

    @property
    def cut_by(self) -> str | None:
        """What cut the first of the turns that were cut: `length` or `content_filter`."""
        return next((stop.reason for stop in self.stops if stop is not None and stop.cut), None)

    @property
    def usage(self) -> Usage:
        """The tokens of all turns; of one that has not ended, each delta that was seen counts for one."""
        used = [
            stop.usage if stop is not None else TokenUsage(tokens, count)
            for stop, tokens, count in zip(self.stops, self._inputs, self._counts, strict=True)
        ]
        firsts = used[:: self._turns_a_prompt]
        total = TokenUsage(
            input_tokens=sum(turn.input_tokens for turn in firsts),
            output_tokens=sum(turn.output_tokens for turn in used),
            cached_tokens=sum(turn.cached_tokens for turn in firsts),
            reasoning_tokens=sum(turn.reasoning_tokens for turn in used),
        )
        return usage_of(Stop("stop", total))

    def feed(self, index: int, deltas: Sequence[Delta]) -> bool:
        """Take deltas of that turn in; True when it has ended."""
        for delta in deltas:
            if isinstance(delta, Stop):
                self.stops[index] = delta
                self._end(index, delta)
                return True
            rule = self._rules.get(type(delta))
            if rule is not None:
                self._counts[index] += bool(getattr(delta, "text", ""))
                rule(self, index, delta)
        return False

    def finish(self) -> None:
        """Append the chunk with the usage, where it was asked for."""
        if self._streamed and self._include_usage:
            self.frames.append(encode_data(self._before + b'],"usage":' + encode(self._chat_usage()) + b"}"))

    def fail(self, error: APIError) -> None:
        """Append the chunk that says why no more comes."""
        self.frames.append(encode_data(encode({"error": error.body()})))

    @abstractmethod
    def answer(self) -> msgspec.Struct:
        """The whole answer; every turn must have ended."""

    @abstractmethod
    def _end(self, index: int, stop: Stop) -> None:
        """That turn has ended."""

    def _chunk(self, choice: msgspec.Struct) -> None:
        if self._streamed:
            self.frames.append(encode_data(self._before + encode(choice) + self._after))

    def _chat_usage(self) -> ChatUsage:
        return chat_usage(self.usage)

    def _reason(self, index: int) -> str:
        """The reason that an ended turn has on the wire.

        Raises:
            LookupError: it has not ended.
        """
        stop = self.stops[index]
        if stop is None:
            raise LookupError("the turn has not ended")
        return _REASONS.get(stop.reason, "stop")

    _rules: ClassVar[Rules]
    """Other kinds are of no meaning here."""

"""From engine deltas to text completions, whole and in chunks: text alone, nothing else is asked of a model here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from antiphon.machine.choices import Choices, Rules
from antiphon.machine.deltas import Stop, TextDelta
from antiphon.protocol.chat_answer import AnswerHead
from antiphon.protocol.completions import TextAnswer, TextChoice, TextLogprobs
from antiphon.protocol.parts import Logprob

__all__ = ["TextChoices"]


class TextChoices(Choices):
    """The choices of a text answer.

    `echoes` stand before each text, empty where it was not asked for; `logprobs` says whether those were.
    """

    def __init__(
        self,
        head: AnswerHead,
        inputs: Sequence[int],
        *,
        stream: bool,
        include_usage: bool = False,
        turns_a_prompt: int = 1,
        echoes: Sequence[str] = (),
        logprobs: bool = False,
    ) -> None:
        super().__init__(head, inputs, stream=stream, include_usage=include_usage, turns_a_prompt=turns_a_prompt)
        self._logprobs = logprobs
        self._pieces: list[list[str]] = [[] for _ in inputs]
        self._entries: list[list[Logprob]] = [[] for _ in inputs]
        self._offsets = [0] * len(inputs)
        for index, echo in enumerate(echoes):
            if echo:
                self._more(index, echo, None)

    def answer(self) -> TextAnswer:
        """The whole answer; every turn must have ended."""
        head = self.head
        return TextAnswer(
            id=head.id,
            object=head.object,
            created=head.created,
            model=head.model,
            system_fingerprint=head.system_fingerprint,
            choices=[
                TextChoice(
                    text="".join(pieces),
                    index=index,
                    logprobs=_lists(self._entries[index], 0) if self._logprobs else None,
                    finish_reason=self._reason(index),
                )
                for index, pieces in enumerate(self._pieces)
            ],
            usage=self._chat_usage(),
        )

    def _text(self, index: int, delta: TextDelta) -> None:
        if not delta.text and not delta.logprobs:
            return
        logprobs: TextLogprobs | None = None
        if self._logprobs and delta.logprobs:
            self._entries[index] += delta.logprobs
            logprobs = _lists(delta.logprobs, self._offsets[index])
            self._offsets[index] += sum(len(entry.token) for entry in delta.logprobs)
        self._more(index, delta.text, logprobs)

    def _more(self, index: int, text: str, logprobs: TextLogprobs | None) -> None:
        self._pieces[index].append(text)
        self._chunk(TextChoice(text, index, logprobs))

    def _end(self, index: int, stop: Stop) -> None:
        self._chunk(TextChoice("", index, finish_reason=self._reason(index)))

    _rules: ClassVar[Rules] = {TextDelta: _text}


def _lists(entries: Sequence[Logprob], offset: int) -> TextLogprobs:
    found = TextLogprobs([], [], [], [])
    for entry in entries:
        found.tokens.append(entry.token)
        found.token_logprobs.append(entry.logprob)
        found.top_logprobs.append({top.token: top.logprob for top in entry.top_logprobs})
        found.text_offset.append(offset)
        offset += len(entry.token)
    return found

"""From the chunks of one completion to deltas: thinking, text, calls, log probabilities, usage and the stop. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.engines.llamacpp.wire import Candidate, Chunk
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta, ReasoningDelta, Stop, TextDelta, TokenUsage, ToolCallDelta
from antiphon.machine.reasoning import ReasoningSplitter
from antiphon.prompt.dialects import CallParser, Piece
from antiphon.protocol.parts import Logprob, TopLogprob

__all__ = ["TurnReader"]


class TurnReader:
    """Reads the chunks of one turn.

    `alternatives` is how many alternatives a log probability shows, None for no log probabilities; `one_call` ends the
    turn when its first call is complete.
    """

    def __init__(
        self,
        splitter: ReasoningSplitter,
        parser: CallParser,
        *,
        input_tokens: int,
        alternatives: int | None = None,
        one_call: bool = False,
    ) -> None:
        self._splitter = splitter
        self._parser = parser
        self._alternatives = alternatives
        self._one_call = one_call
        self._input_tokens = input_tokens
        self._cached = 0
        self._generated = 0
        self._reasoning = 0
        self._thought = False
        self._began = False
        self._logprobs: list[Logprob] = []
        self.stopped = False
        """Whether the turn is over; its `Stop` has been given."""

    def read(self, chunks: Sequence[Chunk]) -> list[Delta]:
        """The deltas of the chunks.

        Raises:
            EngineError: llama.cpp reports a fault in the stream.
        """
        deltas: list[Delta] = []
        for chunk in chunks:
            if self.stopped:
                break
            if chunk.error is not None:
                self._failed(chunk.error.message, deltas)
            elif chunk.prompt_progress is not None:
                self._cached = chunk.prompt_progress.cache
            else:
                self._chunk(chunk, deltas)
        return deltas

    def _chunk(self, chunk: Chunk, deltas: list[Delta]) -> None:
        was_thinking = self._splitter.thinking
        # Log probabilities are of the answer's text alone, not of thinking, calls or the markers around them.
        if self._alternatives is not None and not was_thinking and self._parser.in_text:
            self._logprobs += [_logprob(item, self._alternatives) for item in chunk.completion_probabilities or ()]
        if chunk.content:
            self._add(self._splitter.feed(chunk.content), deltas)
        new = max(0, chunk.tokens_predicted - self._generated)
        self._generated = max(self._generated, chunk.tokens_predicted)
        if was_thinking or self._splitter.thinking:
            self._reasoning += new
        if self._one_call and self._parser.calls:
            self._stop("stop", deltas)
        elif chunk.stop:
            if chunk.timings is not None:
                self._cached = chunk.timings.cache_n
            self._stop("length" if chunk.stop_type == "limit" else "stop", deltas)

    def _failed(self, message: str, deltas: list[Delta]) -> None:
        # The shared cache can run full while several turns grow; what was generated stands (architecture, fine print).
        if self._generated and "context size" in message.lower():
            self._stop("length", deltas)
            return
        raise EngineError("The engine failed while it generated.")

    def _add(self, split: Sequence[ReasoningDelta | TextDelta], deltas: list[Delta]) -> None:
        for delta in split:
            if isinstance(delta, ReasoningDelta):
                self._thought = True
                deltas.append(delta)
            elif not (self._one_call and self._parser.calls):
                self._pieces(self._parser.feed(delta.text), deltas)
        if self._splitter.thinking or not self._parser.in_text:
            self._logprobs.clear()

    def _pieces(self, pieces: Sequence[Piece], deltas: list[Delta]) -> None:
        for piece in pieces:
            if self._one_call and self._began and not isinstance(piece, ToolCallDelta):
                return
            if isinstance(piece, TextDelta):
                logprobs = self._logprobs if self._alternatives is not None else None
                self._logprobs = []
                deltas.append(TextDelta(piece.text, logprobs))
            else:
                self._began = True
                deltas.append(piece)

    def _stop(self, reason: str, deltas: list[Delta]) -> None:
        self._add(self._splitter.finish(), deltas)
        if not (self._one_call and self._parser.calls):
            self._pieces(self._parser.finish(), deltas)
        self.stopped = True
        usage = TokenUsage(
            input_tokens=self._input_tokens,
            output_tokens=self._generated,
            cached_tokens=min(self._cached, self._input_tokens),
            reasoning_tokens=self._reasoning if self._thought else 0,
        )
        deltas.append(Stop(reason, usage))


def _logprob(item: Candidate, alternatives: int) -> Logprob:
    top = [TopLogprob(other.token, other.bytes, other.logprob) for other in item.top_logprobs[:alternatives]]
    return Logprob(item.token, item.bytes, item.logprob, top)

"""From the chunks of completions to the deltas of a turn: thinking, text, calls, log probabilities, usage. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.engines.base import Sampled
from antiphon.engines.llamacpp.wire import Candidate, Chunk
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta, ReasoningDelta, Stop, TextDelta, TokenUsage, ToolCallDelta
from antiphon.prompt.dialects import Piece, Splitter, TurnParser
from antiphon.protocol.parts import Logprob, TopLogprob

__all__ = ["TurnReader"]


class TurnReader:
    """Reads the chunks of one turn, which may come from several completions, each going on from what was drawn before.

    `sampled` is what was drawn, and is added to as chunks are read; where it holds something at the start, `replay`
    comes first. It never holds the token that ends a turn, nor tokens whose text llama.cpp still keeps back because a
    stop word may begin in it: who goes on from there has both drawn again. `alternatives` is how many alternatives a
    log probability shows, None for no log probabilities; `one_call` ends the turn when its first call is complete.
    `budget` are the tokens that thinking may take, None for as many as it likes.
    """

    def __init__(
        self,
        splitter: Splitter,
        parser: TurnParser,
        *,
        input_tokens: int,
        alternatives: int | None = None,
        one_call: bool = False,
        budget: int | None = None,
        sampled: Sampled | None = None,
    ) -> None:
        self._splitter = splitter
        self._parser = parser
        self._alternatives = alternatives
        self._one_call = one_call
        self._input_tokens = input_tokens
        self._cached = 0
        self._budget = budget
        self._unread = 0
        self._sampled = Sampled() if sampled is None else sampled
        self._before = self._generated = self._sampled.generated
        self._reasoning = self._sampled.thinking
        self._thought = False
        self._began = False
        self._logprobs: list[Logprob] = []
        self._silent: list[int] = []
        self.stopped = False
        """Whether the turn is over; its `Stop` has been given."""
        self.full = False
        """Whether llama.cpp gave the turn up because its cache, which all turns share, is full."""
        self.opened = ""
        """The opening of a call at which the completion has stopped, and which is not among what was drawn yet."""
        self.over = False
        """Whether a grammar that holds for a part of the turn has come to its end."""
        self._openings: Sequence[str] = ()
        self._part = False

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return self._generated

    @property
    def thinking(self) -> bool:
        """Whether the turn is in thinking now."""
        return self._splitter.thinking

    @property
    def spent(self) -> bool:
        """Whether the turn is in thinking still, and its budget is used up."""
        return (
            self._budget is not None
            and self._splitter.thinking
            and self._reasoning >= self._budget
            # In the midst of a character nothing can be put in.
            and not self._silent
        )

    @property
    def in_text(self) -> bool:
        """Whether the turn is in text now, not in a call or what may become one."""
        return self._parser.in_text

    @property
    def calls(self) -> int:
        """Calls that are complete."""
        return self._parser.calls

    @property
    def sampled(self) -> Sampled:
        """What was drawn."""
        return self._sampled

    @property
    def drawn(self) -> list[int] | None:
        """The tokens that were drawn, those without a text of their own included; None where not all are known."""
        tokens = [*self._sampled.tokens, *self._silent]
        return tokens if len(tokens) == self._generated else None

    def replay(self) -> list[Delta]:
        """The deltas of what was drawn before this reader was made."""
        deltas: list[Delta] = []
        if self._sampled.text:
            self._add(self._splitter.feed("".join(self._sampled.text)), deltas)
            self._end_after_call(deltas)
        return deltas

    def resume(self, openings: Sequence[str] = (), *, part: bool = False) -> tuple[list[int] | None, str]:
        """Expect the chunks of a new completion that goes on from what was drawn.

        It stops at the `openings` of calls, or is `part` of a turn that goes on behind its end. The result is the
        tokens to go on from, and their text; None where llama.cpp did not tell all of them.
        """
        self.full = self.over = False
        self.opened = ""
        self._openings, self._part = openings, part
        self._before = self._generated = self._sampled.generated
        self._reasoning = self._sampled.thinking
        self._silent.clear()
        exact = len(self._sampled.tokens) == self._generated
        return (list(self._sampled.tokens) if exact else None), "".join(self._sampled.text)

    def add(self, text: str, tokens: Sequence[int] | None) -> list[Delta]:
        """The deltas of text that llama.cpp has drawn but not told; `tokens` are all that were drawn, where known."""
        sampled = self._sampled
        if tokens is not None:
            sampled.tokens[:] = tokens
        sampled.text.append(text)
        sampled.generated, sampled.thinking = self._generated, self._reasoning
        self._silent.clear()
        self.opened = ""
        deltas: list[Delta] = []
        self._add(self._splitter.feed(text), deltas)
        self._end_after_call(deltas)
        return deltas

    def put(self, text: str, tokens: Sequence[int]) -> list[Delta]:
        """The deltas of a text, with its tokens, that is put in the model's mouth at the end of its thinking."""
        drawn = self.drawn
        if not self._generated:
            self._unread = len(tokens)
        self._generated += len(tokens)
        self._reasoning += len(tokens)
        return self.add(text, None if drawn is None else [*drawn, *tokens])

    def end(self, reason: str = "length") -> list[Delta]:
        """End a turn that has no room, may not generate any more, or had come to its end before.

        Raises:
            EngineError: nothing was generated.
        """
        if not self._generated:
            raise EngineError("The engine has no room for the prompt.")
        deltas: list[Delta] = []
        self._stop(reason, deltas)
        return deltas

    def read(self, chunks: Sequence[Chunk]) -> list[Delta]:
        """The deltas of the chunks.

        Raises:
            EngineError: llama.cpp reports a fault in the stream.
        """
        deltas: list[Delta] = []
        for chunk in chunks:
            if self.stopped or self.full or self.opened or self.over or self.spent:
                break
            if chunk.error is not None:
                if "context size" not in chunk.error.message.lower():
                    raise EngineError("The engine failed while it generated.")
                self.full = True
            elif chunk.prompt_progress is not None:
                if self._before <= self._unread:
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
        new = max(0, self._before + chunk.tokens_predicted - self._generated)
        self._generated += new
        if was_thinking or self._splitter.thinking:
            self._reasoning += new
        self._silent += chunk.tokens
        if chunk.content:
            self._keep(chunk.content)
        if not self._end_after_call(deltas) and chunk.stop:
            if chunk.timings is not None and self._before <= self._unread:
                self._cached = chunk.timings.cache_n
            if chunk.stop_type == "word" and chunk.stopping_word in self._openings:
                self.opened = chunk.stopping_word
            elif self._part and chunk.stop_type != "limit":
                self.over = True
            else:
                self._stop("length" if chunk.stop_type == "limit" else "stop", deltas)

    def _keep(self, text: str) -> None:
        sampled = self._sampled
        sampled.tokens += self._silent
        sampled.text.append(text)
        sampled.generated = self._generated
        sampled.thinking = self._reasoning
        self._silent.clear()

    def _end_after_call(self, deltas: list[Delta]) -> bool:
        ends = self._one_call and self._parser.calls > 0
        if ends:
            self._stop("stop", deltas)
        return ends

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

"""One turn while it is generated: completion after completion, under grammars where it is bound, over deaths.

A turn that is bound from its start is one completion under a grammar. In free text with tools a completion stops where
the model opens a call; the call is another one, under the grammar behind that opening, and then the text goes on
(llama.cpp cannot begin an llguidance grammar in the middle of a completion, but what is read is in its cache).

A grammar cannot be gone on with in its middle. Where the child dies, or the turn has to make room for others, a part
under a grammar is drawn again from its beginning with its seed, and what was told is not told again.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, cast

from msgspec import Struct

from antiphon.engines.base import PreparedTurn, Sampled
from antiphon.engines.checks.judge import Answer, Judge
from antiphon.engines.llamacpp.bindings import Binding
from antiphon.engines.llamacpp.client import ChildDiedError, ChildError, Client
from antiphon.engines.llamacpp.diagnosis import without_paths
from antiphon.engines.llamacpp.pool import Share, TokenPool
from antiphon.engines.llamacpp.process import Supervisor
from antiphon.engines.llamacpp.turn import TurnReader
from antiphon.engines.told import Told
from antiphon.errors import EngineError, EngineUnavailableError
from antiphon.machine.deltas import Delta, Stop, TextDelta
from antiphon.machine.suppressor import Suppressor
from antiphon.prompt.prompt import Sampling

__all__ = ["Generation", "LlamaTurn", "Means", "sampling_fields"]

_MOST_DEATHS: Final = 3
"""Deaths of the child, with no new token between them, that end a turn: it may itself be what kills."""

_MOST_UNBOUND: Final = 32
"""Openings that open no call, in thinking or quoted, after which a turn does not stop at them any more."""

_MOST_CALLS: Final = 16
"""Calls of a turn of free text after which it ends."""

_RETRY_TEMPERATURE: Final = 0.7
"""What a second attempt is drawn with at least: without chance it would be the first again."""

_QUOTES: Final = "`\"'\u201c\u2018("
"""A text before an opening that ends in one of these speaks of calls and makes none."""

_LAST_FIELDS: Final = ["content", "tokens", "stop", "stop_type", "stopping_word", "tokens_predicted", "timings"]


class LlamaTurn(PreparedTurn):
    """A prompt as the child reads it. `max_tokens` is what may be generated; `primed` whether thinking is open.
    `budget` are the tokens that thinking may take where no grammar counts them.

    A turn with `media`, base64 in the order of their markers, has no tokens: it goes on from the text that was drawn.

    Of a `raw` one all that is generated is text. `binding` is what holds for it, and `grammar` what binds it from its
    start, where something does.
    """

    max_tokens: int = 1
    primed: bool = False
    raw: bool = False
    budget: int | None = None
    media: Sequence[str] = ()
    binding: Binding | None = None
    grammar: str = ""


class Means(Struct, frozen=True):
    """What an engine gives to its turns. `reader` makes a reader that goes on from what was drawn.

    `closing` is what ends thinking when its budget is spent; its argument says that it has been ended before.
    `preserved` are the texts of control tokens that are to come out.
    """

    client: Callable[[], Client]
    supervisor: Supervisor
    pool: TokenPool
    judge: Judge
    load_timeout: float
    reader: Callable[[LlamaTurn, Sampled], TurnReader]
    closing: Callable[[bool], str]
    preserved: Sequence[str] = ()


class _Bound(Struct):
    """The part of a turn that is under a grammar now: what was drawn before it, and what it is for."""

    grammar: str
    tokens: int
    text: int
    generated: int
    thinking: int
    held: bool
    whole: bool
    forced: bool


class Generation:
    """Generates one turn. What it has drawn, and will not draw again, is in `turn.sampled`."""

    def __init__(self, turn: LlamaTurn, means: Means) -> None:
        self._turn = turn
        self._means = means
        sampled = turn.sampled
        if turn.constrained:
            sampled.clear()
        drawn = Sampled(list(sampled.tokens), list(sampled.text), sampled.generated, sampled.thinking)
        self._reader = means.reader(turn, drawn)
        self._told = Told()
        self._suppressor: Suppressor | None = None
        self._bound: _Bound | None = None
        self._answer = Answer()
        self._kept: list[Delta] = []
        self._attempt = 0
        self._best = 0
        self._unbound = 0
        self._closed = False
        seed = turn.prompt.sampling.seed
        self._seed = secrets.randbelow(2**31) if seed is None or seed < 0 else seed

    async def deltas(self) -> AsyncGenerator[Sequence[Delta]]:
        """The deltas of the turn; closing the generator frees its slot.

        Raises:
            EngineError: the engine failed, or what it wrote is not what was asked for.
            DivergedError: a part that was drawn again says something else than before.
        """
        turn, pool = self._turn, self._means.pool
        if turn.grammar:
            self._bind(turn.grammar, whole=True)
        known = self._leaving(self._reader.replay())
        if known:
            yield known
        if self._reader.stopped:
            return
        self._reopen()
        share = await pool.acquire(turn.input_tokens + self._reader.generated)
        try:
            while True:
                async with contextlib.aclosing(self._go_on(share)) as stream:
                    async for deltas in stream:
                        if deltas:
                            yield deltas
                if self._reader.stopped:
                    return
                if self._reader.full and not share.shared:
                    yield self._ended(self._reader.end())
                    return
                pool.release(share)
                share = await pool.acquire(turn.input_tokens + self._reader.generated, first=True)
        finally:
            pool.release(share)

    async def _go_on(self, share: Share) -> AsyncGenerator[Sequence[Delta]]:
        """Go on from what was drawn, until the turn ends or has to make room for others; deaths are outlived."""
        means, deaths = self._means, 0
        while not self._reader.stopped:
            child = await means.supervisor.wait(means.load_timeout)
            if child is None:
                raise EngineError("The engine died and could not be started again.")
            self._begin_again()
            best = self._best
            try:
                async with contextlib.aclosing(self._complete(share)) as stream:
                    async for deltas in stream:
                        yield deltas
                if self._reader.full or share.step_back:
                    return
                deaths = 0
            except ChildError as error:
                raise EngineError(_refused(error)) from None
            except EngineUnavailableError as error:
                # The response exists already, so this is its end.
                raise EngineError(error.message) from None
            except ChildDiedError:
                deaths = 1 if self._best > best else deaths + 1
                if deaths == _MOST_DEATHS:
                    raise
                # Its end is noticed a moment later than its broken socket.
                await means.supervisor.ended(child)

    async def _complete(self, share: Share) -> AsyncGenerator[Sequence[Delta]]:
        """One completion, and what follows from how it ended."""
        turn, reader, bound = self._turn, self._reader, self._bound
        openings = self._openings() if bound is None else ()
        generated, text = reader.resume(openings, part=bound is not None and not bound.whole)
        if reader.generated >= turn.max_tokens:
            yield self._ended(reader.end())
            return
        if generated is None:
            generated = await self._means.client().tokenize(text, add_special=False)
        elif bound is None and (stopped := await self._had_stopped(generated, text, openings)):
            if stopped not in openings:
                yield self._ended(reader.end("stop"))
                return
            reader.opened = stopped
        if reader.spent:
            yield await self._think_no_more()
            return
        if not reader.opened:
            body = self._body(self._read(generated, text), turn.max_tokens - reader.generated, openings)
            async with contextlib.aclosing(self._means.client().completion(body)) as stream:
                async for chunks in stream:
                    deltas = reader.read(chunks)
                    self._best = max(self._best, reader.generated)
                    self._means.pool.grow(share, turn.input_tokens + reader.generated)
                    if not reader.stopped:
                        yield self._leaving(deltas)
                    elif (ended := await self._judged(deltas)) is not None:
                        yield ended
                    done = reader.stopped or reader.full or reader.opened or reader.over or reader.spent
                    if done or share.step_back:
                        break
                else:
                    raise ChildDiedError("The engine died while it generated.")
        if reader.opened:
            yield await self._open(reader.opened)
        elif reader.over:
            yield await self._close()

    async def _think_no_more(self) -> Sequence[Delta]:
        """The budget of thinking is spent: its end is put in, and the model goes on behind it."""
        text = self._means.closing(self._closed)
        self._closed = True
        return self._leaving(self._reader.put(text, await self._means.client().tokenize(text, add_special=False)))

    async def _open(self, opening: str) -> Sequence[Delta]:
        """The model has opened a call: it is told as the model wrote it, and what follows is bound."""
        reader = self._reader
        tokens = reader.drawn
        sent = "".join(reader.sampled.text)
        text = opening
        if tokens is not None:
            # What stood before the opening in the token that it begins in was not told.
            spelled = await self._means.client().detokenize(tokens)
            before, found, behind = spelled.rpartition(opening)
            if found and before.startswith(sent):
                text = before[len(sent) :] + opening
            if behind or not found:
                tokens = None
        deltas = reader.add(text, tokens)
        if reader.stopped:
            return self._ended(deltas)
        leaving = self._leaving(deltas)
        self._reopen()
        return leaving

    def _reopen(self) -> None:
        """Bind what follows where the turn stands behind an opening."""
        binding, reader = self._turn.binding, self._reader
        if binding is None or self._bound is not None:
            return
        text = "".join(reader.sampled.text)
        for opening, grammar in binding.openings.items():
            if text.endswith(opening):
                # Where the parser takes it for text, as in the midst of a line, it opens nothing.
                if reader.thinking or reader.in_text or text.removesuffix(opening).endswith(tuple(_QUOTES)):
                    self._unbound += 1
                else:
                    self._bind(grammar, whole=False)
                return

    async def _close(self) -> Sequence[Delta]:
        """The grammar of calls has come to its end: they are judged, and free text may follow."""
        bound, reader = self._bound, self._reader
        if bound is None:
            raise RuntimeError("no grammar has ended")
        if not reader.in_text:
            # An input that stands as it is has no end of its own but that of the turn.
            return await self._judged(reader.end("stop")) or ()
        if not await self._passes(bound, cut=False):
            return ()
        kept = self._settle()
        # A model that does nothing but call has to come to an end.
        return [*kept, *self._ended(reader.end("stop"))] if reader.calls >= _MOST_CALLS else kept

    async def _judged(self, deltas: list[Delta]) -> Sequence[Delta] | None:
        """The last deltas of a turn, if what they complete is what was asked for; None where it is drawn anew."""
        stop = deltas[-1]
        if self._bound is None:
            return self._ended(deltas)
        first = self._leaving(deltas[:-1])
        if not await self._passes(self._bound, cut=isinstance(stop, Stop) and stop.reason == "length"):
            return None
        return [*first, *self._settle(), *self._ended([stop])]

    async def _passes(self, bound: _Bound, *, cut: bool) -> bool:
        """Whether what was written under the grammar is valid; False where it is to be drawn once more.

        Raises:
            EngineError: it is not, and it is told already or has been drawn twice.
        """
        binding = self._turn.binding
        if cut or binding is None:
            return True
        error = await self._means.judge.fault(binding.given, self._answer, whole=bound.whole)
        if error is None:
            return True
        if self._attempt or not bound.held:
            raise error
        self._attempt = 1
        self._rewind(bound)
        return False

    def _bind(self, grammar: str, *, whole: bool) -> None:
        drawn, binding = self._reader.sampled, self._turn.binding
        held = binding is not None and (bool(binding.loose) or (whole and binding.loose_format))
        if whole:
            drawn = Sampled()
        marks = (len(drawn.tokens), len(drawn.text), drawn.generated, drawn.thinking)
        forced = not whole or self._turn.prompt.choice.mode == "required"
        self._bound = _Bound(grammar, *marks, held=held, whole=whole, forced=forced)
        self._answer = Answer()
        self._attempt = 0

    def _begin_again(self) -> None:
        """Before a completion: a grammar can only be begun, so what was drawn under it so far is drawn again."""
        bound = self._bound
        if bound is not None and len(self._reader.sampled.text) > bound.text:
            self._rewind(bound)

    def _rewind(self, bound: _Bound) -> None:
        drawn = self._reader.sampled
        del drawn.tokens[bound.tokens :], drawn.text[bound.text :]
        drawn.generated, drawn.thinking = bound.generated, bound.thinking
        self._reader = self._means.reader(self._turn, drawn)
        self._suppressor = self._told.suppressor()
        self._bound = None
        self._kept.clear()
        self._leaving(self._reader.replay())
        self._bound = bound
        self._answer = Answer()

    def _leaving(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Those of the deltas that leave now, which are then told; and note what was drawn for good."""
        bound = self._bound
        if bound is not None:
            self._answer.add(deltas)
            if bound.forced:
                # What is text there is a marker that was cut.
                deltas = [delta for delta in deltas if not isinstance(delta, TextDelta)]
        if self._suppressor is not None:
            deltas = cast("list[Delta]", self._suppressor.feed(deltas))
            if self._suppressor.caught_up:
                self._suppressor = None
        if bound is None:
            self._note()
        elif bound.held:
            self._kept += deltas
            return ()
        self._told.add(deltas)
        return deltas

    def _settle(self) -> Sequence[Delta]:
        """The part under a grammar is done: what was held back of it leaves."""
        kept, self._kept = self._kept, []
        self._told.add(kept)
        self._bound = None
        self._note()
        return kept

    def _ended(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """The last deltas of the turn, and all that was held back before them."""
        leaving = self._leaving(deltas)
        return [*leaving, *self._settle()]

    def _note(self) -> None:
        noted, drawn = self._turn.sampled, self._reader.sampled
        noted.tokens += drawn.tokens[len(noted.tokens) :]
        noted.text += drawn.text[len(noted.text) :]
        noted.generated, noted.thinking = drawn.generated, drawn.thinking

    def _openings(self) -> Sequence[str]:
        binding = self._turn.binding
        return tuple(binding.openings) if binding is not None and self._unbound < _MOST_UNBOUND else ()

    async def _had_stopped(self, generated: list[int], text: str, openings: Sequence[str]) -> str:
        """The stop word in which these tokens end, which llama.cpp keeps out of their text only."""
        words = [*self._turn.prompt.sampling.stop, *openings]
        if not (words and generated):
            return ""
        spelled = await self._means.client().detokenize(generated)
        # What was told may hold them: a call is not cut by them.
        behind = spelled[len(text) :] if spelled.startswith(text) else spelled
        return next((word for word in words if word in behind), "")

    def _read(self, generated: list[int], text: str) -> list[int] | dict[str, Any]:
        """The prompt and what was drawn, for llama.cpp to go on from."""
        turn = self._turn
        if not turn.media:
            return [*turn.tokens, *generated]
        return {"prompt_string": turn.rendered + text, "multimodal_data": list(turn.media)}

    def _body(self, prompt: list[int] | dict[str, Any], max_tokens: int, openings: Sequence[str]) -> dict[str, Any]:
        bound = self._bound
        sampling = sampling_fields(self._turn.prompt.sampling)
        body: dict[str, Any] = {
            "prompt": prompt,
            "n_predict": max_tokens,
            "stream": True,
            "return_tokens": True,
            "return_progress": True,
            "cache_prompt": True,
            # Else the last chunk repeats the whole prompt.
            "response_fields": _LAST_FIELDS,
            # Control tokens come out as text only when they are named here.
            "preserved_tokens": list(self._means.preserved),
            **sampling,
        }
        if bound is not None:
            # What is bound is whole: a stop word would cut it where it is no JSON yet.
            body.pop("stop", None)
            body |= {"grammar": bound.grammar, "seed": (self._seed + self._attempt) % 2**32}
            if self._attempt:
                body["temperature"] = max(_RETRY_TEMPERATURE, body.get("temperature", 0.0))
        elif openings:
            body["stop"] = [*body.get("stop", ()), *openings]
        return body


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """llama.cpp's fields; what is not named stays the model's own default."""
    fields = sampling.named()
    if sampling.top_logprobs is not None:
        # At least one alternative must be asked for to get the chosen token's own probability.
        fields["n_probs"] = max(1, sampling.top_logprobs)
    return fields


def _refused(error: ChildError) -> str:
    """What llama.cpp says of a request that it refuses; what it says of itself is for nobody else."""
    if 400 <= error.status < 500 and error.type in ("invalid_request_error", "exceed_context_size_error"):
        return f"The engine refused the request: {without_paths(error.message)}"
    return "The engine refused the prompt."

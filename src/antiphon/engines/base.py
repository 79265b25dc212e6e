"""The interface of an engine.

An engine serves one generating model. `prepare` does all that can be refused, before a response exists; `generate`
yields deltas, and any error that it raises ends the response as `failed`. Closing the iterator stops generation and
frees the slot at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.engines.gate import Gate
from antiphon.engines.terms import NO_TERMS, Terms
from antiphon.errors import EngineError, UnsupportedError
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt, Sampling
from antiphon.protocol.completions import RawPrompt

__all__ = [
    "RESTART_PATIENCE",
    "Capabilities",
    "Engine",
    "EngineLostError",
    "EventHook",
    "PreparedTurn",
    "Replica",
    "Sampled",
    "Token",
]


RESTART_PATIENCE = 15.0
"""Seconds that a request waits for the restart of an engine that died."""


class EngineLostError(EngineError):
    """The engine could not be asked, or broke off: another replica of the model may be asked in its place."""


class Capabilities(Struct, frozen=True):
    """What the model and its engine can do.

    `context_length` in tokens; `media` the kinds of media it reads; `forced_tools` and `formats` (text, json_object,
    json_schema) what it enforces: what is not named here is refused with a 400, never ignored. `inline_media` says that
    it is given the data of media and the text of documents; else it gets parts as they were sent. With `fetches` it
    brings the images itself that are named by URLs.
    """

    context_length: int
    media: frozenset[str] = frozenset()
    forced_tools: bool = False
    formats: frozenset[str] = frozenset({"text"})
    logprobs: bool = False
    inline_media: bool = True
    hosted: bool = False
    summaries: bool = False
    fetches: bool = False


EventHook = Callable[[str, str, Mapping[str, Any]], None]
"""Told of the model's name, what happened to its engine, and the fields of that.

There are loading, ready, died, restarted, restart_failed, context_reduced, grammars_not_obeyed where the engine can
enforce nothing, unreachable and reachable of a model that runs elsewhere, and moved and failed_over of one with
replicas: the turn of a history went elsewhere than the one before it, and a turn was begun anew or gone on with.
"""


class Replica(Struct, frozen=True):
    """One of several engines behind one: whether it can be asked, and the turns that it has in flight."""

    ready: bool
    running: int


class Sampled(Struct):
    """What an engine has drawn for a turn so far: enough for another life of it to go on from there.

    `tokens` are their ids, where the engine tells all of them, and `text` their text in pieces, markers and held-back
    parts included. `generated` counts the tokens, `thinking` those of them that were the model's thinking. `kept` says
    under which name the turn goes on where the engine has it run, whatever becomes of this process (ADR 11).
    """

    tokens: list[int] = msgspec.field(default_factory=list[int])
    text: list[str] = msgspec.field(default_factory=list[str])
    generated: int = 0
    thinking: int = 0
    kept: bytes = b""

    def clear(self) -> None:
        """Forget everything, for a turn that starts anew."""
        self.tokens.clear()
        self.text.clear()
        self.generated = self.thinking = 0
        self.kept = b""


def _nobody() -> None:
    """Who wants to know nothing."""


class PreparedTurn(Struct):
    """A prompt that the engine has rendered and counted; `tokens` are the prompt's token ids where it has them.

    `sampled` is what `generate` has drawn for it; the engine adds to it before it yields what it made of it. Where it
    holds something when `generate` begins, an earlier life of the turn had drawn that. `constrained` says that the
    turn is under a grammar, which an engine starts anew with every call: it cannot go on in the middle of one.

    An engine that may decline turns calls `taken` when it is known that this one is not declined.
    """

    prompt: Prompt
    input_tokens: int
    tokens: Sequence[int] = ()
    rendered: str = ""
    sampled: Sampled = msgspec.field(default_factory=Sampled)
    constrained: bool = False
    taken: Callable[[], None] = _nobody


class Token(Struct, frozen=True):
    """A token of a model's own, and the bytes that it stands for, which may be a part of a character."""

    id: int
    piece: bytes


class Engine(ABC):
    """One generating model."""

    name: str
    """The model's own name: a GGUF's file stem, or `scripted`."""

    not_ready: str = "The model is being loaded. Please try again later."
    """What a request is told that comes before it can generate."""

    template_defaults: Mapping[str, Any] = {}
    """Variables for the chat template that the model's and the server's settings name."""

    terms: Terms = NO_TERMS
    """What the operator says of every request to it."""

    keeps_prefixes: bool = False
    """Whether it keeps what it read of prompts, for those that begin alike."""

    routed: bool = False
    """Whether it makes use of the `affinity` of prompts."""

    declines: bool = False
    """Whether it may say only while it generates that it does not take a turn, as what runs elsewhere does."""

    continues: bool = False
    """Whether another engine of the same fingerprint can go on with a turn that this one lost, from its `sampled`."""

    @cached_property
    def gate(self) -> Gate:
        """How many requests it generates at the same time, and whether any use it."""
        return Gate()

    @property
    def replicas(self) -> Sequence[Replica]:
        """The engines behind this one, in the order of the settings; none where it is the only one."""
        return ()

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether it can generate now."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it can do; known once `start` has returned."""

    @abstractmethod
    async def start(self) -> None:
        """Load the model.

        Raises:
            ConfigurationError: it cannot be loaded; the message says why.
        """

    def succeed(self, former: Engine) -> None:
        """Take the place of another engine for the same model: what that one knows of its replicas holds on."""
        return

    async def wait_ready(self, seconds: float) -> bool:
        """Whether it can generate, after waiting at most that long for a restart (not for a first load)."""
        return self.ready

    @abstractmethod
    async def close(self) -> None:
        """Stop generating and free everything."""

    @abstractmethod
    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        """Render and count a prompt.

        Raises:
            ContextOverflowError: it is longer than the context, or leaves no room for one token.
            InvalidRequestError: the template refuses the conversation; the message repeats its complaint.
            EngineUnavailableError: the engine cannot be asked now.
        """

    async def prepare_text(self, prompt: RawPrompt, sampling: Sampling, max_tokens: int) -> PreparedTurn:
        """Count a prompt that no chat template is put around; what is generated is text, and nothing else.

        An empty text has the model begin one of its own (M7).

        Raises:
            UnsupportedError: this engine can go on from conversations only.
            ContextOverflowError: the prompt is longer than the context, or leaves no room for one token.
            InvalidRequestError: a token is not in the vocabulary, or the model cannot begin a text.
            EngineUnavailableError: the engine cannot be asked now.
        """
        raise UnsupportedError("This model answers conversations only: use /v1/responses or /v1/chat/completions.")

    async def count(self, turn: PreparedTurn) -> int:
        """The input tokens of a prepared turn, as exactly as they can be told without generating it."""
        return turn.input_tokens

    async def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[Token]:
        """The tokens of a text. `add_special` adds what the model wants in front; `parse_special` reads the spelling of
        a special token as that token.

        Raises:
            UnsupportedError: this engine does not show its tokens.
            EngineUnavailableError: the engine cannot be asked now.
        """
        raise UnsupportedError("This model does not show its tokens.")

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones spelled out.

        Raises:
            UnsupportedError: this engine does not show its tokens.
            InvalidRequestError: one of them is not in the vocabulary.
            EngineUnavailableError: the engine cannot be asked now.
        """
        raise UnsupportedError("This model does not show its tokens.")

    async def forget_prefixes(self) -> bool:
        """Drop what it keeps of prompts; what runs goes on. False where there is nothing that it keeps."""
        return False

    def abandon(self, turn: PreparedTurn) -> None:
        """A turn will not be gone on with: what was kept of it elsewhere is given up, when there is time for it."""
        return

    @property
    def fingerprint(self) -> str:
        """What makes this model and its template what they are, so that a turn is gone on with by no other."""
        return self.name

    @abstractmethod
    def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """The deltas of one turn, in lists of what came together; the last delta is a `Stop`.

        Where `turn.sampled` holds something already, the deltas of that come first, cut however it suits, without
        being drawn again, and count against the limit of output tokens; then the turn goes on from there. The death
        of the engine in the middle of a turn is outlived the same way, unless the turn is `constrained`.

        Raises:
            EngineError: the engine failed; what was yielded before stands.
        """

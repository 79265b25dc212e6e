"""What the engines of models that run elsewhere have in common: their health, their context and what they can do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from antiphon.engines.base import Capabilities, Engine, EventHook, PreparedTurn
from antiphon.engines.checks.checker import Checker
from antiphon.engines.checks.judge import Judge
from antiphon.engines.upstream.client import UpstreamClient, UpstreamTarget
from antiphon.engines.upstream.counting import counted
from antiphon.engines.upstream.declared import check_declared
from antiphon.engines.upstream.decoder import Reading
from antiphon.engines.upstream.generation import ChatTurn, Upstream
from antiphon.engines.upstream.health import Health
from antiphon.engines.upstream.profiles import Profile
from antiphon.engines.upstream.usage import estimated_tokens, message_tokens
from antiphon.engines.upstream.wire import Models
from antiphon.engines.upstream.written import parts_of, written
from antiphon.errors import ContextOverflowError, UnsupportedError
from antiphon.prompt.prompt import Prompt, Sampling
from antiphon.protocol.completions import RawPrompt
from antiphon.protocol.json import encode

__all__ = ["UNKNOWN_CONTEXT", "ElsewhereEngine"]

UNKNOWN_CONTEXT: Final = 1_048_576
"""The context, in tokens, of a model of which nobody says it: so long that it is the upstream that refuses."""

_PROBE_SECONDS: Final = 3.0
_FORMATS: Final = frozenset({"text", "json_object", "json_schema"})


class ElsewhereEngine(Engine):
    """One model of one upstream; a subclass says how it is asked.

    `model` is the upstream's name for it, and `context_length` is asked of the upstream where it is None. `media` are
    the kinds of media that it reads. `profile` is how it is asked for chat completions, and for what is beside those.
    """

    routed = True
    declines = True
    not_ready = "The upstream of this model does not answer. Please try again later."

    def __init__(
        self,
        name: str,
        target: UpstreamTarget,
        *,
        model: str | None = None,
        context_length: int | None = None,
        media: frozenset[str] = frozenset(),
        on_event: EventHook | None = None,
        profile: Profile | None = None,
    ) -> None:
        self.name = name
        self._model = model or name
        self._context = context_length
        self._media = media
        self._on_event = None if on_event is None else partial(on_event, name)
        self._client = UpstreamClient(target)
        self._abilities: Capabilities | None = None
        self._checker = Checker()
        self._judge = Judge(self._checker)
        self._health = Health(self._probe, self._changed)
        self._beside: Upstream | None = None
        if profile is not None:
            self._beside = Upstream(self._client, self._health, self._judge, profile, self._model)

    @property
    def ready(self) -> bool:
        """Whether the upstream answers, as far as is known."""
        return self._health.up

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do: every tool choice and format, since what is not enforced is checked."""
        return self._able(logprobs=True)

    async def start(self) -> None:
        """Ask the upstream whether it is there; where it is not, the engine is not ready until it is."""
        await self._health.begin()

    async def answers(self) -> bool:
        """Whether the upstream answers, for who wants to know before a start; every connection is closed then."""
        try:
            return await self._probe()
        finally:
            await self.close()

    async def wait_ready(self, seconds: float) -> bool:
        """Whether the upstream answers, after waiting for it."""
        return await self._health.wait(seconds)

    async def close(self) -> None:
        """Close every connection; running generations fail."""
        await self._health.close()
        await self._client.close()
        await self._checker.close()

    async def prepare_text(self, prompt: RawPrompt, sampling: Sampling, max_tokens: int) -> ChatTurn:
        """A text for the `/completions` of the upstream, its tokens estimated where it is not given as such."""
        asked = Prompt(messages=(), sampling=sampling, max_output_tokens=max_tokens)
        if self._beside is None:
            raise UnsupportedError("The upstream of this model answers conversations only.")
        logprobs = sampling.top_logprobs is not None
        if logprobs and not self._beside.profile.logprobs:
            raise UnsupportedError("The upstream of this model tells no log probabilities.", param="logprobs")
        tokens = max(1, estimated_tokens(prompt) if isinstance(prompt, str) else len(prompt))
        self._fit(tokens)
        reading = Reading(tokens, logprobs=logprobs, tags=False)
        return ChatTurn(prompt=asked, input_tokens=tokens, constrained=True, reading=reading, raw=prompt)

    async def count(self, turn: PreparedTurn) -> int:
        """The input tokens of a turn as the upstream counts them, else as they were estimated."""
        found = None
        if self._beside is not None:
            found = await counted(self._beside, turn.prompt, self._as_response)
        return turn.input_tokens if found is None else found

    @abstractmethod
    def _as_response(self, prompt: Prompt) -> Mapping[str, Any]:
        """What `/responses` of the upstream would be asked for this prompt, of what it counts."""

    def _able(self, *, logprobs: bool) -> Capabilities:
        """The capabilities, which are asked for several times a request, and change once at most."""
        able = self._abilities
        context = self._context or UNKNOWN_CONTEXT
        if able is None or able.context_length != context:
            able = self._abilities = Capabilities(
                context_length=context,
                media=self._media,
                forced_tools=True,
                formats=_FORMATS,
                logprobs=logprobs,
                fetches=self._beside is not None and self._beside.profile.fetches,
            )
        return able

    async def _check(self, prompt: Prompt) -> None:
        """Refuse what is declared and no answer could be checked by."""
        await check_declared(self._checker, prompt)

    def _counted(self, prompt: Prompt) -> int:
        """The tokens of a prompt as the upstream is told it, estimated; one that is too long is refused."""
        tokens = _estimate(prompt)
        self._fit(tokens)
        return tokens

    def _fit(self, tokens: int) -> None:
        context = self._context or UNKNOWN_CONTEXT
        if tokens >= context:
            raise ContextOverflowError(tokens, context)

    async def _probe(self) -> bool:
        models = await self._client.models(_PROBE_SECONDS)
        if models is not None and self._context is None:
            self._context = _context_of(models, self._model)
        # Some servers answer one request at a time, and there may be no connection left to ask over.
        return models is not None or self._client.answering(_PROBE_SECONDS)

    def _changed(self, up: bool) -> None:
        if self._on_event is not None:
            self._on_event("reachable" if up else "unreachable", {})


def _context_of(models: Models, name: str) -> int | None:
    """The context of the model of that name; of the only one where a server has one whatever its name."""
    listed = models.data or []
    return next((model.context for model in listed if model.id == name or len(listed) == 1), None)


def _estimate(prompt: Prompt) -> int:
    """Tokens of a prompt, by its bytes; the upstream's template may add some."""
    tokens = 0
    for part in parts_of(prompt.messages):
        known = written.of(part)
        tokens += sum(map(message_tokens, part)) if known is None else known.tokens
    shown: list[Any] = list(prompt.tools)
    return tokens + (-(-len(encode(shown)) // 4) if shown else 0)

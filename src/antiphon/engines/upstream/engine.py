"""A model behind a chat-completions endpoint, with the whole of the Responses API in front of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any, Final

from antiphon.engines.base import Capabilities, Engine, EventHook, PreparedTurn
from antiphon.engines.checks.checker import Checker
from antiphon.engines.checks.judge import Judge
from antiphon.engines.upstream.callform import asked_as_form
from antiphon.engines.upstream.client import UpstreamClient, UpstreamTarget
from antiphon.engines.upstream.declared import check_declared
from antiphon.engines.upstream.decoder import Reading
from antiphon.engines.upstream.generation import ChatTurn, Upstream, generated
from antiphon.engines.upstream.health import Health
from antiphon.engines.upstream.profiles import Profile
from antiphon.engines.upstream.request import called_by_form
from antiphon.engines.upstream.usage import estimated_tokens
from antiphon.engines.upstream.wire import Models
from antiphon.errors import ContextOverflowError
from antiphon.machine.deltas import Delta
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.json import encode

__all__ = ["UNKNOWN_CONTEXT", "ChatEngine"]

UNKNOWN_CONTEXT: Final = 1_048_576
"""The context, in tokens, of a model of which nobody says it: so long that it is the upstream that refuses."""

_PROBE_SECONDS: Final = 3.0
_MESSAGE_TOKENS: Final = 4
_MEDIA_TOKENS: Final = 1_000
_FORMATS: Final = frozenset({"text", "json_object", "json_schema"})


class ChatEngine(Engine):
    """Serves one model of one upstream.

    `model` is the upstream's name for it, and `context_length` is asked of the upstream where it is None. `media` are
    the kinds of media that it reads. `thinking` says how it stands in the text: `tagged`, `primed` or `none`.
    """

    not_ready = "The upstream of this model does not answer. Please try again later."

    def __init__(
        self,
        name: str,
        target: UpstreamTarget,
        profile: Profile,
        *,
        model: str | None = None,
        context_length: int | None = None,
        media: frozenset[str] = frozenset(),
        thinking: str = "tagged",
        on_event: EventHook | None = None,
    ) -> None:
        self.name = name
        self._model = model or name
        self._profile = profile
        self._context = context_length
        self._media = media
        self._thinking = thinking
        self._on_event = None if on_event is None else partial(on_event, name)
        self._client = UpstreamClient(target)
        self._checker = Checker()
        self._health = Health(self._probe, self._changed)
        self._upstream = Upstream(self._client, self._health, Judge(self._checker), profile, self._model)

    @property
    def ready(self) -> bool:
        """Whether the upstream answers, as far as is known."""
        return self._health.up

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do: every tool choice and format, since what is not enforced is checked."""
        return Capabilities(
            context_length=self._context or UNKNOWN_CONTEXT,
            media=self._media,
            forced_tools=True,
            formats=_FORMATS,
            logprobs=self._profile.logprobs,
        )

    @property
    def fingerprint(self) -> str:
        """The upstream's name for the model: what was begun with another one is not gone on with."""
        return f"chat:{self._model}"

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

    async def prepare(self, prompt: Prompt) -> ChatTurn:
        """Check what is declared, and estimate the tokens; see `Engine.prepare` for what it raises."""
        await check_declared(self._checker, prompt)
        form = called_by_form(prompt, self._profile)
        tokens = _estimate(asked_as_form(prompt) if form else prompt)
        context = self._context or UNKNOWN_CONTEXT
        if tokens >= context:
            raise ContextOverflowError(tokens, context)
        reading = Reading(
            tokens,
            callable_tools(prompt),
            one_call=not prompt.parallel_tool_calls,
            logprobs=prompt.sampling.top_logprobs is not None and self._profile.logprobs,
            form=form,
            tags=self._thinking != "none",
            primed=self._thinking == "primed",
        )
        return ChatTurn(prompt=prompt, input_tokens=tokens, constrained=True, reading=reading)

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """The deltas of one turn; closing the generator closes the connection to the upstream."""
        if not isinstance(turn, ChatTurn):
            raise TypeError("the turn was not prepared by this engine")
        async with contextlib.aclosing(generated(turn, self._upstream)) as stream:
            async for deltas in stream:
                yield deltas

    async def _probe(self) -> bool:
        models = await self._client.models(_PROBE_SECONDS)
        if models is not None and self._context is None:
            self._context = _context_of(models, self._model)
        return models is not None

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
    for message in prompt.messages:
        tokens += _MESSAGE_TOKENS + estimated_tokens(message.text()) + estimated_tokens(message.reasoning)
        tokens += sum(estimated_tokens(call.name + call.arguments) for call in message.tool_calls)
        if not isinstance(message.content, str):
            tokens += _MEDIA_TOKENS * sum(part.get("type") != "text" for part in message.content)
    shown: list[Any] = list(prompt.tools)
    return tokens + (-(-len(encode(shown)) // 4) if shown else 0)

"""A model behind a chat-completions endpoint, with the whole of the Responses API in front of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from antiphon.engines.base import Capabilities, EventHook, PreparedTurn
from antiphon.engines.upstream.callform import asked_as_form
from antiphon.engines.upstream.client import UpstreamTarget
from antiphon.engines.upstream.decoder import Reading
from antiphon.engines.upstream.elsewhere import UNKNOWN_CONTEXT, ElsewhereEngine
from antiphon.engines.upstream.generation import ChatTurn, Upstream, generated
from antiphon.engines.upstream.profiles import Profile
from antiphon.engines.upstream.request import called_by_form
from antiphon.machine.deltas import Delta
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.prompt import Prompt

__all__ = ["UNKNOWN_CONTEXT", "ChatEngine"]


class ChatEngine(ElsewhereEngine):
    """Serves one model of one upstream; `thinking` says how it stands in the text: `tagged`, `primed` or `none`."""

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
        super().__init__(
            name,
            target,
            model=model,
            context_length=context_length,
            media=media,
            on_event=on_event,
            profile=profile,
        )
        self.routed = bool(profile.session_headers) or profile.cache_key or profile.cache_salt
        self._profile = profile
        self._thinking = thinking
        self._upstream = Upstream(self._client, self._health, self._judge, profile, self._model)

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do."""
        return self._able(logprobs=self._profile.logprobs)

    @property
    def fingerprint(self) -> str:
        """The upstream's name for the model: what was begun with another one is not gone on with."""
        return f"chat:{self._model}"

    async def prepare(self, prompt: Prompt) -> ChatTurn:
        """Check what is declared, and estimate the tokens; see `Engine.prepare` for what it raises."""
        await self._check(prompt)
        form = called_by_form(prompt, self._profile)
        tokens = self._counted(asked_as_form(prompt) if form else prompt)
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

    def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """The deltas of one turn; closing the generator closes the connection to the upstream."""
        if not isinstance(turn, ChatTurn):
            raise TypeError("the turn was not prepared by this engine")
        return generated(turn, self._upstream)

    def _as_response(self, prompt: Prompt) -> Mapping[str, Any]:
        # Most servers ask no upstream for that.
        from antiphon.engines.responses.counting import counted_body
        from antiphon.engines.responses.profiles import PROFILES

        return counted_body(prompt, PROFILES[self._profile.name], self._model, custom=False)

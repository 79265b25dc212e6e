"""A model behind a Responses endpoint: OpenAI, Azure, vLLM, SGLang, Mixedbread, another server of this kind."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

import msgspec

from antiphon.engines.base import Capabilities, EventHook, PreparedTurn
from antiphon.engines.responses.decoder import Reading
from antiphon.engines.responses.generation import ResponsesTurn, Upstream, generated
from antiphon.engines.responses.profiles import Profile
from antiphon.engines.upstream.client import UpstreamTarget
from antiphon.engines.upstream.elsewhere import ElsewhereEngine
from antiphon.machine.deltas import Delta
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.prompt import Prompt

__all__ = ["ResponsesEngine"]


class ResponsesEngine(ElsewhereEngine):
    """Serves one model of one upstream."""

    def __init__(
        self,
        name: str,
        target: UpstreamTarget,
        profile: Profile,
        *,
        model: str | None = None,
        context_length: int | None = None,
        media: frozenset[str] = frozenset(),
        on_event: EventHook | None = None,
    ) -> None:
        super().__init__(name, target, model=model, context_length=context_length, media=media, on_event=on_event)
        self._profile = profile
        self._upstream = Upstream(self._client, self._health, self._judge, profile, self._model)

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do; tools that nobody here runs are for the upstream."""
        return msgspec.structs.replace(super().capabilities, hosted=True, summaries=self._profile.summaries)

    @property
    def fingerprint(self) -> str:
        """The upstream's name for the model: what was begun with another one is not gone on with."""
        return f"responses:{self._model}"

    async def prepare(self, prompt: Prompt) -> ResponsesTurn:
        """Check what is declared, and estimate the tokens; see `Engine.prepare` for what it raises."""
        await self._check(prompt)
        tokens = self._counted(prompt)
        reading = Reading(
            tokens,
            callable_tools(prompt),
            one_call=not prompt.parallel_tool_calls,
            logprobs=prompt.sampling.top_logprobs is not None,
            sealed=self._profile.thoughts == "sealed",
        )
        return ResponsesTurn(prompt=prompt, input_tokens=tokens, constrained=True, reading=reading)

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """The deltas of one turn; closing the generator closes the connection to the upstream."""
        if not isinstance(turn, ResponsesTurn):
            raise TypeError("the turn was not prepared by this engine")
        async with contextlib.aclosing(generated(turn, self._upstream)) as stream:
            async for deltas in stream:
                yield deltas

"""A model behind a Responses endpoint: OpenAI, Azure, vLLM, SGLang, Mixedbread, another server of this kind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from antiphon.engines.base import Capabilities, EventHook, PreparedTurn
from antiphon.engines.responses.counting import counted_body
from antiphon.engines.responses.decoder import Reading
from antiphon.engines.responses.generation import PATH, ResponsesTurn, Upstream, generated
from antiphon.engines.responses.profiles import Profile
from antiphon.engines.upstream.client import UpstreamTarget
from antiphon.engines.upstream.elsewhere import ElsewhereEngine
from antiphon.engines.upstream.generation import ChatTurn
from antiphon.engines.upstream.generation import generated as continued
from antiphon.engines.upstream.profiles import PROFILES as CHAT_PROFILES
from antiphon.engines.upstream.wires import WireError
from antiphon.machine.deltas import Delta
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.prompt import Prompt

__all__ = ["ResponsesEngine"]

_LEAVING_SECONDS: Final = 2.0
"""Seconds that an upstream is given to hear that a response is cancelled."""

_MOST_LEAVING: Final = 256


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
        super().__init__(
            name,
            target,
            model=model,
            context_length=context_length,
            media=media,
            on_event=on_event,
            profile=CHAT_PROFILES.get(profile.name),
        )
        self._profile = profile
        self._leaving: set[asyncio.Task[None]] = set()
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
        if isinstance(turn, ChatTurn) and self._beside is not None:
            found = continued(turn, self._beside)
        elif isinstance(turn, ResponsesTurn):
            found = generated(turn, self._upstream)
        else:
            raise TypeError("the turn was not prepared by this engine")
        async with contextlib.aclosing(found) as stream:
            async for deltas in stream:
                yield deltas

    def abandon(self, turn: PreparedTurn) -> None:
        """Cancel what the upstream still runs of a turn; one that has ended there stays as it is."""
        kept = turn.sampled.kept
        if kept and len(self._leaving) < _MOST_LEAVING:
            task = asyncio.create_task(self._cancel(kept.decode()))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Close every connection, once it was said what is cancelled."""
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=_LEAVING_SECONDS)
        await super().close()

    def _as_response(self, prompt: Prompt) -> Mapping[str, Any]:
        return counted_body(prompt, self._profile, self._model)

    async def _cancel(self, name: str) -> None:
        with contextlib.suppress(WireError, TimeoutError):
            async with asyncio.timeout(_LEAVING_SECONDS):
                answer = await self._client.ask(f"{PATH}/{quote(name, safe='')}/cancel", {})
                answer.leave()

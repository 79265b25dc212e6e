"""An engine on another node of the cluster, as a server sees it.

What it draws is kept here as it comes, so that a turn whose engine is lost with its node goes on at another engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any, Final

from antiphon.engines.base import Capabilities, Engine, EngineLostError, EventHook, PreparedTurn, Sampled, Token
from antiphon.engines.ray.actor import BEAT_SECONDS
from antiphon.engines.ray.wire import (
    Asked,
    Batch,
    Drawn,
    Facts,
    Prepared,
    answered,
    deltas_of,
    encode,
    encode_prompt,
)
from antiphon.errors import APIError, ConfigurationError, EngineUnavailableError
from antiphon.machine.deltas import Delta, Stop
from antiphon.prompt.prompt import Prompt, Sampling
from antiphon.protocol.completions import RawPrompt

__all__ = ["Actor", "Group", "RayEngine", "RayTurn"]

_RETRY_SECONDS: Final = 0.25
"""How soon an engine that did not answer is asked again."""

_ANSWER_SECONDS: Final = 10.0
"""Seconds that an engine may take to say that it is there."""

_LEAVE_SECONDS: Final = 1.0


class Actor(ABC):
    """Calls the methods of one engine's actor, wherever it is. A call that cannot be made or breaks off is an
    `EngineLostError`.
    """

    @abstractmethod
    async def call(self, method: str, *arguments: Any) -> bytes:
        """What a method gives back."""

    @abstractmethod
    def stream(self, method: str, *arguments: Any) -> AsyncGenerator[bytes]:
        """What a method yields; closing it ends the method."""


class RayTurn(PreparedTurn):
    """A turn for any engine of its model. It is named `turn`; a `raw` one has no chat template around it."""

    turn: str = ""
    raw: RawPrompt | None = None
    max_tokens: int = 0


class Group:
    """What the engines of one model share: what the first of them that is there says of the model."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._faults: dict[int, ConfigurationError] = {}
        self._changed = asyncio.Event()
        self.facts = Facts(ready=False)
        """What is known of the model."""

    def know(self, facts: Facts) -> None:
        """An engine has its model loaded."""
        self.facts = facts
        self._changed.set()

    def fail(self, number: int, fault: ConfigurationError) -> None:
        """An engine cannot load its model."""
        self._faults[number] = fault
        if len(self._faults) == self._size:
            self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait until the model is known.

        Raises:
            ConfigurationError: no engine can load it, or none was there in time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            raise ConfigurationError(
                f"No engine of the model '{self._name}' was there within {seconds:g} seconds: 'ray status' shows "
                "whether the cluster has room for it."
            ) from None
        if not self.facts.fingerprint:
            raise next(iter(self._faults.values()))


class RayEngine(Engine):
    """The engine of that number in its group. `load_timeout` are the seconds in which one of them must be there."""

    keeps_prefixes = True
    continues = True
    not_ready = "No engine of this model can be asked now. Please try again later."

    def __init__(
        self,
        name: str,
        actor: Actor,
        group: Group,
        number: int,
        *,
        load_timeout: float,
        on_event: EventHook | None = None,
    ) -> None:
        self.name = name
        self._actor = actor
        self._group = group
        self._number = number
        self._load_timeout = load_timeout
        self._on_event = None if on_event is None else partial(on_event, name)
        self._server = secrets.token_hex(8)
        self._facts: Facts | None = None
        self._up = asyncio.Event()
        self._doubt = asyncio.Event()
        self._attending: asyncio.Task[None] | None = None
        self._fault = ""

    @property
    def ready(self) -> bool:
        """Whether it has said of late that it can generate."""
        return self._up.is_set()

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do, as the engines of its group say."""
        return (self._facts or self._group.facts).capabilities

    @property
    def fingerprint(self) -> str:
        """The digest of the engine's model, template and dialect."""
        return (self._facts or self._group.facts).fingerprint

    async def start(self) -> None:
        """Have the engine loaded, and wait until one of its group is; see `Group.wait` for what it raises."""
        self._attending = asyncio.create_task(self._attend())
        await self._group.wait(self._load_timeout)

    async def wait_ready(self, seconds: float) -> bool:
        """Whether it can generate, after waiting for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._up.wait()
        return self.ready

    async def close(self) -> None:
        """Ask it no more; what it generates for this server is ended, and the engine stays for others."""
        attending, self._attending = self._attending, None
        there = self.ready
        self._up.clear()
        if attending is not None:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)
        if there:
            with contextlib.suppress(EngineLostError, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._actor.call("depart", self._server)

    async def prepare(self, prompt: Prompt) -> RayTurn:
        """Have it rendered and counted; see `Engine.prepare` for what it raises."""
        return await self._prepared(RayTurn(prompt, 0, turn=secrets.token_hex(8)))

    async def prepare_text(self, prompt: RawPrompt, sampling: Sampling, max_tokens: int) -> RayTurn:
        """Have a bare text counted; see `Engine.prepare_text` for what it raises."""
        asked = Prompt(messages=(), sampling=sampling, max_output_tokens=max_tokens)
        raw = prompt if isinstance(prompt, str) else list(prompt)
        return await self._prepared(RayTurn(asked, 0, turn=secrets.token_hex(8), raw=raw, max_tokens=max_tokens))

    async def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[Token]:
        """The tokens of a text; see `Engine.tokenize`."""
        data = await self._call("tokenize", text, add_special, parse_special)
        return [Token(*each) for each in answered(data, list[tuple[int, bytes]])]

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens; see `Engine.detokenize`."""
        return answered(await self._call("detokenize", encode(list(tokens))), str)

    async def forget_prefixes(self) -> bool:
        """Have the engine drop what it keeps of prompts."""
        return answered(await self._call("forget_prefixes"), bool)

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """The deltas of one turn; closing the generator frees its slot there.

        Raises:
            EngineLostError: the engine, or its node, is gone; `turn.sampled` is what it had drawn.
            EngineError: the engine failed.
        """
        if not isinstance(turn, RayTurn):
            raise TypeError("the turn was not prepared by this engine")
        sampled, over = turn.sampled, False
        try:
            async with contextlib.aclosing(self._actor.stream("generate", self._asked(turn))) as stream:
                async for data in stream:
                    batch = answered(data, Batch)
                    _add(sampled, batch.drawn)
                    deltas = deltas_of(batch)
                    over = isinstance(deltas[-1], Stop)
                    yield deltas
                    if over:
                        return
        except EngineLostError:
            over = True
            self._lost()
            raise
        finally:
            if not over:
                await self._leave(turn.turn)
        self._lost()
        raise EngineLostError("The engine has broken off.")

    async def _prepared(self, turn: RayTurn) -> RayTurn:
        found = answered(await self._call("prepare", self._asked(turn)), Prepared)
        turn.input_tokens, turn.constrained = found.input_tokens, found.constrained
        return turn

    def _asked(self, turn: RayTurn) -> bytes:
        prompt = encode_prompt(turn.prompt)
        return encode(Asked(turn.turn, self._server, prompt, turn.raw, turn.max_tokens, turn.sampled))

    async def _call(self, method: str, *arguments: Any) -> bytes:
        """Ask before anything is generated.

        Raises:
            EngineUnavailableError: it cannot be asked now.
        """
        try:
            return await self._actor.call(method, *arguments)
        except EngineLostError:
            self._lost()
            raise EngineUnavailableError(self.not_ready) from None

    async def _leave(self, turn: str) -> None:
        """Have the engine end a turn, as far as it can be told so; else it ends it when this server is gone."""
        with contextlib.suppress(EngineLostError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._actor.call("leave", turn)

    def _lost(self) -> None:
        self._down()
        self._doubt.set()

    def _down(self) -> None:
        if self._up.is_set():
            self._up.clear()
            self._tell("unreachable")

    def _tell(self, event: str, **fields: str) -> None:
        if self._on_event is not None:
            self._on_event(event, fields)

    async def _attend(self) -> None:
        """Say every few seconds that this server is there, and learn whether the engine is."""
        while True:
            self._doubt.clear()
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    facts = answered(await self._actor.call("attend", self._server), Facts)
                if facts.fingerprint:
                    self._facts, self._fault = facts, ""
                    self._group.know(facts)
                if not facts.ready:
                    self._down()
                elif not self._doubt.is_set() and not self._up.is_set():
                    self._up.set()
                    self._tell("reachable")
            except ConfigurationError as error:
                self._group.fail(self._number, error)
                self._down()
                if str(error) != self._fault:
                    self._fault = str(error)
                    self._tell("load_failed", reason=self._fault)
            except (APIError, TimeoutError):
                self._down()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS if self.ready else _RETRY_SECONDS):
                    await self._doubt.wait()


def _add(sampled: Sampled, drawn: Drawn) -> None:
    """Note what was drawn."""
    if drawn.anew:
        sampled.clear()
    sampled.tokens += drawn.tokens
    sampled.text += drawn.text
    sampled.generated, sampled.thinking = drawn.generated, drawn.thinking

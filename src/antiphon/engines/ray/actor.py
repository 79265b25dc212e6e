"""An engine on a node of the cluster: what a Ray actor does. It takes and gives bytes, and raises nothing.

A server says every few seconds that it is there. The turns of one that is gone are ended, since nobody reads them; an
engine that no server has asked for in a long time, because its model is served no more, leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from antiphon.engines.base import Engine, PreparedTurn, Sampled
from antiphon.engines.ray.library import require_ray
from antiphon.engines.ray.wire import (
    Asked,
    Batch,
    Drawn,
    EngineOptions,
    Facts,
    Prepared,
    answer,
    decode,
    decode_prompt,
    packed,
    refusal,
)
from antiphon.errors import AntiphonError, EngineError
from antiphon.machine.deltas import Delta
from antiphon.settings import Settings

__all__ = ["AWAY_SECONDS", "BEAT_SECONDS", "EngineActor"]

BEAT_SECONDS: Final = 2.0
"""How often a server says that it is there."""

AWAY_SECONDS: Final = 30.0
"""Seconds of silence after which a server counts as gone."""

_MOST_PREPARED: Final = 256
"""Turns that are kept between their preparation and their generation; one that is not kept is prepared again."""


class EngineActor:
    """The engine of one model on one node; `options` are `EngineOptions`.

    The model is loaded when the first server comes. One that does not load is tried again whenever a server asks.
    """

    def __init__(self, options: bytes) -> None:
        self._options = decode(options, EngineOptions)
        self._engine = self._make(self._options)
        self._loading: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._prepared: OrderedDict[str, PreparedTurn] = OrderedDict()
        self._servers: dict[str, float] = {}
        self._turns: set[_Running] = set()

    async def attend(self, server: str) -> bytes:
        """A server is there; `Facts`, or why the model cannot be loaded."""
        self._servers[server] = time.monotonic()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        if self._loading is None:
            self._loading = asyncio.create_task(self._engine.start())
        if not self._loading.done():
            return answer(Facts(ready=False))
        fault = self._loading.exception()
        if fault is not None:
            self._loading, self._engine = None, self._make(self._options)
            return _told(fault if isinstance(fault, Exception) else EngineError("The engine was stopped."))
        engine = self._engine
        return answer(Facts(engine.ready, engine.fingerprint, engine.capabilities))

    async def depart(self, server: str) -> bytes:
        """A server stops; whatever it still reads is ended."""
        self._servers.pop(server, None)
        self._end_turns(server)
        return answer(None)

    async def prepare(self, asked: bytes) -> bytes:
        """Render and count a turn: `Asked` to `Prepared`."""
        try:
            turn = await self._prepare(decode(asked, Asked))
            return answer(Prepared(turn.input_tokens, turn.constrained))
        except Exception as error:  # noqa: BLE001 - the engine is not lost for it
            return _told(error)

    async def generate(self, asked: bytes) -> AsyncGenerator[bytes]:
        """The turn of `Asked`, as `Batch` after `Batch`; an error is the last of them."""
        request = decode(asked, Asked)
        try:
            turn = self._prepared.pop(request.turn, None) or await self._prepare(request, keep=False)
        except Exception as error:  # noqa: BLE001 - the engine is not lost for it
            yield _told(error)
            return
        turn = replace(turn, prompt=decode_prompt(request.prompt), sampled=request.sampled)
        running = _Running(request.turn, request.server, self._engine.generate(turn), turn.sampled)
        self._turns.add(running)
        try:
            while (batch := await running.next()) is not None:
                yield batch
        finally:
            self._turns.discard(running)
            await running.close()

    async def leave(self, turn: str) -> bytes:
        """Nobody reads that turn any more."""
        self._end_turns(turn)
        return answer(None)

    async def tokenize(self, text: str, add_special: bool, parse_special: bool) -> bytes:
        """The tokens of a text, each with its bytes."""
        try:
            tokens = await self._engine.tokenize(text, add_special=add_special, parse_special=parse_special)
            return answer([(token.id, token.piece) for token in tokens])
        except Exception as error:  # noqa: BLE001 - the engine is not lost for it
            return _told(error)

    async def detokenize(self, tokens: bytes) -> bytes:
        """The text of tokens."""
        try:
            return answer(await self._engine.detokenize(decode(tokens, list[int])))
        except Exception as error:  # noqa: BLE001 - the engine is not lost for it
            return _told(error)

    async def forget_prefixes(self) -> bytes:
        """Drop what the engine keeps of prompts."""
        try:
            return answer(await self._engine.forget_prefixes())
        except Exception as error:  # noqa: BLE001 - the engine is not lost for it
            return _told(error)

    async def working(self) -> int:
        """Turns that are generated now."""
        return len(self._turns)

    async def process(self) -> tuple[str, int]:
        """The node that this runs on, and its process there."""
        return require_ray().get_runtime_context().get_node_id(), os.getpid()

    def _make(self, options: EngineOptions) -> Engine:
        """The engine itself."""
        from antiphon.engines.llamacpp.engine import LlamaCppEngine

        given = {name: getattr(options, name) for name in _SETTINGS}
        return LlamaCppEngine(
            Path(options.path).expanduser(),
            Settings(**given),
            name=options.name,
            dialect=options.dialect,
            chat_template=options.chat_template,
            mmproj=None if options.mmproj is None else Path(options.mmproj).expanduser(),
        )

    async def _prepare(self, request: Asked, *, keep: bool = True) -> PreparedTurn:
        prompt = decode_prompt(request.prompt)
        if request.raw is None:
            turn = await self._engine.prepare(prompt)
        else:
            turn = await self._engine.prepare_text(request.raw, prompt.sampling, request.max_tokens)
        if keep:
            self._prepared[request.turn] = turn
            while len(self._prepared) > _MOST_PREPARED:
                self._prepared.popitem(last=False)
        return turn

    def _end_turns(self, name: str) -> None:
        for turn in self._turns:
            if name in (turn.name, turn.server):
                turn.stop()

    async def _watch(self) -> None:
        """End the turns of servers that are gone, and leave when none has come for long."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = time.monotonic()
            for server, seen in list(self._servers.items()):
                if now - seen > AWAY_SECONDS:
                    await self.depart(server)
            if self._servers:
                last = now
            elif now - last > self._options.seconds:
                await self._engine.close()
                _end_actor()


class _Running:
    """A turn that is generated: what the engine yields is kept until it is asked for, and then given all at once."""

    def __init__(self, name: str, server: str, source: AsyncGenerator[Sequence[Delta]], sampled: Sampled) -> None:
        self.name = name
        self.server = server
        self._source = source
        self._sampled = sampled
        self._told = (len(sampled.tokens), len(sampled.text))
        self._kept: list[Delta] = []
        self._came = asyncio.Event()
        self._fault: Exception | None = None
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(lambda _: self._came.set())

    async def next(self) -> bytes | None:
        """What came since the last time, once something has; None at the end."""
        while not (self._kept or self._reading.done()):
            self._came.clear()
            await self._came.wait()
        kept, self._kept = self._kept, []
        if kept:
            return answer(Batch(packed(kept), self._drawn()))
        fault, self._fault = self._fault, None
        return None if fault is None else _told(fault)

    def stop(self) -> None:
        """Give the turn up; its slot is free at once."""
        self._reading.cancel()

    async def close(self) -> None:
        """Stop, and wait until the engine has let go of the turn."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async with contextlib.aclosing(self._source) as stream:
                async for deltas in stream:
                    self._kept += deltas
                    self._came.set()
        except Exception as error:  # noqa: BLE001 - the server is told of it
            self._fault = error

    def _drawn(self) -> Drawn:
        sampled = self._sampled
        tokens, text = self._told
        # An engine that begins a turn anew forgets what an earlier life of it had drawn.
        anew = len(sampled.tokens) < tokens or len(sampled.text) < text
        if anew:
            tokens = text = 0
        self._told = (len(sampled.tokens), len(sampled.text))
        return Drawn(sampled.tokens[tokens:], sampled.text[text:], sampled.generated, sampled.thinking, anew)


_SETTINGS: Final = (
    "threads",
    "context_length",
    "slots",
    "batch_size",
    "gpu_layers",
    "reasoning_budget",
    "load_timeout",
    "render_timeout",
)


def _told(error: Exception) -> bytes:
    """An error, for the server; what is no error of a request is in the log of the node too."""
    if not isinstance(error, AntiphonError):
        asyncio.get_running_loop().call_exception_handler({"message": "An engine failed.", "exception": error})
    return refusal(error)


def _end_actor() -> None:
    """End this actor for good; Ray starts it again when a server wants it."""
    ray = require_ray()
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

"""The probe of the default model: how long the first token takes, cold and chained, and what of the engine is left.

These are figures of wall time, since the engine is what takes it: worth something only on a quiet machine.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

import psutil
from tests.bench.load import Reply, connections, post
from tests.bench.probe import Bench, Probe
from tests.bench.process import Target

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser

__all__ = ["Real"]

MODEL = "smollm2"
PROMPT_WORDS = 420
"""Words of a cold prompt: about 500 tokens."""

TOKENS = 64
STREAMS = (1, 4, 8)
TASK = "Count from one to one hundred in words, one number a line, and do not stop before the end."


class Real(Probe):
    """Needs the model that `make setup` brings."""

    name = "real"

    def __init__(self) -> None:
        super().__init__()
        less: dict[str, Any] = {"more_is_better": False}
        self._cold = self.figure("first token, cold prompt of about 500 tokens", "ms", **less)
        self._chained = self.figure("first token, second turn of that chain", "ms", **less)
        self._ratio = self.figure("cold : chained", "ratio", digits=1)
        self._rates = {count: self.figure(f"tokens/s of {count} at once", "tokens/s", digits=1) for count in STREAMS}
        self._own = self.figure("the engine's own decoding, 1 stream", "tokens/s", digits=1)
        self._share = self.figure("share of it that a client gets, 1 stream", "ratio", digits=2)

    async def prepare(self, bench: Bench) -> None:
        self._target = bench.real()
        await self._stream("Hello.")

    async def round(self, bench: Bench) -> None:
        words = " ".join(secrets.token_hex(2) if index % 40 == 0 else "word" for index in range(PROMPT_WORDS))
        began = time.monotonic()
        cold = await self._stream(f"{words}. {TASK}", max_output_tokens=8)
        self._cold.samples.append((cold.text_at[0] - began) * 1000)
        began = time.monotonic()
        chained = await self._stream("Go on.", max_output_tokens=8, previous_response_id=_end(cold)["id"])
        self._chained.samples.append((chained.text_at[0] - began) * 1000)
        for count, figure in self._rates.items():
            began = time.monotonic()
            replies = await asyncio.gather(*(self._stream(TASK) for _ in range(count)))
            spent = time.monotonic() - began
            tokens = sum(_end(reply)["usage"]["output_tokens"] for reply in replies)
            if count == 1:
                # As llama.cpp counts it: without the prompt, and without the token that ends it.
                spent, tokens = replies[0].text_at[1] - replies[0].text_at[0], tokens - 1
            figure.samples.append(tokens / spent)
        self._own.samples.append(await _engine_alone(self._target))

    def conclude(self) -> None:
        cold, chained, ours, own = (figure.value for figure in (self._cold, self._chained, self._rates[1], self._own))
        if cold and chained and ours and own:
            self._ratio.samples.append(cold / chained)
            self._share.samples.append(ours / own)

    async def _stream(self, text: str, **more: Any) -> Reply:
        body = {"model": MODEL, "input": text, "stream": True, "temperature": 0, "max_output_tokens": TOKENS, **more}
        async with connections(self._target.port, 1) as opened:
            return await opened[0].request(post("/v1/responses", body), keep=True)


def _end(reply: Reply) -> dict[str, Any]:
    """The response of a stream's terminal event."""
    return loads(SSEParser().feed(reply.body)[-2].data)["response"]


async def _engine_alone(target: Target) -> float:
    """Tokens per second that llama.cpp itself counts for a completion that is asked of it directly."""
    socket = _socket(target.pid)
    body = {"prompt": TASK, "n_predict": TOKENS, "temperature": 0, "ignore_eos": True}
    async with connections(socket, 1) as opened:
        reply = await opened[0].request(post("/completion", body), keep=True)
    return loads(reply.body)["timings"]["predicted_per_second"]


def _socket(pid: int) -> str:
    for child in psutil.Process(pid).children(recursive=True):
        for connection in child.net_connections(kind="unix"):
            if str(connection.laddr).endswith(".sock"):
                return str(connection.laddr)
    raise RuntimeError("The engine's socket was not found.")

"""The probe of tools: how long the first event with a delta takes with tools declared, against none.

On the scripted engine it is the server's own part, which grows with what a request says and its response says again.
On the default model both prompts have as many tokens and stand in the engine's cache, so that nothing of the reading
is in the figures; the tools are left to the model, and are known from the request before.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from tests.bench.fitting import as_long_as
from tests.bench.load import Connection, LoadError, connections, post
from tests.bench.probe import MODEL, Bench, Probe
from tests.bench.process import Target

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser

__all__ = ["FirstEvent", "function_tools"]

COUNTS = (0, 10, 64)
REQUESTS = 60
"""Requests with each count of tools in a round of the scripted engine, in turns."""

MODEL_TOOLS = 10
MODEL_REQUESTS = 12
MODEL_TOKENS = 4
MODEL_AIM = 1.1
"""Equal, but for what two measurements of the same thing differ by."""

UNREAD = 1
"""Tokens at the end of a cached prompt that are read again."""

QUESTION = "Say hello to the whole world in one long sentence."


def function_tools(count: int) -> list[dict[str, Any]]:
    """So many functions, each with three parameters and a description."""
    return [
        {
            "type": "function",
            "name": f"look_up_{number}",
            "description": f"Looks up the records of shelf {number} and gives those that match.",
            "parameters": {
                "type": "object",
                "properties": {
                    "title": {"type": "string", "description": "What the title begins with."},
                    "limit": {"type": "integer", "description": "How many records at most."},
                    "order": {"type": "string", "enum": ["title", "date"]},
                },
                "required": ["title", "limit", "order"],
                "additionalProperties": False,
            },
            "strict": True,
        }
        for number in range(count)
    ]


class FirstEvent(Probe):
    """One client; its figures of the default model are left empty where that is not here."""

    name = "first-event"

    def __init__(self) -> None:
        super().__init__()
        self._none, *some = [
            self.figure(f"first delta, {count or 'no'} tools", "ms", more_is_better=False, digits=2) for count in COUNTS
        ]
        self._some = [
            (figure, self.figure(f"first delta, {count} tools : none", "ratio", more_is_better=False, digits=2))
            for count, figure in zip(COUNTS[1:], some, strict=True)
        ]
        less: dict[str, Any] = {"more_is_better": False, "digits": 2}
        self._plain = self.figure("first delta, model, as long a prompt without tools", "ms", **less)
        self._tools = self.figure(f"first delta, model, {MODEL_TOOLS} tools", "ms", **less)
        self._ratio = self.figure("first delta, model, tools : none", "ratio", aim=MODEL_AIM, **less)
        self._engine: Target | None = None

    async def prepare(self, bench: Bench) -> None:
        self._target = bench.memory(self)
        self._requests = [post("/v1/responses", _scripted(count)) for count in COUNTS]
        async with connections(self._target.port, 1) as opened:
            for request in self._requests:
                await _first_delta(opened[0], request)
        self._engine = bench.engine()
        if self._engine is not None:
            async with connections(self._engine.port, 1) as opened:
                self._pair = await _equal_prompts(opened[0])

    async def round(self, bench: Bench) -> None:
        figures = [self._none, *(figure for figure, _ in self._some)]
        times: list[list[float]] = [[] for _ in figures]
        async with connections(self._target.port, 1) as opened:
            for _ in range(REQUESTS // 6 if bench.quick else REQUESTS):
                for request, taken in zip(self._requests, times, strict=True):
                    taken.append((await _first_delta(opened[0], request))[0])
        for figure, taken in zip(figures, times, strict=True):
            figure.samples.append(statistics.median(taken) * 1000)
        if self._engine is not None:
            await self._model_round(self._engine, MODEL_REQUESTS // 6 if bench.quick else MODEL_REQUESTS)

    async def _model_round(self, engine: Target, requests: int) -> None:
        times: list[list[float]] = [[] for _ in self._pair]
        async with connections(engine.port, 1) as opened:
            for _ in range(requests):
                for body, taken in zip(self._pair, times, strict=True):
                    seconds, usage = await _first_delta(opened[0], post("/v1/responses", body))
                    _check_cached(usage)
                    taken.append(seconds)
        for figure, taken in zip((self._plain, self._tools), times, strict=True):
            figure.samples.append(statistics.median(taken) * 1000)

    def conclude(self) -> None:
        pairs = [(ratio, figure, self._none) for figure, ratio in self._some]
        for ratio, figure, base in [*pairs, (self._ratio, self._tools, self._plain)]:
            if figure.value and base.value:
                ratio.samples.append(figure.value / base.value)


def _scripted(count: int) -> dict[str, Any]:
    body: dict[str, Any] = {"model": MODEL, "input": "!TEXT one two three", "stream": True, "store": False}
    return {**body, "tools": function_tools(count), "tool_choice": "auto"} if count else body


async def _first_delta(connection: Connection, request: bytes) -> tuple[float, dict[str, Any]]:
    """Seconds from a request to its first event with a delta, and the usage of its response.

    Raises:
        LoadError: no event had one.
    """
    began = time.monotonic()
    reply = await connection.request(request, keep=True)
    if not reply.delta_at:
        raise LoadError("no event of the answer has a delta")
    return reply.delta_at - began, loads(SSEParser().feed(reply.body)[-2].data)["response"]["usage"]


async def _equal_prompts(connection: Connection) -> tuple[dict[str, Any], dict[str, Any]]:
    """Bodies of a request without and of one with tools, whose prompts have as many tokens and are in the cache."""
    asked: dict[str, Any] = {"model": "smollm2", "input": QUESTION, "stream": True, "temperature": 0, "store": False}
    asked["max_output_tokens"] = MODEL_TOKENS
    tools = {**asked, "tools": function_tools(MODEL_TOOLS), "tool_choice": "auto"}
    plain = await as_long_as(connection, tools, asked)
    for body in (plain, tools):
        await _first_delta(connection, post("/v1/responses", body))
    return plain, tools


def _check_cached(usage: dict[str, Any]) -> None:
    """Raises LoadError where more of the prompt was read than a cached one needs: the figure would be of that."""
    read = usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"]
    if read > UNREAD:
        raise LoadError(f"{read} tokens of the prompt were not cached")

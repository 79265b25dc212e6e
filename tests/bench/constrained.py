"""The probe of grammars: what a token costs under one, against a token of free text, on the default model.

A token's cost is the slope between an answer of one token and one of many, so that the request, the reading of its
cached prompt and the making of the grammar, which come once an answer, are in neither figure. Both prompts have as many
tokens: the model is told the schema, and a token costs more behind a longer prompt.
"""

from __future__ import annotations

import time
from typing import Any

from tests.bench.fitting import as_long_as
from tests.bench.load import Connection, connections, post
from tests.bench.probe import Bench, Probe
from tests.bench.process import Target
from tests.bench.report import Figure

from antiphon.protocol.json import loads

__all__ = ["Constrained"]

TOKENS = 129
"""Tokens of a long answer; 128 of them are counted."""

QUICK_TOKENS = 33
PAIRS = 3
"""Answers of each kind and length in a round, one after the other."""

ATTEMPTS = 8
"""A model may end its free text early: such an answer is drawn again, so that both kinds have as many tokens."""

TASK = "Tell a very long story of a fox who travels around the whole world, with every place that it sees."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": ["fable", "novel", "saga"]},
        "title": {"type": "string"},
        "pages": {"type": "number"},
        "places": {"type": "array", "items": {"type": "string"}, "minItems": 100},
    },
    "required": ["kind", "title", "pages", "places"],
    "additionalProperties": False,
}
"""Strings, a number, a choice and an array that is longer than any answer here: a valid answer never ends early."""

FREE: dict[str, Any] = {"model": "smollm2", "input": TASK, "temperature": 0.7, "store": False}
BOUND = {**FREE, "text": {"format": {"type": "json_schema", "name": "story", "schema": SCHEMA, "strict": True}}}


class _Kind:
    """Answers of one kind: what is asked, and the figures of a token's cost."""

    def __init__(self, body: dict[str, Any], cpu: Figure, wall: Figure, first: Figure) -> None:
        self.body = body
        self.cpu, self.wall, self.first = cpu, wall, first

    def add(self, short: list[tuple[float, float]], long: list[tuple[float, float]], tokens: int) -> None:
        """A sample of each figure from the CPU and the wall seconds of short and of long answers, the best of each."""
        for place, figure in enumerate((self.cpu, self.wall)):
            spent = min(pair[place] for pair in long) - min(pair[place] for pair in short)
            figure.samples.append(spent * 1000 / (tokens - 1))
        self.first.samples.append(min(wall for _, wall in short) * 1000)


class Constrained(Probe):
    """Needs the model that `make setup` brings."""

    name = "constrained"

    def __init__(self) -> None:
        super().__init__()
        self._free = self._kind("free text", FREE)
        self._bound = self._kind("under a schema", BOUND)
        less: dict[str, Any] = {"more_is_better": False, "digits": 2}
        self._ratios = [
            (self.figure(f"a token under a schema : of free text, {what}", "ratio", **less), bound, free)
            for what, bound, free in (
                ("CPU", self._bound.cpu, self._free.cpu),
                ("wall", self._bound.wall, self._free.wall),
            )
        ]

    def _kind(self, what: str, body: dict[str, Any]) -> _Kind:
        less: dict[str, Any] = {"more_is_better": False, "digits": 2}
        return _Kind(
            body,
            self.figure(f"a token, {what}", "CPU ms", **less),
            self.figure(f"a token, {what}", "ms", **less),
            self.figure(f"an answer of one token, {what}", "ms", **less),
        )

    async def prepare(self, bench: Bench) -> None:
        target = bench.engine()
        if target is None:
            raise SystemExit("The default model is not here; `make setup` fetches it.")
        self._target = target
        self._tokens = QUICK_TOKENS if bench.quick else TOKENS
        self._pairs = 1 if bench.quick else PAIRS
        async with connections(target.port, 1) as opened:
            self._free.body = await as_long_as(opened[0], BOUND, FREE)
            for kind in (self._free, self._bound):
                await _answer(opened[0], target, kind, 1)

    async def round(self, bench: Bench) -> None:
        spent: dict[tuple[_Kind, int], list[tuple[float, float]]] = {}
        async with connections(self._target.port, 1) as opened:
            for _ in range(self._pairs):
                for tokens in (1, self._tokens):
                    for kind in (self._free, self._bound):
                        pair = await _answer(opened[0], self._target, kind, tokens)
                        spent.setdefault((kind, tokens), []).append(pair)
        for kind in (self._free, self._bound):
            kind.add(spent[kind, 1], spent[kind, self._tokens], self._tokens)

    def conclude(self) -> None:
        for ratio, bound, free in self._ratios:
            if bound.value and free.value:
                ratio.samples.append(bound.value / free.value)


async def _answer(connection: Connection, target: Target, kind: _Kind, tokens: int) -> tuple[float, float]:
    """CPU and wall seconds of an answer of exactly so many tokens.

    Raises:
        RuntimeError: the model ended each answer before that.
    """
    request = post("/v1/responses", {**kind.body, "max_output_tokens": tokens})
    for _ in range(ATTEMPTS):
        before, began = target.cpu(), time.monotonic()
        reply = await connection.request(request, keep=True)
        wall, cpu = time.monotonic() - began, target.cpu() - before
        if loads(reply.body)["usage"]["output_tokens"] == tokens:
            return cpu, wall
    raise RuntimeError(f"The model gave no answer of {tokens} tokens in {ATTEMPTS} attempts.")

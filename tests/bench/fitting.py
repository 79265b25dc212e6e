"""Prompts of the same length: instructions that fill one request up to the tokens of another."""

from __future__ import annotations

import itertools
from typing import Any

from tests.bench.load import Connection, LoadError, post

from antiphon.protocol.json import loads

__all__ = ["as_long_as"]

PROSE = (
    "You are a kind friend who likes to talk and who will always answer with a long and full sentence and then".split()
)
"""Words of a token each, of which the instructions are made; one word over and over leaves a small model speechless."""

ATTEMPTS = 8
COUNTED = ("model", "input", "instructions", "text", "tools", "tool_choice")


async def as_long_as(connection: Connection, longer: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """The body `asked` with instructions that make its prompt as long as that of `longer`.

    Raises:
        LoadError: none of those tried do.
    """
    aim, words = await _count(connection, longer), 1
    for _ in range(ATTEMPTS):
        body = {**asked, "instructions": " ".join(itertools.islice(itertools.cycle(PROSE), words))}
        missing = aim - await _count(connection, body)
        if not missing:
            return body
        words = max(1, words + missing)
    raise LoadError("no instructions make the prompts equally long")


async def _count(connection: Connection, body: dict[str, Any]) -> int:
    asked = {name: body[name] for name in COUNTED if name in body}
    reply = await connection.request(post("/v1/responses/input_tokens", asked), keep=True)
    return loads(reply.body)["input_tokens"]

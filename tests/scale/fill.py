"""Fills a store through the API: plain answers, chains, streams and background responses, about 4 KB and a log each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.bench.load import Connection, connections, post

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser

__all__ = ["Filler", "request"]

CLIENTS = 8
LONGEST_CHAIN = 12
KINDS = {"plain": 8, "chained": 8, "streamed": 2, "background": 2}
WHOLE, STREAMED = (300, 1200), (40, 160)
"""Letters of an answer, least and most; with what surrounds it a response and its items are about 4 KB."""

WORDS = "the quick brown fox jumps over the lazy dog and then some more of them come by and rest in the shade".split()


class Filler:
    """Sends requests and keeps the ids of what was stored; `seed` makes the traffic the same every time."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self.ids: list[str] = []

    async def fill(self, port: int, count: int, told: Callable[[int], None]) -> None:
        """Send so many requests from a few clients; `told` is called after each with the number that are done."""
        left = iter(range(count))

        async def client(connection: Connection) -> None:
            chain: list[str] = []
            for _ in left:
                kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
                if kind != "chained":
                    self.ids.append(await self._send(connection, kind))
                elif chain and len(chain) < LONGEST_CHAIN:
                    chain.append(await self._send(connection, kind, previous_response_id=chain[-1]))
                    self.ids.append(chain[-1])
                else:
                    chain = [await self._send(connection, kind)]
                    self.ids.append(chain[-1])
                told(len(self.ids))

        async with connections(port, CLIENTS) as opened:
            await asyncio.gather(*map(client, opened))

    async def _send(self, connection: Connection, kind: str, **fields: Any) -> str:
        if kind in ("plain", "chained"):
            reply = await connection.request(request(self._text(*WHOLE), **fields), keep=True)
            return loads(reply.body)["id"]
        background = kind == "background"
        reply = await connection.request(request(self._text(*STREAMED), stream=True, background=background), keep=True)
        ended = loads(SSEParser().feed(reply.body)[-2].data)
        assert ended["type"] == "response.completed", ended
        return ended["response"]["id"]

    def _text(self, least: int, most: int) -> str:
        size = self._random.randint(least, most)
        words: list[str] = []
        while size > 0:
            words.append(self._random.choice(WORDS))
            size -= len(words[-1]) + 1
        return " ".join(words)


def request(text: str, **fields: Any) -> bytes:
    """A request whose answer is that text."""
    return post("/v1/responses", {"model": "scripted", "input": f"!TEXT {text}", **fields})

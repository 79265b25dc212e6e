"""The driver behind a proxy that breaks connections anywhere: in headers, before the first word, within a letter."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from antiphon.client.chunks import ToolCallChunk
from antiphon.client.client import AsyncClient, Client, Limits
from support.breaking import BreakingProxy, Cut, breaking_proxy
from support.driver_law import LOOK, nameless

requirement = pytest.mark.requirement
STREAMS = 100 if os.environ.get("ANTIPHON_HEAVY") == "1" else 10
CUTS = 5
PATIENT = Limits(max_retries=8)
WORDS = "höre, 小さな 😀 antiphon, sing to me of a canon in four voices and of a fifth that answers them all from afar"
SCRIPT = f"!REASON {WORDS}\n!TEXT {WORDS}\n" + '!CALL look {"at":"' + WORDS + '"}'
LOST = Cut(0)


@pytest.fixture(scope="module")
def proxy(scripted_server: str) -> Iterator[BreakingProxy]:
    with breaking_proxy(scripted_server) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def expected(scripted_server: str) -> list[list[Any]]:
    """The chunks of streams that nothing broke, at both paces."""
    found: list[list[Any]] = []
    with Client(scripted_server, provider="antiphon", model="scripted") as client:
        for seed in range(2):
            with client.stream(script(seed), tools=[LOOK]) as stream:
                chunks = list(stream)
            assert any(isinstance(chunk, ToolCallChunk) for chunk in chunks)
            found.append(nameless(chunks))
    return found


def some_cuts(seed: int) -> list[Cut]:
    """Most are behind the first events of a connection; one is anywhere before, or loses all that the server said."""
    chance = random.Random(seed)
    cuts = [Cut(chance.randrange(1400, 3400), chance.choice(("reset", "close"))) for _ in range(CUTS)]
    cuts[chance.randrange(CUTS)] = LOST if seed % 4 == 0 else Cut(chance.randrange(1, 1400))
    return cuts


def script(seed: int) -> str:
    """Half of the answers are there before the first cut, the others come while connections break."""
    return f"!SLOW {seed % 2}\n{SCRIPT}"


def alone() -> httpx2.Limits:
    """Each connection is new, so that each takes a cut of its own."""
    return httpx2.Limits(max_keepalive_connections=0)


@requirement("driver:resume:anywhere")
@pytest.mark.parametrize("seed", range(STREAMS))
def test_every_chunk_comes_once(proxy: BreakingProxy, expected: list[list[Any]], seed: int) -> None:
    before = proxy.made
    proxy.cuts.extend(some_cuts(seed))
    with (
        httpx2.Client(timeout=10, limits=alone()) as http,
        Client(proxy.base_url, provider="antiphon", model="scripted", http=http, limits=PATIENT) as client,
        client.stream(script(seed), tools=[LOOK]) as stream,
    ):
        chunks = nameless(list(stream))
        answer = stream.response()
        assert (len(proxy.cuts), proxy.made - before) == (0, CUTS + 1)
        assert chunks == expected[seed % 2]
        assert client.retrieve(answer.response_id or "") == answer


@requirement("driver:resume:anywhere")
async def test_every_chunk_comes_once_asynchronously(proxy: BreakingProxy, expected: list[list[Any]]) -> None:
    async with httpx2.AsyncClient(timeout=10, limits=alone()) as http:
        client = AsyncClient(proxy.base_url, provider="antiphon", model="scripted", http=http, limits=PATIENT)
        for seed in range(1000, 1000 + STREAMS // 5):
            proxy.cuts.extend(some_cuts(seed))
            async with client.stream(script(seed), tools=[LOOK]) as stream:
                chunks = nameless([chunk async for chunk in stream])
            assert not proxy.cuts
            assert chunks == expected[seed % 2]

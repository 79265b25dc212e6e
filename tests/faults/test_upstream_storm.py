"""Many responses over an upstream that fails in every way, and clients that leave: each has its end, at once."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import httpx2
import pytest

from antiphon.settings import ModelConfig, Settings
from support.inprocess import inprocess_app, sse_events
from support.server import running_server
from support.timing import quickest
from support.upstream import FAULTS, REFUSALS, Exchange, fake_upstream, said

COUNT = 200
IDLE = 0.5


@pytest.mark.requirement("upstream:fault", "responses-upstream:fault")
@pytest.mark.parametrize("engine", ["chat", "responses"])
async def test_none_of_200_responses_hangs_whatever_the_upstream_does(engine: str):
    chance = random.Random(7)
    ways = [*FAULTS, *([said("Hello")] * 4)]

    async def behave(exchange: Exchange) -> None:
        await chance.choice(ways)(exchange)

    async with fake_upstream() as fake:
        fake.behave = behave
        config = ModelConfig(name="scripted", engine=engine, upstream_model="m", base_url=fake.url, idle_timeout=IDLE)
        async with inprocess_app(settings=Settings(models=(config,))) as app:

            async def one() -> float:
                began = time.monotonic()
                body = {"model": "scripted", "input": "Hi", "stream": True}
                answer = await app.client.post("/responses", json=body)
                elapsed = time.monotonic() - began
                if answer.status_code != 200:
                    assert answer.status_code in REFUSALS.values()
                    return elapsed
                last = sse_events(answer.content)[-1]
                assert last["type"] in ("response.completed", "response.failed")
                stored = (await app.client.get(f"/responses/{last['response']['id']}")).json()
                assert stored["status"] == last["response"]["status"]
                return elapsed

            async with asyncio.timeout(90):
                times = await asyncio.gather(*(one() for _ in range(COUNT)))
            engine = app.service.registry.engines[0]
            assert await engine.wait_ready(5)
        # Two attempts at most, each within its limit; what is left is for a machine that does other things too.
        assert max(times) < 2 * IDLE + 60


@pytest.mark.requirement("upstream:leaving")
async def test_a_client_that_leaves_cancels_the_upstream_streamed_and_whole(tmp_path: Path):
    reached, stream = asyncio.Event(), False

    async def behave(exchange: Exchange) -> None:
        if stream:
            await exchange.head()
            await exchange.events({"choices": [{"delta": {"content": "Once"}}]})
        reached.set()
        await exchange.gone.wait()

    async with fake_upstream() as fake:
        fake.behave = behave
        config = tmp_path / "antiphon.toml"
        config.write_text(f'[[models]]\nname = "m"\nbase_url = "{fake.url}"\n', encoding="utf-8")
        started = running_server(["--config", str(config), "--store", "memory"])
        server = await asyncio.to_thread(started.__enter__)
        try:

            async def one() -> float:
                reached.clear()
                async with httpx2.AsyncClient(trust_env=False, timeout=20) as client:
                    body = {"model": "m", "input": "Hi", "stream": stream, "store": False}
                    asking = asyncio.create_task(client.post(f"{server.base_url}/responses", json=body))
                    await asyncio.wait_for(reached.wait(), 20)
                    asking.cancel()
                    left = time.monotonic()
                    await asyncio.gather(asking, return_exceptions=True)
                    await asyncio.wait_for(fake.asked[-1].gone.wait(), 20)
                    return time.monotonic() - left

            for kind in (True, False, True, False):
                stream = kind
                assert await quickest(one, 0.2) < 0.2
        finally:
            await asyncio.to_thread(started.__exit__, None, None, None)

"""Loops of hosted tools that are killed at any moment, again and again: `make heavy` runs this."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from support.loop_kills import Calls, begun, ended, killed_at, started
from support.mcp_stub import mcp_stub

requirement = pytest.mark.requirement

pytest.importorskip("mcp")


@requirement("loop:killed")
async def test_a_call_that_only_reads_runs_again_after_a_kill(tmp_path: Path):
    response, items, calls = await killed_at(tmp_path, lambda seen: seen.came["three"].wait(), "three")
    assert (response["status"], response["output_text"]) == ("completed", "done")
    assert calls.seen == {"one": 1, "two": 1, "three": 2}
    assert [item["output"] for item in items] == ["said one", "said two", "said three"]


@requirement("loop:killed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4))
async def test_wherever_the_kills_come_every_loop_is_finished_and_nothing_is_done_twice(tmp_path: Path, seed: int):
    chosen = random.Random(seed)
    async with mcp_stub() as stub, started(tmp_path) as replica:
        calls = Calls(stub, seconds=0.03)
        await asyncio.to_thread(replica.start)
        for _ in range(5):
            calls.seen.clear()
            names = [await begun(replica, stub) for _ in range(2)]
            await asyncio.sleep(chosen.random() * 0.25)
            await asyncio.to_thread(replica.kill)
            await asyncio.to_thread(replica.start)
            for name in names:
                response, items = await ended(replica, name)
                assert (response["status"], response["output_text"]) == ("completed", "done")
                assert [item["status"] for item in items] in (
                    ["completed", "completed", "completed"],
                    ["completed", "failed", "completed"],
                )
            assert calls.seen["two"] <= 2

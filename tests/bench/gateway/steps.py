"""Where the time of the floor and of our server goes, step by step: what stands between the two.

The main thread is sampled (`sampled.py`) while the same load runs against both. A sample belongs to the step of the
innermost function that one of the rules knows; the time of the other threads, which commit, is the kernel's count.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.bench.gateway.measures import CLIENTS, DELTAS, spend
from tests.bench.gateway.sides import FLOOR, OURS, Sides, asked
from tests.bench.gateway.upstream import asking

__all__ = ["profile"]

_LOOP: Final = "event loop, and what the kernel does for it"
_STEPS: Final = (
    ("floor.py", "everything that is the floor's own"),
    ("antiphon/store/", "store: rows and statements"),
    ("antiphon/runtime/journal", "journal of a stream"),
    ("antiphon/http/server", _LOOP),
    ("antiphon/cli/", _LOOP),
    ("antiphon/__main__", _LOOP),
    ("antiphon/engines/upstream/client", "upstream: client"),
    ("antiphon/engines/upstream/wires", "upstream: client"),
    ("antiphon/engines/upstream/decoder", "upstream: events to deltas"),
    ("antiphon/engines/upstream/wire", "upstream: events to deltas"),
    ("antiphon/engines/upstream/calls", "upstream: events to deltas"),
    ("antiphon/engines/upstream/usage", "upstream: events to deltas"),
    ("antiphon/machine/reasoning", "upstream: events to deltas"),
    ("antiphon/protocol/sse", "upstream: bytes to events"),
    ("antiphon/engines/", "upstream: request, checks and tries"),
    ("antiphon/prompt/", "plan: messages and prompt"),
    ("antiphon/runtime/plan", "plan: the rest"),
    ("antiphon/runtime/rules", "plan: the rest"),
    ("antiphon/runtime/inputs", "plan: the rest"),
    ("antiphon/runtime/history", "plan: the rest"),
    ("antiphon/protocol/request", "request: decoded and checked"),
    ("antiphon/protocol/", "items and events: encoded and decoded"),
    ("antiphon/machine/", "machine: deltas to events"),
    ("antiphon/runtime/", "runs: from request to end"),
    ("antiphon/http/", "HTTP: our part"),
    ("antiphon/", "the rest of ours"),
    ("/aiohttp/", "HTTP: aiohttp, to the upstream"),
    ("/yarl/", "HTTP: aiohttp, to the upstream"),
    ("/multidict/", "HTTP: aiohttp, to the upstream"),
    ("/starlette/", "HTTP: starlette"),
    ("/uvicorn/", "HTTP: uvicorn"),
)
_THREADS: Final = "other threads: commit and fsync"


async def profile(sides: Sides, *, quick: bool) -> str:
    """A table of the steps, in microseconds of CPU time, for a whole answer, a delta in bursts and one alone."""
    loads = (
        ("a whole answer, 16 clients", asking(), False, 0, "answers"),
        ("a delta in bursts, 16 streams", asking(DELTAS), True, DELTAS, "deltas"),
        ("a delta alone, 16 streams, 5 ms apart", asking(DELTAS, 5), True, DELTAS, "deltas"),
    )
    seconds = 1.0 if quick else 6.0
    told: list[str] = []
    for title, text, stream, deltas, unit in loads:
        found = {side: await _steps(sides, side, text, stream, deltas, unit, seconds) for side in (FLOOR, OURS)}
        told.append(_table(title, found[FLOOR], found[OURS]))
    return "\n\n".join(told)


async def _steps(
    sides: Sides, side: str, text: str, stream: bool, deltas: int, unit: str, seconds: float
) -> dict[str, float]:
    """Microseconds of each step."""
    file = sides.directory / f"{side}-{time.monotonic_ns()}.json"
    program = ["-m", "tests.bench.gateway.sampled", str(file), *(["antiphon"] if side == OURS else [])]
    request = asked(side, text, stream=stream)
    with sides.fresh(side, program) as target:
        await spend(side, target, request, CLIENTS, min(1.0, seconds), deltas)
        os.kill(target.pid, signal.SIGUSR1)
        before = _threads(target.pid)
        spent = await spend(side, target, request, CLIENTS, seconds, deltas)
        after = _threads(target.pid)
        os.kill(target.pid, signal.SIGUSR2)
        samples = await _read(file)
    others = sum(after[thread] - before.get(thread, 0.0) for thread in after if thread != target.pid)
    main = after[target.pid] - before[target.pid]
    counts: Counter[str] = Counter()
    for stack, count in samples:
        counts[_step(stack)] += count
    total = counts.total()
    done = getattr(spent, unit)
    steps = {step: main * count / total * 1e6 / done for step, count in counts.items()}
    return {**steps, _THREADS: others * 1e6 / done}


def _step(stack: list[tuple[str, str]]) -> str:
    for file, _ in stack:
        for part, step in _STEPS:
            if part in file:
                return step
    return _LOOP


def _threads(pid: int) -> dict[int, float]:
    """CPU seconds of each thread, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks}


async def _read(file: Path) -> list[Any]:
    while not file.exists():
        await asyncio.sleep(0.02)
    return json.loads(file.read_text())


def _table(title: str, floor: dict[str, float], ours: dict[str, float]) -> str:
    order = dict.fromkeys([*(step for _, step in _STEPS), _LOOP, _THREADS])
    lines = [f"{title}: CPU µs", f"{'':<46}{'floor':>9}{'antiphon':>10}"]
    for step in order:
        if floor.get(step) or ours.get(step):
            lines.append(f"{step:<46}{floor.get(step, 0):>9.1f}{ours.get(step, 0):>10.1f}")
    lines.append(f"{'together':<46}{sum(floor.values()):>9.1f}{sum(ours.values()):>10.1f}")
    return "\n".join(lines)

"""`python -m tests.bench.sandbox`: how long a sandbox takes to start, and a cell in one that runs, for each kind."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.bench.report import Figure, table

from antiphon.tools.code.bubblewrap import find_bubblewrap
from antiphon.tools.code.monty import find_monty
from antiphon.tools.code.sandbox import Backend, BoxLimits, NoSandboxError

LIMITS = BoxLimits(memory=512 * 1024 * 1024, disk=64 * 1024 * 1024)
CELL = "x = 6 * 7\nprint(x)\nx"
FILE = bytes(10_000_000)


async def main(starts: int, cells: int) -> list[Figure]:
    """The figures of every sandbox that there is."""
    found: list[Figure] = []
    for backend in await backends():
        found += await measured(backend, starts, cells)
    return found


async def backends() -> list[Backend]:
    """The sandboxes that are here; the others are said not to be."""
    found: list[Backend] = []
    try:
        found.append(await find_bubblewrap())
    except NoSandboxError as error:
        print(f"bubblewrap: {error}")
    try:
        found.append(find_monty())
    except NoSandboxError as error:
        print(f"monty: {error}")
    return found


async def measured(backend: Backend, starts: int, cells: int) -> list[Figure]:
    """The figures of one sandbox."""
    print(backend.finding)
    started, ran = [], []
    for _ in range(starts):
        began = time.perf_counter()
        box = await backend.start(LIMITS)
        started.append(time.perf_counter() - began)
        await box.close()
    box = await backend.start(LIMITS)
    for _ in range(cells):
        began = time.perf_counter()
        await box.run(CELL, 10)
        ran.append(time.perf_counter() - began)
    figures = [*spread(f"{backend.name}: start", started), *spread(f"{backend.name}: a cell", ran)]
    if backend.files:
        began = time.perf_counter()
        await box.put("large.bin", FILE)
        await box.read("large.bin", len(FILE))
        took = time.perf_counter() - began
        figures.append(milliseconds(f"{backend.name}: 10 MB in and out", took))
    await box.close()
    return figures


def spread(name: str, seconds: Sequence[float]) -> list[Figure]:
    """The middle and the slow end."""
    ordered = sorted(seconds)
    return [
        milliseconds(f"{name}, p{share}", ordered[min(len(ordered) - 1, len(ordered) * share // 100)])
        for share in (50, 95)
    ]


def milliseconds(title: str, seconds: float) -> Figure:
    """A figure of one sample."""
    return Figure(title, title, "ms", more_is_better=False, digits=2, samples=[seconds * 1000])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--cells", type=int, default=500)
    given = parser.parse_args()
    print(table(asyncio.run(main(given.starts, given.cells))))

"""The probe of long chains: what turn 1,000 costs against turn 10, rendering apart, and how storage grows."""

from __future__ import annotations

import re

from tests.bench.chain import chain_turns, database_size
from tests.bench.load import connections, get
from tests.bench.probe import Bench, Probe
from tests.bench.process import Target
from tests.bench.report import Figure

__all__ = ["LongChain"]

TURNS = 1_000
QUICK_TURNS = 120
CHAINS = 2
WINDOW = 40
FIRST = 10
_PREPARED = re.compile(r'^antiphon:prompt_preparation_seconds_sum\{model_name="scripted"\} (\S+)$', re.MULTILINE)


class LongChain(Probe):
    """Two chains of 1,000 turns of 1 KB by `previous_response_id` over SQLite, side by side."""

    name = "long-chain"

    def __init__(self) -> None:
        super().__init__()
        less: dict[str, bool | int] = {"more_is_better": False, "digits": 3}
        self._early = self.figure("long chain, turns 11–50, rendering apart", "CPU ms a turn", **less)
        self._late = self.figure("long chain, turns 961–1,000, rendering apart", "CPU ms a turn", **less)
        self._ratio = self.figure("long chain, late : early", "ratio", more_is_better=False, digits=2, aim=1.1)
        self._rendering = self.figure("long chain, rendering at its end", "CPU ms a turn", **less)
        self._halves: list[Figure] = [
            self.figure(f"long chain, bytes a turn, {half} half", "bytes", more_is_better=False)
            for half in ("first", "second")
        ]

    async def prepare(self, bench: Bench) -> None:
        target = bench.sqlite(self)
        async with connections(target.port, CHAINS) as opened:
            await chain_turns(opened, [None] * CHAINS, 0, FIRST)

    async def round(self, bench: Bench) -> None:
        target, database = bench.sqlite(self), bench.database(self)
        turns = QUICK_TURNS if bench.quick else TURNS
        async with connections(target.port, CHAINS) as opened:
            sizes = [database_size(database)]
            ids = await chain_turns(opened, [None] * CHAINS, 0, FIRST)
            before = await _spent(target)
            ids = await chain_turns(opened, ids, FIRST, FIRST + WINDOW)
            early = await _spent(target)
            ids = await chain_turns(opened, ids, FIRST + WINDOW, turns // 2)
            sizes.append(database_size(database))
            ids = await chain_turns(opened, ids, turns // 2, turns - WINDOW)
            middle = await _spent(target)
            await chain_turns(opened, ids, turns - WINDOW, turns)
            late = await _spent(target)
            sizes.append(database_size(database))
        each = 1000 / (WINDOW * CHAINS)
        self._early.samples.append(((early[0] - before[0]) - (early[1] - before[1])) * each)
        self._late.samples.append(((late[0] - middle[0]) - (late[1] - middle[1])) * each)
        self._rendering.samples.append((late[1] - middle[1]) * each)
        for figure, (first, last) in zip(self._halves, zip(sizes, sizes[1:], strict=False), strict=True):
            figure.samples.append((last - first) / (turns // 2 * CHAINS))

    def conclude(self) -> None:
        if self._early.value and self._late.value:
            self._ratio.samples.append(self._late.value / self._early.value)


async def _spent(target: Target) -> tuple[float, float]:
    """CPU seconds so far, and those of them that prompts took to prepare."""
    async with connections(target.port, 1) as opened:
        reply = await opened[0].request(get("/metrics"), keep=True)
    found = _PREPARED.search(bytes(reply.body).decode())
    return target.cpu(), float(found.group(1)) if found else 0.0

"""`python -m tests.bench.gateway`: measure the server in front of an upstream, beside its peer and the floor.

Options: `--quick` takes seconds, and its figures are rough; `--only NAME` takes one measurement (repeatable);
`--rounds N` takes more samples; `--json FILE` writes the figures down; `--profile` says instead what the floor and our
server spend their time on, step by step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.gateway.lives import Chain, Installs, Leaving, Life
from tests.bench.gateway.measures import Bursts, First, Measure, Paced, Whole
from tests.bench.gateway.rows import Row, as_json, table
from tests.bench.gateway.sides import PEER, Sides
from tests.bench.gateway.steps import profile

MEASURES: tuple[type[Measure], ...] = (Whole, Bursts, Paced, First, Chain, Life, Leaving, Installs)
ROUNDS = 3


def main() -> int:
    """Measure what was asked for; the exit code says only whether measuring worked."""
    arguments = _arguments()
    wanted = [kind for kind in MEASURES if not arguments.only or kind.name in arguments.only]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as directory:
        sides = Sides(Path(directory))
        try:
            if arguments.profile:
                print(asyncio.run(profile(sides, quick=arguments.quick)))
                return 0
            sides.start()
            rounds = 1 if arguments.quick else arguments.rounds
            rows = asyncio.run(_measure([kind(sides, quick=arguments.quick) for kind in wanted], rounds))
            cores = str(sides.cores)
        finally:
            sides.close()
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    took = time.monotonic() - began
    print(f"\nBest of {rounds}, {took:.0f} s in all; {cores} with the upstream; load of the machine {load}.\n")
    print(table(rows))
    print("\n" + _summary(rows))
    if PEER not in sides.started:
        print("codex-relay is not installed: `make bench-gateway` does that.")
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(rows, cores), indent=2) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.gateway", description="The server in front of an upstream.")
    names = [kind.name for kind in MEASURES]
    parser.add_argument("--quick", action="store_true", help="one short round: rough figures in seconds")
    parser.add_argument("--only", action="append", default=[], choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"samples of each figure (default {ROUNDS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--profile", action="store_true", help="where the time goes, step by step")
    return parser.parse_args()


async def _measure(measures: list[Measure], rounds: int) -> list[Row]:
    for measure in measures:
        await measure.warm()
    for number in range(rounds):
        for measure in measures:
            print(f"round {number + 1} of {rounds}: {measure.name}", file=sys.stderr)
            await measure.round()
    for measure in measures:
        measure.conclude()
    return [row for measure in measures for row in measure.rows]


def _summary(rows: list[Row]) -> str:
    aimed = [row for row in rows if row.met is not None]
    missed = [row.title for row in aimed if not row.met]
    if not missed:
        return f"All {len(aimed)} aims are met."
    return f"{len(aimed) - len(missed)} of {len(aimed)} aims are met; missed: {'; '.join(missed)}."


if __name__ == "__main__":
    import uvloop

    uvloop.install()
    sys.exit(main())

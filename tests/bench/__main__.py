"""`python -m tests.bench`: run the probes in turns and print what was measured.

Options: `--quick` takes seconds, and its figures are rough; `--only NAME` runs one probe (repeatable); `--json FILE`
writes the figures down; `--rounds N` takes more samples; `--real` adds the default model, `--replicas` two servers
over PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from tests.bench.background import Background
from tests.bench.chain import Chain
from tests.bench.constrained import Constrained
from tests.bench.decode import Decode
from tests.bench.first_event import FirstEvent
from tests.bench.long_chain import LongChain
from tests.bench.probe import Bench, Probe
from tests.bench.real import Real
from tests.bench.replicas import Replicas
from tests.bench.report import Figure, as_json, table
from tests.bench.traffic import Bursts, Paced, Posts, Replay

PROBES: tuple[type[Probe], ...] = (Posts, Bursts, Paced, Replay, Decode, Chain, Background, LongChain, FirstEvent)
ON_MODEL: tuple[type[Probe], ...] = (Real, Constrained)
ROUNDS = 3


def main() -> int:
    """Measure what was asked for; the exit code says only whether measuring worked."""
    arguments = _arguments()
    wanted = [kind for kind in (*PROBES, *ON_MODEL, Replicas) if kind.name in arguments.only]
    if not arguments.only:
        wanted = [*PROBES, *(ON_MODEL if arguments.real else ()), *([Replicas] if arguments.replicas else [])]
    rounds = 1 if arguments.quick else arguments.rounds
    bench = Bench(quick=arguments.quick)
    began = time.monotonic()
    try:
        figures = asyncio.run(_measure(bench, [kind() for kind in wanted], rounds))
        cores = str(bench.cores)
    finally:
        bench.close()
    print(f"\nPer CPU-second of the server ({cores}), best of {rounds}, {time.monotonic() - began:.0f} s in all.\n")
    print(table(figures))
    print("\n" + _summary(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(figures, cores), indent=2) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench", description="What one CPU-second of the server buys.")
    names = [kind.name for kind in (*PROBES, *ON_MODEL, Replicas)]
    parser.add_argument("--quick", action="store_true", help="one short round: rough figures in seconds")
    parser.add_argument("--only", action="append", default=[], choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"samples of each figure (default {ROUNDS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--replicas", action="store_true", help="also measure two servers over PostgreSQL")
    parser.add_argument("--real", action="store_true", help="also measure the default model")
    return parser.parse_args()


async def _measure(bench: Bench, probes: list[Probe], rounds: int) -> list[Figure]:
    for probe in probes:
        await probe.prepare(bench)
    for number in range(rounds):
        for probe in probes:
            print(f"round {number + 1} of {rounds}: {probe.name}", file=sys.stderr)
            await probe.round(bench)
    for probe in probes:
        probe.conclude()
    return [figure for probe in probes for figure in probe.figures]


def _summary(figures: list[Figure]) -> str:
    aimed = [figure for figure in figures if figure.met is not None]
    missed = [figure.title for figure in aimed if not figure.met]
    if not aimed:
        return "There are no aims for these figures."
    if not missed:
        return f"All {len(aimed)} aims are met."
    return f"{len(aimed) - len(missed)} of {len(aimed)} aims are met; missed: {', '.join(missed)}."


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        pass
    else:
        uvloop.install()
    sys.exit(main())

"""`python -m tests.kills`: the whole sweep. `--store sqlite|postgres`, `--kills N`, `--seed N`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

from tests.kills.run import Outcome, kill_servers
from tests.support.postgres import cluster


def main() -> int:
    """Kill, check and print; the exit code is 1 where a request was answered as it must not be."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write what was seen to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.store == "sqlite":
            outcome = asyncio.run(_run(str(Path(folder) / "state.db"), 1, given.kills, given.seed))
        else:
            shared = cluster()
            database = shared.url(shared.create_database(empty=True))
            outcome = asyncio.run(_run(database, 2, given.kills, given.seed))
    print(f"{given.store}: {outcome}")
    if given.json is not None:
        given.json.write_text(json.dumps(dataclasses.asdict(outcome)))
    for line in outcome.refused:
        print("refused:", line)
    return 1 if outcome.refused else 0


async def _run(store: str, replicas: int, kills: int, seed: int) -> Outcome:
    arguments = ["--model", "scripted", "--store", store, "--lease-seconds", "2"]
    return await kill_servers(arguments, replicas=replicas, kills=kills, seed=seed, told=_tell)


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())

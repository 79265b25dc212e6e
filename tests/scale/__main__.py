"""`python -m tests.scale`: fill a store and measure; the exit code is 1 where a bound is broken.

Options: `--responses N` (100,000), `--store memory` instead of a file, `--json FILE` writes the figures down,
`--slack F` takes bounds of time so many times.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.report import as_json, table
from tests.scale.run import Scale


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.scale", description=__doc__)
    parser.add_argument("--responses", type=int, default=100_000)
    parser.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    parser.add_argument(
        "--slack", type=float, default=1.0, help="factor on bounds of time, where others use the machine"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="antiphon-scale-") as folder:
        store = "memory" if given.store == "memory" else str(Path(folder) / "state.db")
        scale = Scale(store, given.responses, _tell, given.slack)
        scale.run()
    print(f"\n{given.responses:,} responses, {given.store}, {time.monotonic() - began:.0f} s in all.\n")
    print(table(scale.figures))
    broken = [figure.title for figure in scale.figures if figure.met is False]
    print(f"\nBroken: {', '.join(broken)}." if broken else "\nAll bounds are kept.")
    if given.json is not None:
        given.json.write_text(json.dumps(as_json(scale.figures, platform.machine()), indent=2) + "\n")
    return 1 if broken else 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

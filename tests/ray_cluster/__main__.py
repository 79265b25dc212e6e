"""`python -m ray_cluster`: make a cluster, check it, kill its nodes; the exit code is 1 where something is broken."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import ray

from ray_cluster.run import run


def main() -> int:
    """Check and print."""
    began = time.monotonic()
    with os.fdopen(os.dup(1), "w") as out:
        if "--loud" not in sys.argv:
            # What Ray says of each node that is killed, in this process and in those that it starts.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        print(f"ray {ray.__version__}", file=out, flush=True)
        with tempfile.TemporaryDirectory(prefix="antiphon-ray-") as folder:
            broken = run(Path(folder), out)
        ended = f"\nBroken: {', '.join(broken)}." if broken else "\nEverything holds."
        print(ended, f"{time.monotonic() - began:.0f} s.", file=out)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

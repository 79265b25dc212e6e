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
    print(f"ray {ray.__version__}", flush=True)
    if "--loud" not in sys.argv:
        # What Ray says of each node that is killed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with tempfile.TemporaryDirectory(prefix="antiphon-ray-") as folder:
        broken = run(Path(folder))
    print(f"\nBroken: {', '.join(broken)}." if broken else "\nEverything holds.", f"{time.monotonic() - began:.0f} s.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

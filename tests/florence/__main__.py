"""`python -m florence`: make a tiny model, serve it, and check every task; the exit code is 1 where one is broken."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

from florence.run import run


def main() -> int:
    """Check and print."""
    began = time.monotonic()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}", flush=True)
    with tempfile.TemporaryDirectory(prefix="antiphon-florence-") as folder:
        broken = run(Path(folder))
    print(f"\nBroken: {', '.join(broken)}." if broken else "\nEverything holds.", f"{time.monotonic() - began:.0f} s.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

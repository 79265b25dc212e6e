"""`python -m tests.instructor_flows`: `instructor` on the scripted and on the default model, one line for each flow.

The exit code is 1 where one fails. It is in a virtual environment of its own, which `make instructor` makes, and runs
`flows.py` there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.server import running_server

from antiphon.engines.catalog import locate
from antiphon.settings import load_settings

FLOWS = Path(__file__).with_name("flows.py")
PYTHON = Path(__file__).parents[2] / ".venv" / "instructor" / "bin" / "python"
SECONDS = 600


def main() -> int:
    """Run every flow on both models."""
    path = locate(load_settings().data_path)
    if not PYTHON.exists() or path is None:
        print("instructor or the default model is missing: run `make instructor`.")
        return 1
    arguments = ["--model", "scripted", "--model", str(path), "--alias", f"smollm={path}", "--store", "memory"]
    failed = 0
    with running_server(arguments) as server:
        for model in ("scripted", "smollm"):
            command = [str(PYTHON), str(FLOWS), server.base_url, model]
            failed += subprocess.run(command, check=False, timeout=SECONDS).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The official SDK for JavaScript, on Node.js, against a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.fronted import UPSTREAM, scripted_model

NODE = Path(__file__).parent / "node"
REQUIRED = "ANTIPHON_REQUIRE_NODE"


@pytest.fixture
def node() -> str:
    """The path of Node.js, where the packages of the flows are installed too."""
    found = shutil.which("node")
    if found is not None and (NODE / "node_modules" / "openai").is_dir():
        return found
    reason = "Node.js or its packages are missing: install Node.js, and run `make node-packages`"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{reason} ({REQUIRED} is set)")
    pytest.skip(reason)


@pytest.mark.requirement("clients:openai-node")
def test_every_flow_of_the_node_sdk_works(node: str, tmp_path: Path):
    with scripted_model(["--store", str(tmp_path / "state.db")]) as server:
        environment = {**os.environ, "BASE": server.base_url, "ESTIMATES": "" if UPSTREAM is None else "1"}
        command = [node, "openai_flows.mjs"]
        done = subprocess.run(
            command, cwd=NODE, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    flows = [line for line in done.stdout.splitlines() if line.startswith("ok ")]
    assert len(flows) == (NODE / "openai_flows.mjs").read_text().count("\n  async ")

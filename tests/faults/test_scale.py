"""Bounds that hold however much is stored, over a store of some hundred responses; `make scale` fills 100,000."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLACK = "5"
"""Tests run on machines that do other things too."""


def scale(tmp_path: Path, *arguments: str) -> dict[str, float]:
    """The best figures of a run, whose bounds must be kept, by their titles."""
    written = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.scale", "--slack", SLACK, "--json", str(written), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All bounds are kept." in done.stdout
    return {figure["title"]: figure["best"] for figure in json.loads(written.read_text())["figures"]}


@pytest.mark.requirement("scale:sqlite")
@pytest.mark.timeout(300)
def test_a_file_keeps_its_bounds(tmp_path: Path):
    figures = scale(tmp_path, "--responses", "800")
    assert 3_500 < figures["bytes of a response and its items"] < 4_500
    assert figures["responses swept beside these"] > 0


@pytest.mark.requirement("scale:memory")
@pytest.mark.timeout(300)
def test_the_memory_store_keeps_its_bounds(tmp_path: Path):
    figures = scale(tmp_path, "--responses", "3000", "--store", "memory")
    assert figures["growth in the second half"] < 10

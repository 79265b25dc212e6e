"""The benchmark runs; its figures are for people, so nothing here is timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.requirement("project:bench")
def test_the_benchmark_runs_and_writes_its_figures_down(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.bench", "--quick", "--only", "decode", "--only", "replay"]
    finished = subprocess.run(
        [*command, "--json", str(written)], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "decode and check 200 items" in finished.stdout
    assert "aims are met" in finished.stdout
    figures = json.loads(written.read_text())["figures"]
    assert {figure["key"].partition(".")[0] for figure in figures} == {"decode", "replay"}
    assert all(figure["best"] > 0 for figure in figures)


@pytest.mark.requirement("project:bench")
def test_the_benchmark_refuses_a_probe_that_it_does_not_have() -> None:
    command = [sys.executable, "-m", "tests.bench", "--only", "nothing"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 2
    assert "decode" in finished.stderr


@pytest.mark.requirement("project:bench-gateway")
def test_the_benchmark_of_the_gateway_measures_us_beside_the_floor(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.bench.gateway", "--quick", "--only", "first", "--only", "installs"]
    finished = subprocess.run(
        [*command, "--json", str(written)], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert finished.returncode == 0, finished.stderr
    rows = {row["title"]: row for row in json.loads(written.read_text())["rows"]}
    first = rows["first text, one stream"]["samples"]
    assert {"antiphon", "floor", "upstream"} <= set(first)
    assert all(sample > 0 for samples in first.values() for sample in samples)
    assert rows["packages of antiphon[server]"]["met"], rows["packages of antiphon[server]"]
    assert rows["size of antiphon[server]"]["met"], rows["size of antiphon[server]"]
    assert rows["packages of antiphon"]["met"], rows["packages of antiphon"]
    assert rows["size of antiphon"]["met"], rows["size of antiphon"]

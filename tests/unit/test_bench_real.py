"""The benchmarks that ask the default model: they run, and measure what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.engines.catalog import locate
from antiphon.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.mark.requirement("project:bench")
def test_the_benchmark_measures_grammars_and_tools(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    has_model = locate(Settings().data_path) is not None
    probes = ["--only", "first-event", *(["--only", "constrained"] if has_model else [])]
    command = [sys.executable, "-m", "tests.bench", "--quick", *probes, "--json", str(written)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert finished.returncode == 0, finished.stderr
    figures = {figure["title"]: figure["best"] for figure in json.loads(written.read_text())["figures"]}
    assert figures["first delta, 64 tools : none"] > 0
    measured = {title for title, best in figures.items() if best is not None}
    assert measured == {title for title in figures if has_model or "model" not in title}
    if has_model:
        assert figures["a token under a schema : of free text, CPU"] > 0

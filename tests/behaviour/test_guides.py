"""The guides: their Python runs as it is written but for the address, and every flag that they name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.settings import FIELDS

GUIDES = sorted((Path(__file__).parents[2] / "docs" / "guide").glob("*.md"))
ADDRESS = "http://127.0.0.1:8080/v1"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


@pytest.mark.requirement("project:guides")
@pytest.mark.parametrize("guide", GUIDES, ids=[guide.stem for guide in GUIDES])
def test_the_python_of_a_guide_runs(guide: Path, scripted_server: str):
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    for code in BLOCK.findall(guide.read_text(encoding="utf-8")):
        assert ADDRESS in code
        command = [sys.executable, "-c", code.replace(ADDRESS, scripted_server)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.mark.requirement("project:guides")
@pytest.mark.parametrize("guide", GUIDES, ids=[guide.stem for guide in GUIDES])
def test_every_flag_of_a_guide_exists(guide: Path):
    named = set(FLAG.findall(guide.read_text(encoding="utf-8")))
    assert named <= {field.flag for field in FIELDS} | {"--config", "--help"}

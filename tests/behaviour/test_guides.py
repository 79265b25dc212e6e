"""The guides: their Python and their commands run as they are written, and every flag that they name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from antiphon.cli.main import cli
from antiphon.settings import FIELDS
from support.commands import subcommands

GUIDES = sorted((Path(__file__).parents[2] / "docs" / "guide").glob("*.md"))
ADDRESS = "http://127.0.0.1:8080/v1"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    assert named <= {field.flag for field in FIELDS} | {"--config", "--help"} | flags(cli)


def flags(command: click.Command) -> set[str]:
    """The flags of a command and of those below it."""
    found = {flag for param in command.params for flag in param.opts}
    if isinstance(command, click.Group):
        found.update(*(flags(below) for below in subcommands(command).values()))
    return found


@pytest.mark.requirement("project:guides")
@pytest.mark.parametrize("guide", GUIDES, ids=[guide.stem for guide in GUIDES])
def test_the_commands_of_a_guide_run(guide: Path, tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")}
    environment["ANTIPHON_DATA_DIR"] = str(tmp_path / "data")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    for code in COMMANDS.findall(guide.read_text(encoding="utf-8")):
        command = ["bash", "-euo", "pipefail", "-c", code]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr

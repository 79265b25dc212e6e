"""The `antiphon` command as a whole."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from antiphon.cli.main import cli
from support.commands import subcommands


def commands() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {"": cli}
    for name, command in subcommands(cli).items():
        found[name] = command
        if isinstance(command, click.Group):
            found.update((f"{name} {below}", further) for below, further in subcommands(command).items())
    return found


@pytest.mark.requirement("cli:help")
@pytest.mark.parametrize("name", commands())
def test_the_help_of_every_command_teaches_by_examples(name: str) -> None:
    result = CliRunner().invoke(cli, [*name.split(), "--help"])
    assert result.exit_code == 0
    assert result.output.startswith("Usage: ")
    assert "\n    antiphon " in result.output
    assert "\b" not in result.output
    assert all(len(line) <= 100 for line in result.output.splitlines())


@pytest.mark.requirement("cli:help")
@pytest.mark.parametrize("name", commands())
def test_every_option_says_what_it_is(name: str) -> None:
    for param in commands()[name].params:
        assert isinstance(param, click.Argument) or param.help, param.name


@pytest.mark.requirement("cli:help")
def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys\n"
        "from antiphon.cli.main import cli\n"
        "cli(['serve', '--help'], standalone_mode=False)\n"
        "heavy = {'xllamacpp', 'uvicorn', 'starlette', 'aiohttp', 'httpx2', 'sqlite3', 'asyncio', 'structlog'}\n"
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or None)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.requirement("cli:help")
def test_the_version_is_told() -> None:
    result = CliRunner().invoke(cli, ["--version"], prog_name="antiphon")
    assert result.output.split()[0] == "antiphon"


@pytest.mark.requirement("cli:errors")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "--host", "0.0.0.0"], "--api-key"),
        (["serve", "--config", "/nowhere/antiphon.toml"], "/nowhere/antiphon.toml cannot be read"),
        (["serve", "--dialect", "klingon"], "dialect"),
        (["serve", "--port", "http"], "'http' is not a valid integer"),
        (["models", "pull", "large"], "There is no model 'large' to pull; there is: smollm2, all-minilm-l6-v2."),
        (["chat", "--base-url", "ftp://there", "hello"], "is not an http or https URL"),
    ],
)
def test_what_cannot_be_used_is_a_clean_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert words in result.stderr.splitlines()[-1]

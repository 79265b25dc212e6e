"""`antiphon prompts`: what the commands keep, say and refuse."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli.main import cli
from antiphon.prompt.templates import MAX_TEMPLATE
from antiphon.store.base import Scope, StoreLimits
from antiphon.store.sqlite import SQLiteStore

KEY = "ab" * 32


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["prompts", *arguments], input=text, catch_exceptions=False)


def made(text: str, *arguments: str) -> str:
    """The id of the prompt that a text was kept for."""
    result = run("create", "-", *arguments, text=text)
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"pmpt_[0-9a-f]{44}\n", result.stdout)
    return result.stdout.strip()


def listed(*arguments: str) -> list[dict[str, object]]:
    return json.loads(run("list", "--json", *arguments).stdout)


@pytest.mark.requirement("cli:prompts")
def test_versions_count_up_and_each_is_shown(data_path: Path) -> None:
    first = made("In {{city}} with {{ who }}.\n", "--name", "trip")
    assert made("Now in {{city}}.", "--id", first) == first
    assert [(one["id"], one["version"], one["name"], one["variables"]) for one in listed()] == [
        (first, "1", "trip", ["city", "who"]),
        (first, "2", "trip", ["city"]),
    ]
    assert run("show", first).stdout == "Now in {{city}}.\n"
    assert run("show", first, "--version", "1").stdout == "In {{city}} with {{ who }}.\n"
    table = run("list").stdout.splitlines()
    assert table[0].split() == ["ID", "VERSION", "NAME", "CREATED", "VARIABLES"]
    assert table[1].split()[:3] == [first, "1", "trip"]


@pytest.mark.requirement("cli:prompts")
def test_a_file_is_read_and_its_variables_are_told(data_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("Hei {{navn}}, å.\n", encoding="utf-8")
    result = run("create", str(file))
    assert "with the variables navn" in result.stderr
    assert run("show", result.stdout.strip()).stdout == "Hei {{navn}}, å.\n"


@pytest.mark.requirement("cli:prompts")
def test_a_tenants_prompts_are_its_own(data_path: Path) -> None:
    theirs = made("a", "--tenant", "acme")
    assert listed() == []
    assert run("show", theirs).exit_code == 1
    assert run("show", theirs, "--tenant", "acme").stdout == "a\n"
    assert run("create", "-", "--id", theirs, text="b").exit_code == 1
    assert run("delete", theirs, "--yes").exit_code == 1
    assert run("delete", theirs, "--yes", "--tenant", "acme").exit_code == 0
    assert listed("--tenant", "acme") == []


@pytest.mark.requirement("cli:prompts")
def test_deleting_asks_first(data_path: Path) -> None:
    name = made("a")
    assert run("delete", name, text="n\n").exit_code == 1
    assert len(listed()) == 1
    assert run("delete", name, text="y\n").exit_code == 0
    assert "antiphon prompts create" in run("list").stderr


@pytest.mark.requirement("cli:prompts:refused")
@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        (["create", "-"], " \n", "empty"),
        (["create", "-"], "x" * (MAX_TEMPLATE + 1), "longer than"),
        (["create", "-", "--id", "pmpt_1"], "x", "no prompt 'pmpt_1'"),
        (["create", "-", "--name", "a\nb"], "x", "printable"),
        (["create", "-", "--tenant", "a:b"], "x", "letters, digits"),
        (["create", "nowhere.md"], None, "nowhere.md"),
        (["show", "pmpt_1"], None, "no prompt"),
        (["show", "pmpt_1", "--version", "3"], None, "no version 3"),
        (["delete", "pmpt_1", "--yes"], None, "no prompt"),
        (["list", "--store", "memory"], None, "the server's alone"),
    ],
)
def test_what_cannot_be_done_is_told(data_path: Path, arguments: list[str], text: str | None, said: str) -> None:
    result = run(*arguments, text=text)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.requirement("cli:prompts:refused")
def test_a_file_that_is_not_utf8_is_told(data_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in run("create", str(file)).stderr


@pytest.mark.requirement("cli:prompts:encrypted")
def test_in_an_encrypted_store_prompts_are_sealed(data_path: Path, tmp_path: Path) -> None:
    store = ["--store", str(tmp_path / "sealed.db")]
    name = made("A secret recipe.", *store, "--encryption-key", KEY)
    assert run("show", name, *store, "--encryption-key", KEY).stdout == "A secret recipe.\n"
    refused = run("show", name, *store)
    assert refused.exit_code == 2
    assert "encrypted" in refused.stderr
    assert all(b"secret recipe" not in file.read_bytes() for file in tmp_path.glob("sealed.db*"))


@pytest.mark.requirement("cli:prompts")
async def test_a_server_that_has_the_store_sees_what_is_kept(data_path: Path, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db", StoreLimits())
    await store.open()
    try:
        name = await asyncio.to_thread(made, "In {{city}}.", "--store", str(store.path))
        found = await store.find_prompt(Scope("default"), name)
        assert found is not None
        assert found.version == 1
    finally:
        await store.close()

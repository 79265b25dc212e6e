"""`antiphon db`, as a person uses it; what the functions behind it do is tested beside them."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli.main import cli
from antiphon.store.base import StoreLimits
from antiphon.store.files import FileLimits, StoredFile
from antiphon.store.queries import MIGRATIONS
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite_file import connect, migrate
from support.stores import OURS, add

NEWEST = MIGRATIONS[-1].version


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["db", *arguments], catch_exceptions=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with three responses, of which one was deleted."""
    path = tmp_path / "a.db"

    async def fill() -> None:
        store = SQLiteStore(path, StoreLimits())
        await store.open()
        for name in "abc":
            await add(store, name)
        await store.delete_response(OURS, "c")
        await store.begin_file(OURS, StoredFile("file-a", 1, None, 2_500_000, "user_data", b"a"), FileLimits(9, 10**9))
        await store.close()

    asyncio.run(fill())
    return path


@pytest.mark.requirement("cli:db:status", "store:db:files")
def test_the_status_is_told_to_people_and_to_programs(path: Path) -> None:
    result = run("status", "--store", str(path))
    assert result.exit_code == 0
    lines = {name: rest.strip() for name, _, rest in (line.partition("  ") for line in result.stdout.splitlines())}
    assert lines == {
        "location": str(path),
        "schema": str(NEWEST),
        "size": lines["size"],
        "responses": "2, of which 0 run",
        "items": "4",
        "conversations": "0",
        "files": "1, of 2.5 MB",
        "vector stores": "0, of 0 chunks",
        "servers": "none",
    }
    told = json.loads(run("status", "--json", "--store", str(path)).stdout)
    assert (told["schema"], told["newest_schema"], told["responses"], told["servers"]) == (NEWEST, NEWEST, 2, [])
    assert (told["files"], told["file_bytes"]) == (1, 2_500_000)


@pytest.mark.requirement("cli:db:migrate", "cli:db:status")
def test_an_older_store_is_told_and_migrated(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(connect(path)) as connection:
        migrate(connection, MIGRATIONS[:1])
    result = run("status", "--store", str(path))
    assert result.exit_code == 1
    assert f"this version's is {NEWEST}: antiphon db migrate" in result.stdout
    assert f"from schema 1 to {NEWEST}" in run("migrate", "--store", str(path)).stderr
    assert f"has schema {NEWEST} already" in run("migrate", "--store", str(path)).stderr
    assert run("status", "--store", str(path)).exit_code == 0


@pytest.mark.requirement("cli:db:backup")
def test_a_copy_is_a_store_and_writes_over_nothing(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    result = run("backup", str(target), "--store", str(path))
    assert result.exit_code == 0
    assert f"MB to {target}" in result.stderr
    assert json.loads(run("status", "--json", "--store", str(target)).stdout)["responses"] == 2
    result = run("backup", str(target), "--store", str(path))
    assert result.exit_code == 2
    assert "is there already" in result.stderr


@pytest.mark.requirement("cli:db:vacuum")
def test_space_is_given_back(path: Path) -> None:
    result = run("vacuum", "--store", str(path))
    assert result.exit_code == 0
    assert "MB now." in result.stderr


@pytest.mark.requirement("cli:db:lock")
def test_what_needs_the_file_alone_says_who_has_it(path: Path, tmp_path: Path) -> None:
    store = SQLiteStore(path, StoreLimits())

    async def serving() -> None:
        await store.open()
        try:
            for arguments, code in (
                (["migrate"], 2),
                (["vacuum"], 2),
                (["status"], 0),
                (["backup", str(tmp_path / "copy.db")], 0),
            ):
                result = await asyncio.to_thread(run, *arguments, "--store", str(path))
                assert result.exit_code == code, result.output
                assert code == 0 or "in use by another server" in result.stderr
        finally:
            await store.close()

    asyncio.run(serving())


@pytest.mark.requirement("cli:db:store")
@pytest.mark.parametrize("arguments", [["status"], ["migrate"], ["vacuum"], ["backup", "copy.db"]])
@pytest.mark.parametrize("store", ["memory", "none"])
def test_a_store_that_is_not_there_is_a_clear_error(
    arguments: list[str], store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, "--store", "memory" if store == "memory" else str(tmp_path / "none.db"))
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert not list(tmp_path.glob("*.db"))

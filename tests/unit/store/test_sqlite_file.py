"""The file of the SQLite store: its lock, its name, its rights and its schema."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError
from antiphon.store.base import StoreLimits
from antiphon.store.queries import MIGRATIONS, Migration
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite_file import migrate
from support.stores import OURS, add, begun


@pytest.mark.requirement("store:sqlite:lock")
async def test_a_second_server_on_the_same_file_is_refused_with_advice(store: SQLiteStore, path: Path) -> None:
    second = SQLiteStore(path, StoreLimits())
    with pytest.raises(ConfigurationError) as refusal:
        await second.open()
    assert str(path) in str(refusal.value)
    assert f"process {os.getpid()}" in str(refusal.value)
    assert "--store PATH" in str(refusal.value)
    await add(store, "a")
    await store.close()
    await second.open()
    assert await second.get_response(OURS, "a") is not None
    await second.close()


@pytest.mark.requirement("store:sqlite:links")
@pytest.mark.parametrize("link", ["file", "folder"])
async def test_a_second_server_through_a_link_is_refused_and_ends_nothing(
    store: SQLiteStore, path: Path, link: str
) -> None:
    await store.create_response(OURS, begun("a"))
    alias = path.with_name("alias.db") if link == "file" else path.parent.with_name("alias") / path.name
    (alias if link == "file" else alias.parent).symlink_to(path if link == "file" else path.parent)
    second = SQLiteStore(alias, StoreLimits())
    with pytest.raises(ConfigurationError, match=f"in use by another server .process {os.getpid()}."):
        await second.open()
    await store.close()
    await second.open()
    assert [one.id for one in await second.orphans([])] == ["a"]
    await second.close()
    assert not alias.with_name("alias.db.lock").exists()


@pytest.mark.requirement("store:sqlite:links")
async def test_a_link_to_a_file_that_is_not_there_yet_makes_the_file(tmp_path: Path) -> None:
    (tmp_path / "alias.db").symlink_to(tmp_path / "real.db")
    store = SQLiteStore(tmp_path / "alias.db", StoreLimits())
    await store.open()
    await add(store, "a")
    await store.close()
    assert (tmp_path / "real.db").is_file()
    assert (tmp_path / "alias.db").is_symlink()


@pytest.mark.requirement("store:sqlite:links")
async def test_a_file_with_a_second_name_is_refused_until_it_has_one(store: SQLiteStore, path: Path) -> None:
    await add(store, "a")
    elsewhere = path.parents[1] / "b.db"
    elsewhere.hardlink_to(path)
    for name in (elsewhere, path):
        with pytest.raises(ConfigurationError, match=r"several names .*find FOLDER -samefile .* --store PATH"):
            await SQLiteStore(name, StoreLimits()).open()
        await store.close()
    elsewhere.unlink()
    await store.open()
    assert await store.get_response(OURS, "a") is not None


@pytest.mark.requirement("store:sqlite:links")
@pytest.mark.parametrize("kind", ["symbolic link", "dangling link", "hard link", "other file", "folder", "pipe"])
async def test_what_is_no_lock_file_is_left_alone(path: Path, kind: str) -> None:
    path.parent.mkdir(parents=True)
    lock, letter = path.with_name("a.db.lock"), path.with_name("letter")
    letter.write_text("1234" if kind == "hard link" else "a letter, not a lock")
    if kind.endswith("link"):
        target = letter if kind != "dangling link" else path.with_name("nothing")
        lock.hardlink_to(target) if kind == "hard link" else lock.symlink_to(target)
    elif kind == "other file":
        letter.rename(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    before = letter.read_text() if letter.exists() else lock.read_text()
    with pytest.raises(ConfigurationError, match=r"a\.db cannot be (locked|opened): .* --store PATH"):
        await SQLiteStore(path, StoreLimits()).open()
    assert (letter if letter.exists() else lock).read_text() == before
    assert not path.with_name("nothing").exists()
    lock.rmdir() if kind == "folder" else lock.unlink()
    store = SQLiteStore(path, StoreLimits())
    await store.open()
    await store.close()
    assert lock.read_text() == f"{os.getpid()}\n"


@pytest.mark.requirement("store:sqlite:lock")
async def test_opening_a_second_time_does_not_drop_the_locks_of_the_first(store: SQLiteStore, path: Path) -> None:
    """A POSIX lock of a file goes when its process closes any descriptor of that file."""
    held = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0); c.execute('PRAGMA locking_mode=EXCLUSIVE')"
    )
    held += "; c.execute('PRAGMA journal_mode=DELETE'); print('taken')"
    await add(store, "a")
    with pytest.raises(ConfigurationError):
        await SQLiteStore(path, StoreLimits()).open()
    other = subprocess.run([sys.executable, "-c", held, str(path)], capture_output=True, text=True, check=False)
    assert "taken" not in other.stdout
    assert "locked" in other.stderr


WITHOUT_LOCKS = """
import asyncio, sys
sys.modules["fcntl"] = None
from antiphon.cli import doctor
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.store.open import open_store

asyncio.run(open_store(Settings(store="memory")).open())
try:
    asyncio.run(open_store(Settings(store=sys.argv[1])).open())
except ConfigurationError as error:
    print(error)
"""


@pytest.mark.requirement("store:sqlite:no-locks")
def test_where_there_are_no_file_locks_only_a_store_in_a_file_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKS, str(tmp_path / "a.db")], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert "no file locks" in done.stdout
    assert "--store memory" in done.stdout


@pytest.mark.requirement("store:sqlite:private")
async def test_file_and_folder_are_for_their_owner_alone(store: SQLiteStore, path: Path) -> None:
    await add(store, "a")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600, "a.db.lock": 0o600}


@pytest.mark.requirement("store:sqlite:open-errors")
@pytest.mark.parametrize("place", ["file/a.db", "folder"])
async def test_a_path_that_cannot_be_a_file_is_refused_at_start(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot be opened: .* Check the path"):
        await SQLiteStore(tmp_path / place, StoreLimits()).open()


@pytest.mark.requirement("store:sqlite:migration")
def test_migrations_run_in_order_and_once(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    first = Migration(1, "first", ("CREATE TABLE t (a)", "INSERT INTO t VALUES (1)"))
    second = Migration(2, "second", ("ALTER TABLE t ADD COLUMN b DEFAULT 7",))
    assert migrate(connection, [first]) == 1
    assert migrate(connection, [first, second]) == 2
    assert migrate(connection, [first, second]) == 2
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, 7)]
    assert connection.execute("SELECT * FROM schema_version").fetchall() == [(1, "first"), (2, "second")]
    connection.close()


@pytest.mark.requirement("store:sqlite:migration")
def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, [Migration(1, "broken", ("CREATE TABLE t (a)", "CREATE TABLE t (a)"))])
    assert connection.execute("SELECT name FROM sqlite_master WHERE name = 't'").fetchall() == []
    assert migrate(connection, [Migration(1, "mended", ("CREATE TABLE t (a)",))]) == 1
    connection.close()


@pytest.mark.requirement("store:sqlite:migration")
async def test_a_file_of_a_newer_version_is_refused(store: SQLiteStore, path: Path) -> None:
    newer = MIGRATIONS[-1].version + 1
    assert store._opened is not None
    store._opened.connection.execute("INSERT INTO schema_version VALUES (?, 'future')", (newer,))
    await store.close()
    with pytest.raises(ConfigurationError, match="newer Antiphon"):
        await store.open()

"""Care for a store beside a server: how it stands, a copy of it, its schema and its space."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.store import maintenance
from antiphon.store.base import StoreLimits
from antiphon.store.files import FileLimits, StoredFile
from antiphon.store.queries import MIGRATIONS
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite_file import connect
from support.corpora import ROOM, fill, new_store
from support.stores import OURS, add, batch, begun, ids, talk

SCHEMA_1 = (Path(__file__).parent / "schema_1.sql").read_text()


@pytest.fixture
def named(path: Path) -> Settings:
    """Settings that name the store."""
    return Settings(store=str(path))


async def opened(path: Path) -> SQLiteStore:
    store = SQLiteStore(path, StoreLimits())
    await store.open()
    return store


def file_of_schema_1(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(connect(path)) as connection:
        connection.executescript(SCHEMA_1)


@pytest.mark.requirement("store:db:status", "store:db:files", "corpus-store:reports")
async def test_the_status_of_a_store_while_a_server_has_it_and_after(
    store: SQLiteStore, path: Path, named: Settings
) -> None:
    await add(store, "a")
    await add(store, "b", "a")
    await store.delete_response(OURS, "a")
    await store.create_response(OURS, begun("running", conversation_id="t"))
    await store.create_conversation(OURS, talk("t"))
    for name in ("file-a", "file-b"):
        await store.begin_file(OURS, StoredFile(name, 1, None, 30, "user_data", b"name"), FileLimits(9, 99))
    await store.create_vector_store(OURS, new_store(), ROOM)
    await fill(store, "file-c", "one", "two")
    report = await maintenance.status(named)
    assert (report.location, report.schema, report.newest_schema) == (
        str(path),
        MIGRATIONS[-1].version,
        MIGRATIONS[-1].version,
    )
    assert (report.responses, report.running, report.items, report.conversations) == (2, 1, 5, 1)
    assert (report.files, report.file_bytes) == (3, 61)
    assert (report.vector_stores, report.chunks) == (1, 2)
    assert report.size == sum(path.with_name(name).stat().st_size for name in ("a.db", "a.db-wal"))
    assert list(report.servers) == [f"process {os.getpid()}"]
    await store.close()
    report = await maintenance.status(named)
    assert (report.responses, list(report.servers)) == (2, [])


@pytest.mark.requirement("store:db:status", "store:db:files", "store:db:migrate")
async def test_an_older_store_is_told_of_and_migrated(path: Path, named: Settings) -> None:
    file_of_schema_1(path)
    report = await maintenance.status(named)
    newest = MIGRATIONS[-1].version
    assert (report.schema, report.newest_schema) == (1, newest)
    assert (report.responses, report.running, report.items, report.conversations) == (6, 2, 12, 0)
    assert (report.files, report.file_bytes, report.vector_stores, report.chunks) == (0, 0, 0, 0)
    assert await maintenance.migrate(named) == (1, newest)
    assert await maintenance.migrate(named) == (newest, newest)
    assert (await maintenance.status(named)).schema == newest
    store = await opened(path)
    with pytest.raises(ConfigurationError, match=f"in use by another server .process {os.getpid()}."):
        await maintenance.migrate(named)
    await store.close()


@pytest.mark.requirement("store:db:backup")
async def test_a_copy_is_made_while_the_server_writes_and_is_whole(
    store: SQLiteStore, tmp_path: Path, named: Settings
) -> None:
    await store.create_response(OURS, begun("running", plan=b"plan"))
    await store.append_events(OURS, "running", batch(0, b"e0"))
    names = ["r0"]
    await add(store, "r0")
    stop = asyncio.Event()

    async def write() -> None:
        while not stop.is_set():
            await add(store, f"r{len(names)}", names[-1])
            names.append(f"r{len(names)}")

    writing = asyncio.create_task(write())
    target = tmp_path / "copies" / "copy.db"
    target.parent.mkdir()
    before = len(names)
    size = await maintenance.backup(named, target)
    after = len(names)
    stop.set()
    await writing
    assert after > before
    assert [file.name for file in target.parent.iterdir()] == ["copy.db"]
    assert size == target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o600

    copy = await opened(target)
    status = await copy.status()
    last = f"r{status.responses - 2}"
    assert before <= status.responses - 1 <= after + 1
    assert await ids(copy, last) == names[: status.responses - 1]
    claimed = await copy.claim(OURS, "running", 1, "me")
    assert claimed is not None
    assert claimed.plan == b"plan"
    await copy.close()
    await add(store, "more")


@pytest.mark.requirement("store:db:backup")
async def test_a_copy_takes_the_place_of_nothing(store: SQLiteStore, tmp_path: Path, named: Settings) -> None:
    await add(store, "a")
    target = tmp_path / "copy.db"
    target.write_text("a letter")
    with pytest.raises(ConfigurationError, match="is there already"):
        await maintenance.backup(named, target)
    assert target.read_text() == "a letter"
    target.unlink()
    target.symlink_to(tmp_path / "nothing")
    with pytest.raises(ConfigurationError, match="is there already"):
        await maintenance.backup(named, target)
    target.unlink()
    partial = tmp_path / "copy.db.partial"
    partial.write_text("half")
    with pytest.raises(ConfigurationError, match="another copy is being written"):
        await maintenance.backup(named, target)
    assert partial.read_text() == "half"
    with pytest.raises(ConfigurationError, match=r"cannot be copied to .*No such file or directory.*free space"):
        await maintenance.backup(named, tmp_path / "no folder" / "copy.db")


@pytest.mark.requirement("store:db:backup")
async def test_no_copy_is_kept_of_a_store_that_is_damaged(path: Path, tmp_path: Path, named: Settings) -> None:
    store = await opened(path)
    await asyncio.gather(*(add(store, f"r{number}") for number in range(200)))
    await store.close()
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'items'").fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xa5" * 4096)
    with pytest.raises(ConfigurationError, match=r"damaged|malformed"):
        await maintenance.backup(named, tmp_path / "copy.db")
    assert list(tmp_path.glob("copy*")) == []


@pytest.mark.requirement("store:db:vacuum")
async def test_space_is_given_back_when_no_server_has_the_store(path: Path, named: Settings) -> None:
    store = await opened(path)
    await asyncio.gather(*(add(store, f"r{number}") for number in range(2400)))
    await add(store, "kept", "r0")
    await store.delete_response(OURS, "r0")
    for number in range(1, 2400):
        await store.delete_response(OURS, f"r{number}")
    with pytest.raises(ConfigurationError, match="in use by another server"):
        await maintenance.vacuum(named)
    before = await store.status()
    await store.close()
    report = await maintenance.vacuum(named)
    assert report.after < report.before / 3
    assert report.after == path.stat().st_size
    store = await opened(path)
    assert await store.status() == before
    assert await ids(store, "kept") == ["r0", "kept"]
    await store.close()


@pytest.mark.requirement("store:db:status", "store:db:backup", "store:db:vacuum", "store:db:migrate")
@pytest.mark.parametrize("kind", ["memory", "missing", "letter", "other"])
async def test_what_is_no_store_on_a_disk_is_refused_in_words(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.db"
    words = "no store at|file is not a database|no store of this program|lies on a disk"
    if kind == "letter":
        path.write_bytes(b"this is a letter, not a database\n" * 100)
    elif kind == "other":
        with closing(connect(path)) as connection:
            connection.execute("CREATE TABLE t (a)")
    settings = Settings(store="memory" if kind == "memory" else str(path))
    before = path.read_bytes() if path.exists() else None
    for call in (maintenance.status, maintenance.vacuum, maintenance.migrate):
        with pytest.raises(ConfigurationError, match=words):
            await call(settings)
    with pytest.raises(ConfigurationError, match=words):
        await maintenance.backup(settings, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
    assert (path.read_bytes() if path.exists() else None) == before

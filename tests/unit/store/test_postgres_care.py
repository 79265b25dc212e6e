"""Care for a PostgreSQL store beside its servers: how it stands, a copy of it, its schema and its space."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.store import maintenance, postgres_care
from antiphon.store.base import StoreLimits
from antiphon.store.files import FileLimits, StoredFile
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres_schema import NEWEST
from antiphon.store.postgres_sql import MIGRATIONS
from support.corpora import ROOM, fill, new_store
from support.postgres import PASSWORD, Cluster, Server, binaries
from support.stores import OURS, add, batch, begun, ids, talk


@pytest.fixture
def named(postgres: Cluster, database: str) -> Settings:
    """Settings that name the store, over TCP and with a password."""
    return Settings(store=postgres.url(database, password=PASSWORD, tcp=True))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, postgres: Cluster) -> Path:
    """The folder of pg_dump and pg_restore, which is in PATH."""
    folder = binaries()
    assert folder is not None
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.requirement("store:db:status", "store:db:files", "store:postgresql:care")
async def test_the_status_of_a_store_and_which_servers_have_it(server: Server, named: Settings, database: str) -> None:
    store = await server()
    await store.join("srv_1")
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
    assert (report.schema, report.newest_schema) == (NEWEST, NEWEST)
    assert report.location.endswith(f"/{database}")
    assert PASSWORD not in report.location
    assert (report.responses, report.running, report.items, report.conversations) == (2, 1, 5, 1)
    assert (report.files, report.file_bytes) == (3, 61)
    assert (report.vector_stores, report.chunks) == (1, 2)
    assert report.size > 1_000_000
    assert list(report.servers) == ["srv_1"]
    await store.close()
    assert list((await maintenance.status(named)).servers) == []


@pytest.mark.requirement("store:db:files")
async def test_a_store_from_before_there_were_files_has_none(postgres: Cluster) -> None:
    first, database = MIGRATIONS[0], postgres.create_database(empty=True)
    postgres.execute("CREATE TABLE antiphon_schema (version integer PRIMARY KEY, name text NOT NULL)", database)
    postgres.execute("".join(first.statements), database)
    postgres.execute(f"INSERT INTO antiphon_schema VALUES (1, '{first.name}')", database)
    report = await maintenance.status(Settings(store=postgres.url(database)))
    assert (report.schema, report.files, report.file_bytes) == (1, 0, 0)
    postgres.drop_database(database)


@pytest.mark.requirement("store:db:backup", "store:postgresql:care")
async def test_a_copy_made_beside_a_server_can_be_restored_and_served(
    server: Server, named: Settings, postgres: Cluster, programs: Path, tmp_path: Path
) -> None:
    store = await server()
    await store.create_response(OURS, begun("a", events=[batch(0, b"e\0\xff")]))
    await add(store, "b")
    await add(store, "c", "b")
    target = tmp_path / "copy.dump"
    size = await maintenance.backup(named, target)
    assert size == target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert not target.with_name("copy.dump.partial").exists()

    restored = postgres.create_database(empty=True)
    url = postgres.url(restored)
    subprocess.run([str(programs / "pg_restore"), f"--dbname={url}", str(target)], check=True, capture_output=True)
    copy = PostgresStore(url, StoreLimits())
    await copy.open()
    assert await copy.status() == (await store.status()).__class__(
        f"postgresql://{postgres.folder}:{postgres.port}/{restored}", True, *_counts(await store.status())
    )
    assert [one.body for one in await copy.events(OURS, "a")] == [b"e\0\xff"]
    assert await ids(copy, "c") == ["b", "c"]
    await add(copy, "d", "c")
    await copy.close()
    postgres.drop_database(restored)


def _counts(status: object) -> tuple[int, ...]:
    names = ("responses", "items", "bytes", "conversations")
    return tuple(getattr(status, name) for name in names)


@pytest.mark.requirement("store:db:backup", "store:postgresql:care")
async def test_a_copy_is_not_written_over_anything_and_faults_leave_nothing(
    named: Settings, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy.dump"
    for taken in (target, tmp_path / "copy.dump.partial"):
        taken.write_bytes(b"mine")
        with pytest.raises(ConfigurationError, match="is there already and is left alone"):
            await maintenance.backup(named, target)
        assert taken.read_bytes() == b"mine"
        taken.unlink()
    with pytest.raises(ConfigurationError, match="cannot be written: No such file or directory"):
        await maintenance.backup(named, tmp_path / "no folder" / "copy.dump")

    failing = tmp_path / "failing" / "pg_dump"
    failing.parent.mkdir()
    failing.write_text("#!/bin/sh\necho first >&2; echo 'pg_dump: error: no more paper' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", str(failing.parent))
    with pytest.raises(ConfigurationError, match="could not copy the store: pg_dump: error: no more paper"):
        await maintenance.backup(named, target)
    failing.unlink()
    with pytest.raises(ConfigurationError, match="apt install postgresql-client"):
        await maintenance.backup(named, target)
    assert sorted(tmp_path.rglob("*")) == [failing.parent]


@pytest.mark.requirement("store:db:backup", "store:postgresql:care")
@pytest.mark.parametrize(
    ("url", "address", "password"),
    [
        ("postgresql://me:p%40s@h:1/d", "postgresql://me@h:1/d", "p@s"),
        ("postgres://h/d", "postgresql://h/d", None),
        ("postgresql://me@/d?host=/tmp&password=p%20w&port=1", "postgresql://me@/d?host=%2Ftmp&port=1", "p w"),
    ],
)
def test_a_password_is_no_argument_of_another_program(url: str, address: str, password: str | None) -> None:
    assert postgres_care._without_password(url) == (address, password)


@pytest.mark.requirement("store:db:migrate", "store:db:vacuum", "store:postgresql:care")
async def test_a_schema_is_made_by_hand_and_space_is_given_back_beside_a_server(postgres: Cluster) -> None:
    database = postgres.create_database(empty=True)
    named = Settings(store=postgres.url(database))
    for call in (maintenance.status, maintenance.vacuum):
        with pytest.raises(ConfigurationError, match=r"There is no store in .* yet"):
            await call(named)
    assert await maintenance.migrate(named) == (0, NEWEST)
    assert await maintenance.migrate(named) == (NEWEST, NEWEST)

    store = PostgresStore(named.store, StoreLimits())
    await store.open()
    for number in range(20):
        events = [batch(0, os.urandom(100_000))]
        await store.create_response(OURS, begun(f"r{number}", events=events))
    postgres.execute("DELETE FROM event_batches", database)
    report = await maintenance.vacuum(named)
    assert report.after < report.before - 1_000_000
    await add(store, "a")
    await store.close()
    postgres.drop_database(database)


@pytest.mark.requirement("store:db:status", "store:postgresql:care")
async def test_a_database_that_cannot_be_reached_is_told_in_words(postgres: Cluster) -> None:
    named = Settings(store=f"postgresql://me:{PASSWORD.replace('@', '%40')}@127.0.0.1:1/x")
    for call in (maintenance.status, maintenance.vacuum, maintenance.migrate):
        with pytest.raises(ConfigurationError) as error:
            await call(named)
        assert PASSWORD not in str(error.value)

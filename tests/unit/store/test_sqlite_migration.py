"""A file of the version before: all of it is there after the first start, and what ran can be gone on with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError
from antiphon.store.base import StoreLimits
from antiphon.store.queries import MIGRATIONS
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite_file import connect, migrate
from support.stores import OURS, THEIRS, Clock, add, batch, begun, ended, frames, ids, look_up, talk

SCHEMA_1 = (Path(__file__).parent / "schema_1.sql").read_text()


@pytest.fixture
def old(path: Path) -> Path:
    """A file as schema 1 left it."""
    path.parent.mkdir(parents=True)
    with closing(connect(path)) as connection:
        connection.executescript(SCHEMA_1)
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def opened(path: Path, clock: Clock, **limits: float) -> SQLiteStore:
    store = SQLiteStore(path, StoreLimits(**limits), clock)
    await store.open()
    return store


@pytest.mark.requirement("store:sqlite:upgrade")
async def test_all_of_an_older_file_is_there(old: Path, clock: Clock) -> None:
    store = await opened(old, clock)
    status = await store.status()
    assert (status.responses, status.items, status.bytes) == (6, 12, 267)
    assert await store.get_response(OURS, "a") is None
    assert await ids(store, "c") == ["a", "b", "c"]
    assert await store.input_item_ids(OURS, "c") == ["in_a", "out_a", "in_b", "out_b", "in_c"]
    row = await look_up(store, "streamed")
    assert (row.status, row.snapshot, row.created_at) == ("completed", b'{"ended":"streamed"}', 1000)
    assert (row.conversation_id, row.owner, row.fence) == (None, "", 1)
    assert row.temporary is False
    assert row.events_expired is False
    assert [(one.first_sequence, one.body, list(one.offsets)) for one in await store.events(OURS, "streamed")] == [
        (0, b"s0s1", [0, 2]),
        (2, b"s2", [0]),
    ]
    assert await store.get_response(THEIRS, "a") is not None
    assert await store.get_response(THEIRS, "b") is None
    await store.close()
    again = await opened(old, clock)
    assert await again.status() == status
    await again.close()


@pytest.mark.requirement("store:sqlite:upgrade")
async def test_what_an_older_version_ran_can_be_claimed_gone_on_with_and_ended(old: Path, clock: Clock) -> None:
    store = await opened(old, clock)
    await store.join("new")
    assert [(one.id, one.owner, one.fence) for one in await store.orphans(["new"])] == [
        ("running", "", 1),
        ("queued", "", 1),
    ]
    claimed = await store.claim(OURS, "running", 1, "new")
    assert claimed is not None
    assert (claimed.plan, claimed.response.fence, claimed.response.snapshot) == (b"", 2, b'{"begun":"running"}')
    assert not await store.append_events(OURS, "running", batch(3, b"e3"))
    assert await store.append_events(OURS, "running", batch(3, b"e3"), fence=2)
    assert await store.finish_response(OURS, ended("running", events=[batch(4, b"e4")], fence=2))
    assert await frames(store, "running") == b"e0e1e2e3e4"
    assert await ids(store, "running") == ["a", "b", "c", "running"]
    assert [one.id for one in await store.orphans(["new"])] == ["queued"]
    await store.close()


@pytest.mark.requirement("store:sqlite:upgrade")
async def test_older_rows_expire_are_deleted_and_chained_to_as_new_ones(old: Path, clock: Clock) -> None:
    store = await opened(old, clock, event_ttl_seconds=60)
    assert await store.sweep(clock()) == 0
    row = await look_up(store, "streamed")
    assert row.events_expired
    assert await frames(store, "streamed") == b""
    assert not (await look_up(store, "b")).events_expired
    assert await frames(store, "running") == b"e0e1e2"

    await store.create_conversation(OURS, talk("t"))
    last = ended("d", to_conversation=True)
    await store.create_finished_response(OURS, begun("d", "c", conversation_id="t"), last)
    assert await store.conversation_item_ids(OURS, "t") == ["in_d", "out_d"]
    await add(store, "e", "d")
    for name in ("b", "c", "streamed"):
        assert await store.delete_response(OURS, name)
    assert await ids(store, "e") == ["a", "b", "c", "d", "e"]
    clock.now = 3592000.0
    assert await store.sweep(clock()) == 1
    assert await store.get_response(THEIRS, "a") is None
    await store.close()


@pytest.mark.requirement("store:sqlite:upgrade", "store:sqlite:migration")
async def test_a_migration_without_room_leaves_the_older_file_as_it_was(old: Path, clock: Clock) -> None:
    with closing(connect(old)) as connection:
        connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
        before = list(connection.iterdump())
        with pytest.raises(sqlite3.OperationalError, match="full"):
            migrate(connection)
        assert list(connection.iterdump()) == before
    store = await opened(old, clock)
    assert (await store.status()).responses == 6
    await store.close()


@pytest.mark.requirement("store:sqlite:upgrade")
async def test_an_older_version_refuses_a_file_that_was_migrated(old: Path, clock: Clock) -> None:
    await (await opened(old, clock)).close()
    with closing(connect(old)) as connection, pytest.raises(ConfigurationError, match=r"newer Antiphon .schema 7"):
        migrate(connection, MIGRATIONS[:1])


@pytest.mark.requirement("store:sqlite:upgrade")
def test_a_new_file_and_a_migrated_one_have_the_same_tables(old: Path, tmp_path: Path) -> None:
    def schema(path: Path) -> list[tuple[str, str]]:
        with closing(connect(path)) as connection:
            assert migrate(connection) == MIGRATIONS[-1].version
            return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()

    assert schema(old) == schema(tmp_path / "new.db")

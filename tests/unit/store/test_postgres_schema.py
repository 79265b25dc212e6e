"""The schema of the PostgreSQL store: migrations, the statements over it, and databases that are not fit for it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asyncpg import exceptions as pg

from antiphon import store as package
from antiphon.errors import ConfigurationError
from antiphon.store import postgres_schema
from antiphon.store.base import SERVER, StoreLimits
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres_care import TABLES
from antiphon.store.postgres_database import Connection, connect
from antiphon.store.postgres_errors import startup_error
from antiphon.store.postgres_sql import MIGRATIONS, QUERIES, number_parameters
from support.postgres import OWNER, PASSWORD, Cluster
from support.stores import OURS, add, look_up

FOLDER = Path(package.__file__).parent
MAY_READ_ALL = {
    "totals",
    "keys",
    "codec_keys",
    "conversation_totals",
    "owners",
    "report",
    "report_files",
    "count_files",
    "count_all_vector_stores",
    "report_corpora",
}


IN_ORDER = {
    # An index of just the rows that are asked for, or one in whose order the first few are taken.
    "create_response": ("responses_running",),
    "count_responses": ("responses_running", "responses_by_use"),
    "find_least_used": ("responses_by_use",),
    "find_least_used_conversations": ("conversations_by_use",),
    "find_erasable": ("responses_removed", "responses_removed_by_id"),
    "find_unmarked": ("responses_gone",),
    # The first of all endpoints is the first of the index.
    "due_endpoints": ("webhook_deliveries_by_endpoint",),
    "orphans": ("responses_running", "owners_pkey"),
    "find_ingestion": ("store_files_waiting",),
    "removed_file": ("store_files_removed",),
    "lose_files_of_gone": ("vector_stores_gone",),
    "gone_store": ("vector_stores_gone",),
}


async def refusal(url: str) -> str:
    """The words with which a store is not opened."""
    store = PostgresStore(url, StoreLimits())
    with pytest.raises(ConfigurationError) as error:
        await store.open()
    assert PASSWORD not in str(error.value)
    return str(error.value)


# Statements


@pytest.mark.requirement("store:postgresql:queries")
def test_parameters_have_names_and_casts_are_left_alone() -> None:
    query = number_parameters("SELECT :a::text, :b -- not :c\nWHERE x = :a AND y::bytea = :b_2")
    assert query.text == "SELECT $1::text, $2 \nWHERE x = $1 AND y::bytea = $3"
    assert query.names == ("a", "b", "b_2")
    assert query.values({"b": 2, "a": 1, "b_2": 3}) == [1, 2, 3]
    with pytest.raises(ValueError, match="b_2"):
        query.values({"a": 1, "b": 2})
    with pytest.raises(KeyError):
        query.values({"a": 1, "b": 2, "c": 3})


@pytest.mark.requirement("store:postgresql:queries")
def test_every_statement_has_a_line_that_says_what_it_does_and_is_used() -> None:
    text = "".join(file.read_text() for file in (FOLDER / "sql" / "postgres").glob("*.sql"))
    assert text.count("-- name:") == len(QUERIES)
    code = "".join(file.read_text() for file in FOLDER.glob("postgres*.py"))
    assert [name for name in QUERIES if f'"{name}"' not in code] == []


MANY = """
INSERT INTO responses (tenant, id, status, created_at, used_at, snapshot, parent)
  SELECT 'many', 'r' || g, 'completed', 1, g, 's', nullif(g % 7, 0) FROM generate_series(1, 3000) AS g;
INSERT INTO items (tenant, id, body) SELECT 'many', 'i' || g, 'b' FROM generate_series(1, 6000) AS g;
INSERT INTO response_items SELECT g % 3000 + 1, g % 2, g, g FROM generate_series(1, 6000) AS g;
INSERT INTO event_batches SELECT g % 3000 + 1, g, g, 1, 'o', 'b' FROM generate_series(1, 6000) AS g;
INSERT INTO conversations (tenant, id, created_at, added_at, used_at, metadata)
  SELECT 'many', 'c' || g, 1, 1, g, 'm' FROM generate_series(1, 3000) AS g;
INSERT INTO conversation_items SELECT g % 3000 + 1, g, g FROM generate_series(1, 6000) AS g;
INSERT INTO idempotency SELECT 'many', 'k' || g, 'd', 'r' || g, 1 FROM generate_series(1, 3000) AS g;
INSERT INTO files (tenant, id, created_at, bytes, purpose, filename, whole)
  SELECT 'many', 'f' || g, 1, 1, 'p', 'x', true FROM generate_series(1, 3000) AS g;
INSERT INTO vector_stores (tenant, id, name, created_at, last_active_at, detail, expires_at, gone)
  SELECT 'many', 'v' || g, 'n', 1, 1, 'x', CASE WHEN g % 5 = 0 THEN g END, g % 50 = 0
  FROM generate_series(1, 2000) AS g;
INSERT INTO batches (store, id, created_at) SELECT g, 'b' || g, 1 FROM generate_series(1, 2000) AS g;
INSERT INTO store_files (store, upload, file_id, created_at, status, attributes, detail)
  SELECT g % 2000 + 1, g, 'f' || g, g, (ARRAY['completed', 'completed', 'pending', 'removed'])[g % 4 + 1], 'a', 'd'
  FROM generate_series(1, 3000) AS g;
INSERT INTO corpus_chunks SELECT g % 3000 + 1, g, 'h', 't', 'd' FROM generate_series(1, 6000) AS g;
INSERT INTO corpus_vectors SELECT g % 3000 + 1, g, 'v' FROM generate_series(1, 6000) AS g;
INSERT INTO corpus_words SELECT g % 3000 + 1, g, 2, array_to_tsvector(ARRAY['word' || g, 'run', '#' || g % 20])
  FROM generate_series(1, 6000) AS g;
INSERT INTO corpus_terms SELECT g % 20, 'word' || g, 3 FROM generate_series(1, 6000) AS g;
"""


@pytest.mark.requirement("store:postgresql:queries")
@pytest.mark.parametrize("filled", ["", MANY, MANY + "ANALYZE;"], ids=["empty", "filled", "analyzed"])
async def test_every_statement_is_valid_and_finds_its_rows_by_an_index(
    postgres: Cluster, database: str, filled: str
) -> None:
    postgres.execute(filled or "SELECT 1", database)
    connection = await connect(postgres.url(database))
    try:
        for number, (name, query) in enumerate(QUERIES.items()):
            await connection.execute(f"PREPARE statement_{number} AS {query.text}")
            values = f"({', '.join(['NULL'] * len(query.names))})" if query.names else ""
            (row,) = await connection.fetch(f"EXPLAIN (FORMAT JSON) EXECUTE statement_{number}{values}")
            if name not in MAY_READ_ALL:
                plan = json.loads(row[0])[0]["Plan"]
                wrong = [step for step in whole_scans(plan) if step not in IN_ORDER.get(name, ())]
                assert wrong == [], (name, row[0])
                # It reads a whole table too, and here the planner only means that of the owners.
                assert name == "orphans" or "hashed SubPlan" not in row[0], name
    finally:
        await connection.close()


def whole_scans(plan: dict[str, Any]) -> Iterator[str]:
    """The tables and indexes that a plan reads from one end to the other."""
    if plan["Node Type"] == "Seq Scan" and not plan["Relation Name"].startswith("pg_"):
        yield plan["Relation Name"]
    elif "Index Name" in plan and "Index Cond" not in plan and not plan["Index Name"].startswith("pg_"):
        yield plan["Index Name"]
    for below in plan.get("Plans", ()):
        yield from whole_scans(below)


# Migrations


@pytest.mark.requirement("store:postgresql:migration")
def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


@pytest.mark.requirement("store:postgresql:migration")
async def test_servers_that_start_at_once_make_the_schema_once(postgres: Cluster) -> None:
    database = postgres.create_database(empty=True)
    stores = [PostgresStore(postgres.url(database), StoreLimits()) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    await add(stores[0], "a")
    assert (await look_up(stores[5], "a")).status == "completed"
    for store in stores:
        await store.close()
    found = postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1", database)
    assert sorted(found.splitlines()) == sorted([*TABLES, "antiphon_schema"])
    versions = postgres.execute("SELECT version FROM antiphon_schema", database)
    assert versions.splitlines() == [str(migration.version) for migration in MIGRATIONS]
    postgres.drop_database(database)


@pytest.mark.requirement("store:postgresql:migration")
async def test_a_migration_that_fails_leaves_nothing(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    database = postgres.create_database(empty=True)
    postgres.execute("CREATE TABLE items (a integer)", database)
    message = await refusal(postgres.url(database))
    assert 'relation "items" already exists' in message
    assert "database of its own" in message
    assert postgres.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database) == "1"
    postgres.drop_database(database)


@pytest.mark.requirement("store:postgresql:migration")
async def test_a_store_of_a_newer_version_is_left_alone(postgres: Cluster, database: str) -> None:
    newer = postgres_schema.NEWEST + 1
    postgres.execute(f"INSERT INTO antiphon_schema VALUES ({newer}, 'later')", database)
    message = await refusal(postgres.url(database))
    assert f"newer Antiphon (schema {newer}, this one knows {newer - 1})" in message
    assert "Install that version" in message


# What is not fit for it


@pytest.mark.requirement("store:postgresql:open")
async def test_a_user_who_may_not_make_tables_is_told_and_can_use_those_that_are_there(
    postgres: Cluster, database: str
) -> None:
    empty = postgres.create_database(empty=True)
    postgres.execute("CREATE ROLE clerk LOGIN")
    for name in (empty, database):
        postgres.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC", name)
    message = await refusal(postgres.url(empty, user="clerk"))
    assert "permission denied for schema public" in message
    assert "GRANT CREATE ON SCHEMA public" in message
    assert "antiphon db migrate" in message

    message = await refusal(postgres.url(database, user="clerk"))
    assert "permission denied for table" in message
    assert "SELECT, INSERT, UPDATE and DELETE" in message
    postgres.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk", database)
    store = PostgresStore(postgres.url(database, user="clerk"), StoreLimits())
    await store.open()
    await store.join("me")
    await add(store, "a")
    assert await store.delete_response(OURS, "a")
    assert set(await store.beat("me")) == {"me"}
    await store.close()
    postgres.drop_database(empty)
    postgres.execute("DROP OWNED BY clerk; DROP ROLE clerk", database)


@pytest.mark.requirement("store:postgresql:open")
async def test_why_a_database_cannot_be_opened_is_said_with_what_to_do(postgres: Cluster, database: str) -> None:
    wrong = postgres.url(database, password="wrong-" + PASSWORD, tcp=True)
    message = await refusal(wrong)
    assert f'password authentication failed for user "{OWNER}"' in message
    assert f"postgresql://127.0.0.1:{postgres.port}/{database}" in message
    assert "PGPASSWORD" in message
    message = await refusal(postgres.url("nowhere", password=PASSWORD, tcp=True))
    assert 'database "nowhere" does not exist' in message
    assert "createdb" in message
    for address in ("postgresql://me:secret@host:port/x", "postgresql://me:secret@127.0.0.1:1/x?sslmode=maybe"):
        message = await refusal(address)
        assert "secret" not in message
        assert "cannot be read. Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in message


@pytest.mark.requirement("store:postgresql:open")
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "db.example"), "its host is not known"),
        (TimeoutError(), "the database does not answer"),
        (ConnectionRefusedError("10.0.0.1"), "the database cannot be reached"),
        (pg.TooManyConnectionsError("sorry, too many clients already"), "Raise max_connections"),
        (pg.CannotConnectNowError("the database system is starting up"), "Wait until the database has started"),
        (pg.TargetServerAttributeNotMatched("none"), "target_session_attrs"),
        (pg.ProtocolViolationError("unsupported startup parameter: jit"), "pooler"),
        (RuntimeError("secret"), "RuntimeError"),
    ],
)
def test_each_reason_not_to_open_has_its_words(error: Exception, words: str) -> None:
    message = str(startup_error(error, "postgresql://db/x"))
    assert message.startswith("The store postgresql://db/x cannot be opened: ")
    assert words in message
    assert "secret" not in message
    assert "10.0.0.1" not in message


@pytest.mark.requirement("store:postgresql:open")
async def test_a_database_that_starts_a_moment_later_is_waited_for(
    postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        postgres.stop()
        monkeypatch.setattr("antiphon.store.postgres.PATIENCE_SECONDS", 0.3)
        message = await refusal(postgres.url(database))
        assert "the database cannot be reached. Check host and port" in message
        monkeypatch.undo()
        store = PostgresStore(postgres.url(database), StoreLimits())
        opening = asyncio.create_task(store.open())
        await asyncio.sleep(0.2)
        assert not opening.done()
    finally:
        await asyncio.to_thread(postgres.start)
    await opening
    await add(store, "a")
    await store.close()


@pytest.mark.requirement("store:postgresql:open")
async def test_a_database_that_cannot_hold_every_text_is_refused(postgres: Cluster) -> None:
    postgres.execute("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    message = await refusal(postgres.url("latin"))
    assert "its encoding is LATIN1" in message
    assert "createdb -E UTF8" in message
    postgres.drop_database("latin")


class _Answers:
    def __init__(self, *row: object) -> None:
        self._row = row

    async def fetch(self, query: str, *args: object) -> list[tuple[object, ...]]:
        return [self._row]


@pytest.mark.requirement("store:postgresql:open")
@pytest.mark.parametrize(
    ("row", "words"),
    [((13, "UTF8", False), "it is PostgreSQL 13, and 14 or newer is needed"), ((16, "UTF8", True), "it is a standby")],
)
async def test_an_old_server_and_a_standby_are_refused(row: tuple[object, ...], words: str) -> None:
    answers: Connection = _Answers(*row)  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match=words) as error:
        await postgres_schema.check_server(answers, f"postgresql://me:{PASSWORD}@db/x")
    assert PASSWORD not in str(error.value)


@pytest.mark.requirement("store:postgresql:open")
async def test_a_store_that_is_sealed_is_not_opened_otherwise(postgres: Cluster, database: str) -> None:
    store = PostgresStore(postgres.url(database), StoreLimits())
    store.sealed = True
    await store.open()
    await store.add_tenant_key(SERVER, b"wrapped")
    await store.close()
    assert "encrypted" in await refusal(postgres.url(database))


@pytest.mark.requirement("store:postgresql:open")
async def test_a_schema_that_others_use_may_be_chosen_by_the_search_path(postgres: Cluster) -> None:
    database = postgres.create_database(empty=True)
    postgres.execute("CREATE SCHEMA mine", database)
    store = PostgresStore(postgres.url(database) + "&search_path=mine", StoreLimits())
    await store.open()
    await add(store, "a")
    await store.close()
    assert postgres.execute("SELECT count(*) FROM mine.responses", database) == "1"
    postgres.drop_database(database)

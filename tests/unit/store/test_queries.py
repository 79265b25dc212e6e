"""The SQL files say what each statement does, and none is left over."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from antiphon import store
from antiphon.store.queries import MIGRATIONS, QUERIES, QUERY_FILES, parse_queries, split_statements

FOLDER = Path(store.__file__).parent


@pytest.mark.requirement("store:sqlite:queries")
def test_a_statement_ends_where_the_next_one_begins() -> None:
    text = "-- About the file.\n-- name: one\n-- First.\nSELECT 1\nFROM t;\n\n-- name: two\n-- Second.\nSELECT 2;\n"
    assert parse_queries(text) == {"one": "SELECT 1\nFROM t;", "two": "SELECT 2;"}


@pytest.mark.requirement("store:sqlite:queries")
def test_a_name_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'one' is there twice"):
        parse_queries("-- name: one\n-- A.\nSELECT 1;\n-- name: one\n-- B.\nSELECT 2;\n")


@pytest.mark.requirement("store:sqlite:queries")
def test_every_statement_has_a_line_that_says_what_it_does_and_is_used() -> None:
    text = "".join((FOLDER / "sql" / name).read_text() for name in QUERY_FILES)
    assert text.count("-- name:") == len(QUERIES)
    code = "".join(file.read_text() for file in FOLDER.glob("*.py"))
    assert [name for name in QUERIES if f'"{name}"' not in code] == []


@pytest.mark.requirement("store:sqlite:queries")
def test_every_statement_is_valid_and_no_statement_scans_a_table() -> None:
    connection = sqlite3.connect(":memory:")
    for migration in MIGRATIONS:
        for statement in migration.statements:
            connection.execute(statement)
    may_scan = {"order_of_use", "totals", "find_unneeded", "running", "add_to_totals"}
    for name, statement in QUERIES.items():
        names = re.findall(r":(\w+)", statement)
        values = dict.fromkeys(names, None) if names else (None,) * statement.count("?")
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        tables = ("responses", "items", "event_batches", "r", "b", "child", "response_items", "ri")
        scans = [step for step in plan if step in {f"SCAN {table}" for table in tables}]
        assert name in may_scan or scans == [], (name, plan)
        # All rows of a tenant are as good as the table.
        of_tenant = [step for step in plan if re.search(r" INDEX \w+ \(tenant=\?\)$", step)]
        assert name.endswith("of_tenant") or of_tenant == [], (name, plan)
    connection.close()


@pytest.mark.requirement("store:sqlite:queries")
def test_statements_of_a_script_are_split_where_they_end() -> None:
    script = "-- A comment; with a semicolon.\n\nCREATE TABLE t (\n  a -- b; c\n);\nINSERT INTO t VALUES (';');\n"
    assert split_statements(script) == ("CREATE TABLE t (\n  a -- b; c\n);", "INSERT INTO t VALUES (';');")


@pytest.mark.requirement("store:sqlite:migration")
def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))

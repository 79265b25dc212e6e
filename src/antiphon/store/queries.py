"""SQL from the files in `sql/`: named statements, and numbered migrations.

A statement begins with `-- name: its_name` and a line that says what it does; it ends before the next name.
"""

from __future__ import annotations

import re
import sqlite3
from importlib.resources import files
from importlib.resources.abc import Traversable

from msgspec import Struct

__all__ = ["MIGRATIONS", "QUERIES", "QUERY_FILES", "Migration", "parse_queries", "split_statements"]

_NAME = re.compile(r"^-- name: (\w+)\n-- (\S.*)\n", re.MULTILINE)


class Migration(Struct, frozen=True):
    """One step of the schema: the version that it leads to, and its statements."""

    version: int
    name: str
    statements: tuple[str, ...]


def parse_queries(text: str) -> dict[str, str]:
    """The statements of a file by name.

    Raises:
        ValueError: two statements have one name.
    """
    found: dict[str, str] = {}
    heads = list(_NAME.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=True):
        name = head.group(1)
        if name in found:
            raise ValueError(f"the statement '{name}' is there twice")
        found[name] = text[head.end() : end].strip()
    return found


def split_statements(text: str) -> tuple[str, ...]:
    """The single statements of a script, so that a migration can run them inside one transaction.

    Raises:
        ValueError: the last one does not end; so SQLite takes 'CREATE TRIGGER' as PostgreSQL has it.
    """
    statements: list[str] = []
    pending = ""
    for line in text.splitlines(keepends=True):
        if not pending and (not line.strip() or line.startswith("--")):
            continue
        pending += line
        # The body of a function of PostgreSQL's stands between two marks, and has statements of its own.
        if sqlite3.complete_statement(pending) and pending.count("$$") % 2 == 0:
            statements.append(pending.strip())
            pending = ""
    if pending:
        raise ValueError(f"this statement does not end: {pending}")
    return tuple(statements)


def _sql_folder() -> Traversable:
    return files("antiphon.store") / "sql"


def _load_migrations() -> tuple[Migration, ...]:
    found: list[Migration] = []
    for file in (_sql_folder() / "migrations").iterdir():
        if file.name.endswith(".sql"):
            version, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(version), name, split_statements(file.read_text("utf-8"))))
    return tuple(sorted(found, key=lambda migration: migration.version))


QUERY_FILES = (
    "queries.sql",
    "removal.sql",
    "conversations.sql",
    "registers.sql",
    "files.sql",
    "toolruns.sql",
    "corpora.sql",
)
"""Where the statements of the SQLite store are."""

QUERIES: dict[str, str] = parse_queries("\n".join((_sql_folder() / name).read_text("utf-8") for name in QUERY_FILES))
"""The statements of the SQLite store by name."""

MIGRATIONS: tuple[Migration, ...] = _load_migrations()
"""The steps of the SQLite schema, oldest first."""

"""The schema of the PostgreSQL store, and whether a database is fit for it."""

from __future__ import annotations

from antiphon.errors import ConfigurationError
from antiphon.store.addresses import location
from antiphon.store.postgres_database import Connection
from antiphon.store.postgres_sql import MIGRATIONS

__all__ = ["NEWEST", "check_server", "migrate", "schema_version"]

NEWEST = MIGRATIONS[-1].version
"""The version that this program brings a schema to."""

_OLDEST_SERVER = 14
_LOCK = 0x616E7469_70686F6E
"""The advisory lock of migrations: 'antiphon' in ASCII."""


async def check_server(connection: Connection, url: str) -> None:
    """See that a database can hold the store.

    Raises:
        ConfigurationError: it is too old, a standby, or does not hold Unicode.
    """
    (row,) = await connection.fetch(
        "SELECT current_setting('server_version_num')::integer / 10000, current_setting('server_encoding'), "
        "pg_is_in_recovery()"
    )
    version, encoding, standby = row
    where = f"The store {location(url)} cannot be used:"
    if version < _OLDEST_SERVER:
        raise ConfigurationError(f"{where} it is PostgreSQL {version}, and {_OLDEST_SERVER} or newer is needed.")
    if encoding != "UTF8":
        raise ConfigurationError(
            f"{where} its encoding is {encoding}. Create a database with 'createdb -E UTF8 -T template0 NAME'."
        )
    if standby:
        raise ConfigurationError(f"{where} it is a standby, which takes no writes. Name its primary in --store.")


async def schema_version(connection: Connection) -> int:
    """The version of the schema; 0 where there is none yet."""
    (row,) = await connection.fetch("SELECT to_regclass('antiphon_schema') IS NOT NULL")
    if not row[0]:
        return 0
    (row,) = await connection.fetch("SELECT coalesce(max(version), 0) FROM antiphon_schema")
    return row[0]


async def migrate(connection: Connection, url: str) -> int:
    """Bring the schema to the newest version, all in one transaction; the version that it had.

    Servers that start at the same time do it one after the other, and only the first has anything to do. Nothing is
    written where nothing is to be done, so that a user who may not make tables can run a server.

    Raises:
        ConfigurationError: it was written by a newer version.
        Exception: the database refuses.
    """
    before = await schema_version(connection)
    if before > NEWEST:
        raise ConfigurationError(
            f"The store {location(url)} was written by a newer Antiphon (schema {before}, this one knows {NEWEST}). "
            "Install that version, or name another database in --store."
        )
    if before == NEWEST:
        return before
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS antiphon_schema (version integer PRIMARY KEY, name text NOT NULL)"
        )
        version = await schema_version(connection)
        for migration in MIGRATIONS:
            if migration.version > version:
                for statement in migration.statements:
                    await connection.execute(statement)
                await connection.execute(
                    "INSERT INTO antiphon_schema VALUES ($1, $2)", migration.version, migration.name
                )
    return before

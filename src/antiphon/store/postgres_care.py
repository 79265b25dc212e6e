"""Care for a PostgreSQL store from outside a server: how it stands, a copy of it, its schema and its space.

All of it may run while servers have the store.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from antiphon.errors import ConfigurationError
from antiphon.store.addresses import location
from antiphon.store.postgres_database import Connection, connect, fetch
from antiphon.store.postgres_errors import startup_error
from antiphon.store.postgres_schema import NEWEST, check_server, migrate, schema_version
from antiphon.store.reports import SpaceReport, StoreReport

__all__ = ["TABLES", "backup_database", "database_report", "database_schema", "migrate_database", "vacuum_database"]

_DUMP = "pg_dump"


async def database_report(url: str) -> StoreReport:
    """How a store stands; nothing is written.

    Raises:
        ConfigurationError: there is none, or it cannot be read.
    """
    async with _connected(url) as connection:
        version = await _existing(connection, url)
        async with connection.transaction():
            await connection.execute("SET LOCAL enable_seqscan = on")
            (totals,) = await fetch(connection, "report")
            # An older schema has none.
            (there,) = await connection.fetch("SELECT to_regclass('files') IS NOT NULL")
            (kept,) = await fetch(connection, "report_files") if there[0] else ((0, 0),)
            (there,) = await connection.fetch("SELECT to_regclass('vector_stores') IS NOT NULL")
            (corpora,) = await fetch(connection, "report_corpora") if there[0] else ((0, 0),)
        owners = await fetch(connection, "owners")
    size, responses, running, items, conversations = totals
    return StoreReport(
        location=location(url),
        schema=version,
        newest_schema=NEWEST,
        size=size,
        responses=responses,
        running=running,
        items=items,
        conversations=conversations,
        files=kept[0],
        file_bytes=kept[1],
        vector_stores=corpora[0],
        chunks=corpora[1],
        servers=[name for name, _, locked, _ in owners if locked],
    )


async def database_schema(url: str) -> int:
    """The version of a store's schema; 0 where there is no store yet.

    Raises:
        ConfigurationError: the database cannot be reached, or is not fit for a store.
    """
    async with _connected(url) as connection:
        await check_server(connection, url)
        return await schema_version(connection)


async def backup_database(url: str, target: Path) -> int:
    """Write a copy of a store to a file that is not there yet, with pg_dump; the copy's bytes.

    It is all that was committed when it began, in pg_dump's own format: `pg_restore` makes a database of it.

    Raises:
        ConfigurationError: pg_dump is not there or fails, there is no store, or the file cannot be written.
    """
    program = shutil.which(_DUMP)
    if program is None:
        raise ConfigurationError(
            f"A copy of a PostgreSQL database is made by {_DUMP}, which is not in PATH. Install the client programs "
            "of PostgreSQL ('apt install postgresql-client'), of the database's version or newer."
        )
    async with _connected(url) as connection:
        await _existing(connection, url)
    partial = target.with_name(f"{target.name}.partial")
    for path in (target, partial):
        if path.exists() or path.is_symlink():
            raise ConfigurationError(f"{path} is there already and is left alone. Name a file that is not there yet.")
    try:
        # First, so that it is its owner's alone.
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            await _dump(program, url, partial)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror}.") from None
    return (await asyncio.to_thread(target.stat)).st_size


async def migrate_database(url: str) -> tuple[int, int]:
    """Bring a store's schema to the newest version: the version before, and the one that it then has.

    Raises:
        ConfigurationError: it cannot be reached or written, or is of a newer version.
    """
    async with _connected(url) as connection:
        await check_server(connection, url)
        return await migrate(connection, url), NEWEST


async def vacuum_database(url: str) -> SpaceReport:
    """Make the space of what was removed free for new rows, and give back what lies at the ends of the tables.

    Servers go on meanwhile: tables are not written anew, as 'VACUUM FULL' would, which keeps everybody waiting.

    Raises:
        ConfigurationError: there is no store, or it cannot be written.
    """
    async with _connected(url) as connection:
        await _existing(connection, url)
        before = await _size(connection)
        kept = [*TABLES, *POINT_TABLES]
        for (table,) in await connection.fetch("SELECT tablename FROM pg_tables WHERE tablename = ANY ($1)", kept):
            await connection.execute(f'VACUUM (ANALYZE) "{table}"')
        return SpaceReport(before, await _size(connection))


TABLES = [
    "api_keys",
    "batches",
    "codec_keys",
    "conversation_items",
    "conversations",
    "corpus_chunks",
    "corpus_terms",
    "corpus_vectors",
    "corpus_words",
    "event_batches",
    "file_chunks",
    "files",
    "idempotency",
    "items",
    "owners",
    "plans",
    "prompts",
    "response_items",
    "responses",
    "samples",
    "store_files",
    "tenants",
    "tool_runs",
    "vector_stores",
    "webhook_deliveries",
]
"""The tables of the store, but for that of its schema's version."""

POINT_TABLES = ["corpus_pointed", "corpus_points"]
"""The tables that are there only where vectors are searched in the database."""


async def _size(connection: Connection) -> int:
    (row,) = await connection.fetch("SELECT pg_database_size(current_database())")
    return row[0]


async def _existing(connection: Connection, url: str) -> int:
    """The version of the schema of a store that is there."""
    version = await schema_version(connection)
    if not version:
        raise ConfigurationError(
            f"There is no store in {location(url)} yet: it is made at the first start of a server, or by 'antiphon db "
            "migrate'."
        )
    return version


@asynccontextmanager
async def _connected(url: str) -> AsyncGenerator[Connection]:
    """A connection; what goes wrong with it is told in words for whoever gave the command."""
    connection: Connection | None = None
    try:
        connection = await connect(url, patient=True)
        yield connection
        await connection.close()
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - every kind of fault is told in its own words
        raise startup_error(error, location(url)) from None
    finally:
        if connection is not None and not connection.is_closed():
            connection.terminate()


async def _dump(program: str, url: str, target: Path) -> None:
    address, password = _without_password(url)
    environment = dict(os.environ)
    if password is not None:
        # Not as an argument, which every user of the machine can read.
        environment["PGPASSWORD"] = password
    process = await asyncio.create_subprocess_exec(
        program,
        "--format=custom",
        "--no-owner",
        "--no-privileges",
        # They are made again at need, and a database without the extension could not have them.
        *(f"--exclude-table={table}" for table in POINT_TABLES),
        f"--file={target}",
        f"--dbname={address}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        raise ConfigurationError(f"{_DUMP} could not copy the store: {lines[-1] if lines else 'it says nothing'}.")


def _without_password(url: str) -> tuple[str, str | None]:
    """An address without its password, and that."""
    parts = urlsplit(url)
    password = None if parts.password is None else unquote(parts.password)
    options = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in options:
        if name == "password":
            password = value
    login, separator, host = parts.netloc.rpartition("@")
    rest = urlencode([(name, value) for name, value in options if name != "password"])
    netloc = f"{login.partition(':')[0]}{separator}{host}"
    return urlunsplit(("postgresql", netloc, parts.path, rest, "")), password

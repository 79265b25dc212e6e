"""The file of the SQLite store: its lock, its connections and its schema."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from antiphon.errors import ConfigurationError
from antiphon.store.queries import MIGRATIONS, Migration

__all__ = ["FileLock", "connect", "migrate", "prepare_file"]

_BUSY_SECONDS = 5.0
_CACHE_KIB = 16 * 1024


class FileLock:
    """The lock file beside a database: one server per file."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, and write this process's number into the file.

        Raises:
            ConfigurationError: another process holds it.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            process = f" (process {holder})" if holder else ""
            raise ConfigurationError(
                f"The store {self.path.with_suffix('')} is in use by another server{process}, which holds the lock "
                f"{self.path}. Stop that server, or give this one another file with --store PATH or --data-dir DIR."
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; the file stays, since removing it would race with the next holder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def prepare_file(path: Path) -> None:
    """Create the file and its folder where they are missing, readable by this user alone.

    Raises:
        OSError: they cannot be made or opened for writing.
    """
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def connect(path: Path, *, read_only: bool = False, wait: bool = True) -> sqlite3.Connection:
    """A connection that one thread at a time may use; transactions are begun and ended by hand.

    With `wait` false it never waits for another program's lock, so that the event loop's thread may use it.
    """
    connection = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        if read_only:
            connection.execute("PRAGMA query_only = 1")
        else:
            connection.execute("PRAGMA journal_mode = WAL")
            # FULL, since what was acknowledged must survive a power cut too; group commit makes it affordable.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {64 * 1024 * 1024}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        if not wait:
            connection.execute("PRAGMA busy_timeout = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the schema to the newest version, each step in a transaction; the version that it then has.

    Raises:
        ConfigurationError: the file was written by a newer version.
    """
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    version: int = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0]
    newest = migrations[-1].version if migrations else 0
    if version > newest:
        raise ConfigurationError(
            f"The store was written by a newer Antiphon (schema {version}, this one knows {newest}). Install that "
            "version, or choose another file with --store PATH."
        )
    for migration in migrations:
        if migration.version <= version:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute("INSERT INTO schema_version VALUES (?, ?)", (migration.version, migration.name))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise
    return newest

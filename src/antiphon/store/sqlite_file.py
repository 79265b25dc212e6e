"""The file of the SQLite store: its lock, its connections and its schema."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from antiphon.errors import ConfigurationError
from antiphon.store.queries import MIGRATIONS, Migration

__all__ = ["FileLock", "connect", "migrate", "prepare_file", "refuse_links"]

_BUSY_SECONDS = 5.0
_CACHE_KIB = 16 * 1024
_MOMENT_SECONDS = 0.02
_LOCK = re.compile(rb"(\d{1,20}\n?)?")


class FileLock:
    """The lock file beside a database: one server per file.

    Not a lock of the database itself: closing any descriptor of that would drop the locks that SQLite holds on it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".lock")
        self._store = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, and write this process's number into the file.

        Raises:
            ConfigurationError: another process holds it, or there is something else by its name.
            OSError: it cannot be made or opened.
        """
        try:
            # Not at the top: this module is loaded for every kind of store, and this one is not there on Windows.
            import fcntl
        except ImportError:
            raise ConfigurationError(
                "This system has no file locks that a store in a file could use. Choose --store memory."
            ) from None
        descriptor = self._open()
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Whoever only asks who holds it does so for a moment.
                time.sleep(_MOMENT_SECONDS)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, os.pwrite(descriptor, b"%d\n" % os.getpid(), 0))
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            process = f" (process {holder})" if holder else ""
            raise ConfigurationError(
                f"The store {self._store} is in use by another server{process}, which holds the lock "
                f"{self.path}. Stop that server, or give this one another file with --store PATH or --data-dir DIR."
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def holders(self) -> list[str]:
        """Who holds the lock, in words; none where no one does.

        Raises:
            ConfigurationError: there is something else by its name.
            OSError: it cannot be opened.
        """
        import fcntl

        if not self.path.exists():
            return []
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return [f"process {os.pread(descriptor, 32, 0).decode('ascii', 'replace').strip()}"]
        finally:
            os.close(descriptor)
        return []

    def release(self) -> None:
        """Give the lock back; the file stays, since removing it would race with the next holder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        """The lock file, which must be one: a link would lead to a file of someone else's, which is left alone."""
        if self.path.is_symlink():
            raise self._foreign()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        found = os.fstat(descriptor)
        if not (stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and _LOCK.fullmatch(os.pread(descriptor, 64, 0))):
            os.close(descriptor)
            raise self._foreign()
        return descriptor

    def _foreign(self) -> ConfigurationError:
        return ConfigurationError(
            f"The store {self._store} cannot be locked: {self.path} is not a lock file of this program's and is left "
            "alone. Move it away, or choose another file with --store PATH."
        )


def prepare_file(path: Path) -> None:
    """Create the file and its folder where they are missing, readable by this user alone.

    Raises:
        OSError: they cannot be made, or may not be read and written.
    """
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        # Not opened to find out: closing it would drop the locks of a store that this process has open.
        code = errno.EISDIR if path.is_dir() else 0 if os.access(path, os.R_OK | os.W_OK) else errno.EACCES
        if code:
            raise OSError(code, os.strerror(code)) from None


def refuse_links(path: Path) -> None:
    """Refuse a database that has a second name: SQLite keeps its log beside the name, so each would have its own.

    Raises:
        ConfigurationError: there is another hard link to it.
        OSError: it cannot be looked at.
    """
    if path.stat().st_nlink > 1:
        raise ConfigurationError(
            f"The store {path} is one file under several names (hard links), which would be damaged if more than one "
            f"were used. Remove the others ('find FOLDER -samefile {path}' shows them), or choose another file with "
            "--store PATH."
        )


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
            # What is deleted is overwritten: neither a tenant's key nor a body may stay in a page that is free.
            connection.execute("PRAGMA secure_delete = ON")
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

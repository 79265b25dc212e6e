"""Care for a SQLite store from outside a server: how it stands, a copy of it, its schema and its space."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from antiphon.errors import ConfigurationError
from antiphon.store.queries import MIGRATIONS
from antiphon.store.reports import SpaceReport, StoreReport
from antiphon.store.sqlite_file import FileLock, connect, migrate, refuse_links

__all__ = ["backup_file", "file_report", "migrate_file", "vacuum_file"]

_NEWEST = MIGRATIONS[-1].version
_CORPORA = """
SELECT (SELECT count(*) FROM vector_stores WHERE gone = 0),
  (SELECT coalesce(sum(chunks), 0) FROM store_files WHERE status <> 'removed')
"""


def file_report(path: Path) -> StoreReport:
    """How a store stands; a server may have it meanwhile, and nothing is written.

    Raises:
        ConfigurationError: there is none, or it cannot be read.
    """
    path = _existing(path)
    with _words(path, "read"), closing(connect(path, read_only=True)) as connection:
        version = _version(connection, path)
        cursor = connection.execute("SELECT * FROM totals")
        totals = dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True))
        running = "SELECT count(*) FROM responses WHERE gone = 0 AND status IN ('queued', 'in_progress')"
        kept: tuple[int, int] = (0, 0)
        # An older schema has none.
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'files'").fetchone():
            kept = connection.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM files").fetchone()
        corpora: tuple[int, int] = (0, 0)
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vector_stores'").fetchone():
            corpora = connection.execute(_CORPORA).fetchone()
        return StoreReport(
            location=str(path),
            schema=version,
            newest_schema=_NEWEST,
            size=_size(path),
            responses=totals["responses"],
            running=connection.execute(running).fetchone()[0],
            items=totals["items"],
            conversations=totals.get("conversations", 0),
            files=kept[0],
            file_bytes=kept[1],
            vector_stores=corpora[0],
            chunks=corpora[1],
            servers=FileLock(path).holders(),
        )


def backup_file(path: Path, target: Path) -> int:
    """Write a copy of a store to a file that is not there yet; the copy's bytes.

    A server may have the store meanwhile: the copy is all that was committed when it began. It is one file, for its
    owner alone, and is a store like the first.

    Raises:
        ConfigurationError: there is no store, something is there already, or it cannot be read or written.
    """
    path = _existing(path)
    if target.exists() or target.is_symlink():
        raise ConfigurationError(f"{target} is there already and is left alone. Name a file that is not there yet.")
    partial = target.with_name(f"{target.name}.partial")
    if partial.exists() or partial.is_symlink():
        raise ConfigurationError(
            f"{partial} is there: another copy is being written, or one was cut short. In that case remove it."
        )
    with _words(path, f"copied to {target}"):
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            _copy(path, partial)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    return target.stat().st_size


def _copy(path: Path, partial: Path) -> None:
    with closing(connect(path, read_only=True)) as source, closing(sqlite3.connect(partial)) as copy:
        _version(source, path)
        # All pages in one step: a step would begin anew with every write of the server between two of them.
        source.backup(copy, pages=-1)
        # Without a log beside it, so that the one file is all of it.
        copy.execute("PRAGMA journal_mode = DELETE")
        found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise ConfigurationError(f"The store {path} is damaged ({found}): no copy was kept. Restore an older one.")


def migrate_file(path: Path) -> tuple[int, int]:
    """Bring a store's schema to the newest version: the version before, and the one that it then has.

    Raises:
        ConfigurationError: there is none, a server has it, it is of a newer version, or it cannot be written.
    """
    path = _existing(path)
    with _words(path, "migrated"), _alone(path), closing(connect(path)) as connection:
        return _version(connection, path), migrate(connection)


def vacuum_file(path: Path) -> SpaceReport:
    """Give the space of what was removed back to the system; needs as much free space again while it runs.

    Raises:
        ConfigurationError: there is no store, a server has it, or it cannot be written.
    """
    path = _existing(path)
    before = _size(path)
    with _words(path, "vacuumed"), _alone(path), closing(connect(path)) as connection:
        _version(connection, path)
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return SpaceReport(before, _size(path))


def _existing(path: Path) -> Path:
    path = Path(os.path.realpath(path))
    if not path.is_file():
        raise ConfigurationError(f"There is no store at {path} yet: it is made at the first start of a server.")
    return path


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the schema of a store; asked before anything else, since the file may be something else."""
    table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'"
    if connection.execute(table).fetchone() is None:
        raise ConfigurationError(f"{path} is a database, but no store of this program. Choose the file with --store.")
    version: int = connection.execute("SELECT max(version) FROM schema_version").fetchone()[0]
    return version


def _size(path: Path) -> int:
    """Bytes of a store and of the log beside it."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


@contextmanager
def _alone(path: Path) -> Generator[None, None, None]:
    lock = FileLock(path)
    lock.acquire()
    try:
        refuse_links(path)
        yield
    finally:
        lock.release()


@contextmanager
def _words(path: Path, done: str) -> Generator[None, None, None]:
    """Faults of the disk and of SQLite in words for whoever gave the command."""
    try:
        yield
    except OSError as error:
        reason = error.strerror
    except sqlite3.Error as error:
        reason = str(error)
    else:
        return
    raise ConfigurationError(
        f"The store {path} cannot be {done}: {reason}. Check both paths, their permissions and the free space."
    )

"""Care for the store that the settings name, beside a server: how it stands, a copy, its schema and its space.

What may run while a server has the store: `status` and `backup`, and with PostgreSQL all of it. `migrate` and `vacuum`
need a SQLite file for themselves.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.store.addresses import is_database
from antiphon.store.open import open_plain, sqlite_path
from antiphon.store.reports import SpaceReport, StoreReport
from antiphon.store.sqlite_care import backup_file, file_report, migrate_file, vacuum_file

__all__ = ["backup", "migrate", "status", "vacuum"]


async def status(settings: Settings) -> StoreReport:
    """How the store stands.

    Raises:
        ConfigurationError: it is in memory, is not there, or cannot be read; the message says what to do.
    """
    if _is_database(settings):
        from antiphon.store.postgres_care import database_report

        return await database_report(settings.store)
    return await asyncio.to_thread(file_report, _file(settings))


async def backup(settings: Settings, target: Path) -> int:
    """Write a copy of the store to a file that is not there yet; the copy's bytes.

    Raises:
        ConfigurationError: the store is in memory, is not there, or cannot be read, or the copy cannot be written.
    """
    if _is_database(settings):
        from antiphon.store.postgres_care import backup_database

        return await backup_database(settings.store, target)
    return await asyncio.to_thread(backup_file, _file(settings), target)


async def migrate(settings: Settings) -> tuple[int, int]:
    """Bring the store's schema to the newest version, as a start of a server does: the versions before and after.

    Raises:
        ConfigurationError: the store is in memory, is not there, a server has it, or it cannot be written.
    """
    if _is_database(settings):
        from antiphon.store.postgres_care import migrate_database

        return await migrate_database(settings.store)
    return await asyncio.to_thread(migrate_file, _file(settings))


async def vacuum(settings: Settings) -> SpaceReport:
    """Give the space of what was removed back.

    Raises:
        ConfigurationError: the store is in memory, is not there, a server has it, or it cannot be written.
    """
    if _is_database(settings):
        from antiphon.store.postgres_care import vacuum_database

        return await vacuum_database(settings.store)
    return await asyncio.to_thread(vacuum_file, _file(settings))


def _is_database(settings: Settings) -> bool:
    """Whether the store is in PostgreSQL.

    Raises:
        ConfigurationError: it is, and the library for it is missing.
    """
    if is_database(settings.store):
        open_plain(settings)
        return True
    return False


def _file(settings: Settings) -> Path:
    path = sqlite_path(settings)
    if path is None:
        raise ConfigurationError(
            "Only a store that lies on a disk can be cared for. Name it with --store, as the server does."
        )
    return path

"""The API keys and the prompt templates of the store that the settings name, for commands that run beside a server."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.store.base import Store, StoreLimits
from antiphon.store.open import open_plain, sqlite_path
from antiphon.store.queries import MIGRATIONS
from antiphon.store.registers import Registers
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite_file import connect

__all__ = ["has_stored_keys", "open_keyring", "open_prompts"]


@asynccontextmanager
async def open_keyring(settings: Settings) -> AsyncGenerator[Registers]:
    """The registers of the store, of which only API keys may be touched; a SQLite file may have its server running.

    No encryption key is needed, since API keys are not sealed. A file that is not there is made, and one of an older
    schema is brought up to date, which needs the file's lock: a server of an older version would not know its rows.

    Raises:
        ConfigurationError: the store is in memory or cannot be opened; the message says why and what to do.
    """
    if settings.store == "memory":
        raise ConfigurationError(
            "A store in memory is the server's alone, so that no command can reach its keys. Choose another with "
            "--store, or give the server its keys with --api-key-file."
        )
    store = _beside(settings)
    store.sealed = True
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_prompts(settings: Settings) -> AsyncGenerator[Registers]:
    """The registers of the store, of which only prompt templates may be touched, in the same way.

    They are sealed where the store is, so that its key is needed.

    Raises:
        ConfigurationError: as above, or the store is encrypted and its key is not given.
    """
    if settings.store == "memory":
        raise ConfigurationError(
            "A store in memory is the server's alone, so that no command can keep prompts in it. Choose another with "
            "--store."
        )
    store = _beside(settings)
    if settings.encryption_key is not None or settings.encryption_key_file is not None:
        # Only here: nothing else needs the library.
        from antiphon.store.sealed import SealedStore
        from antiphon.store.sealing import read_master_key

        master = read_master_key(settings)
        store = store if master is None else SealedStore(store, master)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _beside(settings: Settings) -> Store:
    """The store, to be opened beside its server where it has one."""
    path = sqlite_path(settings)
    if path is None:
        return open_plain(settings)
    return SQLiteStore(path, StoreLimits(), beside=_version(path) == MIGRATIONS[-1].version)


def has_stored_keys(settings: Settings) -> bool:
    """Whether the store that the settings name has API keys; nothing is made or changed to find out.

    Raises:
        ConfigurationError: the store cannot be read.
    """
    if settings.store == "memory":
        return False
    path = sqlite_path(settings)
    if path is None:
        return asyncio.run(_has_keys(settings))
    return _version(path) > 0 and _has_keys_in_file(path)


async def _has_keys(settings: Settings) -> bool:
    async with open_keyring(settings) as registers:
        return bool(await registers.keys())


def _has_keys_in_file(path: Path) -> bool:
    return bool(_look(path, "SELECT 1 FROM api_keys LIMIT 1", if_missing="api_keys"))


def _version(path: Path) -> int:
    """The version of a file's schema; 0 where there is no such file or it is new."""
    found = _look(path, "SELECT coalesce(max(version), 0) FROM schema_version", if_missing="schema_version")
    return found[0][0] if found else 0


def _look(path: Path, query: str, *, if_missing: str) -> list[tuple[int]]:
    """The rows of a query; none where the file or that table is not there."""
    if not path.is_file():
        return []
    try:
        with closing(connect(path, read_only=True)) as connection:
            table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
            if connection.execute(table, (if_missing,)).fetchone() is None:
                return []
            return connection.execute(query).fetchall()
    except sqlite3.Error as error:
        raise ConfigurationError(
            f"The store {path} cannot be read: {error}. Check the path and its permissions, or choose another file "
            "with --store PATH."
        ) from None

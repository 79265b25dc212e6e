"""Which store the settings ask for."""

from __future__ import annotations

import os
from pathlib import Path

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.store.addresses import is_database, location
from antiphon.store.base import Store, StoreLimits

__all__ = ["describe", "open_plain", "open_store", "sqlite_path", "store_limits"]

_MEMORY = StoreLimits(
    max_entries=1024,
    max_bytes=256 * 1024 * 1024,
    ttl_seconds=3600,
    max_conversations=256,
    max_conversation_bytes=64 * 1024 * 1024,
    conversation_ttl_seconds=3600,
)
_SQLITE = StoreLimits(ttl_seconds=30 * 24 * 3600)
_FILE_NAME = "antiphon.db"


def store_limits(settings: Settings) -> StoreLimits:
    """The limits that the settings set, and the store's own where they set none (M41)."""
    default = _MEMORY if settings.store == "memory" else _SQLITE
    entries = settings.responses_store_max_entries
    size = settings.responses_store_max_bytes
    ttl = settings.responses_store_ttl_secs
    conversations = settings.conversation_store_max_entries
    conversation_size = settings.conversation_store_max_bytes
    conversation_ttl = settings.conversation_store_ttl_secs
    return StoreLimits(
        max_entries=default.max_entries if entries is None else entries,
        max_bytes=default.max_bytes if size is None else size,
        ttl_seconds=default.ttl_seconds if ttl is None else ttl or None,
        event_ttl_seconds=settings.event_log_ttl_secs,
        max_conversations=default.max_conversations if conversations is None else conversations,
        max_conversation_bytes=default.max_conversation_bytes if conversation_size is None else conversation_size,
        conversation_ttl_seconds=(
            default.conversation_ttl_seconds if conversation_ttl is None else conversation_ttl or None
        ),
    )


def sqlite_path(settings: Settings) -> Path | None:
    """The file of the store; None where the settings name another kind."""
    if settings.store == "memory" or "://" in settings.store:
        return None
    path = settings.data_path / _FILE_NAME if settings.store == "sqlite" else Path(settings.store).expanduser()
    # The name that links lead to: the lock and the log lie beside that one.
    return Path(os.path.realpath(path))


def open_store(settings: Settings) -> Store | None:
    """The store that the settings ask for, not opened yet; None where they turn persistence off.

    With an encryption key, bodies are sealed in it; one in memory is not at rest, and is left as it is.

    Raises:
        ConfigurationError: there is no such kind of store, a library is missing, or an encryption key cannot be used.
    """
    if settings.responses_store_max_entries == 0:
        return None
    store = open_plain(settings)
    if settings.encryption_key is None and settings.encryption_key_file is None:
        return store
    # Only here: nothing else needs the library.
    from antiphon.store.sealed import SealedStore
    from antiphon.store.sealing import read_master_key

    master = read_master_key(settings)
    return store if master is None or settings.store == "memory" else SealedStore(store, master)


def open_plain(settings: Settings) -> Store:
    """The store that the settings name, not opened yet, as it lies there: what is sealed in it stays so.

    Raises:
        ConfigurationError: there is no such kind of store, or a library is missing.
    """
    limits = store_limits(settings)
    # The kinds of store are imported here, each where it is used: together they take a while to load.
    if settings.store == "memory":
        from antiphon.store.memory import MemoryStore

        return MemoryStore(limits)
    path = sqlite_path(settings)
    if path is None:
        return _database(settings.store, limits)
    from antiphon.store.sqlite import SQLiteStore

    return SQLiteStore(path, limits)


def _database(address: str, limits: StoreLimits) -> Store:
    if not is_database(address):
        scheme = address.partition("://")[0]
        raise ConfigurationError(
            f"There is no store for {scheme}:// addresses. Use 'sqlite', 'memory', a path to a file, or "
            "postgresql://USER@HOST/DATABASE."
        )
    try:
        # Only here: nothing else needs the library.
        from antiphon.store.postgres import PostgresStore
    except ImportError:
        raise ConfigurationError(
            "A store in PostgreSQL needs the library asyncpg: pip install 'antiphon[postgres]'"
        ) from None
    return PostgresStore(address, limits)


def describe(store: Store | None, settings: Settings) -> str:
    """One line for people: where the state lies and how long it stays."""
    if store is None:
        return "Responses are not stored (the limit of entries is 0)."
    limits = store_limits(settings)
    path = sqlite_path(settings)
    where = f"in {path}" if path is not None else "in memory, until the server stops"
    if is_database(settings.store):
        where = f"in {location(settings.store)}"
    if store.sealed:
        where += ", encrypted"
    bounds: list[str] = []
    if limits.ttl_seconds is not None:
        bounds.append(f"for {_duration(limits.ttl_seconds)}")
    if limits.max_entries is not None:
        bounds.append(f"at most {limits.max_entries:,} of them")
    if limits.max_bytes is not None:
        bounds.append(f"at most {_size(limits.max_bytes)}")
    return f"Responses are kept {where}, {', '.join(bounds) or 'for ever'}."


def _duration(seconds: float) -> str:
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            count = int(seconds // length)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds:g} second{'' if seconds == 1 else 's'}"


def _size(size: int) -> str:
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= length and size % length == 0:
            return f"{size // length} {unit}"
    return f"{size:,} bytes"

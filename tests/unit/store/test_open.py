"""Which store the settings ask for, its limits, and the line that says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.store.addresses import location
from antiphon.store.base import StoreLimits
from antiphon.store.memory import MemoryStore
from antiphon.store.open import describe, open_store, store_limits
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore

DAYS_30 = 30 * 24 * 3600


@pytest.mark.requirement("store:choice")
def test_sqlite_in_the_data_directory_is_the_default(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path))
    store = open_store(settings)
    assert isinstance(store, SQLiteStore)
    assert store.path == tmp_path / "antiphon.db"
    assert store.limits == StoreLimits(None, None, DAYS_30)
    assert describe(store, settings) == f"Responses are kept in {tmp_path}/antiphon.db, for 30 days."


@pytest.mark.requirement("store:choice")
def test_memory_has_the_limits_of_its_table() -> None:
    settings = Settings(store="memory")
    store = open_store(settings)
    assert isinstance(store, MemoryStore)
    assert store.limits == StoreLimits(1024, 256 * 1024 * 1024, 3600, None, 256, 64 * 1024 * 1024, 3600)
    assert describe(store, settings) == (
        "Responses are kept in memory, until the server stops, for 1 hour, at most 1,024 of them, at most 256 MiB."
    )


@pytest.mark.requirement("store:choice")
def test_a_path_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(Settings(store="here/mine.db"))
    assert isinstance(store, SQLiteStore)
    assert store.path == tmp_path / "here" / "mine.db"


@pytest.mark.requirement("store:limits")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_same_settings_bound_every_store(kind: str) -> None:
    settings = Settings(
        store=kind,
        responses_store_max_entries=7,
        responses_store_max_bytes=1000,
        responses_store_ttl_secs=90,
        event_log_ttl_secs=60,
        conversation_store_max_entries=3,
        conversation_store_max_bytes=500,
        conversation_store_ttl_secs=30,
    )
    store = open_store(settings)
    assert isinstance(store, MemoryStore | SQLiteStore)
    assert store.limits == StoreLimits(7, 1000, 90, 60, 3, 500, 30)
    assert describe(store, settings).endswith("for 90 seconds, at most 7 of them, at most 1,000 bytes.")


@pytest.mark.requirement("store:ttl:zero")
def test_a_ttl_of_zero_keeps_responses_for_ever() -> None:
    settings = Settings(responses_store_ttl_secs=0)
    store = open_store(settings)
    assert isinstance(store, SQLiteStore)
    assert store.limits.ttl_seconds is None
    assert describe(store, settings).endswith("antiphon.db, for ever.")
    assert store_limits(Settings(store="memory", conversation_store_ttl_secs=0)).conversation_ttl_seconds is None


@pytest.mark.requirement("store:bytes:zero")
def test_a_limit_of_no_bytes_is_a_limit() -> None:
    store = open_store(Settings(store="memory", responses_store_max_bytes=0))
    assert isinstance(store, MemoryStore)
    assert store.limits.max_bytes == 0


@pytest.mark.requirement("store:entries:zero")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_limit_of_no_entries_turns_persistence_off(kind: str) -> None:
    settings = Settings(store=kind, responses_store_max_entries=0)
    assert open_store(settings) is None
    assert describe(None, settings) == "Responses are not stored (the limit of entries is 0)."


@pytest.mark.requirement("store:choice")
def test_an_address_of_another_database_is_refused_in_words_that_show_no_password() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        open_store(Settings(store="mysql://me:secret@db/antiphon"))
    assert "There is no store for mysql:// addresses" in str(refusal.value)
    assert "secret" not in str(refusal.value)


@pytest.mark.requirement("store:choice", "store:postgresql:open")
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_an_address_of_postgresql_names_a_database_and_its_password_is_not_shown(scheme: str) -> None:
    settings = Settings(store=f"{scheme}://me:secret@db.example:5433/antiphon?sslmode=require")
    store = open_store(settings)
    assert isinstance(store, PostgresStore)
    assert store.shared
    assert store.limits == StoreLimits(None, None, DAYS_30)
    assert describe(store, settings) == ("Responses are kept in postgresql://db.example:5433/antiphon, for 30 days.")


@pytest.mark.requirement("store:postgresql:open")
@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:secret@db/antiphon?host=secret@db",
        "postgresql://me:17/secret@db/antiphon",
        "postgresql://me:se#cret@db/antiphon",
        "postgresql://me:secret@[db/antiphon",
        "postgresql://me:17secret/@db/antiphon",
    ],
)
def test_of_an_address_that_is_not_written_well_nothing_is_shown(address: str) -> None:
    assert "secret" not in location(address)
    assert "cret" not in location(address)


@pytest.mark.requirement("store:postgresql:open")
def test_without_its_library_postgresql_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "antiphon.store.postgres", None)
    with pytest.raises(ConfigurationError) as refusal:
        open_store(Settings(store="postgresql://me:secret@db/antiphon"))
    assert "pip install 'antiphon[postgres]'" in str(refusal.value)
    assert "secret" not in str(refusal.value)

"""`antiphon keys` and `antiphon tenants` on a database that servers use meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.access import check_access
from antiphon.cli.main import cli
from antiphon.errors import ConfigurationError
from antiphon.runtime.keys import KeyRing
from antiphon.settings import Settings
from antiphon.store.base import Scope, StoreLimits
from antiphon.store.keyring import has_stored_keys
from antiphon.store.postgres import PostgresStore
from antiphon.store.sealed import SealedStore
from antiphon.store.sealing import MasterKey
from support.postgres import database_for
from support.stores import Clock, add


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a database of the test's own."""
    return database_for(tmp_path)


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--store", url], catch_exceptions=False)


@pytest.mark.requirement("cli:keys:store", "keys:lookup", "cli:tenants:delete")
def test_keys_and_tenants_change_beside_servers_and_need_no_encryption_key(url: str) -> None:
    async def serving() -> None:
        clock = Clock()
        store = SealedStore(PostgresStore(url, StoreLimits()), MasterKey(bytes(32)), clock)
        await store.open()
        try:
            ring = KeyRing(store, clock)
            assert not await ring.any()
            for tenant in ("acme", "other"):
                await add(store, "resp_a", scope=Scope(tenant))
            made = await asyncio.to_thread(run, url, "keys", "create", "--name", "ci", "--tenant", "acme")
            assert made.exit_code == 0, made.output
            secret = made.stdout.strip().encode()
            key = await ring.find(secret)
            assert key is not None
            assert (key.tenant, key.name) == ("acme", "ci")
            listed = await asyncio.to_thread(run, url, "keys", "list", "--json")
            assert [row["id"] for row in json.loads(listed.stdout)] == [key.id]

            assert (await asyncio.to_thread(run, url, "keys", "revoke", key.id)).exit_code == 0
            clock.now += 2
            assert await ring.find(secret) is None
            assert await ring.any()

            deleted = await asyncio.to_thread(run, url, "tenants", "delete", "acme", "--yes")
            assert deleted.exit_code == 0, deleted.output
            assert await store.get_response(Scope("acme"), "resp_a") is None
            assert await store.get_response(Scope("other"), "resp_a") is not None
            assert await store.keys() == []
        finally:
            await store.close()

    asyncio.run(serving())


@pytest.mark.requirement("keys:address")
def test_keys_of_a_database_open_the_network(url: str) -> None:
    settings = Settings(host="0.0.0.0", store=url)
    with pytest.raises(ConfigurationError, match="antiphon keys create"):
        check_access(settings, lambda: has_stored_keys(settings))
    assert run(url, "keys", "create", "--name", "ci").exit_code == 0
    check_access(settings, lambda: has_stored_keys(settings))


@pytest.mark.requirement("encryption:open")
def test_a_sealed_database_is_refused_without_its_key(url: str) -> None:
    async def look() -> None:
        store = SealedStore(PostgresStore(url, StoreLimits()), MasterKey(bytes(32)))
        await store.open()
        await store.close()
        for refused in (PostgresStore(url, StoreLimits()), SealedStore(PostgresStore(url, StoreLimits()), OTHER)):
            with pytest.raises(ConfigurationError, match="encrypted"):
                await refused.open()

    asyncio.run(look())


OTHER = MasterKey(bytes(range(32)))


@pytest.mark.requirement("cli:keys:store")
def test_an_address_that_does_not_answer_is_a_clear_line_without_the_password() -> None:
    result = run("postgresql://me:hunter2@127.0.0.1:1/none", "keys", "list")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert "hunter2" not in result.output

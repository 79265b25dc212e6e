"""`antiphon keys` and `antiphon tenants`, and what they leave in the store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.access import check_access, configured_keys
from antiphon.cli.main import cli
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.store.base import Scope, StoreLimits
from antiphon.store.keyring import has_stored_keys, open_keyring
from antiphon.store.queries import MIGRATIONS
from antiphon.store.sealed import SealedStore
from antiphon.store.sealing import MasterKey
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite_file import connect, migrate
from support.stores import add


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli, [*arguments], input=answer, catch_exceptions=False)


def made(*arguments: str) -> tuple[str, str]:
    """The secret and the id of a new key."""
    result = run("keys", "create", "--name", "ci", *arguments)
    assert result.exit_code == 0, result.output
    found = re.search(r"key_[0-9a-f]{44}", result.stderr)
    assert found
    return result.stdout.strip(), found.group()


def listed(*arguments: str) -> list[dict[str, object]]:
    return json.loads(run("keys", "list", "--json", *arguments).stdout)


@pytest.mark.requirement("cli:keys:create", "keys:secret")
def test_a_secret_is_shown_once_and_kept_as_its_digest(data_path: Path) -> None:
    secret, key_id = made("--tenant", "acme", "--models", "small, large", "--requests-per-minute", "60")
    assert re.fullmatch(r"sk-antiphon-[\w-]{43}", secret)
    (key,) = listed()
    assert key | {"created_at": 0} == {
        "id": key_id,
        "name": "ci",
        "tenant": "acme",
        "created_at": 0,
        "revoked_at": None,
        "limits": {"models": ["small", "large"], "requests_per_minute": 60},
    }
    assert secret not in run("keys", "list").output
    assert "models small, large; 60 requests/min" in run("keys", "list").stdout
    with closing(sqlite3.connect(data_path / "antiphon.db")) as connection:
        (digest,) = connection.execute("SELECT digest FROM api_keys").fetchone()
    assert digest == hashlib.sha256(secret.encode()).digest()
    for file in data_path.iterdir():
        assert secret.encode() not in file.read_bytes()


@pytest.mark.requirement("cli:keys:list")
def test_keys_are_listed_oldest_first_without_control_characters() -> None:
    assert listed() == []
    assert "antiphon keys create --name" in run("keys", "list").stderr
    first, second = made()[1], made("--tokens-per-minute", "9")[1]
    assert [key["id"] for key in listed()] == [first, second]
    heading, *rows = run("keys", "list").stdout.splitlines()
    assert heading.split() == ["ID", "NAME", "TENANT", "CREATED", "REVOKED", "LIMITS"]
    assert [row.split()[0] for row in rows] == [first, second]
    assert rows[1].endswith("9 tokens/min")


@pytest.mark.requirement("cli:keys:revoke")
def test_a_key_is_revoked_once() -> None:
    _, key_id = made()
    assert run("keys", "revoke", key_id).exit_code == 0
    (key,) = listed()
    assert key["revoked_at"]
    for unknown in (key_id, "key_none", "'; DROP TABLE api_keys; --"):
        result = run("keys", "revoke", unknown)
        assert result.exit_code == 1
        assert "There is no key" in result.stderr
    assert [key["id"] for key in listed()] == [key_id]


@pytest.mark.requirement("cli:keys:create")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tenant", ""], "1 to 64 letters"),
        (["--tenant", "antiphon:server"], "1 to 64 letters"),
        (["--tenant", "-x"], "1 to 64 letters"),
        (["--tenant", "a" * 65], "1 to 64 letters"),
        (["--name", ""], "printable"),
        (["--name", "a\x1b[2J"], "printable"),
        (["--models", " , "], "names of models"),
        (["--requests-per-minute", "0"], "x>=1"),
        (["--tokens-per-minute", "-1"], "x>=1"),
    ],
)
def test_what_cannot_be_a_key_is_refused(arguments: list[str], words: str) -> None:
    result = run("keys", "create", "--name", "ci", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""
    assert listed() == []


@pytest.mark.requirement("cli:keys:store")
@pytest.mark.parametrize("command", [["keys", "create", "--name", "x"], ["keys", "list"], ["keys", "revoke", "x"]])
def test_a_store_in_memory_has_no_keys_for_commands(command: list[str]) -> None:
    result = run(*command, "--store", "memory")
    assert result.exit_code == 2
    assert "--api-key-file" in result.stderr


@pytest.mark.requirement("cli:keys:store")
def test_keys_are_made_and_revoked_while_a_server_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def serving() -> None:
        store = SQLiteStore(path, StoreLimits(max_entries=5))
        await store.open()
        try:
            await add(store, "resp_a", scope=Scope("acme"))
            _, key_id = await asyncio.to_thread(made, "--store", str(path), "--tenant", "acme")
            (key,) = await store.keys()
            assert (key.id, key.tenant, key.revoked_at) == (key_id, "acme", None)
            await asyncio.to_thread(run, "keys", "revoke", key_id, "--store", str(path))
            (key,) = await store.keys()
            assert key.revoked_at is not None
            await add(store, "resp_b", "resp_a", scope=Scope("acme"))
            status = await store.status()
            assert (status.responses, status.items) == (2, 4)
            refused = await asyncio.to_thread(run, "tenants", "delete", "acme", "--yes", "--store", str(path))
            assert refused.exit_code == 2
            assert "in use by another server" in refused.stderr
        finally:
            await store.close()

    asyncio.run(serving())
    with closing(connect(path)) as connection:
        assert connection.execute("SELECT responses, items FROM totals").fetchone() == (2, 4)


@pytest.mark.requirement("cli:keys:schema")
def test_a_file_of_an_older_schema_is_brought_up_to_date_unless_a_server_has_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(connect(path)) as connection:
        migrate(connection, MIGRATIONS[:1])
    assert not has_stored_keys(Settings(store=str(path)))

    lock = SQLiteStore(path, StoreLimits())._lock
    lock.acquire()
    try:
        result = run("keys", "create", "--name", "x", "--store", str(path))
        assert result.exit_code == 2
        assert "in use by another server" in result.stderr
    finally:
        lock.release()
    made("--store", str(path))
    assert has_stored_keys(Settings(store=str(path)))


@pytest.mark.requirement("cli:keys:store")
def test_a_file_that_is_no_store_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"not a database" * 1000)
    for command in (["keys", "list"], ["serve", "--host", "0.0.0.0", "--model", "scripted"]):
        result = run(*command, "--store", str(path))
        assert result.exit_code == 2
        assert f"{path} cannot be read: file is not a database" in result.stderr
        assert "Traceback" not in result.output


@pytest.mark.requirement("keys:address")
def test_keys_of_the_store_open_the_network_as_those_of_a_flag_do(tmp_path: Path) -> None:
    settings = Settings(host="0.0.0.0", store=str(tmp_path / "a.db"))
    with pytest.raises(ConfigurationError, match="antiphon keys create"):
        check_access(settings, lambda: has_stored_keys(settings))
    assert not (tmp_path / "a.db").exists()
    _, key_id = made("--store", settings.store)
    check_access(settings, lambda: has_stored_keys(settings))
    # Revoked ones count: the server lets nobody in without a key then.
    run("keys", "revoke", key_id, "--store", settings.store)
    check_access(settings, lambda: has_stored_keys(settings))
    assert not has_stored_keys(Settings(store="memory"))


@pytest.mark.requirement("keys:file")
def test_a_file_of_keys_must_have_one(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    settings = Settings(host="0.0.0.0", api_key_file=str(file))
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        check_access(settings)
    file.write_text("# none\n\n   # yet\n")
    with pytest.raises(ConfigurationError, match="holds no key"):
        check_access(settings)
    with pytest.raises(ConfigurationError, match="holds no key"):
        check_access(Settings(api_key_file=str(file)))
    file.write_text("sk-one\n")
    check_access(settings)
    assert configured_keys(settings) == [b"sk-one"]
    with pytest.raises(ConfigurationError, match="An API key is empty"):
        check_access(Settings(api_key=("sk", " ")))


@pytest.mark.requirement("cli:tenants:delete", "encryption:tenant:delete")
def test_a_deleted_tenant_has_no_key_and_no_rows_and_needs_no_master_key(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    wrapped: list[bytes] = []

    async def fill() -> None:
        store = SealedStore(SQLiteStore(path, StoreLimits()), MasterKey(bytes(32)))
        await store.open()
        for tenant in ("acme", "other"):
            await add(store, "resp_a", scope=Scope(tenant))
        kept = await store.tenant_key("acme")
        assert kept is not None
        wrapped.append(kept)
        await store.close()

    asyncio.run(fill())
    secret, _ = made("--store", str(path), "--tenant", "acme")
    kept, _ = made("--store", str(path), "--tenant", "other")
    refused = run("tenants", "delete", "acme", "--store", str(path), answer="n\n")
    assert refused.exit_code == 1
    assert wrapped[0] in path.read_bytes()

    assert run("tenants", "delete", "acme", "--store", str(path), answer="y\n").exit_code == 0
    left = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert wrapped[0] not in left
    assert hashlib.sha256(secret.encode()).digest() not in left
    assert hashlib.sha256(kept.encode()).digest() in left
    assert [key["tenant"] for key in listed("--store", str(path))] == ["other"]

    async def look() -> None:
        store = SealedStore(SQLiteStore(path, StoreLimits()), MasterKey(bytes(32)))
        await store.open()
        assert await store.get_response(Scope("acme"), "resp_a") is None
        assert await store.get_response(Scope("other"), "resp_a") is not None
        await store.close()

    asyncio.run(look())


@pytest.mark.requirement("cli:tenants:delete")
def test_what_has_no_tenant_to_delete_says_so() -> None:
    for arguments in (["acme", "--store", "memory"], ["antiphon:server"]):
        result = run("tenants", "delete", "--yes", *arguments)
        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.requirement("cli:keys:store")
async def test_keys_need_no_encryption_key(tmp_path: Path) -> None:
    settings = Settings(store=str(tmp_path / "a.db"))
    sealed = SealedStore(SQLiteStore(tmp_path / "a.db", StoreLimits()), MasterKey(bytes(32)))
    await sealed.open()
    async with open_keyring(settings) as registers:
        assert await registers.keys() == []
    await sealed.close()
    async with open_keyring(settings) as registers:
        assert await registers.keys() == []


@pytest.mark.requirement("cli:tenants:delete")
def test_other_servers_stop_to_let_a_tenant_in_before_its_rows_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    made("--store", str(path), "--tenant", "acme")
    made("--store", str(path), "--tenant", "other")
    waited: list[tuple[float, list[bool]]] = []
    stores: list[SQLiteStore] = []

    class Shared(SQLiteStore):
        shared = True

    def opened(settings: Settings) -> SQLiteStore:
        stores.append(Shared(Path(settings.store), StoreLimits()))
        return stores[-1]

    async def sleep(seconds: float) -> None:
        waited.append((seconds, [key.revoked_at is not None for key in await stores[-1].keys()]))

    monkeypatch.setattr("antiphon.store.open.open_plain", opened)
    monkeypatch.setattr("asyncio.sleep", sleep)
    assert run("tenants", "delete", "acme", "--yes", "--store", str(path)).exit_code == 0
    assert waited[0] == (2.0, [True, False])
    monkeypatch.undo()
    assert [key["tenant"] for key in listed("--store", str(path))] == ["other"]

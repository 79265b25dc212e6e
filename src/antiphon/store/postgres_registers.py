"""The small tables of the PostgreSQL store: keys, idempotency records, webhooks and prompt templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.store.postgres_core import PostgresCore, storable
from antiphon.store.postgres_database import Connection, execute, fetch
from antiphon.store.postgres_errors import violated
from antiphon.store.refusals import key_exists, prompt_exists
from antiphon.store.registers import Registers
from antiphon.store.rows import UNBOUNDED, ApiKey, CodecKey, Delivery, IdempotencyRecord, Rooms, Scope, StoredPrompt

__all__ = ["PostgresRegisters"]

_UNIQUE = {"api_keys_id_key", "api_keys_digest_key"}


def _by_time(row: Sequence[Any]) -> tuple[float, int]:
    return row[0], row[1]


class PostgresRegisters(PostgresCore, Registers):
    """Keeps the small tables."""

    async def find_idempotent(self, scope: Scope, key: str, now: float) -> IdempotencyRecord | None:
        """The record of an idempotency key that has not expired."""
        if not storable(key):
            return None
        rows = await self._fetch("find_idempotent", tenant=scope.tenant, key=key, now=now)
        return IdempotencyRecord(key, *rows[0]) if rows else None

    async def free_idempotent(self, scope: Scope, key: str, response_id: str) -> None:
        """Forget an idempotency key, if it still stands for that response."""
        if storable(key, response_id):
            await self._execute("free_idempotent", tenant=scope.tenant, key=key, response_id=response_id)

    async def due_deliveries(
        self, now: float, hold_seconds: float, most: int, rooms: Rooms = UNBOUNDED
    ) -> list[Delivery]:
        """Webhooks of every tenant that are due, in the order in which they became so."""
        found: list[Sequence[Any]] = []
        for (endpoint,) in await self._fetch("due_endpoints", now=now):
            room = min(most - len(found), rooms.of(endpoint))
            if room > 0:
                found += await self._fetch(
                    "due_deliveries", endpoint=endpoint, now=now, hold_seconds=hold_seconds, most=room
                )
        return [Delivery(Scope(tenant), *rest) for _, _, tenant, *rest in sorted(found, key=_by_time)]

    async def settle_delivery(self, scope: Scope, delivery_id: str, again_at: float | None) -> None:
        """After an attempt: try it again at that time, or, with None, remove it."""
        names: dict[str, object] = {"tenant": scope.tenant, "id": delivery_id}
        if again_at is None:
            await self._execute("delete_delivery", **names)
        else:
            await self._execute("delay_delivery", **names, again_at=again_at)

    async def add_prompt(self, scope: Scope, prompt: StoredPrompt) -> None:
        """Keep a version of a prompt template.

        Raises:
            ConflictError: there is one by that id and version.
        """

        async def job(connection: Connection, again: bool) -> None:
            names = {"tenant": scope.tenant, "id": prompt.id, "version": prompt.version}
            if await fetch(connection, "add_prompt", **names, created_at=prompt.created_at, body=prompt.body):
                return
            # An earlier attempt may have got through, although its connection was lost before it said so.
            found = [StoredPrompt(*row) for row in await fetch(connection, "find_prompt", **names)]
            if not again or found != [prompt]:
                raise prompt_exists()

        await self._run(job)

    async def find_prompt(self, scope: Scope, prompt_id: str, version: int | None = None) -> StoredPrompt | None:
        """A version of a prompt template; without a version the last one."""
        if not storable(prompt_id):
            return None
        rows = await self._fetch("find_prompt", tenant=scope.tenant, id=prompt_id, version=version)
        return StoredPrompt(*rows[0]) if rows else None

    async def prompts(self, scope: Scope) -> list[StoredPrompt]:
        """All versions of the tenant's prompt templates, by id and version."""
        return [StoredPrompt(*row) for row in await self._fetch("prompts", tenant=scope.tenant)]

    async def delete_prompt(self, scope: Scope, prompt_id: str) -> bool:
        """Remove all versions of a prompt template; False where there is none by that id."""
        if not storable(prompt_id):
            return False

        async def delete(connection: Connection) -> bool:
            return bool(await fetch(connection, "delete_prompt", tenant=scope.tenant, id=prompt_id))

        return await self._delete_found(delete)

    async def add_key(self, key: ApiKey) -> None:
        """Keep an API key.

        Raises:
            ConflictError: there is one by that id or with that digest.
        """

        async def job(connection: Connection, again: bool) -> None:
            try:
                await execute(
                    connection,
                    "add_key",
                    id=key.id,
                    tenant=key.tenant,
                    name=key.name,
                    digest=key.digest,
                    created_at=key.created_at,
                    limits=key.limits,
                    revoked_at=key.revoked_at,
                )
            except Exception as error:
                if violated(error) not in _UNIQUE:
                    raise
                if not again or _keys(await fetch(connection, "find_key", digest=key.digest)) != [key]:
                    raise key_exists() from None

        await self._run(job)

    async def find_key(self, digest: bytes) -> ApiKey | None:
        """The key with that digest, revoked or not."""
        found = _keys(await self._fetch("find_key", digest=digest))
        return found[0] if found else None

    async def keys(self) -> list[ApiKey]:
        """All keys, oldest first, revoked ones included."""
        return _keys(await self._fetch("keys"))

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; False where there is none by that id that is not revoked yet."""
        if not storable(key_id):
            return False

        async def job(connection: Connection, again: bool) -> bool:
            if await fetch(connection, "revoke_key", id=key_id, now=now):
                return True
            # An earlier attempt may have got through, although its connection was lost before it said so.
            keys = _keys(await fetch(connection, "keys")) if again else []
            return any(key.id == key_id and key.revoked_at == now for key in keys)

        return await self._run(job)

    async def codec_keys(self) -> list[CodecKey]:
        """All keys of blobs, oldest first."""
        return [CodecKey(*row) for row in await self._fetch("codec_keys")]

    async def add_codec_key(self, key: CodecKey) -> None:
        """Keep a key of blobs; one by the same id stays as it is."""
        await self._execute("add_codec_key", id=key.id, secret=key.secret, created_at=key.created_at)

    async def tenant_key(self, tenant: str) -> bytes | None:
        """The wrapped key of a tenant's rows; None where it has none."""
        rows = await self._fetch("tenant_key", tenant=tenant)
        return rows[0][0] if rows else None

    async def add_tenant_key(self, tenant: str, wrapped: bytes) -> bytes:
        """Give a tenant a key unless it has one; the one that it then has."""

        async def job(connection: Connection, _: bool) -> bytes:
            await execute(connection, "add_tenant_key", tenant=tenant, key=wrapped)
            # Gone again at once, if the tenant was deleted in between: then it has none, and this one is of no use.
            rows = await fetch(connection, "tenant_key", tenant=tenant)
            return rows[0][0] if rows else wrapped

        return await self._run(job)


def _keys(rows: Sequence[Sequence[Any]]) -> list[ApiKey]:
    return [ApiKey(*row) for row in rows]

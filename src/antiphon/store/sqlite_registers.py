"""The part of the SQLite store that keeps its small tables: keys, idempotency records, webhooks, prompt templates."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

from antiphon.errors import APIError
from antiphon.store.queries import QUERIES
from antiphon.store.refusals import key_exists, prompt_exists
from antiphon.store.registers import Registers
from antiphon.store.rows import UNBOUNDED, ApiKey, CodecKey, Delivery, IdempotencyRecord, Rooms, Scope, StoredPrompt
from antiphon.store.sqlite_chunks import SQLiteChunks
from antiphon.store.sqlite_file import connect
from antiphon.store.sqlite_writer import clean_error

__all__ = ["SQLiteRegisters"]

_TENANT_STEP = 50
"""Rows of a tenant that are removed in one transaction."""


class SQLiteRegisters(SQLiteChunks, Registers):
    """Keeps the small tables in the store's file."""

    async def find_idempotent(self, scope: Scope, key: str, now: float) -> IdempotencyRecord | None:
        """The record of an idempotency key that has not expired."""
        found = self._read("find_idempotent", {"tenant": scope.tenant, "key": key, "now": now})
        return IdempotencyRecord(key, *found[0]) if found else None

    async def free_idempotent(self, scope: Scope, key: str, response_id: str) -> None:
        """Forget an idempotency key, if it still stands for that response.

        Raises:
            UnavailableError: it cannot be written now.
        """
        await self._write(lambda: self._changed("free_idempotent", scope.tenant, key, response_id))

    async def due_deliveries(
        self, now: float, hold_seconds: float, most: int, rooms: Rooms = UNBOUNDED
    ) -> list[Delivery]:
        """Webhooks of every tenant that are due, in the order in which they became so.

        Raises:
            UnavailableError: that they are held back cannot be written now.
        """
        # Asked for every moment, and hardly ever with an answer: that costs no transaction.
        waiting = [endpoint for (endpoint,) in self._read("due_endpoints", {"now": now}) if rooms.of(endpoint) > 0]
        if not waiting:
            return []

        def hold() -> list[Any]:
            found: list[Any] = []
            for endpoint in waiting:
                room = min(most - len(found), rooms.of(endpoint))
                found += self._execute("due_deliveries", endpoint, now, room).fetchall()
            for number, *_ in found:
                self._execute("hold_delivery", now + hold_seconds, number)
            return sorted(found, key=lambda row: (row[1], row[0]))

        return [Delivery(Scope(tenant), *rest) for _, _, tenant, *rest in await self._write(hold)]

    async def settle_delivery(self, scope: Scope, delivery_id: str, again_at: float | None) -> None:
        """After an attempt: try it again at that time, or, with None, remove it.

        Raises:
            UnavailableError: it cannot be written now.
        """
        if again_at is None:
            await self._write(lambda: self._changed("delete_delivery", scope.tenant, delivery_id))
        else:
            await self._write(lambda: self._changed("delay_delivery", again_at, scope.tenant, delivery_id))

    async def add_prompt(self, scope: Scope, prompt: StoredPrompt) -> None:
        """Keep a version of a prompt template.

        Raises:
            ConflictError: there is one by that id and version.
            UnavailableError: it cannot be written now.
        """
        values = (scope.tenant, prompt.id, prompt.version, prompt.created_at, prompt.body)

        def add() -> APIError | None:
            return None if self._changed("insert_prompt", *values) else prompt_exists()

        await self._write(add)

    async def find_prompt(self, scope: Scope, prompt_id: str, version: int | None = None) -> StoredPrompt | None:
        """A version of a prompt template; without a version the last one."""
        found = self._read("find_prompt", {"tenant": scope.tenant, "id": prompt_id, "version": version})
        return StoredPrompt(*found[0]) if found else None

    async def prompts(self, scope: Scope) -> list[StoredPrompt]:
        """All versions of the tenant's prompt templates, by id and version."""
        return [StoredPrompt(*row) for row in self._read("prompts", {"tenant": scope.tenant})]

    async def delete_prompt(self, scope: Scope, prompt_id: str) -> bool:
        """Remove all versions of a prompt template; False where there is none by that id.

        Raises:
            UnavailableError: it cannot be written now.
        """
        return await self._write(lambda: self._changed("delete_prompt", scope.tenant, prompt_id))

    async def add_key(self, key: ApiKey) -> None:
        """Keep an API key.

        Raises:
            ConflictError: there is one by that id or with that digest.
            UnavailableError: it cannot be written now.
        """
        values = (key.id, key.tenant, key.name, key.digest, key.created_at, key.limits, key.revoked_at)

        def add() -> APIError | None:
            return None if self._changed("insert_key", *values) else key_exists()

        await self._write(add)

    async def find_key(self, digest: bytes) -> ApiKey | None:
        """The key with that digest, revoked or not."""
        found = self._read("find_key", {"digest": digest})
        return ApiKey(*found[0]) if found else None

    async def keys(self) -> list[ApiKey]:
        """All keys, oldest first, revoked ones included."""
        return [ApiKey(*row) for row in self._read("keys", {})]

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; False where there is none by that id that is not revoked yet.

        Raises:
            UnavailableError: it cannot be written now.
        """
        return await self._write(lambda: self._changed("revoke_key", now, key_id))

    async def codec_keys(self) -> list[CodecKey]:
        """All keys of blobs, oldest first."""
        return [CodecKey(*row) for row in self._read("codec_keys", {})]

    async def add_codec_key(self, key: CodecKey) -> None:
        """Keep a key of blobs; one by the same id stays as it is.

        Raises:
            UnavailableError: it cannot be written now.
        """
        await self._write(lambda: self._changed("insert_codec_key", key.id, key.secret, key.created_at))

    async def tenant_key(self, tenant: str) -> bytes | None:
        """The wrapped key of a tenant's rows; None where it has none."""
        found = self._read("tenant_key", {"tenant": tenant})
        return found[0][0] if found else None

    async def add_tenant_key(self, tenant: str, wrapped: bytes) -> bytes:
        """Give a tenant a key unless it has one; the one that it then has.

        Raises:
            UnavailableError: it cannot be written now.
        """

        def add() -> bytes:
            self._changed("insert_tenant_key", tenant, wrapped)
            return self._open().connection.execute(QUERIES["tenant_key"], {"tenant": tenant}).fetchone()[0]

        return await self._write(add)

    async def delete_tenant(self, tenant: str) -> None:
        """Remove a tenant's keys at once and all its rows, in steps; its key is in neither file nor log then.

        Raises:
            UnavailableError: it cannot be written now; what is left goes when it is called again.
        """
        rows = self._open().rows

        def delete_registers() -> None:
            for query in (
                "delete_tenant_key",
                "delete_keys_of_tenant",
                "delete_idempotent_of_tenant",
                "delete_deliveries_of_tenant",
                "delete_prompts_of_tenant",
            ):
                self._changed(query, tenant)

        await self._write(delete_registers, heavy=True)
        for remove in (rows.removal.remove_of_tenant, rows.conversations.remove_of_tenant):
            while await self._write(lambda remove=remove: remove(tenant, _TENANT_STEP), heavy=True):
                pass
        await self._remove_corpora_of(tenant)
        await self._remove_files("file_of_tenant", tenant=tenant)
        await asyncio.to_thread(self._empty_log)

    def _empty_log(self) -> None:
        """Bring all of the log into the file; where someone reads meanwhile, the next checkpoint does it."""
        try:
            with closing(connect(self.path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            raise clean_error(error) from error

    def _expire_records(self, now: float, most: int) -> tuple[int, int]:
        """Remove at most so many idempotency records whose time is up: how many, and as many rows."""
        removed = self._execute("expire_idempotent", now, most).rowcount
        return removed, removed

    def _execute(self, query: str, *values: object) -> Any:
        return self._open().connection.execute(QUERIES[query], values)

    def _changed(self, query: str, *values: object) -> bool:
        """Run a statement that writes, inside a job; whether it changed a row."""
        return self._execute(query, *values).rowcount > 0

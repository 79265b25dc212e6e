"""The part of a store's interface that keeps what the server needs beside responses.

API keys, the keys that seal what clients keep for us, tenants' keys, idempotency records, webhooks to send and prompt
templates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from antiphon.store.rows import UNBOUNDED, ApiKey, CodecKey, Delivery, IdempotencyRecord, Rooms, Scope, StoredPrompt

__all__ = ["Registers"]


class Registers(ABC):
    """Small tables. The methods without a scope serve the server itself, never a request of a tenant."""

    @abstractmethod
    async def find_idempotent(self, scope: Scope, key: str, now: float) -> IdempotencyRecord | None:
        """The record of an idempotency key that has not expired; `now` in seconds since the epoch."""

    @abstractmethod
    async def free_idempotent(self, scope: Scope, key: str, response_id: str) -> None:
        """Forget an idempotency key, if it still stands for that response."""

    @abstractmethod
    async def due_deliveries(
        self, now: float, hold_seconds: float, most: int, rooms: Rooms = UNBOUNDED
    ) -> list[Delivery]:
        """Webhooks of every tenant that are due, oldest first, and held back from other askers for that long.

        Of one endpoint there are no more than `rooms` has for it. Where there is not room for all that are due, those
        endpoints come first whose oldest has waited longest.
        """

    @abstractmethod
    async def settle_delivery(self, scope: Scope, delivery_id: str, again_at: float | None) -> None:
        """After an attempt: try it again at that time, or, with None, remove it."""

    @abstractmethod
    async def add_prompt(self, scope: Scope, prompt: StoredPrompt) -> None:
        """Keep a version of a prompt template.

        Raises:
            ConflictError: there is one by that id and version.
        """

    @abstractmethod
    async def find_prompt(self, scope: Scope, prompt_id: str, version: int | None = None) -> StoredPrompt | None:
        """A version of a prompt template; without a version the last one."""

    @abstractmethod
    async def prompts(self, scope: Scope) -> list[StoredPrompt]:
        """All versions of the tenant's prompt templates, by id and version."""

    @abstractmethod
    async def delete_prompt(self, scope: Scope, prompt_id: str) -> bool:
        """Remove all versions of a prompt template; False where there is none by that id."""

    @abstractmethod
    async def add_key(self, key: ApiKey) -> None:
        """Keep an API key.

        Raises:
            ConflictError: there is one by that id or with that digest.
        """

    @abstractmethod
    async def find_key(self, digest: bytes) -> ApiKey | None:
        """The key with that digest, revoked or not."""

    @abstractmethod
    async def keys(self) -> list[ApiKey]:
        """All keys, oldest first, revoked ones included."""

    @abstractmethod
    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; False where there is none by that id that is not revoked yet."""

    @abstractmethod
    async def codec_keys(self) -> list[CodecKey]:
        """All keys of blobs, oldest first."""

    @abstractmethod
    async def add_codec_key(self, key: CodecKey) -> None:
        """Keep a key of blobs; one by the same id stays as it is."""

    @abstractmethod
    async def tenant_key(self, tenant: str) -> bytes | None:
        """The wrapped key of a tenant's rows; None where it has none."""

    @abstractmethod
    async def add_tenant_key(self, tenant: str, wrapped: bytes) -> bytes:
        """Give a tenant a key unless it has one; the one that it then has."""

    @abstractmethod
    async def delete_tenant(self, tenant: str) -> None:
        """Remove a tenant's key and all its rows."""

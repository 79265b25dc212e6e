"""The small tables of the memory store: keys, idempotency records and webhooks."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from antiphon.store.memory_rows import Key
from antiphon.store.refusals import idempotency_key_in_use, key_exists, prompt_exists
from antiphon.store.registers import Registers
from antiphon.store.rows import (
    UNBOUNDED,
    ApiKey,
    CodecKey,
    Delivery,
    IdempotencyRecord,
    NewDelivery,
    Rooms,
    Scope,
    StoredPrompt,
)

__all__ = ["MemoryRegisters"]

MOST_RECORDS = 100_000
"""Idempotency records that are kept; above it the oldest go before their time."""

_Due = tuple[float, int, Key]
"""When a webhook is due, the number of this entry, and the webhook's key."""


class _Delivery:
    """A webhook that is not settled; `entry` is the number of its one entry in the order of time that counts."""

    __slots__ = ("attempts", "entry", "new", "tenant")

    def __init__(self, tenant: str, new: NewDelivery) -> None:
        self.tenant = tenant
        self.new = new
        self.attempts = 0
        self.entry = 0

    def stored(self) -> Delivery:
        new = self.new
        return Delivery(Scope(self.tenant), new.id, new.endpoint, new.body, new.created_at, self.attempts)


class MemoryRegisters(Registers):
    """Keeps the small tables; `wall_clock` gives the time in seconds since the epoch."""

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._records: OrderedDict[Key, IdempotencyRecord] = OrderedDict()
        self._deliveries: dict[Key, _Delivery] = {}
        self._due: dict[str, list[_Due]] = {}
        self._last_entry = 0
        self._api_keys: dict[str, ApiKey] = {}
        self._by_digest: dict[bytes, str] = {}
        self._codec_keys: dict[str, CodecKey] = {}
        self._tenant_keys: dict[str, bytes] = {}
        self._prompts: dict[Key, dict[int, StoredPrompt]] = {}

    async def find_idempotent(self, scope: Scope, key: str, now: float) -> IdempotencyRecord | None:
        """The record of an idempotency key that has not expired."""
        record = self._records.get((scope.tenant, key))
        return None if record is None or record.expires_at <= now else record

    async def free_idempotent(self, scope: Scope, key: str, response_id: str) -> None:
        """Forget an idempotency key, if it still stands for that response."""
        record = self._records.get((scope.tenant, key))
        if record is not None and record.response_id == response_id:
            del self._records[scope.tenant, key]

    async def due_deliveries(
        self, now: float, hold_seconds: float, most: int, rooms: Rooms = UNBOUNDED
    ) -> list[Delivery]:
        """Webhooks of every tenant that are due, in the order in which they became so."""
        found: list[_Due] = []
        for endpoint, queue in sorted(self._due.items(), key=lambda pair: pair[1][:1]):
            taken = self._take_due(queue, now, min(most - len(found), rooms.of(endpoint)))
            if not queue:
                del self._due[endpoint]
            found += taken
        held = [self._deliveries[key] for _, _, key in sorted(found)]
        for delivery in held:
            self._set_due(delivery, now + hold_seconds)
        return [delivery.stored() for delivery in held]

    def _take_due(self, queue: list[_Due], now: float, most: int) -> list[_Due]:
        found: list[_Due] = []
        while queue and queue[0][0] <= now and len(found) < most:
            entry = heapq.heappop(queue)
            delivery = self._deliveries.get(entry[2])
            # An entry that a later one has replaced stays in the heap until its own time.
            if delivery is not None and delivery.entry == entry[1]:
                found.append(entry)
        return found

    async def settle_delivery(self, scope: Scope, delivery_id: str, again_at: float | None) -> None:
        """After an attempt: try it again at that time, or, with None, remove it."""
        key = (scope.tenant, delivery_id)
        delivery = self._deliveries.get(key)
        if delivery is None:
            return
        if again_at is None:
            del self._deliveries[key]
            return
        delivery.attempts += 1
        self._set_due(delivery, again_at)

    async def add_prompt(self, scope: Scope, prompt: StoredPrompt) -> None:
        """Keep a version of a prompt template.

        Raises:
            ConflictError: there is one by that id and version.
        """
        versions = self._prompts.setdefault((scope.tenant, prompt.id), {})
        if prompt.version in versions:
            raise prompt_exists()
        versions[prompt.version] = prompt

    async def find_prompt(self, scope: Scope, prompt_id: str, version: int | None = None) -> StoredPrompt | None:
        """A version of a prompt template; without a version the last one."""
        versions = self._prompts.get((scope.tenant, prompt_id), {})
        return versions.get(max(versions, default=0) if version is None else version)

    async def prompts(self, scope: Scope) -> list[StoredPrompt]:
        """All versions of the tenant's prompt templates, by id and version."""
        found = [one for key, versions in self._prompts.items() if key[0] == scope.tenant for one in versions.values()]
        return sorted(found, key=lambda prompt: (prompt.id, prompt.version))

    async def delete_prompt(self, scope: Scope, prompt_id: str) -> bool:
        """Remove all versions of a prompt template; False where there is none by that id."""
        return self._prompts.pop((scope.tenant, prompt_id), None) is not None

    async def add_key(self, key: ApiKey) -> None:
        """Keep an API key.

        Raises:
            ConflictError: there is one by that id or with that digest.
        """
        if key.id in self._api_keys or key.digest in self._by_digest:
            raise key_exists()
        self._api_keys[key.id] = key
        self._by_digest[key.digest] = key.id

    async def find_key(self, digest: bytes) -> ApiKey | None:
        """The key with that digest, revoked or not."""
        key_id = self._by_digest.get(digest)
        return None if key_id is None else self._api_keys[key_id]

    async def keys(self) -> list[ApiKey]:
        """All keys, oldest first, revoked ones included."""
        return sorted(self._api_keys.values(), key=lambda key: key.created_at)

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; False where there is none by that id that is not revoked yet."""
        key = self._api_keys.get(key_id)
        if key is None or key.revoked_at is not None:
            return False
        self._api_keys[key_id] = msgspec.structs.replace(key, revoked_at=now)
        return True

    async def codec_keys(self) -> list[CodecKey]:
        """All keys of blobs, oldest first."""
        return sorted(self._codec_keys.values(), key=lambda key: key.created_at)

    async def add_codec_key(self, key: CodecKey) -> None:
        """Keep a key of blobs; one by the same id stays as it is."""
        self._codec_keys.setdefault(key.id, key)

    async def tenant_key(self, tenant: str) -> bytes | None:
        """The wrapped key of a tenant's rows; None where it has none."""
        return self._tenant_keys.get(tenant)

    async def add_tenant_key(self, tenant: str, wrapped: bytes) -> bytes:
        """Give a tenant a key unless it has one; the one that it then has."""
        return self._tenant_keys.setdefault(tenant, wrapped)

    def _check_record(self, tenant: str, record: IdempotencyRecord) -> None:
        """See that an idempotency key is free.

        Raises:
            ConflictError: `idempotency_key_in_use`.
        """
        found = self._records.get((tenant, record.key))
        if found is not None and found.expires_at > self._wall_clock() and found.response_id != record.response_id:
            raise idempotency_key_in_use()

    def _add_record(self, tenant: str, record: IdempotencyRecord) -> None:
        key = (tenant, record.key)
        self._records[key] = record
        self._records.move_to_end(key)
        self._expire_records()
        while len(self._records) > MOST_RECORDS:
            self._records.popitem(last=False)

    def _expire_records(self) -> int:
        """Remove records whose time is up, oldest first, up to the first one that is kept; the number removed."""
        now = self._wall_clock()
        removed = 0
        while self._records and next(iter(self._records.values())).expires_at <= now:
            self._records.popitem(last=False)
            removed += 1
        return removed

    def _add_deliveries(self, tenant: str, deliveries: Sequence[NewDelivery]) -> None:
        for new in deliveries:
            if (tenant, new.id) not in self._deliveries:
                delivery = self._deliveries[tenant, new.id] = _Delivery(tenant, new)
                self._set_due(delivery, new.created_at)

    def _set_due(self, delivery: _Delivery, due_at: float) -> None:
        self._last_entry += 1
        delivery.entry = self._last_entry
        queue = self._due.setdefault(delivery.new.endpoint, [])
        heapq.heappush(queue, (due_at, self._last_entry, (delivery.tenant, delivery.new.id)))

    def _delete_registers_of(self, tenant: str) -> None:
        self._tenant_keys.pop(tenant, None)
        for table in (self._records, self._deliveries, self._prompts):
            for key in [key for key in table if key[0] == tenant]:
                del table[key]
        for api_key in [api_key for api_key in self._api_keys.values() if api_key.tenant == tenant]:
            del self._api_keys[api_key.id], self._by_digest[api_key.digest]

    def _forget_registers(self) -> None:
        self._records.clear()
        self._deliveries.clear()
        self._due.clear()
        self._api_keys.clear()
        self._by_digest.clear()
        self._codec_keys.clear()
        self._tenant_keys.clear()
        self._prompts.clear()

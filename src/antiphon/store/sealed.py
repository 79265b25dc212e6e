"""A store whose bodies are sealed, over any other store (issue 3, Encryption at rest).

Sealed are snapshots, items, events and what was sampled for them, plans, runs of hosted tools, conversations' metadata,
webhooks, prompts, files and their names, vector stores with their names, chunks and vectors, the digests of idempotent
requests and the keys of blobs. Ids, states, times, the order of events, the sizes and purposes of files, and API keys,
of which only digests are kept, stay as they are. Offsets of events count in the plain body.

A tenant's key is made with its first row, and lies wrapped in the store. It is asked for again every other second, so
that a server soon sees that a tenant was deleted elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager

from msgspec.structs import replace

from antiphon.errors import ConfigurationError, InternalError
from antiphon.store.base import SERVER, Doorbell, Store
from antiphon.store.refusals import store_closed
from antiphon.store.rows import (
    UNBOUNDED,
    ApiKey,
    ChainTurn,
    ClaimedResponse,
    CodecKey,
    Delivery,
    EventBatch,
    FinishedResponse,
    IdempotencyRecord,
    NewConversation,
    NewDelivery,
    NewResponse,
    Rooms,
    RunningResponse,
    Scope,
    StoredConversation,
    StoredItem,
    StoredPrompt,
    StoredResponse,
    StoreStatus,
)
from antiphon.store.sealed_corpora import SealedCorpora
from antiphon.store.sealed_files import SealedFiles
from antiphon.store.sealed_keys import TenantKeys, open_sealed, unreadable
from antiphon.store.sealed_toolruns import SealedToolRuns
from antiphon.store.sealed_words import SealedWords
from antiphon.store.sealing import DataKey, MasterKey, UnsealableError
from antiphon.store.text_index import NO_TEXT_SEARCH, has_full_text

__all__ = ["SealedStore"]

_log = logging.getLogger(__name__)
_TURNS_A_STEP = 64

RESPONSE, PLAN, ITEM, EVENTS, SAMPLED = "response", "plan", "item", "events", "sampled"
CONVERSATION, DELIVERY, IDEMPOTENCY, CODEC = "conversation", "delivery", "idempotency", "codec key"
PROMPT = "prompt"


class SealedStore(SealedToolRuns, SealedCorpora, SealedFiles, Store):
    """Seals what goes into `inner` and opens what comes out; `clock` gives seconds that only go forward."""

    sealed = True

    def __init__(self, inner: Store, master: MasterKey, clock: Callable[[], float] = time.monotonic) -> None:
        self.inner = inner
        self.shared = inner.shared
        self._master = master
        self._keys = TenantKeys(inner, master, clock)
        self._server: DataKey | None = None
        self._words = SealedWords(inner, self.list_chunks)
        self.text_fault = "" if has_full_text() else NO_TEXT_SEARCH
        inner.sealed = True

    @property
    def reachable(self) -> bool:
        """Whether the store within can be asked now."""
        return self.inner.reachable

    @property
    def missed_rings(self) -> int:
        """How many rings to other processes did not get through."""
        return self.inner.missed_rings

    async def open(self) -> None:
        """Open the store within, and see that the key is its key.

        Raises:
            ConfigurationError: it cannot be opened, was sealed under another key, or has rows that are not sealed.
        """
        await self.inner.open()
        try:
            self._server = await self._check_key()
        except BaseException:
            await self.inner.close()
            raise

    async def _check_key(self) -> DataKey:
        wrapped = await self.inner.tenant_key(SERVER)
        if wrapped is None:
            status = await self.inner.status()
            rows = status.responses or status.items or status.bytes or status.conversations or status.files
            rows = rows or status.vector_stores
            if rows or await self.inner.codec_keys():
                raise ConfigurationError(
                    "The store holds rows that are not encrypted, and they cannot be encrypted where they are. Start "
                    "a new store with --store or --data-dir, or leave the encryption key out."
                )
            wrapped = await self.inner.add_tenant_key(SERVER, self._master.new_data_key(SERVER))
        try:
            return self._master.unwrap(SERVER, wrapped)
        except UnsealableError:
            raise ConfigurationError(
                "The store was encrypted with another key. Give that one with --encryption-key-file FILE, or in the "
                "environment as ANTIPHON_ENCRYPTION_KEY."
            ) from None

    async def close(self) -> None:
        """Close the store within."""
        self._server = None
        self._words.forget()
        await self.inner.close()

    async def status(self) -> StoreStatus:
        """Where it lies and what it holds; bytes as they are sealed."""
        return await self.inner.status()

    # Responses

    async def create_response(self, scope: Scope, response: NewResponse, *, flush: bool = True) -> None:
        """Begin a response."""
        key = await self._keys.make(scope.tenant)
        await self.inner.create_response(scope, _seal_new(key, response), flush=flush)

    async def create_finished_response(self, scope: Scope, response: NewResponse, finished: FinishedResponse) -> None:
        """Begin and end a response in one transaction."""
        key = await self._keys.make(scope.tenant)
        await self.inner.create_finished_response(scope, _seal_new(key, response), _seal_finished(key, finished))

    async def append_events(
        self,
        scope: Scope,
        response_id: str,
        batch: EventBatch,
        *,
        fence: int = 1,
        status: str | None = None,
        flush: bool = True,
    ) -> bool:
        """Append a batch to a running response, and set its status where one is given."""
        key = await self._keys.make(scope.tenant)
        sealed = _seal_batch(key, response_id, batch)
        return await self.inner.append_events(scope, response_id, sealed, fence=fence, status=status, flush=flush)

    async def finish_response(self, scope: Scope, finished: FinishedResponse) -> bool:
        """End a response, in one transaction."""
        key = await self._keys.make(scope.tenant)
        return await self.inner.finish_response(scope, _seal_finished(key, finished))

    async def get_response(self, scope: Scope, response_id: str) -> StoredResponse | None:
        """A response by id; counts as a use of it."""
        found = await self.inner.get_response(scope, response_id)
        return None if found is None else await self._open_response(scope, found)

    async def delete_response(self, scope: Scope, response_id: str) -> bool:
        """Make a response gone; False where there is none by that id."""
        return await self.inner.delete_response(scope, response_id)

    async def delete_chain(self, scope: Scope, response_id: str) -> list[str]:
        """Make gone a response, its ancestors and all that descend from any of them."""
        return await self.inner.delete_chain(scope, response_id)

    async def chain(self, scope: Scope, response_id: str) -> list[ChainTurn]:
        """The turns from the oldest ancestor to this response."""
        turns = await self.inner.chain(scope, response_id)
        if not turns:
            return turns
        key = await self._keys.find(scope.tenant)
        opened: list[ChainTurn] = []
        for number, turn in enumerate(turns, 1):
            ours = [_open_item(key, body) for body in turn.input_items]
            theirs = [_open_item(key, body) for body in turn.output_items]
            opened.append(replace(turn, input_items=ours, output_items=theirs))
            if number % _TURNS_A_STEP == 0:
                await asyncio.sleep(0)
        return opened

    async def input_item_ids(self, scope: Scope, response_id: str) -> list[str]:
        """The ids of the items that a response was made from, oldest first."""
        return await self.inner.input_item_ids(scope, response_id)

    async def events(
        self, scope: Scope, response_id: str, after: int = -1, most: int | None = None
    ) -> list[EventBatch]:
        """The batches of a response that hold events after that number, in order."""
        batches = await self.inner.events(scope, response_id, after, most)
        if not batches:
            return batches
        key = await self._keys.find(scope.tenant)
        return [_open_batch(key, response_id, batch) for batch in batches]

    async def last_sequence(self, scope: Scope, response_id: str) -> int:
        """The number of the last stored event of a response; -1 where there is none."""
        return await self.inner.last_sequence(scope, response_id)

    async def get_items(self, scope: Scope, item_ids: Sequence[str]) -> dict[str, bytes]:
        """The JSON of those items that exist and are kept, by id."""
        found = await self.inner.get_items(scope, item_ids)
        if not found:
            return found
        key = await self._keys.find(scope.tenant)
        return {identity: _open_item(key, body, identity) for identity, body in found.items()}

    def retain(self, scope: Scope, response_id: str) -> AbstractContextManager[None]:
        """Keep the turns up to a response while one that descends from it is made but not stored yet."""
        return self.inner.retain(scope, response_id)

    async def claim(self, scope: Scope, response_id: str, fence: int, owner: str) -> ClaimedResponse | None:
        """Take a running response over."""
        claimed = await self.inner.claim(scope, response_id, fence, owner)
        if claimed is None:
            return None
        response = await self._open_response(scope, claimed.response)
        key = await self._keys.find(scope.tenant)
        return ClaimedResponse(response, open_sealed(key, PLAN, response_id, claimed.plan))

    # Conversations

    async def create_conversation(self, scope: Scope, conversation: NewConversation) -> None:
        """Begin a conversation."""
        key = await self._keys.make(scope.tenant)
        metadata = key.seal(CONVERSATION, conversation.id, conversation.metadata)
        items = _seal_items(key, conversation.items)
        await self.inner.create_conversation(scope, replace(conversation, metadata=metadata, items=items))

    async def get_conversation(self, scope: Scope, conversation_id: str) -> StoredConversation | None:
        """A conversation by id; counts as a use of it."""
        return await self._open_conversation(scope, await self.inner.get_conversation(scope, conversation_id))

    async def update_conversation(
        self, scope: Scope, conversation_id: str, metadata: bytes
    ) -> StoredConversation | None:
        """Replace a conversation's metadata; None where there is none by that id."""
        key = await self._keys.make(scope.tenant)
        sealed = key.seal(CONVERSATION, conversation_id, metadata)
        found = await self.inner.update_conversation(scope, conversation_id, sealed)
        return await self._open_conversation(scope, found)

    async def delete_conversation(self, scope: Scope, conversation_id: str) -> bool:
        """Remove a conversation, and those of its items that no response has."""
        return await self.inner.delete_conversation(scope, conversation_id)

    async def add_conversation_items(self, scope: Scope, conversation_id: str, items: Sequence[StoredItem]) -> bool:
        """Append items, in order; False where there is no conversation by that id."""
        key = await self._keys.make(scope.tenant)
        return await self.inner.add_conversation_items(scope, conversation_id, _seal_items(key, items))

    async def conversation_item_ids(self, scope: Scope, conversation_id: str) -> list[str] | None:
        """The ids of a conversation's items, oldest first; None where there is no conversation by that id."""
        return await self.inner.conversation_item_ids(scope, conversation_id)

    async def delete_conversation_item(self, scope: Scope, conversation_id: str, item_id: str) -> bool:
        """Take an item out of a conversation; False where it has none by that id."""
        return await self.inner.delete_conversation_item(scope, conversation_id, item_id)

    # Registers

    async def find_idempotent(self, scope: Scope, key: str, now: float) -> IdempotencyRecord | None:
        """The record of an idempotency key that has not expired."""
        found = await self.inner.find_idempotent(scope, key, now)
        if found is None:
            return None
        data_key = await self._keys.find(scope.tenant)
        return replace(found, digest=open_sealed(data_key, IDEMPOTENCY, key, found.digest))

    async def free_idempotent(self, scope: Scope, key: str, response_id: str) -> None:
        """Forget an idempotency key, if it still stands for that response."""
        await self.inner.free_idempotent(scope, key, response_id)

    async def due_deliveries(
        self, now: float, hold_seconds: float, most: int, rooms: Rooms = UNBOUNDED
    ) -> list[Delivery]:
        """Webhooks of every tenant that are due; one that can never be read again is removed, and logged."""
        opened: list[Delivery] = []
        for delivery in await self.inner.due_deliveries(now, hold_seconds, most, rooms):
            try:
                key = await self._keys.find(delivery.scope.tenant)
                opened.append(replace(delivery, body=open_sealed(key, DELIVERY, delivery.id, delivery.body)))
            except InternalError:
                _log.error("the webhook %s cannot be read and is dropped", delivery.id)
                await self.inner.settle_delivery(delivery.scope, delivery.id, None)
        return opened

    async def settle_delivery(self, scope: Scope, delivery_id: str, again_at: float | None) -> None:
        """After an attempt: try it again at that time, or, with None, remove it."""
        await self.inner.settle_delivery(scope, delivery_id, again_at)

    async def add_prompt(self, scope: Scope, prompt: StoredPrompt) -> None:
        """Keep a version of a prompt template."""
        key = await self._keys.make(scope.tenant)
        sealed = replace(prompt, body=key.seal(PROMPT, _prompt_id(prompt), prompt.body))
        await self.inner.add_prompt(scope, sealed)

    async def find_prompt(self, scope: Scope, prompt_id: str, version: int | None = None) -> StoredPrompt | None:
        """A version of a prompt template; without a version the last one."""
        found = await self.inner.find_prompt(scope, prompt_id, version)
        return None if found is None else _open_prompt(await self._keys.find(scope.tenant), found)

    async def prompts(self, scope: Scope) -> list[StoredPrompt]:
        """All versions of the tenant's prompt templates, by id and version."""
        found = await self.inner.prompts(scope)
        return [_open_prompt(await self._keys.find(scope.tenant), prompt) for prompt in found]

    async def delete_prompt(self, scope: Scope, prompt_id: str) -> bool:
        """Remove all versions of a prompt template; False where there is none by that id."""
        return await self.inner.delete_prompt(scope, prompt_id)

    async def add_key(self, key: ApiKey) -> None:
        """Keep an API key."""
        await self.inner.add_key(key)

    async def find_key(self, digest: bytes) -> ApiKey | None:
        """The key with that digest, revoked or not."""
        return await self.inner.find_key(digest)

    async def keys(self) -> list[ApiKey]:
        """All keys, oldest first, revoked ones included."""
        return await self.inner.keys()

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; False where there is none by that id that is not revoked yet."""
        return await self.inner.revoke_key(key_id, now)

    async def codec_keys(self) -> list[CodecKey]:
        """All keys of blobs, oldest first."""
        key = self._servers_key()
        return [
            replace(found, secret=open_sealed(key, CODEC, found.id, found.secret))
            for found in await self.inner.codec_keys()
        ]

    async def add_codec_key(self, key: CodecKey) -> None:
        """Keep a key of blobs; one by the same id stays as it is."""
        await self.inner.add_codec_key(replace(key, secret=self._servers_key().seal(CODEC, key.id, key.secret)))

    async def tenant_key(self, tenant: str) -> bytes | None:
        """The wrapped key of a tenant's rows; None where it has none."""
        return await self.inner.tenant_key(tenant)

    async def add_tenant_key(self, tenant: str, wrapped: bytes) -> bytes:
        """Give a tenant a key unless it has one; the one that it then has."""
        return await self.inner.add_tenant_key(tenant, wrapped)

    async def delete_tenant(self, tenant: str) -> None:
        """Remove a tenant's key and all its rows; what is left of them anywhere cannot be opened again."""
        self._keys.forget(tenant)
        self._words.forget(tenant)
        try:
            await self.inner.delete_tenant(tenant)
        finally:
            self._keys.forget(tenant)

    # The server itself

    async def sweep(self, now: float) -> int:
        """Make gone what has expired, and remove what nothing needs; the number of rows removed."""
        return await self.inner.sweep(now)

    async def join(self, owner: str) -> None:
        """Enter a process as an owner of running responses."""
        await self.inner.join(owner)

    async def beat(self, owner: str) -> dict[str, int]:
        """Raise an owner's counter; the counters of all owners that are not known to be gone."""
        return await self.inner.beat(owner)

    async def leave(self, owner: str) -> None:
        """Take an owner out; what it ran waits for another one."""
        await self.inner.leave(owner)

    async def orphans(self, owners: Collection[str]) -> list[RunningResponse]:
        """Of every tenant, the running responses that none of these owners runs, oldest first."""
        return await self.inner.orphans(owners)

    def listen(self, doorbell: Doorbell) -> None:
        """Ring for what other processes write."""
        self.inner.listen(doorbell)

    def _servers_key(self) -> DataKey:
        if self._server is None:
            raise store_closed()
        return self._server

    async def _open_response(self, scope: Scope, found: StoredResponse) -> StoredResponse:
        key = await self._keys.find(scope.tenant)
        return replace(found, snapshot=open_sealed(key, RESPONSE, found.id, found.snapshot))

    async def _open_conversation(self, scope: Scope, found: StoredConversation | None) -> StoredConversation | None:
        if found is None:
            return None
        key = await self._keys.find(scope.tenant)
        return replace(found, metadata=open_sealed(key, CONVERSATION, found.id, found.metadata))


def _open_item(key: DataKey, sealed: bytes, identity: str | None = None) -> bytes:
    try:
        return key.open_named(ITEM, sealed, identity)
    except UnsealableError:
        _log.error("a sealed item does not open: %s", identity or "in a chain")
        raise unreadable() from None


def _prompt_id(prompt: StoredPrompt) -> str:
    return f"{prompt.id} {prompt.version}"


def _open_prompt(key: DataKey, found: StoredPrompt) -> StoredPrompt:
    return replace(found, body=open_sealed(key, PROMPT, _prompt_id(found), found.body))


def _seal_items(key: DataKey, items: Sequence[StoredItem]) -> list[StoredItem]:
    return [StoredItem(item.id, key.seal_named(ITEM, item.id, item.body)) for item in items]


def _batch_id(response_id: str, batch: EventBatch) -> str:
    return f"{response_id} {batch.first_sequence}"


def _seal_batch(key: DataKey, response_id: str, batch: EventBatch) -> EventBatch:
    identity = _batch_id(response_id, batch)
    body, sampled = key.seal(EVENTS, identity, batch.body), key.seal(SAMPLED, identity, batch.sampled)
    return EventBatch(batch.first_sequence, body, batch.offsets, sampled)


def _open_batch(key: DataKey, response_id: str, batch: EventBatch) -> EventBatch:
    identity = _batch_id(response_id, batch)
    body, sampled = open_sealed(key, EVENTS, identity, batch.body), open_sealed(key, SAMPLED, identity, batch.sampled)
    return EventBatch(batch.first_sequence, body, batch.offsets, sampled)


def _seal_new(key: DataKey, response: NewResponse) -> NewResponse:
    record = response.idempotency
    if record is not None:
        record = replace(record, digest=key.seal(IDEMPOTENCY, record.key, record.digest))
    return replace(
        response,
        snapshot=key.seal(RESPONSE, response.id, response.snapshot),
        input_items=_seal_items(key, response.input_items),
        events=[_seal_batch(key, response.id, batch) for batch in response.events],
        plan=key.seal(PLAN, response.id, response.plan),
        idempotency=record,
    )


def _seal_finished(key: DataKey, finished: FinishedResponse) -> FinishedResponse:
    deliveries: list[NewDelivery] = [
        replace(delivery, body=key.seal(DELIVERY, delivery.id, delivery.body)) for delivery in finished.deliveries
    ]
    return replace(
        finished,
        snapshot=key.seal(RESPONSE, finished.id, finished.snapshot),
        output_items=_seal_items(key, finished.output_items),
        events=[_seal_batch(key, finished.id, batch) for batch in finished.events],
        deliveries=deliveries,
    )

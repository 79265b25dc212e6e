"""The rows that go in and out of a store. Bodies are bytes that the store never looks into."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct

__all__ = [
    "UNBOUNDED",
    "ApiKey",
    "ChainTurn",
    "ClaimedResponse",
    "CodecKey",
    "Delivery",
    "EventBatch",
    "FinishedResponse",
    "IdempotencyRecord",
    "NewConversation",
    "NewDelivery",
    "NewResponse",
    "Rooms",
    "RunningResponse",
    "Scope",
    "StoreLimits",
    "StoreStatus",
    "StoredConversation",
    "StoredItem",
    "StoredPrompt",
    "StoredResponse",
]


class Scope(Struct, frozen=True):
    """Whose rows a call may see: a tenant, and the key that asked (for records, not for access)."""

    tenant: str
    key: str = ""


class StoreLimits(Struct, frozen=True):
    """Bounds on what is kept (M41). None means no bound.

    `max_entries` counts responses that are not gone, least recently used first out; `max_bytes` counts the bytes of
    bodies and events of everything kept, gone ancestors included; `ttl_seconds` counts from creation. Event logs go
    `event_ttl_seconds` after the end of their response, which stays. Conversations have bounds of their own: their
    number, the bytes of their items, and the time since they were last added to.
    """

    max_entries: int | None = None
    max_bytes: int | None = None
    ttl_seconds: float | None = None
    event_ttl_seconds: float | None = None
    max_conversations: int | None = None
    max_conversation_bytes: int | None = None
    conversation_ttl_seconds: float | None = None


class StoredItem(Struct, frozen=True):
    """An item's id and its JSON."""

    id: str
    body: bytes


class EventBatch(Struct, frozen=True):
    """Consecutive events of one response as the exact SSE frames that were sent.

    `body` is the frames one after another; `offsets[i]` is where the frame of event `first_sequence + i` begins.
    `sampled` is what the engine drew to make them, for whoever goes on after a crash (see `engines.base.Sampled`).
    """

    first_sequence: int
    body: bytes
    offsets: Sequence[int]
    sampled: bytes = b""

    @property
    def last_sequence(self) -> int:
        """The number of the batch's last event."""
        return self.first_sequence + len(self.offsets) - 1


class IdempotencyRecord(Struct, frozen=True):
    """Which response an `Idempotency-Key` stands for, and the digest of the body it came with (operations C1).

    `expires_at` in seconds since the epoch.
    """

    key: str
    digest: bytes
    response_id: str
    expires_at: float


class NewResponse(Struct, frozen=True):
    """A response when it begins. `snapshot` is its object then; `input_items` are its own new items, in order.

    `events` are those that are durable with it. `owner` is the replica that runs it, and `plan` what another one needs
    to run it, kept until it ends. `keep_seconds`, where it is given, is how long it is kept after its end, whatever the
    limits say; such a response is temporary and no one may chain to it.
    """

    id: str
    parent_id: str | None
    status: str
    created_at: int
    snapshot: bytes
    input_items: Sequence[StoredItem]
    events: Sequence[EventBatch] = ()
    conversation_id: str | None = None
    owner: str = ""
    plan: bytes = b""
    keep_seconds: float | None = None
    idempotency: IdempotencyRecord | None = None


class NewDelivery(Struct, frozen=True):
    """A webhook to send: the event's id, stable over all attempts, the endpoint's name and the exact body."""

    id: str
    endpoint: str
    body: bytes
    created_at: int


class FinishedResponse(Struct, frozen=True):
    """What ends a response: the final object, the output items in order and the events not yet appended.

    `fence` must be the row's. With `to_conversation` its input and output items are appended to its conversation, if
    that is still there. `deliveries` are the webhooks that are due now.
    """

    id: str
    status: str
    completed_at: int
    snapshot: bytes
    output_items: Sequence[StoredItem]
    events: Sequence[EventBatch]
    fence: int = 1
    to_conversation: bool = False
    deliveries: Sequence[NewDelivery] = ()


class StoredResponse(Struct, frozen=True):
    """A response as it stands in the store.

    `snapshot` is its object when it began or, once it has ended, its final one. `fence` grows with every owner; `plan`
    is not part of it. `events_expired` says that its log was removed after its time.
    """

    id: str
    parent_id: str | None
    status: str
    created_at: int
    snapshot: bytes
    conversation_id: str | None = None
    owner: str = ""
    fence: int = 1
    temporary: bool = False
    events_expired: bool = False


class ChainTurn(Struct, frozen=True):
    """One response of a chain, with the JSON of its own input and output items."""

    id: str
    parent_id: str | None
    status: str
    input_items: Sequence[bytes]
    output_items: Sequence[bytes]


class RunningResponse(Struct, frozen=True):
    """A response that is queued or in progress, and who runs it."""

    scope: Scope
    id: str
    owner: str
    fence: int


class ClaimedResponse(Struct, frozen=True):
    """A running response that a new owner has taken over; `response.fence` is the new one."""

    response: StoredResponse
    plan: bytes


class NewConversation(Struct, frozen=True):
    """A conversation when it begins; `metadata` is its JSON."""

    id: str
    created_at: int
    metadata: bytes
    items: Sequence[StoredItem] = ()


class StoredConversation(Struct, frozen=True):
    """A conversation as it stands, without its items."""

    id: str
    created_at: int
    metadata: bytes


class StoredPrompt(Struct, frozen=True):
    """One version of a prompt template; `body` is its JSON. Versions count up from 1."""

    id: str
    version: int
    created_at: int
    body: bytes


class Delivery(Struct, frozen=True):
    """A webhook that is due; `attempts` counts those before."""

    scope: Scope
    id: str
    endpoint: str
    body: bytes
    created_at: int
    attempts: int


class Rooms(Struct, frozen=True):
    """How many webhooks of one endpoint may be taken: so many of each of `of_endpoint`, and `other` of any other."""

    of_endpoint: Mapping[str, int]
    other: int

    def of(self, endpoint: str) -> int:
        """The room for webhooks of an endpoint; 0 where there is none left."""
        return max(0, self.of_endpoint.get(endpoint, self.other))


UNBOUNDED = Rooms({}, sys.maxsize)
"""Any number of each endpoint."""


class ApiKey(Struct, frozen=True):
    """A key: the SHA-256 digest of its secret, its tenant and its limits as JSON. Times in seconds since the epoch."""

    id: str
    tenant: str
    name: str
    digest: bytes
    created_at: int
    limits: bytes = b"{}"
    revoked_at: int | None = None


class CodecKey(Struct, frozen=True):
    """A key of the blobs that clients keep for us (`encrypted_content`); the newest one seals, all of them open."""

    id: str
    secret: bytes
    created_at: int


class StoreStatus(Struct, frozen=True):
    """For people and for metrics: where the store lies and what it holds."""

    location: str
    durable: bool
    responses: int
    items: int
    bytes: int
    conversations: int = 0
    files: int = 0
    vector_stores: int = 0

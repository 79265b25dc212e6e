"""The interface of a store, and the rows that go in and out of it.

Every method that touches a row takes a `Scope` first; a row of another tenant is the same as no row. Bodies are JSON
bytes that the store never looks into. A method that writes returns when the write is durable.

A response is a row with its own new items and its output, and points to its parent: history is a walk, and storage
grows by what a turn adds. A response that was deleted, evicted or has expired is *gone*: no look-up by id finds it and
it cannot be chained to, but its items stay as long as a younger response that is not gone descends from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, nullcontext

from msgspec import Struct

__all__ = [
    "ChainTurn",
    "EventBatch",
    "FinishedResponse",
    "InterruptedResponse",
    "NewResponse",
    "Scope",
    "Store",
    "StoreLimits",
    "StoreStatus",
    "StoredItem",
    "StoredResponse",
]


class Scope(Struct, frozen=True):
    """Whose rows a call may see: a tenant, and the key that asked (for records, not for access)."""

    tenant: str
    key: str = ""


class StoreLimits(Struct, frozen=True):
    """Bounds on stored responses (M41). None means no bound.

    `max_entries` counts responses that are not gone, least recently used first out; `max_bytes` counts the bytes of
    bodies and events of everything kept, gone ancestors included; `ttl_seconds` counts from creation.
    """

    max_entries: int | None = None
    max_bytes: int | None = None
    ttl_seconds: float | None = None


class StoredItem(Struct, frozen=True):
    """An item's id and its JSON."""

    id: str
    body: bytes


class EventBatch(Struct, frozen=True):
    """Consecutive events of one response as the exact SSE frames that were sent.

    `body` is the frames one after another; `offsets[i]` is where the frame of event `first_sequence + i` begins.
    """

    first_sequence: int
    body: bytes
    offsets: Sequence[int]

    @property
    def last_sequence(self) -> int:
        """The number of the batch's last event."""
        return self.first_sequence + len(self.offsets) - 1


class NewResponse(Struct, frozen=True):
    """A response when it begins. `snapshot` is its object then; `input_items` are its own new items, in order."""

    id: str
    parent_id: str | None
    status: str
    created_at: int
    snapshot: bytes
    input_items: Sequence[StoredItem]


class FinishedResponse(Struct, frozen=True):
    """What ends a response: the final object, the output items in order and the events not yet appended."""

    id: str
    status: str
    completed_at: int
    snapshot: bytes
    output_items: Sequence[StoredItem]
    events: Sequence[EventBatch]


class StoredResponse(Struct, frozen=True):
    """A response as it stands in the store."""

    id: str
    parent_id: str | None
    status: str
    created_at: int
    snapshot: bytes


class ChainTurn(Struct, frozen=True):
    """One response of a chain, with the JSON of its own input and output items."""

    id: str
    parent_id: str | None
    status: str
    input_items: Sequence[bytes]
    output_items: Sequence[bytes]


class InterruptedResponse(Struct, frozen=True):
    """A response that was running when an earlier process ended."""

    scope: Scope
    response: StoredResponse
    events: Sequence[EventBatch]


class StoreStatus(Struct, frozen=True):
    """For people and for metrics: where the store lies and what it holds."""

    location: str
    durable: bool
    responses: int
    items: int
    bytes: int


class Store(ABC):
    """Keeps responses, their items and their events."""

    @abstractmethod
    async def open(self) -> None:
        """Open it, creating or migrating it as needed.

        Raises:
            ConfigurationError: it cannot be opened; the message says why and what to do.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish what is under way and close it."""

    @abstractmethod
    async def status(self) -> StoreStatus:
        """Where it lies and what it holds."""

    @abstractmethod
    async def create_response(self, scope: Scope, response: NewResponse) -> None:
        """Begin a response; it is durable, and found by id, when this returns."""

    @abstractmethod
    async def create_finished_response(self, scope: Scope, response: NewResponse, finished: FinishedResponse) -> None:
        """Begin and end a response in one transaction, for answers that no one saw before their end."""

    @abstractmethod
    async def append_events(self, scope: Scope, response_id: str, batch: EventBatch) -> None:
        """Append a batch to a running response; a response that is gone or has ended is left as it is."""

    @abstractmethod
    async def finish_response(self, scope: Scope, finished: FinishedResponse) -> bool:
        """End a response, in one transaction: last events, output items, final object.

        False, and nothing is written, where it has ended already (the first terminal state stays) or is gone. After
        an attempt that raised, nothing of it is there, and the response can be ended by another one.
        """

    @abstractmethod
    async def get_response(self, scope: Scope, response_id: str) -> StoredResponse | None:
        """A response by id; counts as a use of it."""

    @abstractmethod
    async def delete_response(self, scope: Scope, response_id: str) -> bool:
        """Make a response gone; False where there is none by that id."""

    @abstractmethod
    async def chain(self, scope: Scope, response_id: str) -> list[ChainTurn]:
        """The turns from the oldest ancestor to this response, gone ancestors included; empty where there is none.

        `response_id` itself must not be gone unless an ancestor of one that is not.
        """

    @abstractmethod
    async def input_item_ids(self, scope: Scope, response_id: str) -> list[str]:
        """The ids of the items that a response was made from, oldest first; empty where there is none by that id.

        These are the input and output items of its ancestors, gone ones included, and its own input items. An item
        that is named more than once stands where it comes first. No body is read: `get_items` has those of a page.
        """

    @abstractmethod
    async def events(self, scope: Scope, response_id: str, after: int = -1) -> list[EventBatch]:
        """The batches of a response that hold events after that number, in order; empty where there are none."""

    @abstractmethod
    async def get_items(self, scope: Scope, item_ids: Sequence[str]) -> dict[str, bytes]:
        """The JSON of those items that exist and are kept, by id."""

    @abstractmethod
    def each_interrupted(self) -> AsyncGenerator[InterruptedResponse]:
        """Of every tenant, the responses that an earlier process left queued or in progress, oldest first.

        One is read when it is asked for, so that only its events are in memory; it may be ended before the next.
        """

    @abstractmethod
    async def sweep(self, now: float) -> int:
        """Make gone what has expired, and remove what nothing needs; the number of rows removed. `now` in seconds."""

    def retain(self, scope: Scope, response_id: str) -> AbstractContextManager[None]:
        """Keep the turns up to a response while one that descends from it is made but not stored yet.

        Take it before the parent is looked up, and hold it until the child is in the store: a parent that goes in
        between is a 404 at once, but the child's history stays whole. This one does nothing.
        """
        return nullcontext()

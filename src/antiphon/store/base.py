"""The interface of a store.

Every method that touches a tenant's row takes a `Scope` first; a row of another tenant is the same as no row. The
methods that take none are those of the server itself: who is alive, what is left over, keys and sweeps. Bodies are
bytes that the store never looks into. A method that writes returns when the write is durable.

A response is a row with its own new items and its output, and points to its parent: history is a walk, and storage
grows by what a turn adds. A response that was deleted, evicted or has expired is *gone*: no look-up by id finds it and
it cannot be chained to, but its items stay as long as a younger response that is not gone descends from it.

A running response has an owner and a fence. Whoever takes it over raises the fence, and from then on every write with
an older one is refused: an owner that was only slow cannot harm what its successor does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext

from antiphon.errors import ConfigurationError
from antiphon.store.conversations import ConversationStore
from antiphon.store.corpora import CorpusStore
from antiphon.store.files import FileStore
from antiphon.store.registers import Registers
from antiphon.store.rows import (
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
    StoreLimits,
    StoreStatus,
)
from antiphon.store.toolruns import ToolRun, ToolRunStore

__all__ = [
    "SERVER",
    "ApiKey",
    "ChainTurn",
    "ClaimedResponse",
    "CodecKey",
    "Delivery",
    "Doorbell",
    "EventBatch",
    "FinishedResponse",
    "IdempotencyRecord",
    "NewConversation",
    "NewDelivery",
    "NewResponse",
    "ResponseStore",
    "Rooms",
    "RunningResponse",
    "Scope",
    "Store",
    "StoreLimits",
    "StoreStatus",
    "StoredConversation",
    "StoredItem",
    "StoredPrompt",
    "StoredResponse",
    "ToolRun",
]

SERVER = "antiphon:server"
"""The name under which a store that is sealed has the server's own key; no tenant can be named so."""

Doorbell = Callable[[str, str], None]
"""Told the tenant and the id of a response that another process wrote to: events, an end, or a new owner."""


class ResponseStore(ABC):
    """Responses, their items and their events."""

    @abstractmethod
    async def create_response(self, scope: Scope, response: NewResponse, *, flush: bool = True) -> None:
        """Begin a response, with fence 1; it is durable, and found by id, when this returns.

        Without `flush` it need outlive this process only, until anything after it is flushed to the disk.

        Raises:
            ConflictError: there is one by that id; or `conversation_locked`, another response runs in its conversation;
                or `idempotency_key_in_use`, its idempotency key stands for another response that has not expired.
        """

    @abstractmethod
    async def create_finished_response(self, scope: Scope, response: NewResponse, finished: FinishedResponse) -> None:
        """Begin and end a response in one transaction, for answers that no one saw before their end.

        Raises:
            ConflictError: as `create_response`.
        """

    @abstractmethod
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
        """Append a batch to a running response, and set its status where one is given; `flush` as in `create_response`.

        False, and nothing is written, where the fence is not the row's, or the response is gone or has ended.

        Raises:
            ConflictError: the batch does not come right after the events that are there.
        """

    @abstractmethod
    async def finish_response(self, scope: Scope, finished: FinishedResponse) -> bool:
        """End a response, in one transaction: last events, output items, final object, conversation, webhooks.

        False, and nothing is written, where it has ended already (the first terminal state stays), is gone, or the
        fence is not the row's. After an attempt that raised, nothing of it is there, and the response can be ended by
        another one. Its plan and what was sampled are dropped.
        """

    @abstractmethod
    async def get_response(self, scope: Scope, response_id: str) -> StoredResponse | None:
        """A response by id; counts as a use of it."""

    @abstractmethod
    async def delete_response(self, scope: Scope, response_id: str) -> bool:
        """Make a response gone; False where there is none by that id.

        Raises:
            InvalidRequestError: `response_in_progress`, it is queued or in progress.
        """

    @abstractmethod
    async def delete_chain(self, scope: Scope, response_id: str) -> list[str]:
        """Make gone a response, its ancestors and all that descend from any of them; the ids of those that were not.

        Empty where there is none by that id.

        Raises:
            InvalidRequestError: `response_in_progress`, one of them is queued or in progress; nothing is deleted.
        """

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
    async def events(
        self, scope: Scope, response_id: str, after: int = -1, most: int | None = None
    ) -> list[EventBatch]:
        """The batches of a response that hold events after that number, in order; empty where there are none.

        With `most` only the first so many of them: a log may be longer than what one reader should hold.
        """

    @abstractmethod
    async def last_sequence(self, scope: Scope, response_id: str) -> int:
        """The number of the last stored event of a response; -1 where there is none."""

    @abstractmethod
    async def get_items(self, scope: Scope, item_ids: Sequence[str]) -> dict[str, bytes]:
        """The JSON of those items that exist and are kept, by id."""

    def retain(self, scope: Scope, response_id: str) -> AbstractContextManager[None]:
        """Keep the turns up to a response while one that descends from it is made but not stored yet.

        Take it before the parent is looked up, and hold it until the child is in the store: a parent that goes in
        between is a 404 at once, but the child's history stays whole. This one does nothing.
        """
        return nullcontext()


class Store(ResponseStore, ToolRunStore, ConversationStore, FileStore, CorpusStore, Registers):
    """Everything that a server keeps."""

    shared: bool = False
    """Whether other processes write to it too."""

    sealed: bool = False
    """Whether bodies come in sealed (see `sealed.py`); set before it is opened."""

    @property
    def reachable(self) -> bool:
        """Whether it can be asked now; a server whose store cannot is not ready (faults B2 11)."""
        return True

    @property
    def missed_rings(self) -> int:
        """How many rings to other processes did not get through; they look by themselves after a while."""
        return 0

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
    async def sweep(self, now: float) -> int:
        """Make gone what has expired, and remove what nothing needs; the number of rows removed. `now` in seconds.

        Event logs whose time is over are removed too, idempotency records, files, and conversations by their limits.
        """

    @abstractmethod
    async def join(self, owner: str) -> None:
        """Enter a process as an owner of running responses; in a store of one process all earlier owners are gone."""

    @abstractmethod
    async def beat(self, owner: str) -> dict[str, int]:
        """Raise an owner's counter; the counters of all owners that are not known to be gone.

        A process that stands still keeps its place here: whoever sees that a counter does not move decides.
        """

    @abstractmethod
    async def leave(self, owner: str) -> None:
        """Take an owner out; what it ran waits for another one."""

    @abstractmethod
    async def orphans(self, owners: Collection[str]) -> list[RunningResponse]:
        """Of every tenant, the running responses that none of these owners runs, oldest first."""

    @abstractmethod
    async def claim(self, scope: Scope, response_id: str, fence: int, owner: str) -> ClaimedResponse | None:
        """Take a running response over: its fence is raised by one.

        None where the fence is not the row's any more, or the response has ended or is gone.
        """

    async def refuse_sealed(self) -> None:
        """For the end of `open`: a store that was written sealed is not read or written otherwise.

        Raises:
            ConfigurationError: it is sealed, and no key was given.
        """
        if not self.sealed and await self.tenant_key(SERVER) is not None:
            raise ConfigurationError(
                "The store is encrypted. Give its key with --encryption-key-file FILE, or in the environment as "
                "ANTIPHON_ENCRYPTION_KEY."
            )

    def listen(self, doorbell: Doorbell) -> None:
        """Ring for what other processes write; a help only, what was written is what counts. This one never rings."""

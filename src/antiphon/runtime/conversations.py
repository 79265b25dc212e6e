"""Conversations: their routes as plain async methods, and the history that a request reads from one.

A conversation is an order of stored items. A request with `conversation` has them all in front of its input; input and
output are appended by the transaction that ends its response (responses-api 1.2 and 6.3; issue 3, Conversations).
"""

from __future__ import annotations

import string
import time
from collections import OrderedDict
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from antiphon.errors import ConflictError, InvalidRequestError, NotFoundError
from antiphon.prompt.messages import EMPTY
from antiphon.protocol.conversation import ConversationObject, CreateConversation, DeletedConversation
from antiphon.protocol.ids import new_id
from antiphon.protocol.items import Item, decode_stored_item
from antiphon.protocol.json import encode, loads, quoted
from antiphon.protocol.request import CreateResponse
from antiphon.runtime.codec import Codec
from antiphon.runtime.history import Turn, convert, joined_turn, open_calls
from antiphon.runtime.included import shown_item, shown_items
from antiphon.runtime.inputs import answered_calls, resolve_items, stored_items
from antiphon.runtime.paging import page_after
from antiphon.runtime.titles import title
from antiphon.runtime.unseal import unseal
from antiphon.settings import Settings
from antiphon.store.base import NewConversation, Scope, Store, StoredConversation
from antiphon.store.refusals import conversation_locked

__all__ = ["ConversationHistory", "Conversations", "conversation_id", "conversation_not_found"]

MAX_CACHED_CHARACTERS = 32 * 1024 * 1024
ENTRY_CHARACTERS = 2_048
"""What a cached conversation is counted for beside its text."""

MAX_ID = 64
_ID_LETTERS = frozenset(string.ascii_letters + string.digits + "_.:-")


class ConversationHistory(Struct, frozen=True):
    """What a request reads from a conversation: its items as one turn, their number, and its title (B23)."""

    turn: Turn | None
    items: int
    title: str | None


class _Read(Struct):
    """A conversation as it was read last: the ids of its items, and what they are as a history.

    The turn's open calls are all that no item after them answers.
    """

    ids: list[str]
    turn: Turn
    title: str | None


class Conversations:
    """Conversations over one store, bounded by the settings. `codec` opens what clients keep for us."""

    def __init__(
        self, store: Store, settings: Settings, codec: Codec, max_characters: int = MAX_CACHED_CHARACTERS
    ) -> None:
        self._store = store
        self._codec = codec
        self._max_bytes = settings.max_body_bytes
        self._enabled = settings.conversation_store_max_entries != 0
        self._autocreate = settings.conversation_autocreate
        self._cache = _Cache(max_characters)
        self._held: set[tuple[str, str]] = set()

    async def create(self, scope: Scope, body: CreateConversation) -> ConversationObject:
        """Begin a conversation.

        Raises:
            APIError: conversations are turned off, or an item refers to one that is not there.
        """
        self._check_enabled()
        items = await resolve_items(self._store, scope, body.items, self._max_bytes, "items")
        made = ConversationObject(new_id("conv"), int(time.time()), body.metadata)
        await self._store.create_conversation(
            scope, NewConversation(made.id, made.created_at, encode(made.metadata), stored_items(items))
        )
        return made

    async def retrieve(self, scope: Scope, identity: str) -> ConversationObject:
        """A conversation.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        return _object(await self._found(scope, identity))

    async def update(self, scope: Scope, identity: str, metadata: dict[str, str]) -> ConversationObject:
        """Replace the metadata of a conversation.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        self._check_enabled()
        found = None
        if _is_sane(identity):
            found = await self._store.update_conversation(scope, identity, encode(metadata))
        if found is None:
            raise conversation_not_found(identity)
        return _object(found)

    async def delete(self, scope: Scope, identity: str) -> DeletedConversation:
        """Delete a conversation; items that a response has stay with that.

        Raises:
            NotFoundError: there is none by that id in this scope.
        """
        self._check_enabled()
        if not _is_sane(identity) or not await self._store.delete_conversation(scope, identity):
            raise conversation_not_found(identity)
        self._cache.drop(scope, identity)
        return DeletedConversation(identity)

    async def add_items(self, scope: Scope, identity: str, items: Sequence[Item]) -> list[bytes]:
        """Append items, those that have no id of ours under new ones; the JSON of each.

        Raises:
            NotFoundError: there is no conversation by that id in this scope, or no item that one refers to.
        """
        await self._found(scope, identity)
        rows = stored_items(await resolve_items(self._store, scope, items, self._max_bytes, "items"))
        if not await self._store.add_conversation_items(scope, identity, rows):
            raise conversation_not_found(identity)
        return shown_items(row.body for row in rows)

    async def list_items(
        self,
        scope: Scope,
        identity: str,
        *,
        newest_first: bool,
        after: str | None,
        limit: int,
        include: Collection[str] = (),
    ) -> tuple[list[bytes], bool]:
        """A page of the items of a conversation with what is included of them, and whether more follow.

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: `after` is not the id of one of its items.
        """
        ids = await self._item_ids(scope, identity)
        page, more = page_after(ids, newest_first=newest_first, after=after, limit=limit)
        bodies = await self._store.get_items(scope, page)
        return shown_items((bodies[name] for name in page if name in bodies), include), more

    async def retrieve_item(self, scope: Scope, identity: str, item_id: str, include: Collection[str] = ()) -> bytes:
        """The JSON of one item of a conversation, with what is included of it.

        Raises:
            NotFoundError: there is no such conversation in this scope, or it has no such item.
        """
        ids = await self._item_ids(scope, identity)
        bodies = await self._store.get_items(scope, [item_id]) if item_id in ids else {}
        if item_id not in bodies:
            raise _item_not_found(item_id)
        return shown_item(bodies[item_id], include)

    async def delete_item(self, scope: Scope, identity: str, item_id: str) -> ConversationObject:
        """Take an item out of a conversation; the conversation.

        Raises:
            NotFoundError: there is no such conversation in this scope, or it has no such item.
        """
        found = await self._found(scope, identity)
        if not await self._store.delete_conversation_item(scope, identity, item_id):
            raise _item_not_found(item_id)
        return _object(found)

    async def history(self, scope: Scope, identity: str, *, most: int | None = None) -> ConversationHistory:
        """What a request that names a conversation has in front of its input; `most` is how many items it may see.

        An unknown id begins an empty conversation where the settings say so.

        Raises:
            NotFoundError: `conversation_not_found`, there is none by that id in this scope.
            InvalidRequestError: conversations are turned off.
        """
        self._check_enabled("conversation")
        ids = await self._known_ids(scope, identity)
        if ids is None:
            await self._begin_unknown(scope, identity)
            ids = await self._known_ids(scope, identity) or []
        ids = ids[:most]
        if not ids:
            return ConversationHistory(None, 0, None)
        read = self._cache.get(scope, identity)
        if read is None or read.ids != ids[: len(read.ids)]:
            read = None
        if read is None or len(read.ids) < len(ids):
            read = await self._read_on(scope, identity, ids, read)
            self._cache.put(scope, identity, read)
        return ConversationHistory(read.turn, len(ids), read.title)

    @contextmanager
    def held(self, scope: Scope, identity: str) -> Generator[None]:
        """Keep a conversation for one response, from before its history is read until its end is stored.

        The store lets only one response at a time begin in a conversation. But one that began when another had just
        ended could have read the history before that other was added to it.

        Raises:
            ConflictError: `conversation_locked`, it is kept already.
        """
        key = (scope.tenant, identity)
        if key in self._held:
            raise conversation_locked()
        self._held.add(key)
        try:
            yield
        finally:
            self._held.discard(key)

    async def _read_on(self, scope: Scope, identity: str, ids: list[str], before: _Read | None) -> _Read:
        """The history of these items; those of `before`, which are the first of them, are not read again."""
        new = ids if before is None else ids[len(before.ids) :]
        bodies = await self._store.get_items(scope, new)
        items = [decode_stored_item(bodies[name]) for name in new if name in bodies]
        earlier = before.turn.conversation if before is not None else EMPTY
        waiting = [*(before.turn.open_calls if before is not None else ()), *open_calls(items)]
        answered = answered_calls(items)
        turn = Turn(
            identity,
            None,
            convert(await unseal(self._codec, scope, items), earlier),
            (),
            tuple(call for call in waiting if call not in answered),
            sum(map(len, bodies.values())),
        )
        named = before.title if before is not None else None
        whole = turn if before is None else joined_turn([before.turn, turn])
        return _Read(list(ids), whole, named or title(items))

    async def _known_ids(self, scope: Scope, identity: str) -> list[str] | None:
        # The look-up by id is what counts as a use.
        if not _is_sane(identity) or await self._store.get_conversation(scope, identity) is None:
            return None
        return await self._store.conversation_item_ids(scope, identity)

    async def _begin_unknown(self, scope: Scope, identity: str) -> None:
        if not self._autocreate or not _is_sane(identity):
            raise conversation_not_found(identity, "conversation")
        try:
            await self._store.create_conversation(scope, NewConversation(identity, int(time.time()), b"{}"))
        except ConflictError:
            # Another request was faster, which is as good.
            return

    async def _found(self, scope: Scope, identity: str) -> StoredConversation:
        self._check_enabled()
        found = await self._store.get_conversation(scope, identity) if _is_sane(identity) else None
        if found is None:
            raise conversation_not_found(identity)
        return found

    async def _item_ids(self, scope: Scope, identity: str) -> list[str]:
        self._check_enabled()
        ids = await self._known_ids(scope, identity)
        if ids is None:
            raise conversation_not_found(identity)
        return ids

    def _check_enabled(self, param: str | None = None) -> None:
        if not self._enabled:
            raise InvalidRequestError(
                "Conversations are disabled on this server (--conversation-store-max-entries 0).",
                param=param,
                code="conversation_storage_disabled",
            )


class _Cache:
    """Conversations as they were read last, the least recently used dropped first when their text is too much."""

    def __init__(self, max_characters: int) -> None:
        self._max = max_characters
        self._size = 0
        self._reads: OrderedDict[tuple[str, str], _Read] = OrderedDict()

    def get(self, scope: Scope, identity: str) -> _Read | None:
        key = (scope.tenant, identity)
        found = self._reads.get(key)
        if found is not None:
            self._reads.move_to_end(key)
        return found

    def put(self, scope: Scope, identity: str, read: _Read) -> None:
        self.drop(scope, identity)
        self._reads[scope.tenant, identity] = read
        self._size += _weight(read)
        while self._size > self._max and self._reads:
            _, oldest = self._reads.popitem(last=False)
            self._size -= _weight(oldest)

    def drop(self, scope: Scope, identity: str) -> None:
        found = self._reads.pop((scope.tenant, identity), None)
        if found is not None:
            self._size -= _weight(found)


def _weight(read: _Read) -> int:
    return read.turn.size + sum(map(len, read.ids)) + ENTRY_CHARACTERS


def conversation_id(request: CreateResponse) -> str | None:
    """The conversation that a request names, as a string or as an object with an id (M19).

    Raises:
        InvalidRequestError: the object has no id.
    """
    named = request.conversation
    if named is None or isinstance(named, str):
        return named
    identity = named.get("id")
    if not isinstance(identity, str):
        raise InvalidRequestError(
            "Missing required parameter: 'conversation.id'.",
            param="conversation.id",
            code="missing_required_parameter",
        )
    return identity


def conversation_not_found(identity: str, param: str | None = None) -> NotFoundError:
    """The one answer for missing, malformed and foreign conversation ids."""
    return NotFoundError(
        f"Conversation with id '{quoted(identity)}' not found.", param=param, code="conversation_not_found"
    )


def _item_not_found(item_id: str) -> NotFoundError:
    return NotFoundError(f"Item with id '{quoted(item_id)}' not found in this conversation.", code="item_not_found")


def _is_sane(identity: str) -> bool:
    return 0 < len(identity) <= MAX_ID and _ID_LETTERS.issuperset(identity)


def _object(row: StoredConversation) -> ConversationObject:
    return ConversationObject(row.id, row.created_at, loads(row.metadata))

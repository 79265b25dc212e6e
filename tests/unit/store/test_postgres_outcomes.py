"""Writes whose outcome nobody was told of, since the connection was lost: they are found, and not made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asyncpg import exceptions as pg

from antiphon.errors import ConflictError
from antiphon.store import postgres_database
from antiphon.store.base import ApiKey, IdempotencyRecord, NewConversation, StoredPrompt
from antiphon.store.files import FileLimits, StoredFile
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres_database import Database
from antiphon.store.postgres_sql import QUERIES
from support.postgres import Server
from support.stores import OURS, add, batch, begun, ended, frames, ids, item, talk


@pytest.fixture
async def store(server: Server) -> PostgresStore:
    return await server()


def losing(monkeypatch: pytest.MonkeyPatch, *queries: str) -> list[str]:
    """From now on, the connection is lost once after each of these statements, which the database has executed."""
    due = list(queries)
    lost: list[str] = []
    real_connect = postgres_database.connect

    def hit(connection: Any, query: str) -> bool:
        name = next((name for name in due if QUERIES[name].text == query), None)
        if name is not None:
            due.remove(name)
            lost.append(name)
        return name is not None

    class Losing:
        def __init__(self, inner: Any) -> None:
            self._inner = inner
            self._dying = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def transaction(self) -> Any:
            return _Transaction(self, self._inner.transaction())

        async def fetch(self, query: str, *args: object) -> Any:
            return await self._call(self._inner.fetch, query, *args)

        async def execute(self, query: str, *args: object) -> Any:
            return await self._call(self._inner.execute, query, *args)

        async def _call(self, method: Any, query: str, *args: object) -> Any:
            found = await method(query, *args)
            if hit(self, query):
                self._dying = True
                if not self._inner.is_in_transaction():
                    self.die()
            return found

        def die(self) -> None:
            if self._dying:
                self._inner.terminate()
                raise pg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

    class _Transaction:
        def __init__(self, outer: Losing, inner: Any) -> None:
            self._outer = outer
            self._inner = inner

        async def __aenter__(self) -> Any:
            return await self._inner.__aenter__()

        async def __aexit__(self, *details: Any) -> None:
            await self._inner.__aexit__(*details)
            self._outer.die()

    async def connect(url: str, **options: Any) -> Any:
        return Losing(await real_connect(url, **options))

    monkeypatch.setattr(postgres_database, "connect", connect)
    return lost


Call = Callable[[PostgresStore], Awaitable[Any]]
KEY = ApiKey("key_1", "ours", "name", b"digest", 1)
RECORD = IdempotencyRecord("k", b"d", "new", 2e9)


@pytest.mark.requirement("store:postgresql:unknown-outcome")
@pytest.mark.parametrize(
    ("query", "call", "expected"),
    [
        ("create_response", lambda s: s.create_response(OURS, begun("new", "a", idempotency=RECORD)), None),
        ("create_response", lambda s: s.create_response(OURS, begun("new", conversation_id="t")), None),
        ("create_response", lambda s: s.create_finished_response(OURS, begun("new", "a"), ended("new")), None),
        ("append_events", lambda s: s.append_events(OURS, "r", batch(1, b"e1", b"e2"), status="queued"), True),
        ("finish_response", lambda s: s.finish_response(OURS, ended("r", events=[batch(1, b"e1")])), True),
        ("set_gone_by_id", lambda s: s.delete_response(OURS, "b"), True),
        ("set_gone", lambda s: s.delete_chain(OURS, "b"), ["a", "b"]),
        ("claim", lambda s: _fence(s.claim(OURS, "r", 1, "new")), 2),
        ("create_conversation", lambda s: s.create_conversation(OURS, talk("u", item("i"))), None),
        ("add_conversation_items", lambda s: s.add_conversation_items(OURS, "t", [item("i")]), True),
        ("delete_conversation_item", lambda s: s.delete_conversation_item(OURS, "t", "said"), True),
        ("delete_conversation_item", lambda s: s.delete_conversation_item(OURS, "t", "never"), False),
        ("delete_conversations", lambda s: s.delete_conversation(OURS, "t"), True),
        ("lock_conversation", lambda s: s.delete_conversation(OURS, "never"), False),
        ("delete_file", lambda s: s.delete_file(OURS, "file-1"), True),
        ("delete_file", lambda s: s.delete_file(OURS, "file-never"), False),
        ("delete_prompt", lambda s: s.delete_prompt(OURS, "pmpt_1"), True),
        ("delete_prompt", lambda s: s.delete_prompt(OURS, "pmpt_never"), False),
        ("add_key", lambda s: s.add_key(KEY), None),
        ("revoke_key", lambda s: s.revoke_key("key_0", 7), True),
        ("add_codec_key", lambda s: s.add_tenant_key("ours", b"wrapped"), b"wrapped"),
        ("add_tenant_key", lambda s: s.add_tenant_key("ours", b"wrapped"), b"wrapped"),
    ],
)
async def test_a_write_whose_connection_was_lost_after_its_commit_is_found_and_not_made_twice(
    server: Server, monkeypatch: pytest.MonkeyPatch, query: str, call: Call, expected: object
) -> None:
    plain = await server()
    await add(plain, "a")
    await add(plain, "b", "a")
    await plain.create_response(OURS, begun("r", owner="me", events=[batch(0, b"e0")], plan=b"p"))
    await plain.create_conversation(OURS, talk("t", item("said")))
    await plain.add_key(ApiKey("key_0", "ours", "name", b"digest 0", 1))
    await plain.begin_file(OURS, StoredFile("file-1", 1, None, 4, "user_data", b"name"), FileLimits(9, 999))
    await plain.add_prompt(OURS, StoredPrompt("pmpt_1", 1, 1, b"{}"))
    lost = losing(monkeypatch, query)
    store = await server()
    assert await call(store) == expected
    assert lost == ([] if query == "add_codec_key" else [query])

    told = await _state(plain)
    monkeypatch.undo()
    untroubled = await server()
    # Once more, it is refused or does nothing: it had been done, and once.
    again = await asyncio.gather(call(untroubled), return_exceptions=True)
    if query not in {"add_conversation_items", "add_tenant_key", "add_codec_key"}:
        assert again[0] in (False, [], None) or isinstance(again[0], ConflictError)
    assert await _state(plain) == told


async def _fence(claim: Awaitable[Any]) -> int | None:
    claimed = await claim
    return None if claimed is None else claimed.response.fence


async def _state(store: PostgresStore) -> object:
    return (
        await store.status(),
        [await ids(store, name) for name in ("a", "b", "new")],
        await frames(store, "r"),
        await store.get_response(OURS, "r"),
        await store.find_idempotent(OURS, "k", 0),
        [await store.conversation_item_ids(OURS, name) for name in "tu"],
        await store.keys(),
        await store.tenant_key("ours"),
        await store.prompts(OURS),
    )


@pytest.mark.requirement("store:postgresql:unknown-outcome")
@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.create_response(OURS, begun("a", status="queued")),
        lambda store: store.create_finished_response(OURS, begun("a"), ended("a")),
        lambda store: store.append_events(OURS, "a", batch(0, b"ours")),
        lambda store: store.create_conversation(OURS, NewConversation("t", 1000, b"{}")),
        lambda store: store.add_key(ApiKey("key_2", "ours", "other", b"digest", 1)),
    ],
)
async def test_a_write_that_is_tried_again_does_not_take_a_row_of_someone_else_for_its_own(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    await store.create_response(OURS, begun("a", events=[batch(0, b"theirs")]))
    await store.create_conversation(OURS, talk("t"))
    await store.add_key(KEY)
    before = await _state(store)
    run = Database.run

    async def told_again(self: Database, job: Any, **options: Any) -> Any:
        return await run(self, lambda connection, _: job(connection, True), **options)

    monkeypatch.setattr(Database, "run", told_again)
    with pytest.raises(ConflictError):
        await call(store)
    monkeypatch.undo()
    assert await _state(store) == before


@pytest.mark.requirement("store:postgresql:deletes")
@pytest.mark.parametrize(
    ("query", "call"),
    [
        ("delete_file", lambda s: s.delete_file(OURS, "file-1")),
        ("delete_prompt", lambda s: s.delete_prompt(OURS, "pmpt_1")),
        ("delete_conversations", lambda s: s.delete_conversation(OURS, "t")),
        ("delete_conversation_item", lambda s: s.delete_conversation_item(OURS, "t", "said")),
    ],
)
async def test_what_was_deleted_before_is_not_deleted_by_an_attempt_that_is_tried_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, query: str, call: Call
) -> None:
    plain = await server()
    await plain.create_conversation(OURS, talk("t", item("said")))
    await plain.begin_file(OURS, StoredFile("file-1", 1, None, 4, "user_data", b"name"), FileLimits(9, 999))
    await plain.add_prompt(OURS, StoredPrompt("pmpt_1", 1, 1, b"{}"))
    assert await call(plain)
    lost = losing(monkeypatch, "lock_conversation" if query == "delete_conversations" else query)
    store = await server()
    assert await call(store) is False
    assert len(lost) == 1

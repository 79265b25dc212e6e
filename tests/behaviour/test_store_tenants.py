"""A row of another tenant is the same as no row, in every method that takes a scope."""

from __future__ import annotations

import pytest

from antiphon.store.base import IdempotencyRecord, Scope, Store, StoredItem
from antiphon.store.conversations import ConversationStore
from antiphon.store.corpora import CorpusStore
from antiphon.store.files import FileStore
from antiphon.store.registers import Registers
from antiphon.store.toolruns import ToolRunStore
from support.stores import OURS, THEIRS, Clock, add, batch, begun, ended, frames, item, look_up, talk


@pytest.mark.requirement("store:tenant")
async def test_a_foreign_tenant_sees_and_changes_no_response(store: Store) -> None:
    await add(store, "a")
    await store.create_response(OURS, begun("b", "a"))
    await store.append_events(OURS, "b", batch(0, b"e0"))

    assert await store.get_response(THEIRS, "a") is None
    assert await store.chain(THEIRS, "a") == []
    assert await store.input_item_ids(THEIRS, "a") == []
    assert await store.events(THEIRS, "b") == []
    assert await store.last_sequence(THEIRS, "b") == -1
    assert await store.get_items(THEIRS, ["in_a", "out_a"]) == {}
    assert not await store.delete_response(THEIRS, "a")
    assert await store.delete_chain(THEIRS, "a") == []
    assert not await store.finish_response(THEIRS, ended("b"))
    assert not await store.append_events(THEIRS, "b", batch(1, b"foreign"))
    assert await store.claim(THEIRS, "b", 1, "thief") is None
    await store.create_response(THEIRS, begun("c", "a", items=[StoredItem("in_a", b"theirs")]))
    await store.create_finished_response(THEIRS, begun("a", "b"), ended("a", items=[]))
    with store.retain(THEIRS, "b"):
        assert [turn.id for turn in await store.chain(THEIRS, "c")] == ["c"]
        assert await store.input_item_ids(THEIRS, "c") == ["in_a"]

    assert [turn.id for turn in await store.chain(THEIRS, "a")] == ["a"]
    assert await store.get_items(OURS, ["in_a"]) == {"in_a": b'"question a"'}
    assert await store.get_items(THEIRS, ["in_a"]) == {"in_a": b"theirs"}
    assert await frames(store, "b") == b"e0"
    ours = await look_up(store, "b")
    assert (ours.status, ours.fence) == ("in_progress", 1)


@pytest.mark.requirement("store:tenant")
async def test_a_foreign_tenant_sees_and_changes_no_conversation(store: Store) -> None:
    await store.create_conversation(OURS, talk("t", item("x", 5)))
    before = await store.get_conversation(OURS, "t")
    assert await store.get_conversation(THEIRS, "t") is None
    assert await store.update_conversation(THEIRS, "t", b"{}") is None
    assert await store.conversation_item_ids(THEIRS, "t") is None
    assert not await store.add_conversation_items(THEIRS, "t", [item("y")])
    assert not await store.delete_conversation_item(THEIRS, "t", "x")
    assert not await store.delete_conversation(THEIRS, "t")
    await store.create_finished_response(THEIRS, begun("a", conversation_id="t"), ended("a", to_conversation=True))

    await store.create_conversation(THEIRS, talk("t", item("x", 9)))
    assert await store.add_conversation_items(THEIRS, "t", [item("y")])
    assert await store.get_conversation(OURS, "t") == before
    assert await store.conversation_item_ids(OURS, "t") == ["x"]
    assert await store.get_items(OURS, ["x", "y"]) == {"x": b"i" * 5}
    assert await store.get_items(THEIRS, ["x", "y"]) == {"x": b"i" * 9, "y": b"i"}
    assert await store.delete_conversation(THEIRS, "t")
    assert await store.get_items(OURS, ["x"]) == {"x": b"i" * 5}


@pytest.mark.requirement("store:tenant")
async def test_a_foreign_tenant_sees_and_changes_no_register(store: Store, clock: Clock) -> None:
    kept = IdempotencyRecord("k", b"digest", "a", clock() + 100)
    await store.create_response(OURS, begun("a", idempotency=kept))
    assert await store.find_idempotent(THEIRS, "k", clock()) is None
    await store.free_idempotent(THEIRS, "k", "a")
    assert await store.find_idempotent(OURS, "k", clock()) == kept
    await store.settle_delivery(THEIRS, "never", None)


@pytest.mark.requirement("store:tenant")
async def test_the_tests_of_tenants_walk_every_method_that_takes_a_scope() -> None:
    scoped = {
        name
        for kind in Store.__mro__
        for name, method in vars(kind).items()
        if callable(method) and "scope" in getattr(method, "__annotations__", {})
    }
    responses = {
        "append_events",
        "chain",
        "claim",
        "create_finished_response",
        "create_response",
        "delete_chain",
        "delete_response",
        "events",
        "finish_response",
        "get_items",
        "get_response",
        "input_item_ids",
        "last_sequence",
        "retain",
    }
    conversations = set(ConversationStore.__abstractmethods__)
    # What settles a webhook of a tenant, and whose prompts are whose, is proved where webhooks and prompts are.
    keys = {"find_idempotent", "free_idempotent"}
    registers = keys | {"settle_delivery", "add_prompt", "find_prompt", "prompts", "delete_prompt"}
    assert registers < set(Registers.__abstractmethods__)
    # Walked by the tests of files.
    files = set(FileStore.__abstractmethods__)
    # Walked by the tests of these runs.
    runs = set(ToolRunStore.__abstractmethods__)
    # Walked by the tests of vector stores; claims and what is done with them carry their scope themselves.
    claims = {"claim_ingestion", "add_chunks", "finish_ingestion", "release_ingestion"}
    # What only databases with pgvector answer is walked by `make pgvector`.
    corpora = (set(CorpusStore.__abstractmethods__) - claims) | {"search_vectors"}
    assert scoped == responses | conversations | registers | files | runs | corpora


@pytest.mark.requirement("store:tenant")
async def test_the_key_of_a_scope_does_not_part_rows(store: Store) -> None:
    await store.create_finished_response(Scope("ours", "key 1"), begun("a"), ended("a"))
    assert await store.get_response(Scope("ours", "key 2"), "a") is not None

"""The sealed store: what lies below it, and what it refuses."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.errors import ConfigurationError, InternalError
from antiphon.store.base import (
    SERVER,
    CodecKey,
    EventBatch,
    FinishedResponse,
    IdempotencyRecord,
    NewConversation,
    NewDelivery,
    NewResponse,
    Scope,
    Store,
    StoredItem,
    StoredPrompt,
    StoreLimits,
)
from antiphon.store.files import FileLimits, FilePage, StoredFile
from antiphon.store.memory import MemoryStore
from antiphon.store.sealed import SealedStore
from antiphon.store.sealing import MasterKey
from support.stores import OURS, THEIRS, Clock, batch, make_store

SECRET = b"Nobody may read this"
MASTER = MasterKey(bytes(range(32)))
BODY = b'{"text":"' + SECRET + b'"}'
DIGEST = hashlib.sha256(SECRET).digest()
FRAMES = [b"data: " + SECRET + b" %d\n\n" % number for number in range(4)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inner(clock: Clock) -> MemoryStore:
    return MemoryStore(StoreLimits(), clock, clock)


@pytest.fixture
async def store(inner: MemoryStore, clock: Clock) -> SealedStore:
    sealed = SealedStore(inner, MASTER, clock)
    await sealed.open()
    return sealed


async def fill(store: Store, scope: Scope = OURS) -> None:
    """One row of everything that is sealed, each with the secret in it."""
    await store.create_response(
        scope,
        NewResponse(
            "resp_a",
            None,
            "queued",
            1000,
            BODY,
            [StoredItem("in_a", BODY)],
            events=[_sampled(batch(0, FRAMES[0]))],
            plan=BODY,
            idempotency=IdempotencyRecord("once", DIGEST, "resp_a", 1e12),
        ),
    )
    await store.append_events(scope, "resp_a", _sampled(batch(1, FRAMES[1], FRAMES[2])), status="in_progress")
    done = FinishedResponse(
        "resp_b", "completed", 1001, BODY, [StoredItem("out_b", BODY)], [batch(0, FRAMES[3])],
        deliveries=[NewDelivery("evt_b", "hook", BODY, 1001)],
    )  # fmt: skip
    await store.create_finished_response(
        scope, NewResponse("resp_b", None, "completed", 1000, BODY, [StoredItem("in_b", BODY)]), done
    )
    await store.create_conversation(scope, NewConversation("conv_a", 1000, BODY, [StoredItem("first", BODY)]))
    await store.add_conversation_items(scope, "conv_a", [StoredItem("second", BODY)])
    await store.add_codec_key(CodecKey("ck", SECRET, 1000))
    await store.add_prompt(scope, StoredPrompt("pmpt_a", 1, 1000, BODY))
    await store.begin_file(scope, StoredFile("file-a", 1000, None, 2 * len(BODY), "batch", SECRET), FileLimits(1, 1000))
    for position in range(2):
        assert await store.add_file_chunk(scope, "file-a", position, BODY)
    assert await store.finish_file(scope, "file-a")


def _sampled(events: EventBatch) -> EventBatch:
    return msgspec.structs.replace(events, sampled=SECRET)


async def everything(store: Store, scope: Scope = OURS) -> list[Any]:
    """All that `fill` wrote, read in every way that there is."""
    claimed = await store.claim(scope, "resp_a", 1, "me")
    return [
        await store.get_response(scope, "resp_a"),
        await store.get_response(scope, "resp_b"),
        await store.chain(scope, "resp_b"),
        await store.events(scope, "resp_a"),
        await store.events(scope, "resp_b"),
        await store.get_items(scope, ["in_a", "in_b", "out_b", "first", "second"]),
        claimed,
        await store.get_conversation(scope, "conv_a"),
        await store.find_idempotent(scope, "once", 0),
        await store.due_deliveries(1e12, 0, 10),
        await store.codec_keys(),
        await store.find_prompt(scope, "pmpt_a"),
        await store.prompts(scope),
        await store.find_file(scope, "file-a"),
        await store.list_files(scope, FilePage(9)),
        list(await store.file_chunks(scope, "file-a", 0, 9)),
    ]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def any_inner(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    """A store of each kind, to be sealed and opened."""
    made = make_store(request.param, tmp_path, StoreLimits(), clock)
    yield made
    await made.close()


@pytest.mark.requirement("encryption:bodies")
async def test_no_body_lies_open_in_the_store_below(any_inner: Store, clock: Clock) -> None:
    store = SealedStore(any_inner, MASTER, clock)
    await store.open()
    await fill(store)
    found = await everything(any_inner)
    assert all(found)
    for row in found:
        text = repr(row)
        assert "Nobody" not in text
        assert repr(DIGEST)[2:-1] not in text


@pytest.mark.requirement("encryption:bodies")
async def test_what_is_read_is_what_was_written(any_inner: Store, clock: Clock) -> None:
    plain = MemoryStore(StoreLimits(), clock, clock)
    await fill(plain)
    store = SealedStore(any_inner, MASTER, clock)
    await store.open()
    await fill(store)
    assert await everything(store) == await everything(plain)
    updated = await store.update_conversation(OURS, "conv_a", BODY + b" ")
    assert updated is not None
    assert updated.metadata == BODY + b" "


@pytest.mark.requirement("encryption:bodies")
def test_it_passes_on_all_that_a_store_can_be_asked() -> None:
    asked = {
        name
        for kind in Store.__mro__
        if kind.__module__.startswith("antiphon")
        for name in vars(kind)
        if name[0] != "_"
    }
    passed_on = {name for kind in SealedStore.__mro__ if ".store.sealed" in kind.__module__ for name in vars(kind)}
    # What a store asks of itself when it is opened, and what is set.
    assert asked - passed_on == {"refuse_sealed", "shared", "text_fault", "search_vectors"}


@pytest.mark.requirement("encryption:plain")
async def test_ids_states_and_times_stay_plain(inner: MemoryStore, store: SealedStore) -> None:
    await fill(store)
    below = await inner.get_response(OURS, "resp_a")
    assert below is not None
    assert (below.id, below.status, below.created_at, below.fence) == ("resp_a", "in_progress", 1000, 1)
    assert [(one.first_sequence, one.offsets) for one in await inner.events(OURS, "resp_a")] == [
        (0, [0]),
        (1, [0, len(FRAMES[1])]),
    ]
    assert await inner.input_item_ids(OURS, "resp_b") == ["in_b"]
    assert await inner.conversation_item_ids(OURS, "conv_a") == ["first", "second"]


def _items(store: MemoryStore) -> dict[Any, Any]:
    return store._items._items


@pytest.mark.requirement("encryption:moved")
async def test_bodies_that_were_exchanged_do_not_open(inner: MemoryStore, store: SealedStore) -> None:
    await fill(store)
    await fill(store, THEIRS)
    a, b = inner._rows["ours", "resp_a"], inner._rows["ours", "resp_b"]
    theirs = inner._rows["theirs", "resp_a"]
    one, two = _items(inner)["ours", "in_b"], _items(inner)["ours", "out_b"]

    async def exchanged(left: Any, right: Any, field: str, *reads: Callable[[], Awaitable[Any]]) -> None:
        kept = getattr(left, field), getattr(right, field)
        setattr(left, field, kept[1])
        setattr(right, field, kept[0])
        for read in reads:
            with pytest.raises(InternalError, match="cannot be read") as refusal:
                await read()
            assert "resp_" not in refusal.value.message
        setattr(left, field, kept[0])
        setattr(right, field, kept[1])
        for read in reads:
            await read()

    await exchanged(a, b, "snapshot", lambda: store.get_response(OURS, "resp_a"))
    await exchanged(a, theirs, "snapshot", lambda: store.get_response(OURS, "resp_a"))
    await exchanged(a, b, "batches", lambda: store.events(OURS, "resp_a"), lambda: store.events(OURS, "resp_b"))
    await exchanged(one, two, "body", lambda: store.get_items(OURS, ["in_b"]))
    await exchanged(
        one,
        _items(inner)["theirs", "in_b"],
        "body",
        lambda: store.get_items(OURS, ["in_b"]),
        lambda: store.chain(OURS, "resp_b"),
    )


@pytest.mark.requirement("encryption:open")
async def test_another_key_does_not_open_the_store(inner: MemoryStore, store: SealedStore) -> None:
    await fill(store)
    other = SealedStore(Unclosed(inner), MasterKey(bytes(32)))
    with pytest.raises(ConfigurationError, match="encrypted with another key"):
        await other.open()
    again = SealedStore(Unclosed(inner), MASTER)
    await again.open()
    assert (await everything(again))[0].snapshot == BODY


@pytest.mark.requirement("encryption:open")
@pytest.mark.parametrize("what", ["response", "conversation", "codec"])
async def test_a_store_with_rows_that_are_not_sealed_refuses_a_key(inner: MemoryStore, what: str) -> None:
    if what == "response":
        await inner.create_response(OURS, NewResponse("resp_a", None, "queued", 1000, b"{}", []))
    elif what == "conversation":
        await inner.create_conversation(OURS, NewConversation("conv_a", 1000, b"{}"))
    else:
        await inner.add_codec_key(CodecKey("ck", SECRET, 1000))
    with pytest.raises(ConfigurationError, match="not encrypted, and they cannot be encrypted where they are"):
        await SealedStore(Unclosed(inner), MASTER).open()
    assert await inner.tenant_key(SERVER) is None


class Unclosed(MemoryStore):
    """A store that is there already when it is opened, as a file or a database is."""

    def __init__(self, kept: MemoryStore) -> None:
        self.__dict__.update(kept.__dict__)

    async def close(self) -> None: ...


@pytest.mark.requirement("encryption:tenant:delete")
async def test_a_tenant_that_was_deleted_cannot_be_read_even_from_a_copy_of_its_rows(
    inner: MemoryStore, store: SealedStore
) -> None:
    await fill(store)
    await fill(store, THEIRS)
    copied = {key: copy.copy(row) for key, row in inner._rows.items() if key[0] == "ours"}
    await store.delete_tenant("ours")
    assert await inner.tenant_key("ours") is None
    assert await store.get_response(OURS, "resp_a") is None
    assert (await everything(store, THEIRS))[0].snapshot == BODY

    inner._rows.update(copied)
    with pytest.raises(InternalError):
        await store.get_response(OURS, "resp_b")
    await store.create_conversation(OURS, NewConversation("conv_new", 2000, BODY))
    with pytest.raises(InternalError):
        await store.get_response(OURS, "resp_b")
    found = await store.get_conversation(OURS, "conv_new")
    assert found is not None
    assert found.metadata == BODY


@pytest.mark.requirement("encryption:tenant:delete")
async def test_another_server_sees_within_two_seconds_that_a_tenant_was_deleted(
    inner: MemoryStore, store: SealedStore, clock: Clock
) -> None:
    other = SealedStore(Unclosed(inner), MASTER, clock)
    await other.open()
    await fill(other)
    await store.delete_tenant("ours")
    clock.now += 2
    await other.create_conversation(OURS, NewConversation("conv_new", 2000, BODY))
    found = await store.get_conversation(OURS, "conv_new")
    assert found is not None
    assert found.metadata == BODY


@pytest.mark.requirement("encryption:tenant:race")
async def test_two_servers_that_meet_a_tenant_at_once_share_its_key(inner: MemoryStore, clock: Clock) -> None:
    class Slow(Unclosed):
        async def tenant_key(self, tenant: str) -> bytes | None:
            return None if tenant != SERVER else await super().tenant_key(tenant)

    one, two = SealedStore(Slow(inner), MASTER, clock), SealedStore(Slow(inner), MASTER, clock)
    await one.open()
    await two.open()
    await one.create_conversation(OURS, NewConversation("conv_1", 1000, BODY))
    await two.create_conversation(OURS, NewConversation("conv_2", 1000, BODY))
    for store in (one, two):
        for name in ("conv_1", "conv_2"):
            found = await store.get_conversation(OURS, name)
            assert found is not None
            assert found.metadata == BODY


@pytest.mark.requirement("encryption:webhooks")
async def test_a_webhook_that_no_one_can_read_again_does_not_hold_up_the_others(
    inner: MemoryStore, store: SealedStore, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(store)
    await fill(store, THEIRS)
    inner._tenant_keys["ours"] = MASTER.new_data_key("ours")
    store._keys.forget("ours")
    due = await store.due_deliveries(1e12, 0, 10)
    assert [(one.scope, one.body) for one in due] == [(THEIRS, BODY)]
    assert len(await inner.due_deliveries(1e12, 0, 10)) == 1
    assert "evt_b" in caplog.text
    assert "Nobody" not in caplog.text


@pytest.mark.requirement("encryption:keys:bounded")
async def test_only_so_many_keys_are_held(store: SealedStore) -> None:
    for number in range(1100):
        await store.create_conversation(Scope(f"tenant-{number}"), NewConversation("conv", 1000, BODY))
    assert len(store._keys._known) == 1024
    found = await store.get_conversation(Scope("tenant-0"), "conv")
    assert found is not None
    assert found.metadata == BODY

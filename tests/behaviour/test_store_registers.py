"""The small tables: API keys, keys of blobs, keys of tenants, webhooks, and the end of a tenant."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import ConflictError
from antiphon.store.base import (
    ApiKey,
    CodecKey,
    IdempotencyRecord,
    NewDelivery,
    Rooms,
    Scope,
    Store,
    StoredItem,
    StoredPrompt,
)
from support.stores import OURS, THEIRS, Clock, add, batch, begun, ended, item, size, talk, wrapped_key


def api_key(name: str, tenant: str = "ours", created_at: int = 1000, **fields: object) -> ApiKey:
    return ApiKey(name, tenant, f"name of {name}", b"\x00digest of " + name.encode(), created_at, **fields)


def hook(name: str, created_at: int = 1000) -> NewDelivery:
    return NewDelivery(name, "the endpoint", b'{"id":"%s","nul":"\x00"}' % name.encode(), created_at)


async def due(store: Store, now: float, hold: float = 30, most: int = 100) -> list[tuple[str, int]]:
    return [(one.id, one.attempts) for one in await store.due_deliveries(now, hold, most)]


async def end_with(store: Store, name: str, *hooks: NewDelivery, scope: Scope = OURS) -> None:
    await store.create_response(scope, begun(name))
    assert await store.finish_response(scope, ended(name, deliveries=hooks))


@pytest.mark.requirement("store:keys")
async def test_a_key_is_found_by_the_digest_of_its_secret(store: Store) -> None:
    key = api_key("one", limits=b'{"requests_per_minute":3}')
    await store.add_key(key)
    await store.add_key(api_key("two", "theirs"))
    assert await store.find_key(key.digest) == key
    assert await store.find_key(b"another digest") is None
    assert await store.find_key(b"") is None


@pytest.mark.requirement("store:keys")
async def test_keys_are_listed_oldest_first_with_revoked_ones(store: Store) -> None:
    assert await store.keys() == []
    keys = [api_key("z", created_at=1), api_key("a", "theirs", created_at=2), api_key("m", created_at=3)]
    for key in keys:
        await store.add_key(key)
    assert await store.revoke_key("a", 1234)
    listed = await store.keys()
    assert [key.id for key in listed] == ["z", "a", "m"]
    assert [key.revoked_at for key in listed] == [None, 1234, None]
    assert (listed[0], listed[2]) == (keys[0], keys[2])


@pytest.mark.requirement("store:keys")
async def test_a_key_is_revoked_once_and_then_still_found(store: Store) -> None:
    key = api_key("one")
    await store.add_key(key)
    assert await store.revoke_key("one", 1234)
    assert not await store.revoke_key("one", 5678)
    assert not await store.revoke_key("never", 1234)
    found = await store.find_key(key.digest)
    assert found is not None
    assert found.revoked_at == 1234


@pytest.mark.requirement("store:keys")
async def test_an_id_or_a_digest_that_is_taken_is_a_conflict(store: Store) -> None:
    key = api_key("one")
    await store.add_key(key)
    for other in (api_key("two"), api_key("one")):
        taken = ApiKey(key.id, "theirs", "", other.digest, 1)
        same = ApiKey("three", "theirs", "", key.digest, 1)
        for refused in (taken, same):
            with pytest.raises(ConflictError):
                await store.add_key(refused)
    assert await store.keys() == [key]


@pytest.mark.requirement("store:codec-keys")
async def test_keys_of_blobs_are_listed_oldest_first_and_stay_as_they_are(store: Store) -> None:
    assert await store.codec_keys() == []
    keys = [CodecKey("z", b"\x00\xff", 1), CodecKey("a", b"secret", 2), CodecKey("m", b"other", 3)]
    for key in keys:
        await store.add_codec_key(key)
    await store.add_codec_key(CodecKey("z", b"another secret", 9))
    assert await store.codec_keys() == keys


@pytest.mark.requirement("store:codec-keys")
async def test_of_many_keys_by_one_id_at_once_one_is_kept(store: Store) -> None:
    await asyncio.gather(*(store.add_codec_key(CodecKey("one", b"%d" % number, 1)) for number in range(8)))
    assert len(await store.codec_keys()) == 1


@pytest.mark.requirement("store:tenant-keys")
async def test_a_tenant_has_one_key_and_the_first_one_stays(store: Store) -> None:
    assert await store.tenant_key("ours") is None
    assert await store.add_tenant_key("ours", b"\x00wrapped\xff") == b"\x00wrapped\xff"
    assert await store.add_tenant_key("ours", b"another") == b"\x00wrapped\xff"
    assert await store.tenant_key("ours") == b"\x00wrapped\xff"
    assert await store.tenant_key("theirs") is None
    given = await asyncio.gather(*(store.add_tenant_key("theirs", b"%d" % number) for number in range(8)))
    assert set(given) == {await store.tenant_key("theirs")}


@pytest.mark.requirement("store:idempotency:free")
async def test_a_key_is_given_free_by_the_response_that_it_stands_for(store: Store, clock: Clock) -> None:
    kept = IdempotencyRecord("k", b"digest", "a", clock() + 100)
    await store.create_response(OURS, begun("a", idempotency=kept))
    await store.free_idempotent(OURS, "k", "another")
    await store.free_idempotent(THEIRS, "k", "a")
    await store.free_idempotent(OURS, "other", "a")
    found = await store.find_idempotent(OURS, "k", clock())
    assert found is not None
    assert (found.response_id, found.digest) == ("a", b"digest")
    await store.free_idempotent(OURS, "k", "a")
    await store.free_idempotent(OURS, "k", "a")
    assert await store.find_idempotent(OURS, "k", clock()) is None
    again = IdempotencyRecord("k", b"another digest", "b", clock() + 100)
    await store.create_response(OURS, begun("b", idempotency=again))
    found = await store.find_idempotent(OURS, "k", clock())
    assert found is not None
    assert found.response_id == "b"


@pytest.mark.requirement("store:deliveries")
async def test_webhooks_are_due_with_the_end_of_their_response(store: Store) -> None:
    await store.create_response(OURS, begun("a"))
    assert await due(store, 2000) == []
    assert await store.finish_response(OURS, ended("a", deliveries=[hook("h1"), hook("h2")]))
    await store.create_finished_response(THEIRS, begun("b"), ended("b", deliveries=[hook("h1")]))
    found = await store.due_deliveries(2000, 30, 100)
    assert [(one.scope.tenant, one.id) for one in found] == [("ours", "h1"), ("ours", "h2"), ("theirs", "h1")]
    first = found[0]
    assert (first.endpoint, first.body, first.created_at, first.attempts) == (
        "the endpoint",
        b'{"id":"h1","nul":"\x00"}',
        1000,
        0,
    )


@pytest.mark.requirement("store:deliveries")
async def test_an_end_that_did_not_happen_sends_nothing(store: Store) -> None:
    await add(store, "a")
    assert not await store.finish_response(OURS, ended("a", deliveries=[hook("h1")]))
    await store.create_response(OURS, begun("b"))
    assert not await store.finish_response(OURS, ended("b", deliveries=[hook("h2")], fence=2))
    with pytest.raises(ConflictError):
        await store.finish_response(OURS, ended("b", events=[batch(5, b"gap")], deliveries=[hook("h3")]))
    with pytest.raises(ConflictError):
        await store.create_finished_response(OURS, begun("a"), ended("a", deliveries=[hook("h4")]))
    assert await due(store, 2000) == []


@pytest.mark.requirement("store:deliveries")
async def test_one_that_is_asked_for_is_held_back_from_other_askers(store: Store) -> None:
    await end_with(store, "a", *(hook(f"h{number}", 1000 + number) for number in range(5)))
    assert await due(store, 2000, 30, 2) == [("h0", 0), ("h1", 0)]
    assert await due(store, 2000, 40, 2) == [("h2", 0), ("h3", 0)]
    assert await due(store, 2000, 50, 2) == [("h4", 0)]
    assert await due(store, 2029) == []
    # Whoever took it has not come back.
    assert [name for name, _ in await due(store, 2030)] == ["h0", "h1"]
    assert [name for name, _ in await due(store, 2045)] == ["h2", "h3"]


@pytest.mark.requirement("store:deliveries")
async def test_of_many_askers_at_once_each_webhook_has_one(store: Store) -> None:
    await end_with(store, "a", *(hook(f"h{number}") for number in range(30)))
    asked = await asyncio.gather(*(due(store, 2000, 30, 7) for _ in range(8)))
    given = [name for one in asked for name, _ in one]
    assert sorted(given) == sorted(f"h{number}" for number in range(30))


@pytest.mark.requirement("store:deliveries")
async def test_after_an_attempt_it_is_due_again_at_its_time_or_removed(store: Store) -> None:
    await end_with(store, "a", hook("h1"), hook("h2"))
    assert await due(store, 2000) == [("h1", 0), ("h2", 0)]
    await store.settle_delivery(OURS, "h1", None)
    await store.settle_delivery(THEIRS, "h2", None)
    await store.settle_delivery(OURS, "h2", 2010.5)
    assert await due(store, 2010) == []
    assert await due(store, 2010.5) == [("h2", 1)]
    await store.settle_delivery(OURS, "h2", 2011)
    assert await due(store, 3000) == [("h2", 2)]
    await store.settle_delivery(OURS, "h2", None)
    await store.settle_delivery(OURS, "h2", None)
    await store.settle_delivery(OURS, "never", 3000)
    assert await due(store, 1e9) == []


def hook_for(endpoint: str, name: str, created_at: int) -> NewDelivery:
    return NewDelivery(name, endpoint, b"{}", created_at)


@pytest.mark.requirement("store:deliveries:endpoints")
async def test_webhooks_of_one_endpoint_take_no_more_than_its_room(store: Store) -> None:
    slow = [hook_for("slow", f"s{number}", 1000 + number) for number in range(50)]
    await end_with(store, "a", *slow, hook_for("quick", "q1", 1070), hook_for("other", "o1", 1060))
    await end_with(store, "b", hook_for("quick", "q2", 1080), hook_for("later", "l1", 3000))

    async def names(now: float, most: int, rooms: Rooms) -> list[str]:
        return [one.id for one in await store.due_deliveries(now, 30, most, rooms)]

    assert await names(2000, 100, Rooms({"slow": 0, "quick": 0, "other": 0}, 5)) == []
    assert await names(2000, 100, Rooms({"slow": 2}, 1)) == ["s0", "s1", "o1", "q1"]
    # What is held back makes room for the next; those that waited longest come first where there is room for few.
    assert await names(2000, 100, Rooms({"slow": -1}, 5)) == ["q2"]
    assert await names(2000, 3, Rooms({"slow": 1}, 5)) == ["s2"]
    assert await names(2025, 3, Rooms({}, 2)) == ["s3", "s4"]
    assert sorted(await names(2100, 100, Rooms({"slow": 0}, 9))) == ["o1", "q1", "q2"]
    assert await names(3000, 100, Rooms({"slow": 0}, 0)) == []
    assert await names(3000, 100, Rooms({"quick": 0, "other": 0}, 1)) == ["s5", "l1"]


@pytest.mark.requirement("store:deliveries")
async def test_a_webhook_outlives_its_response(store: Store) -> None:
    await end_with(store, "a", hook("h1"))
    await store.delete_response(OURS, "a")
    assert await due(store, 2000) == [("h1", 0)]


@pytest.mark.requirement("store:tenant:delete")
async def test_a_tenant_goes_with_its_key_and_all_its_rows_and_no_other(store: Store, clock: Clock) -> None:
    for scope in (OURS, THEIRS):
        kept_key = await store.add_tenant_key(scope.tenant, wrapped_key(scope.tenant))
        await store.add_key(api_key(f"key of {scope.tenant}", scope.tenant))
        await store.create_conversation(scope, talk("t", item("x"), item("in_a")))
        await add(store, "a", scope=scope)
        await add(store, "b", "a", scope=scope)
        await add(store, "c", "b", scope=scope)
        await store.delete_response(scope, "b")
        kept = IdempotencyRecord("k", b"digest", "r", clock() + 100)
        await store.create_response(scope, begun("r", "c", conversation_id="t", idempotency=kept))
        await store.append_events(scope, "r", batch(0, b"e0"))
        await end_with(store, "h", hook("h"), scope=scope)
    half = await store.status()

    await store.delete_tenant("ours")
    assert await store.tenant_key("ours") is None
    assert [key.tenant for key in await store.keys()] == ["theirs"]
    assert await store.find_key(api_key("key of ours").digest) is None
    assert [await store.get_response(OURS, name) for name in "abcrh"] == [None] * 5
    assert await store.chain(OURS, "r") == []
    assert await store.events(OURS, "r") == []
    assert await store.get_conversation(OURS, "t") is None
    assert await store.get_items(OURS, ["x", "in_a", "out_c"]) == {}
    assert await store.find_idempotent(OURS, "k", clock()) is None
    assert [one.scope.tenant for one in await store.orphans([])] == ["theirs"]
    assert [one.scope.tenant for one in await store.due_deliveries(2000, 30, 100)] == ["theirs"]
    assert not await store.append_events(OURS, "r", batch(1, b"e1"))
    assert not await store.finish_response(OURS, ended("r"))

    rest = await store.status()
    assert (rest.responses * 2, rest.items * 2, rest.bytes * 2) == (half.responses, half.items, half.bytes)
    assert await store.tenant_key("theirs") == kept_key
    assert [turn.id for turn in await store.chain(THEIRS, "r")] == ["a", "b", "c", "r"]
    assert await store.conversation_item_ids(THEIRS, "t") == ["x", "in_a"]
    assert await store.finish_response(THEIRS, ended("r", events=[batch(1, b"e1")], to_conversation=True))


@pytest.mark.requirement("store:tenant:delete")
async def test_a_tenant_that_comes_back_begins_with_nothing(store: Store, clock: Clock) -> None:
    await store.create_response(OURS, begun("a", conversation_id="t"))
    with store.retain(OURS, "a"):
        await store.delete_tenant("ours")
        await store.delete_tenant("never")
        # Nothing of it waits for a turn that is being made on top of it.
        assert await size(store) == 0
    await store.sweep(clock())
    assert await size(store) == 0
    fresh = wrapped_key("ours")
    assert await store.add_tenant_key("ours", fresh) == fresh
    await store.create_response(OURS, begun("a", conversation_id="t", items=[StoredItem("in_a", b"new")]))
    assert await store.get_items(OURS, ["in_a"]) == {"in_a": b"new"}
    await store.finish_response(OURS, ended("a"))
    assert await store.delete_response(OURS, "a")
    assert await size(store) == 0


def template(name: str, version: int = 1, body: bytes = b'{"text":"\x00"}') -> StoredPrompt:
    return StoredPrompt(name, version, 1000 + version, body)


@pytest.mark.requirement("store:prompts")
async def test_a_prompt_is_found_by_its_version_and_else_its_last_one(store: Store) -> None:
    for prompt in (template("a", 1), template("a", 10, b"ten"), template("a", 2, b""), template("b", 3)):
        await store.add_prompt(OURS, prompt)
    assert await store.find_prompt(OURS, "a") == template("a", 10, b"ten")
    assert await store.find_prompt(OURS, "a", 2) == template("a", 2, b"")
    assert await store.find_prompt(OURS, "a", 3) is None
    assert await store.find_prompt(OURS, "c") is None
    assert await store.find_prompt(OURS, "a\x00") is None
    assert [(one.id, one.version) for one in await store.prompts(OURS)] == [("a", 1), ("a", 2), ("a", 10), ("b", 3)]


@pytest.mark.requirement("store:prompts")
async def test_a_version_is_written_once(store: Store) -> None:
    await store.add_prompt(OURS, template("a"))
    with pytest.raises(ConflictError):
        await store.add_prompt(OURS, template("a", body=b"another"))
    assert await store.prompts(OURS) == [template("a")]
    tried = await asyncio.gather(
        *(store.add_prompt(OURS, template("a", 2, b"%d" % number)) for number in range(6)), return_exceptions=True
    )
    assert sum(isinstance(outcome, ConflictError) for outcome in tried) == 5


@pytest.mark.requirement("store:prompts")
async def test_prompts_are_a_tenants_own_and_go_with_all_their_versions(store: Store) -> None:
    for scope in (OURS, THEIRS):
        await store.add_prompt(scope, template("a"))
        await store.add_prompt(scope, template("a", 2))
    await store.add_prompt(THEIRS, template("b"))
    assert await store.find_prompt(OURS, "b") is None
    assert await store.delete_prompt(OURS, "a")
    assert not await store.delete_prompt(OURS, "a")
    assert not await store.delete_prompt(OURS, "b")
    assert await store.prompts(OURS) == []
    assert await store.find_prompt(THEIRS, "a", 1) == template("a")
    await store.delete_tenant("theirs")
    assert await store.prompts(THEIRS) == []

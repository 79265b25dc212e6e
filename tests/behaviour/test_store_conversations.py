"""Conversations: their items in order, what responses add to them, and their limits."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import ConflictError
from antiphon.store.base import NewConversation, Store, StoredConversation, StoredItem
from support.stores import OURS, THEIRS, Clock, Make, add, begun, ended, item, size, talk


async def there(store: Store, *names: str) -> list[str]:
    return [name for name in names if await store.get_conversation(OURS, name) is not None]


async def items_of(store: Store, name: str) -> list[str]:
    found = await store.conversation_item_ids(OURS, name)
    assert found is not None
    return found


@pytest.mark.requirement("store:conversation:lifecycle")
async def test_a_conversation_is_made_read_changed_and_removed(store: Store) -> None:
    assert await store.get_conversation(OURS, "t") is None
    await store.create_conversation(OURS, NewConversation("t", 1234, b'{"a":"\\u0000"}'))
    assert await store.get_conversation(OURS, "t") == StoredConversation("t", 1234, b'{"a":"\\u0000"}')
    assert await items_of(store, "t") == []
    assert await store.update_conversation(OURS, "t", b"{}") == StoredConversation("t", 1234, b"{}")
    assert await store.get_conversation(OURS, "t") == StoredConversation("t", 1234, b"{}")
    assert await store.delete_conversation(OURS, "t")
    assert not await store.delete_conversation(OURS, "t")
    assert await store.get_conversation(OURS, "t") is None
    assert await store.update_conversation(OURS, "t", b"{}") is None
    assert await store.conversation_item_ids(OURS, "t") is None
    assert not await store.add_conversation_items(OURS, "t", [item("x")])
    assert not await store.delete_conversation_item(OURS, "t", "x")
    assert await size(store) == 0


@pytest.mark.requirement("store:conversation:lifecycle")
async def test_an_id_that_is_taken_is_a_conflict_and_changes_nothing(store: Store) -> None:
    await store.create_conversation(OURS, talk("t", item("x")))
    before = await store.status()
    with pytest.raises(ConflictError):
        await store.create_conversation(OURS, talk("t", item("y")))
    assert await store.status() == before
    assert await items_of(store, "t") == ["x"]
    assert await store.get_items(OURS, ["y"]) == {}
    await store.delete_conversation(OURS, "t")
    await store.create_conversation(OURS, talk("t", item("y")))
    assert await items_of(store, "t") == ["y"]


@pytest.mark.requirement("store:conversation:items")
async def test_items_keep_the_order_in_which_they_came_and_each_stands_once(store: Store) -> None:
    await store.create_conversation(OURS, talk("t", item("z"), item("a"), item("z")))
    assert await store.add_conversation_items(OURS, "t", [item("m"), item("a"), item("b")])
    assert await store.add_conversation_items(OURS, "t", [])
    assert await store.add_conversation_items(OURS, "t", [item("A"), item("z", 500)])
    assert await items_of(store, "t") == ["z", "a", "m", "b", "A"]
    assert await store.get_items(OURS, ["z"]) == {"z": b"i"}

    assert await store.delete_conversation_item(OURS, "t", "a")
    assert not await store.delete_conversation_item(OURS, "t", "a")
    assert not await store.delete_conversation_item(OURS, "t", "never")
    assert await items_of(store, "t") == ["z", "m", "b", "A"]
    assert await store.get_items(OURS, ["a"]) == {}
    # One that comes again comes at the end.
    assert await store.add_conversation_items(OURS, "t", [item("a", 7)])
    assert await items_of(store, "t") == ["z", "m", "b", "A", "a"]
    assert await store.get_items(OURS, ["a"]) == {"a": b"i" * 7}


@pytest.mark.requirement("store:conversation:items")
async def test_a_conversation_of_any_length_keeps_its_order(store: Store) -> None:
    await store.create_conversation(OURS, talk("t"))
    for first in range(0, 600, 20):
        await store.add_conversation_items(OURS, "t", [item(f"i{number}") for number in range(first, first + 20)])
    await store.delete_conversation_item(OURS, "t", "i300")
    assert await items_of(store, "t") == [f"i{number}" for number in range(600) if number != 300]
    await store.delete_conversation(OURS, "t")
    assert (await store.status()).items == 0


@pytest.mark.requirement("store:conversation:items")
async def test_additions_at_once_are_all_there(store: Store) -> None:
    await store.create_conversation(OURS, talk("t"))
    pairs = [[item(f"a{number}"), item(f"b{number}")] for number in range(20)]
    assert all(await asyncio.gather(*(store.add_conversation_items(OURS, "t", pair) for pair in pairs)))
    found = await items_of(store, "t")
    assert sorted(found) == sorted(one.id for pair in pairs for one in pair)
    assert all(found.index(f"b{number}") == found.index(f"a{number}") + 1 for number in range(20))


@pytest.mark.requirement("store:conversation:shared")
async def test_an_item_stays_as_long_as_a_conversation_or_a_response_has_it(store: Store) -> None:
    shared = StoredItem("shared", b"first body")
    await store.create_conversation(OURS, talk("t", shared))
    await store.create_conversation(OURS, talk("u", StoredItem("shared", b"another body")))
    await store.create_finished_response(OURS, begun("a", items=[shared]), ended("a", items=[]))
    assert (await store.status()).items == 1
    assert await store.delete_conversation(OURS, "t")
    assert await store.get_items(OURS, ["shared"]) == {"shared": b"first body"}
    assert await store.delete_response(OURS, "a")
    assert await store.get_items(OURS, ["shared"]) == {"shared": b"first body"}
    assert await store.delete_conversation_item(OURS, "u", "shared")
    assert await store.get_items(OURS, ["shared"]) == {}
    status = await store.status()
    assert (status.items, status.bytes) == (0, 0)


@pytest.mark.requirement("store:conversation:shared")
async def test_a_response_keeps_what_a_removed_conversation_had(store: Store) -> None:
    await store.create_conversation(OURS, talk("t", item("x"), item("y")))
    await store.create_finished_response(OURS, begun("a", items=[item("x")]), ended("a", items=[]))
    assert await store.delete_conversation(OURS, "t")
    assert await store.get_items(OURS, ["x", "y"]) == {"x": b"i"}
    (turn,) = await store.chain(OURS, "a")
    assert list(turn.input_items) == [b"i"]
    await store.delete_response(OURS, "a")
    assert await size(store) == 0


@pytest.mark.requirement("store:conversation:append")
@pytest.mark.parametrize("whole", [False, True])
async def test_the_end_of_a_response_appends_its_input_and_then_its_output(store: Store, whole: bool) -> None:
    await store.create_conversation(OURS, talk("t", item("before"), item("said")))
    new = begun("a", items=[item("i1"), item("said"), item("i2")], conversation_id="t")
    end = ended("a", items=[item("o2"), item("o1"), item("i1")], to_conversation=True)
    if whole:
        await store.create_finished_response(OURS, new, end)
    else:
        await store.create_response(OURS, new)
        assert await items_of(store, "t") == ["before", "said"]
        assert await store.finish_response(OURS, end)
    assert await items_of(store, "t") == ["before", "said", "i1", "i2", "o2", "o1"]
    # What a response said outlives it.
    assert await store.delete_response(OURS, "a")
    assert await items_of(store, "t") == ["before", "said", "i1", "i2", "o2", "o1"]
    assert len(await store.get_items(OURS, ["i1", "i2", "o1", "o2"])) == 4


@pytest.mark.requirement("store:conversation:append")
async def test_an_end_appends_only_what_it_is_told_to_and_only_once(store: Store) -> None:
    await store.create_conversation(OURS, talk("t"))
    await store.create_response(OURS, begun("a", conversation_id="t"))
    assert await store.finish_response(OURS, ended("a", "failed"))
    assert await items_of(store, "t") == []
    assert not await store.finish_response(OURS, ended("a", to_conversation=True))
    assert await items_of(store, "t") == []

    await store.create_response(OURS, begun("b", conversation_id="t", owner="one"))
    await store.claim(OURS, "b", 1, "two")
    assert not await store.finish_response(OURS, ended("b", to_conversation=True, fence=1))
    assert await items_of(store, "t") == []
    # One that belongs to no conversation appends to none.
    await store.create_finished_response(OURS, begun("c"), ended("c", to_conversation=True))
    assert await store.finish_response(OURS, ended("b", to_conversation=True, fence=2))
    assert await items_of(store, "t") == ["in_b", "out_b"]


@pytest.mark.requirement("store:conversation:append")
async def test_a_conversation_that_is_not_there_any_more_gets_nothing(store: Store) -> None:
    await store.create_conversation(OURS, talk("t", item("x")))
    await store.create_conversation(THEIRS, talk("t", item("x")))
    await store.create_response(OURS, begun("a", conversation_id="t"))
    assert await store.delete_conversation(OURS, "t")
    assert await store.finish_response(OURS, ended("a", to_conversation=True))
    assert await store.get_conversation(OURS, "t") is None
    assert await store.conversation_item_ids(THEIRS, "t") == ["x"]
    assert list(await store.get_items(OURS, ["in_a", "out_a"])) == ["in_a", "out_a"]


@pytest.mark.requirement("store:conversation:limits")
async def test_the_least_recently_used_conversation_goes_when_there_are_too_many(make: Make) -> None:
    store = await make(max_conversations=3)
    for name in "abc":
        await store.create_conversation(OURS, talk(name, item(f"in {name}")))
    await store.get_conversation(OURS, "a")
    await store.create_conversation(OURS, talk("d"))
    assert await store.conversation_item_ids(OURS, "b") is None
    assert await store.get_items(OURS, ["in b"]) == {}
    # Being changed and being added to are uses.
    await store.update_conversation(OURS, "c", b"{}")
    await store.add_conversation_items(OURS, "a", [item("more")])
    await store.create_conversation(OURS, talk("e"))
    assert await there(store, *"abcde") == ["a", "c", "e"]


@pytest.mark.requirement("store:conversation:limits")
async def test_a_response_that_adds_to_a_conversation_uses_it(make: Make) -> None:
    store = await make(max_conversations=2)
    for name in "ab":
        await store.create_conversation(OURS, talk(name))
    await store.create_finished_response(OURS, begun("r", conversation_id="a"), ended("r", to_conversation=True))
    await store.create_conversation(OURS, talk("c"))
    assert await there(store, *"abc") == ["a", "c"]


@pytest.mark.requirement("store:conversation:limits")
async def test_the_least_recently_used_conversations_go_when_their_items_are_too_many_bytes(make_exact: Make) -> None:
    store = await make_exact(max_conversation_bytes=100)
    for name in "abc":
        await store.create_conversation(OURS, talk(name, item(f"in {name}", 30)))
    await store.create_conversation(OURS, talk("empty"))
    assert await there(store, "a", "b", "c", "empty") == ["a", "b", "c", "empty"]
    await store.add_conversation_items(OURS, "c", [item("more", 41)])
    assert await there(store, "a", "b", "c") == ["c"]
    assert await size(store) == 71
    # What was taken out does not count any more.
    await store.delete_conversation_item(OURS, "c", "more")
    await store.create_conversation(OURS, talk("d", item("in d", 70)))
    assert await there(store, "c", "d") == ["c", "d"]
    # One that is too large alone does not stay, and takes the others along.
    await store.add_conversation_items(OURS, "d", [item("huge", 31)])
    assert await there(store, "c", "d") == []
    assert await size(store) == 0


@pytest.mark.requirement("store:conversation:limits")
async def test_with_no_bytes_a_conversation_goes_with_its_first_item(make: Make) -> None:
    store = await make(max_conversation_bytes=0)
    await store.create_conversation(OURS, talk("full", item("x")))
    assert await there(store, "full") == []
    await store.create_conversation(OURS, talk("t"))
    assert await there(store, "t") == ["t"]
    await store.create_finished_response(OURS, begun("a", conversation_id="t"), ended("a", to_conversation=True))
    assert await there(store, "t") == []
    assert await store.get_response(OURS, "a") is not None
    assert len(await store.get_items(OURS, ["in_a", "out_a"])) == 2


@pytest.mark.requirement("store:conversation:ttl")
async def test_a_conversation_expires_by_the_time_since_its_last_addition(make: Make, clock: Clock) -> None:
    store = await make(conversation_ttl_seconds=60)
    for name in ("still", "added", "ended"):
        await store.create_conversation(OURS, talk(name, item(f"in {name}")))
    clock.now += 40
    # Being read and being changed do not make it younger.
    await store.get_conversation(OURS, "still")
    await store.update_conversation(OURS, "still", b"{}")
    await store.add_conversation_items(OURS, "added", [item("more")])
    whole = begun("r", conversation_id="ended"), ended("r", to_conversation=True)
    await store.create_finished_response(OURS, *whole)
    clock.now += 20
    assert await there(store, "still", "added", "ended") == ["added", "ended"]
    assert await store.conversation_item_ids(OURS, "still") is None
    assert await store.update_conversation(OURS, "still", b"{}") is None
    assert not await store.add_conversation_items(OURS, "still", [item("late")])
    assert not await store.delete_conversation_item(OURS, "still", "in still")
    assert not await store.delete_conversation(OURS, "still")
    await store.sweep(clock())
    assert await store.get_items(OURS, ["in still", "in added"]) == {"in added": b"i"}
    clock.now += 40
    await store.sweep(clock())
    assert await there(store, "added", "ended") == []
    # The response is kept, and so is what it said.
    assert len(await store.get_items(OURS, ["in added", "in ended", "in_r", "out_r"])) == 2
    await store.delete_response(OURS, "r")
    assert await size(store) == 0


@pytest.mark.requirement("store:conversation:ttl")
async def test_the_id_of_one_that_has_expired_is_free(make: Make, clock: Clock) -> None:
    store = await make(conversation_ttl_seconds=60)
    await store.create_conversation(OURS, talk("t", item("x")))
    clock.now += 60
    await store.create_conversation(OURS, talk("t", item("y")))
    assert await items_of(store, "t") == ["y"]
    await store.sweep(clock())
    assert await items_of(store, "t") == ["y"]
    assert await store.get_items(OURS, ["x"]) == {}


@pytest.mark.requirement("store:conversation:ttl")
async def test_a_sweep_removes_all_conversations_whose_time_is_over(make_exact: Make, clock: Clock) -> None:
    store = await make_exact(conversation_ttl_seconds=60)
    for number in range(250):
        await store.create_conversation(OURS, talk(f"t{number}", item(f"i{number}", 2)))
    clock.now += 30
    await store.create_conversation(OURS, talk("young", item("x", 3)))
    clock.now += 30
    await store.sweep(clock())
    assert await size(store) == 3
    assert await there(store, "young") == ["young"]


@pytest.mark.requirement("store:conversation:apart")
async def test_conversations_and_responses_do_not_take_each_others_room(make_exact: Make, clock: Clock) -> None:
    store = await make_exact(
        max_entries=2, max_bytes=200, ttl_seconds=1000, max_conversations=2, max_conversation_bytes=5000
    )
    await store.create_conversation(OURS, talk("t", item("large", 4000)))
    for name in "ab":
        await add(store, name)
    # 4,000 bytes of a conversation's items are no bytes of responses.
    assert [name for name in "ab" if await store.get_response(OURS, name)] == ["a", "b"]
    # They are once a response has them too.
    await store.create_finished_response(OURS, begun("c", items=[item("large", 4000)]), ended("c"))
    assert [name for name in "abc" if await store.get_response(OURS, name)] == []
    assert await items_of(store, "t") == ["large"]
    await add(store, "d")
    clock.now += 1000
    await store.sweep(clock())
    assert await store.get_response(OURS, "d") is None
    assert await there(store, "t") == ["t"]
    assert await size(store) == 4000

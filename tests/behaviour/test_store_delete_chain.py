"""Deleting a whole chain: the response, its ancestors and all that descends from any of them."""

from __future__ import annotations

import pytest

from antiphon.errors import InvalidRequestError
from antiphon.store.base import Store
from support.stores import OURS, THEIRS, Clock, Make, add, begun, ended, ids, look_up, size

FAMILY = {"root": None, "left": "root", "right": "root", "left1": "left", "left2": "left", "leaf": "left1"}


async def family(store: Store) -> None:
    for name, parent in FAMILY.items():
        await add(store, name, parent)


async def there(store: Store, *names: str) -> list[str]:
    return [name for name in names if await store.get_response(OURS, name) is not None]


@pytest.mark.requirement("store:delete:chain")
@pytest.mark.parametrize("name", list(FAMILY))
async def test_all_that_share_the_oldest_ancestor_go_from_whichever_one_names_them(store: Store, name: str) -> None:
    await family(store)
    await add(store, "stranger")
    assert sorted(await store.delete_chain(OURS, name)) == sorted(FAMILY)
    assert await there(store, *FAMILY, "stranger") == ["stranger"]
    assert await ids(store, "leaf") == []
    assert await store.get_items(OURS, ["in_root", "out_leaf"]) == {}
    status = await store.status()
    assert (status.responses, status.items) == (1, 2)
    assert await store.delete_chain(OURS, name) == []


@pytest.mark.requirement("store:delete:chain")
async def test_what_was_gone_before_is_passed_through_and_not_named(store: Store) -> None:
    await family(store)
    for name in ("root", "left", "right"):
        await store.delete_response(OURS, name)
    assert sorted(await store.delete_chain(OURS, "left2")) == ["leaf", "left1", "left2"]
    assert await size(store) == 0


@pytest.mark.requirement("store:delete:chain")
async def test_one_that_is_gone_or_never_was_names_no_chain(store: Store) -> None:
    await family(store)
    await store.delete_response(OURS, "left")
    assert await store.delete_chain(OURS, "left") == []
    assert await store.delete_chain(OURS, "never") == []
    assert await store.delete_chain(THEIRS, "root") == []
    assert await there(store, *FAMILY) == [name for name in FAMILY if name != "left"]


@pytest.mark.requirement("store:delete:chain")
@pytest.mark.parametrize("name", ["root", "right", "leaf"])
@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_a_chain_of_which_one_runs_stays_whole(store: Store, name: str, status: str) -> None:
    await family(store)
    await store.delete_response(OURS, "left1")
    await store.create_response(OURS, begun("running", "left2", status=status))
    before = await store.status()
    with pytest.raises(InvalidRequestError) as refusal:
        await store.delete_chain(OURS, name)
    assert refusal.value.code == "response_in_progress"
    assert await store.status() == before
    assert await there(store, *FAMILY) == [one for one in FAMILY if one != "left1"]
    assert (await look_up(store, "running")).status == status

    await store.finish_response(OURS, ended("running"))
    assert "running" in await store.delete_chain(OURS, name)
    assert await size(store) == 0


@pytest.mark.requirement("store:delete:chain")
async def test_a_chain_of_any_length_goes_at_once(store: Store) -> None:
    parent = None
    for number in range(600):
        await add(store, f"r{number}", parent)
        parent = f"r{number}"
    assert len(await store.delete_chain(OURS, "r300")) == 600
    assert await size(store) == 0


@pytest.mark.requirement("store:delete:chain")
async def test_history_stays_whole_for_a_turn_that_is_being_made_on_top_of_a_deleted_chain(
    store: Store, clock: Clock
) -> None:
    await family(store)
    with store.retain(OURS, "leaf"):
        assert len(await store.delete_chain(OURS, "root")) == len(FAMILY)
        await store.sweep(clock())
        await add(store, "new", "leaf")
    await store.sweep(clock())
    assert await ids(store, "new") == ["root", "left", "left1", "leaf", "new"]
    assert await store.delete_chain(OURS, "new") == ["new"]
    assert await size(store) == 0


@pytest.mark.requirement("store:delete:chain")
async def test_expired_ones_are_gone_ones(make: Make, clock: Clock) -> None:
    store = await make(ttl_seconds=60)
    await add(store, "old")
    clock.now += 40
    await add(store, "young", "old")
    await add(store, "younger", "young")
    clock.now += 40
    assert await store.delete_chain(OURS, "old") == []
    assert sorted(await store.delete_chain(OURS, "young")) == ["young", "younger"]
    await store.sweep(clock())
    assert await size(store) == 0

"""Deletion: tombstones, what descendants still need, whole chains, and event logs whose time is over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app, sse_events


async def status(api: InProcess, name: str) -> int:
    return (await api.client.get(f"/responses/{name}")).status_code


async def chain(api: InProcess, *said: str) -> list[str]:
    """The ids of a chain."""
    names: list[str] = []
    for words in said:
        more = {"previous_response_id": names[-1]} if names else {}
        names.append((await api.create(words, **more))["id"])
    return names


@pytest.mark.requirement("delete:tombstone")
async def test_a_deleted_response_cannot_be_chained_to_but_its_descendants_keep_its_words(api: InProcess):
    first, second = await chain(api, "the word is heron", "and the other is otter")
    assert (await api.client.delete(f"/responses/{first}")).json() == {
        "id": first,
        "object": "response",
        "deleted": True,
    }
    error = await api.refused(404, "go on", previous_response_id=first)
    assert error["code"] == "previous_response_not_found"
    assert (await api.client.delete(f"/responses/{first}")).status_code == 404
    seen = await api.echo("which words?", previous_response_id=second)
    assert "heron" in seen
    assert "otter" in seen


@pytest.mark.requirement("delete:running-descendant")
async def test_what_a_running_descendant_needs_outlives_its_parent(api: InProcess):
    (first,) = await chain(api, "the word is heron")
    child = await api.create("!SLOW 5\n!COUNT 60", previous_response_id=first, background=True)
    assert (await api.client.delete(f"/responses/{first}")).status_code == 200
    events = sse_events((await api.client.get(f"/responses/{child['id']}?stream=true")).content)
    assert events[-1]["type"] == "response.completed"
    assert "heron" in await api.echo("which word?", previous_response_id=child["id"])


@pytest.mark.requirement("delete:chain")
async def test_with_chain_true_the_whole_chain_goes_with_all_its_branches(api: InProcess):
    first, second, third = await chain(api, "one", "two", "three")
    branch = (await api.create("another", previous_response_id=first))["id"]
    (other,) = await chain(api, "of another chain")
    answer = await api.client.delete(f"/responses/{second}?chain=true")
    assert (answer.status_code, answer.json()["id"]) == (200, second)
    assert [await status(api, name) for name in (first, second, third, branch, other)] == [404, 404, 404, 404, 200]


@pytest.mark.requirement("delete:chain-running")
async def test_a_chain_with_a_running_response_is_left_whole(api: InProcess):
    (first,) = await chain(api, "one")
    child = await api.create("!SLOW 20\n!COUNT 2000", previous_response_id=first, background=True)
    answer = await api.client.delete(f"/responses/{first}?chain=true")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "Cannot delete an in-flight response.")
    assert await status(api, first) == 200
    await api.client.post(f"/responses/{child['id']}/cancel")
    assert (await api.client.delete(f"/responses/{first}?chain=true")).status_code == 200
    assert await status(api, child["id"]) == 404


@pytest.mark.requirement("delete:chain-setting")
async def test_a_setting_makes_every_delete_one_of_the_chain(tmp_path: Path):
    async with inprocess_app(settings=Settings(delete_chain=True), store="sqlite", tmp_path=tmp_path) as api:
        first, second = await chain(api, "one", "two")
        assert (await api.client.delete(f"/responses/{second}")).status_code == 200
        assert await status(api, first) == 404


@pytest.mark.requirement("replay:expired")
async def test_an_expired_event_log_is_a_410_and_the_response_is_still_there(tmp_path: Path):
    settings = Settings(event_log_ttl_secs=60)
    async with inprocess_app(settings=settings, store="sqlite", tmp_path=tmp_path) as api:
        ended = await api.create("!TEXT lasting")
        running = await api.create("!SLOW 20\n!COUNT 2000", background=True)
        assert api.service.store is not None
        await api.service.store.sweep(time.time() + 30)
        assert (await api.client.get(f"/responses/{ended['id']}?stream=true")).status_code == 200
        await api.service.store.sweep(time.time() + 120)
        answer = await api.client.get(f"/responses/{ended['id']}?stream=true")
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "event_log_expired")
        assert (await api.client.get(f"/responses/{ended['id']}")).json() == ended
        await api.client.post(f"/responses/{running['id']}/cancel")
        events = sse_events((await api.client.get(f"/responses/{running['id']}?stream=true")).content)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))

"""What only the store in a file must show of owners, conversations and tenants: its cost, its steps, its traces."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from antiphon.errors import APIError, ConfigurationError, ConflictError, InternalError, UnavailableError
from antiphon.store import sqlite
from antiphon.store.base import SERVER, ApiKey, IdempotencyRecord, NewDelivery, Rooms, StoredItem, StoreLimits
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite_ledger import Ledger
from support.stores import (
    OURS,
    THEIRS,
    Clock,
    add,
    batch,
    begun,
    ended,
    frames,
    item,
    look_up,
    size,
    talk,
    writing_connection,
)


async def statements(store: SQLiteStore, call: Callable[[], Awaitable[object]]) -> list[str]:
    """What SQLite is told while a call runs, each by its first words and its table."""
    told: list[str] = []
    connections = (writing_connection(store), store._open().reader)
    for connection in connections:
        connection.set_trace_callback(told.append)
    await call()
    for connection in connections:
        connection.set_trace_callback(None)
    return [" ".join(re.findall(r"^\w+|(?<=INTO )\w+|(?<=UPDATE )\w+|(?<=FROM )\w+", one)[:2]) for one in told]


def rows_of(store: SQLiteStore, table: str) -> int:
    return writing_connection(store).execute(f"SELECT count(*) FROM {table}").fetchone()[0]


@pytest.mark.requirement("store:sqlite:cost")
async def test_a_response_that_begins_and_ends_at_once_costs_no_statement_that_it_does_not_need(
    store: SQLiteStore,
) -> None:
    assert await statements(store, lambda: add(store, "a")) == [
        "BEGIN",
        "INSERT responses",
        "INSERT items",
        "INSERT response_items",
        "INSERT items",
        "INSERT response_items",
        "UPDATE totals",
        "COMMIT",
    ]


@pytest.mark.requirement("store:sqlite:cost")
async def test_an_append_costs_one_statement_and_another_for_what_was_sampled(store: SQLiteStore) -> None:
    await store.create_response(OURS, begun("a", plan=b"p"))
    plain = await statements(store, lambda: store.append_events(OURS, "a", batch(0, b"e0")))
    assert plain == ["BEGIN", "INSERT event_batches", "UPDATE totals", "COMMIT"]
    with_sample = await statements(store, lambda: store.append_events(OURS, "a", batch(1, b"e1", sampled=b"s")))
    assert with_sample == ["BEGIN", "INSERT event_batches", "INSERT samples", "UPDATE totals", "COMMIT"]


@pytest.mark.requirement("store:sqlite:cost")
async def test_asking_for_webhooks_when_none_is_due_writes_nothing(store: SQLiteStore) -> None:
    asked = await statements(store, lambda: store.due_deliveries(1e9, 10, 10))
    assert (len(asked), "BEGIN" in asked) == (1, False)
    assert await statements(store, lambda: store.beat("nobody")) == []


@pytest.mark.requirement("store:deliveries:endpoints")
async def test_webhooks_that_wait_for_an_endpoint_without_room_are_not_walked_over(store: SQLiteStore) -> None:
    work: dict[int, int] = {}
    for count in (10, 1000):
        hooks = [NewDelivery(f"{count}-{number}", "slow", b"{}", 1000) for number in range(count)]
        await store.create_finished_response(OURS, begun(f"{count}"), ended(f"{count}", deliveries=hooks))
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1

        for connection in (writing_connection(store), store._open().reader):
            connection.set_progress_handler(step, 1)
        assert await store.due_deliveries(2000, 10, 10, Rooms({"slow": 0}, 8)) == []
        assert len(await store.due_deliveries(2000, 10, 10, Rooms({}, 2))) == 2
        for connection in (writing_connection(store), store._open().reader):
            connection.set_progress_handler(None, 1)
        work[count] = steps
    assert work[1000] < work[10] * 1.5


@pytest.mark.requirement("store:sqlite:tail")
async def test_reading_the_end_of_a_long_log_does_not_walk_over_it(store: SQLiteStore) -> None:
    await store.create_response(OURS, begun("a"))
    work: dict[int, int] = {}
    for length in (20, 2000):
        last = await store.last_sequence(OURS, "a")
        await asyncio.gather(*(store.append_events(OURS, "a", batch(n, b"e")) for n in range(last + 1, length)))
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1

        reader = store._open().reader
        reader.set_progress_handler(step, 1)
        assert len(await store.events(OURS, "a", after=length - 6)) == 5
        assert await store.last_sequence(OURS, "a") == length - 1
        reader.set_progress_handler(None, 1)
        work[length] = steps
    assert work[2000] < work[20] * 1.2


@pytest.mark.requirement("store:sqlite:refused")
async def test_callers_who_are_refused_do_not_undo_the_transaction_of_the_others(store: SQLiteStore) -> None:
    record = IdempotencyRecord("k", b"digest", "running", 2e9)
    await store.create_response(OURS, begun("running", conversation_id="t", idempotency=record))
    await store.create_conversation(OURS, talk("t"))
    await store.add_key(ApiKey("key", "ours", "a key", b"digest", 1))
    calls = [
        lambda: store.create_response(OURS, begun("running")),
        lambda: store.create_response(OURS, begun("x", conversation_id="t")),
        lambda: store.create_finished_response(OURS, begun("x", conversation_id="t"), ended("x")),
        lambda: store.create_response(OURS, begun("x", idempotency=IdempotencyRecord("k", b"d", "x", 2e9))),
        lambda: store.create_response(OURS, begun("x", events=[batch(1, b"late")])),
        lambda: store.append_events(OURS, "running", batch(1, b"late")),
        lambda: store.finish_response(OURS, ended("running", events=[batch(1, b"late")])),
        lambda: store.create_conversation(OURS, talk("t", item("x"))),
        lambda: store.add_key(ApiKey("other", "ours", "a key", b"digest", 1)),
        lambda: store.delete_response(OURS, "running"),
        lambda: store.delete_chain(OURS, "running"),
    ]
    results: list[object] = []

    async def all_at_once() -> None:
        others = [add(store, f"r{number}") for number in range(5)]
        results.extend(await asyncio.gather(*[call() for call in calls], *others, return_exceptions=True))

    told = await statements(store, all_at_once)
    assert (told.count("BEGIN"), told.count("COMMIT"), told.count("ROLLBACK")) == (1, 1, 0)
    assert [isinstance(result, APIError) for result in results] == [True] * len(calls) + [False] * 5
    assert (await store.status()).responses == 6
    assert await store.get_items(OURS, ["x", "in_x"]) == {}
    assert await frames(store, "running") == b""


@pytest.mark.requirement("store:sqlite:dropped")
async def test_plans_and_samples_are_not_in_the_file_after_the_end(store: SQLiteStore) -> None:
    for name in "ab":
        events = [batch(0, b"e0", sampled=b"s0")]
        await store.create_response(OURS, begun(name, plan=b"a plan", events=events))
        await store.append_events(OURS, name, batch(1, b"e1", sampled=b"s1"))
    assert (rows_of(store, "plans"), rows_of(store, "samples")) == (2, 4)
    await store.finish_response(OURS, ended("a", events=[batch(2, b"e2", sampled=b"s2")]))
    assert (rows_of(store, "plans"), rows_of(store, "samples")) == (1, 2)
    assert [one.sampled for one in await store.events(OURS, "b")] == [b"s0", b"s1"]
    await store.delete_tenant("ours")
    assert (rows_of(store, "plans"), rows_of(store, "samples"), rows_of(store, "event_batches")) == (0, 0, 0)


@pytest.mark.requirement("store:sqlite:format")
async def test_a_response_of_a_newer_form_is_left_to_a_newer_version(store: SQLiteStore) -> None:
    await store.create_response(OURS, begun("ours"))
    await store.create_response(OURS, begun("newer"))
    writing_connection(store).execute("UPDATE responses SET format = 2 WHERE id = 'newer'")
    assert [one.id for one in await store.orphans([])] == ["ours"]
    assert await store.claim(OURS, "newer", 1, "me") is None
    assert (await look_up(store, "newer")).fence == 1


@pytest.mark.requirement("store:sqlite:steps")
async def test_old_logs_records_and_conversations_go_in_steps(path: Path) -> None:
    clock = Clock()
    store = SQLiteStore(path, StoreLimits(event_ttl_seconds=60, conversation_ttl_seconds=60), clock)
    await store.open()
    for number in range(450):
        name = f"r{number}"
        new = begun(name, idempotency=IdempotencyRecord(name, b"d", name, clock() + 60))
        await store.create_finished_response(OURS, new, ended(name, events=[batch(0, b"log")]))
        await store.create_conversation(OURS, talk(name, item(f"x{number}")))
    clock.now += 61
    told = await statements(store, lambda: store.sweep(clock()))
    # One look for responses that have expired, and for each of the others steps and one that finds nothing.
    assert told.count("COMMIT") == 1 + 3 * (450 // sqlite._SWEEP_STEP + 1)
    assert rows_of(store, "event_batches") == 0
    assert rows_of(store, "idempotency") == 0
    assert rows_of(store, "conversations") == 0
    status = await store.status()
    assert (status.responses, status.items) == (450, 900)
    assert (
        status.bytes
        == writing_connection(store)
        .execute("SELECT (SELECT sum(length(snapshot)) FROM responses) + (SELECT sum(length(body)) FROM items)")
        .fetchone()[0]
    )
    await store.close()


@pytest.mark.requirement("store:tenant:shredded")
async def test_a_deleted_tenant_goes_in_steps_and_leaves_no_trace_of_its_key(store: SQLiteStore, path: Path) -> None:
    wrapped = bytes(range(64, 96)) * 2
    assert await store.add_tenant_key("ours", wrapped) == wrapped
    assert await store.add_tenant_key("theirs", b"their key") == b"their key"
    await asyncio.gather(*(add(store, f"r{number}") for number in range(450)))
    await add(store, "theirs", scope=THEIRS)
    await store.create_response(OURS, begun("running", events=[batch(0, b"e0")]))
    files = (path, path.with_name("a.db-wal"))
    assert any(wrapped in file.read_bytes() for file in files)
    told = await statements(store, lambda: store.delete_tenant("ours"))
    # The keys, steps of responses and one that finds none, and one for conversations.
    assert told.count("COMMIT") == 1 + (451 // 50 + 1) + 1 + 1
    assert not any(wrapped in file.read_bytes() for file in files)
    assert await store.tenant_key("ours") is None
    assert await store.tenant_key("theirs") == b"their key"
    assert not await store.append_events(OURS, "running", batch(1, b"e1"))
    status = await store.status()
    assert (status.responses, status.items) == (1, 2)
    await store.close()
    await store.open()
    assert await store.status() == status


@pytest.mark.requirement("store:tenant:shredded")
async def test_a_tenant_that_is_deleted_leaves_the_order_of_use_whole(path: Path) -> None:
    store = SQLiteStore(path, StoreLimits(max_entries=3, max_conversations=3), Clock())
    await store.open()
    await add(store, "a")
    await add(store, "b", scope=THEIRS)
    await store.create_conversation(OURS, talk("a"))
    await store.create_conversation(THEIRS, talk("b"))
    await store.delete_tenant("ours")
    for name in "cde":
        await add(store, name, scope=THEIRS)
        await store.create_conversation(THEIRS, talk(name))
    assert [name for name in "bcde" if await store.get_response(THEIRS, name)] == ["c", "d", "e"]
    assert [name for name in "bcde" if await store.get_conversation(THEIRS, name)] == ["c", "d", "e"]
    await store.close()


@pytest.mark.requirement("store:clock")
@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
async def test_a_clock_that_jumps_by_a_day_keeps_what_has_days_and_the_order_of_all(path: Path, jump: float) -> None:
    clock = Clock()
    limits = StoreLimits(max_entries=3, ttl_seconds=30 * 86400, event_ttl_seconds=2 * 86400)
    store = SQLiteStore(path, limits, clock)
    await store.open()
    await store.join("me")
    await store.create_response(OURS, begun("running", owner="me"))
    await store.append_events(OURS, "running", batch(0, b"e0"))
    await store.create_finished_response(OURS, begun("old"), ended("old", events=[batch(0, b"log")]))
    clock.now += jump
    await add(store, "new")
    assert await store.sweep(clock()) == 0
    assert await frames(store, "old") == b"log"
    assert await store.beat("me") == {"me": 1}
    assert await store.orphans(["me"]) == []
    assert await store.append_events(OURS, "running", batch(1, b"e1"))
    assert await store.finish_response(OURS, ended("running", events=[batch(2, b"e2")]))
    assert await frames(store, "running") == b"e0e1e2"
    # The one used least recently goes, whatever the clock said when it was used.
    await add(store, "newest")
    assert [name for name in ("old", "new", "running", "newest") if await store.get_response(OURS, name)] == [
        "new",
        "running",
        "newest",
    ]
    await store.close()


@pytest.mark.requirement("store:conversation:limits")
async def test_the_order_of_use_of_conversations_survives_a_restart(path: Path) -> None:
    limits = StoreLimits(max_conversations=3)
    store = SQLiteStore(path, limits, Clock())
    await store.open()
    for name in "abc":
        await store.create_conversation(OURS, talk(name))
    await store.get_conversation(OURS, "a")
    await store.close()
    await store.open()
    await store.create_conversation(OURS, talk("d"))
    assert [name for name in "abcd" if await store.get_conversation(OURS, name)] == ["a", "c", "d"]
    await store.close()


@pytest.mark.requirement("store:conversation:limits")
async def test_a_conversation_that_could_not_be_made_changes_no_order_and_no_count(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(path, StoreLimits(max_conversations=2, max_conversation_bytes=100), Clock())
    await store.open()
    await store.create_conversation(OURS, talk("a", item("x", 40)))
    await store.create_conversation(OURS, talk("b", item("y", 40)))
    before = store._open().rows.ledger.totals
    note = Ledger.settle
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", lambda ledger: note(ledger) or 1 / 0)
        for _ in range(2):
            with pytest.raises(InternalError):
                await store.create_conversation(OURS, talk("c", item("z", 40)))
    assert store._open().rows.ledger.totals == before
    await store.create_conversation(OURS, talk("c", item("z", 40)))
    assert [name for name in "abc" if await store.get_conversation(OURS, name)] == ["b", "c"]
    assert store._open().rows.ledger.totals == before
    await store.close()


@pytest.mark.requirement("store:sqlite:heavy")
async def test_the_end_of_a_long_log_does_not_run_on_the_loop(store: SQLiteStore) -> None:
    for name, length in (("short", 10), ("long", 2001)):
        await store.create_response(OURS, begun(name))
        await asyncio.gather(*(store.append_events(OURS, name, batch(n, b"e", sampled=b"s")) for n in range(length)))
        threads: set[bool] = set()
        note = threads.add
        connection = writing_connection(store)
        connection.set_trace_callback(lambda _, note=note: note(threading.current_thread() is threading.main_thread()))
        await store.finish_response(OURS, ended(name, events=[batch(length, b"end")]))
        connection.set_trace_callback(None)
        assert (True in threads) == (name == "short")


@pytest.mark.requirement("store:sqlite:beside")
async def test_keys_are_made_and_revoked_beside_a_server_that_has_the_file(store: SQLiteStore, path: Path) -> None:
    await add(store, "a")
    await store.create_response(OURS, begun("running"))
    before = await store.status()
    beside = SQLiteStore(path, StoreLimits(), Clock(), beside=True)
    await beside.open()
    await beside.add_key(ApiKey("key", "ours", "a key", b"digest", 1))
    found = await store.find_key(b"digest")
    assert found is not None
    assert (found.id, found.revoked_at) == ("key", None)
    assert await beside.revoke_key("key", 7)
    await beside.close()
    found = await store.find_key(b"digest")
    assert found is not None
    assert found.revoked_at == 7
    assert await store.status() == before
    # It has not given the server's lock away.
    with pytest.raises(ConfigurationError, match="in use by another server"):
        await SQLiteStore(path, StoreLimits()).open()
    await add(store, "b")


@pytest.mark.requirement("store:sqlite:beside")
async def test_one_beside_waits_for_the_server_and_the_server_for_it(store: SQLiteStore, path: Path) -> None:
    beside = SQLiteStore(path, StoreLimits(), Clock(), beside=True)
    await beside.open()
    keys = [beside.add_key(ApiKey(f"k{n}", "ours", "", b"%d" % n, n)) for n in range(40)]
    await asyncio.gather(*keys, *(add(store, f"r{n}") for n in range(40)))
    assert [key.id for key in await store.keys()] == [f"k{n}" for n in range(40)]
    assert (await store.status()).responses == 40
    await beside.close()


@pytest.mark.requirement("store:sqlite:sealed")
async def test_a_file_that_was_written_sealed_is_not_opened_without_its_key(store: SQLiteStore, path: Path) -> None:
    await store.add_tenant_key(SERVER, b"wrapped")
    await store.close()
    with pytest.raises(ConfigurationError, match="encrypted"):
        await store.open()
    with pytest.raises(UnavailableError, match="starting or stopping"):
        await store.status()
    other = SQLiteStore(path, StoreLimits())
    other.sealed = True
    await other.open()
    await other.close()


@pytest.mark.requirement("store:sqlite:closed")
async def test_a_closed_store_has_no_owners(store: SQLiteStore) -> None:
    await store.join("me")
    await store.close()
    for call in (store.join("me"), store.beat("me"), store.leave("me"), store.orphans([]), store.keys()):
        with pytest.raises(UnavailableError, match="starting or stopping"):
            await call
    await store.open()
    assert await store.beat("me") == {}


@pytest.mark.requirement("store:sqlite:group-commit")
async def test_an_end_that_fails_late_takes_no_webhook_and_no_other_write_with_it(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create_response(OURS, begun("a", conversation_id="t"))
    await store.create_conversation(OURS, talk("t"))
    end = ended("a", to_conversation=True, deliveries=[NewDelivery("evt", "hook", b"{}", 1)])
    add_items = Ledger.add_items

    def failing(ledger: Ledger, tenant: str, response: int, role: int, items: list[StoredItem]) -> None:
        add_items(ledger, tenant, response, role, items)
        if items and items[0].id == "out_a":
            raise ConflictError("late")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "add_items", failing)
        results = await asyncio.gather(
            add(store, "b"), store.finish_response(OURS, end), add(store, "c"), return_exceptions=True
        )
    assert [type(result) for result in results] == [type(None), ConflictError, type(None)]
    assert await store.due_deliveries(1e9, 1, 10) == []
    assert await store.conversation_item_ids(OURS, "t") == []
    assert (await look_up(store, "a")).status == "in_progress"
    before = await size(store)
    assert await store.finish_response(OURS, end)
    assert [one.id for one in await store.due_deliveries(1e9, 1, 10)] == ["evt"]
    assert await store.conversation_item_ids(OURS, "t") == ["in_a", "out_a"]
    assert await size(store) - before == len(b'{"ended":"a"}') - len(b'{"begun":"a"}') + len(b'"answer a"')

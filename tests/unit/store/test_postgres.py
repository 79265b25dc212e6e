"""What the PostgreSQL store does that no other one does: many servers over one database."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import ConflictError, InvalidRequestError
from antiphon.store import postgres_append, postgres_limits
from antiphon.store.base import StoredItem
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres_limits import GRACE_SECONDS
from antiphon.store.postgres_session import Bell, Session
from support.postgres import Cluster, Server
from support.stores import OURS, Clock, add, batch, begun, ended, frames, ids, item, look_up, size, talk


@pytest.fixture
async def ours(server: Server) -> PostgresStore:
    return await server()


@pytest.fixture
async def other(server: Server) -> PostgresStore:
    return await server()


# One database, many servers


@pytest.mark.requirement("store:postgresql:shared", "api:postgresql")
async def test_what_one_server_acknowledged_every_other_one_sees(ours: PostgresStore, other: PostgresStore) -> None:
    await ours.create_response(OURS, begun("a", events=[batch(0, b"e0")], owner="first"))
    assert (await look_up(other, "a")).owner == "first"
    assert await ours.append_events(OURS, "a", batch(1, b"e1"))
    assert await frames(other, "a") == b"e0e1"
    assert await other.append_events(OURS, "a", batch(2, b"e2"))
    assert await ours.finish_response(OURS, ended("a", events=[batch(3, b"e3")]))
    assert (await look_up(other, "a")).status == "completed"
    await add(other, "b", "a")
    assert await ids(ours, "b") == ["a", "b"]
    assert await ours.delete_response(OURS, "b")
    assert await other.get_response(OURS, "b") is None


@pytest.mark.requirement("store:postgresql:shared", "store:lease:fence")
async def test_a_server_that_was_only_slow_cannot_write_what_another_one_has_taken_over(
    ours: PostgresStore, other: PostgresStore
) -> None:
    await ours.create_response(OURS, begun("a", owner="slow", plan=b"plan"))
    await ours.append_events(OURS, "a", batch(0, b"e0"))
    claims = await asyncio.gather(*(store.claim(OURS, "a", 1, f"r{n}") for n, store in enumerate((ours, other) * 4)))
    (claimed,) = [claim for claim in claims if claim is not None]
    assert (claimed.response.fence, claimed.plan) == (2, b"plan")
    # Late writes of the first owner, among those of the new one and in the same statement.
    calls = [ours.append_events(OURS, "a", batch(1, b"late")), ours.append_events(OURS, "a", batch(1, b"e1"), fence=2)]
    assert await asyncio.gather(*calls) == [False, True]
    assert not await ours.finish_response(OURS, ended("a", events=[batch(2, b"late")]))
    assert await frames(other, "a") == b"e0e1"


@pytest.mark.requirement("store:postgresql:shared", "store:lease:fence")
async def test_of_appends_by_two_servers_at_once_one_is_kept(ours: PostgresStore, other: PostgresStore) -> None:
    for number in range(10):
        await ours.create_response(OURS, begun(f"r{number}"))
        calls = (
            store.append_events(OURS, f"r{number}", batch(0, name)) for store, name in ((ours, b"a"), (other, b"b"))
        )
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(isinstance(result, ConflictError) for result in results) == [False, True]
        assert await frames(ours, f"r{number}") == (b"a" if results[0] is True else b"b")


@pytest.mark.requirement("store:postgresql:format")
async def test_rows_of_a_later_form_are_left_to_those_who_know_it(
    ours: PostgresStore, postgres: Cluster, database: str
) -> None:
    for name in ("known", "later"):
        await ours.create_response(OURS, begun(name, owner="gone"))
    postgres.execute("UPDATE responses SET format = 2 WHERE id = 'later'", database)
    assert [orphan.id for orphan in await ours.orphans([])] == ["known"]
    assert await ours.claim(OURS, "later", 1, "new") is None
    assert await ours.claim(OURS, "known", 1, "new") is not None


# Bytes and names


@pytest.mark.requirement("store:postgresql:bytes")
async def test_bodies_may_hold_any_bytes_and_names_any_text_that_json_has(ours: PostgresStore) -> None:
    whole = bytes(range(256)) * 300
    name = "ünï \U0001f980 \ufffe'\"\\%_"
    items = [StoredItem(f"in {name}", whole), StoredItem("In", b"\0"), StoredItem("in", b"")]
    await ours.create_response(OURS, begun(name, items=items, plan=whole, events=[batch(0, whole, sampled=whole)]))
    assert await frames(ours, name) == whole
    assert await ours.input_item_ids(OURS, name) == [f"in {name}", "In", "in"]
    assert await ours.get_items(OURS, ["in", "In", f"in {name}"]) == {"in": b"", "In": b"\0", f"in {name}": whole}
    claimed = await ours.claim(OURS, name, 1, "new")
    assert claimed is not None
    assert claimed.plan == whole


@pytest.mark.requirement("store:postgresql:bytes")
async def test_names_that_the_database_cannot_hold_are_those_of_nothing(ours: PostgresStore) -> None:
    bad = "a\0b"
    assert await ours.get_response(OURS, bad) is None
    assert await ours.chain(OURS, bad) == []
    assert await ours.input_item_ids(OURS, bad) == []
    assert await ours.events(OURS, bad) == []
    assert await ours.last_sequence(OURS, bad) == -1
    assert not await ours.append_events(OURS, bad, batch(0, b"e"))
    assert not await ours.finish_response(OURS, ended(bad))
    assert not await ours.delete_response(OURS, bad)
    assert await ours.delete_chain(OURS, bad) == []
    assert await ours.claim(OURS, bad, 1, "new") is None
    assert await ours.find_idempotent(OURS, bad, 0) is None
    assert await ours.get_conversation(OURS, bad) is None
    assert await ours.update_conversation(OURS, bad, b"{}") is None
    assert not await ours.delete_conversation(OURS, bad)
    assert not await ours.add_conversation_items(OURS, bad, [])
    assert await ours.conversation_item_ids(OURS, bad) is None
    assert not await ours.delete_conversation_item(OURS, bad, bad)
    assert not await ours.revoke_key(bad, 1)
    await add(ours, "a")
    assert await ours.get_items(OURS, [bad, "in_a"]) == {"in_a": b'"question a"'}
    await ours.create_conversation(OURS, talk("t"))
    for call in (
        ours.create_response(OURS, begun("b", items=[item(bad)])),
        ours.finish_response(OURS, ended("b", items=[item(bad)])),
        ours.create_conversation(OURS, talk("u", item(bad))),
        ours.add_conversation_items(OURS, "t", [item(bad)]),
    ):
        with pytest.raises(InvalidRequestError, match=r"U\+0000"):
            await call


# History that a turn is made on top of, between servers


@pytest.mark.requirement("store:postgresql:retained", "store:tombstone:retained")
async def test_history_stays_whole_although_another_server_deletes_it_meanwhile(server: Server) -> None:
    clock = Clock()
    ours, other = await server(clock), await server(clock)
    for name, parent in (("a", None), ("b", "a")):
        await add(ours, name, parent)
    with ours.retain(OURS, "b"):
        assert await other.delete_chain(OURS, "a") == ["a", "b"]
        assert await ours.chain(OURS, "b") == []
        # Longer than the time of grace, of which each sweep of ours begins another one.
        for _ in range(3):
            clock.now += GRACE_SECONDS * 0.75
            await ours.sweep(clock())
            await other.sweep(clock())
        assert await size(other) == 0
        await add(ours, "c", "b")
    assert await ids(other, "c") == ["a", "b", "c"]
    assert await other.get_items(OURS, ["in_a"]) == {"in_a": b'"question a"'}
    clock.now += GRACE_SECONDS * 2
    await other.sweep(clock())
    assert await ids(ours, "c") == ["a", "b", "c"]
    assert await other.delete_response(OURS, "c")
    assert await size(ours) == 0


@pytest.mark.requirement("store:postgresql:retained")
async def test_what_nothing_needs_is_hidden_at_once_and_erased_after_its_grace(
    server: Server, postgres: Cluster, database: str
) -> None:
    def rows(*tables: str) -> list[str]:
        return [postgres.execute(f"SELECT count(*) FROM {table}", database) for table in tables]

    clock = Clock()
    store = await server(clock)
    await add(store, "a")
    await store.create_conversation(OURS, talk("t", item("shared")))
    await store.create_response(OURS, begun("b", "a", items=[item("shared")], plan=b"p", events=[batch(0, b"e")]))
    await store.finish_response(OURS, ended("b"))
    assert await store.delete_chain(OURS, "b") == ["a", "b"]
    assert rows("responses", "response_items", "items", "event_batches", "plans") == ["2", "4", "4", "0", "0"]
    assert await store.sweep(clock() + GRACE_SECONDS - 1) == 0
    assert rows("responses", "items") == ["2", "4"]
    await store.sweep(clock() + GRACE_SECONDS)
    assert rows("responses", "response_items", "items") == ["0", "0", "1"]
    assert await store.conversation_item_ids(OURS, "t") == ["shared"]


@pytest.mark.requirement("store:postgresql:retained")
async def test_what_a_killed_server_had_retained_is_removed_by_the_next_one(server: Server) -> None:
    killed = await server()
    await add(killed, "a")
    with killed.retain(OURS, "a"):
        await killed.delete_response(OURS, "a")
        assert await size(killed) > 0
        await server()
        assert await size(killed) == 0
        # It was slow, and not killed: its turn finds its history all the same.
        await add(killed, "b", "a")
    assert await ids(killed, "b") == ["a", "b"]


@pytest.mark.requirement("store:postgresql:retained")
async def test_very_many_retained_rows_are_settled_by_one_look_at_all(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.store.postgres_removal._MOST_HELD_BACK", 1)
    clock = Clock()
    store = await server(clock)
    for name in "abc":
        await add(store, name)
    with store.retain(OURS, "a"), store.retain(OURS, "b"), store.retain(OURS, "c"):
        for name in "abc":
            await store.delete_response(OURS, name)
        assert await size(store) > 0
    assert await store.sweep(clock()) == 3
    assert await size(store) == 0


# Limits


@pytest.mark.requirement("store:postgresql:limits")
async def test_large_limits_are_enforced_for_each_hundredth_and_at_each_sweep(server: Server) -> None:
    clock = Clock()
    ours, other = await server(clock, max_entries=200), await server(clock, max_entries=200)
    for number in range(200):
        await add(ours if number % 2 else other, f"r{number:03}")
    for number in range(200, 203):
        await add(ours, f"r{number:03}")
    status = await ours.status()
    assert 200 <= status.responses <= 202
    await add(other, "r203")
    await ours.sweep(clock())
    assert (await other.status()).responses == 200
    assert await ours.get_response(OURS, "r003") is None
    assert await ours.get_response(OURS, "r004") is not None


@pytest.mark.requirement("store:postgresql:limits")
async def test_uses_on_one_server_count_on_the_other(server: Server) -> None:
    clock = Clock()
    ours, other = await server(clock, max_entries=3), await server(clock, max_entries=3)
    for name in "abc":
        await add(ours, name)
        clock.now += 1
    assert await other.get_response(OURS, "a") is not None
    await other.sweep(clock())
    clock.now += 1
    await add(ours, "d")
    assert [name for name in "abcd" if await ours.get_response(OURS, name)] == ["a", "c", "d"]


@pytest.mark.requirement("store:postgresql:limits")
async def test_uses_outlive_a_restart_of_the_server_and_are_written_in_between(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    store = await server(clock, max_entries=3)
    for name in "abc":
        await add(store, name)
    await store.get_response(OURS, "a")
    await store.close()
    await store.open()
    monkeypatch.setattr(postgres_limits.Uses, "MOST", 1)
    await store.get_response(OURS, "b")
    assert store._uses.take() == ([], [], [])
    await add(store, "d")
    assert [name for name in "abcd" if await store.get_response(OURS, name)] == ["a", "b", "d"]


# Group commit


@pytest.mark.requirement("store:postgresql:group-commit")
async def test_what_many_streams_append_at_once_shares_statements(
    ours: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[int] = []
    real = postgres_append.fetch

    async def counting(connection: object, query: str, **parameters: object) -> object:
        statements.append(len(parameters["ids"]))  # type: ignore[arg-type]
        return await real(connection, query, **parameters)  # type: ignore[arg-type]

    names = [f"r{number}" for number in range(40)]
    await asyncio.gather(*(ours.create_response(OURS, begun(name)) for name in names))
    monkeypatch.setattr(postgres_append, "fetch", counting)
    for first in range(0, 15, 3):
        calls = (ours.append_events(OURS, name, batch(first + n, b"%d" % n)) for name in names for n in range(3))
        assert await asyncio.gather(*calls) == [True] * 120
    assert sum(statements) >= 200
    assert len(statements) <= 15
    assert [await frames(ours, name) for name in names] == [b"012" * 5] * 40


@pytest.mark.requirement("store:postgresql:group-commit")
async def test_an_append_at_fault_harms_only_itself(ours: PostgresStore) -> None:
    for name in "abcd":
        await ours.create_response(OURS, begun(name, events=[batch(0, b"e0")]))
    calls = [
        ours.append_events(OURS, "a", batch(1, b"e1")),
        ours.append_events(OURS, "b", batch(5, b"gap")),
        ours.append_events(OURS, "never", batch(0, b"e")),
        ours.append_events(OURS, "a", batch(2, b"e2"), status="queued"),
        ours.append_events(OURS, "b", batch(1, b"e1")),
        ours.append_events(OURS, "c", batch(1, b"other"), fence=2),
        ours.append_events(OURS, "a", batch(2, b"again")),
        ours.append_events(OURS, "d", batch(0, b"e0")),
        ours.append_events(OURS, "d", batch(1, b"e1")),
        # A number that no column can hold spoils the statement that it is in.
        ours.append_events(OURS, "c", batch(2**40, b"huge")),
        ours.append_events(OURS, "c", batch(1, b"e1")),
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    kinds = [type(result).__name__ if isinstance(result, Exception) else result for result in results]
    conflict = "ConflictError"
    assert kinds == [True, conflict, False, True, True, False, conflict, conflict, True, "InternalError", True]
    logs = {name: await frames(ours, name) for name in "abcd"}
    assert logs == {"a": b"e0e1e2", "b": b"e0e1", "c": b"e0e1", "d": b"e0e1"}
    assert (await look_up(ours, "a")).status == "queued"


@pytest.mark.requirement("store:postgresql:group-commit")
async def test_a_store_that_is_closed_finishes_what_was_appended(server: Server) -> None:
    store, other = await server(), await server()
    await store.create_response(OURS, begun("a"))
    calls = [asyncio.ensure_future(store.append_events(OURS, "a", batch(n, b"%d" % n))) for n in range(600)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*calls) == [True] * 600
    assert await other.last_sequence(OURS, "a") == 599


# The doorbell


class Heard:
    """What a doorbell rang for."""

    def __init__(self) -> None:
        self.rings: list[tuple[str, str]] = []
        self._more = asyncio.Event()

    def __call__(self, tenant: str, response_id: str) -> None:
        self.rings.append((tenant, response_id))
        self._more.set()

    async def wait_for(self, *names: str) -> None:
        async with asyncio.timeout(10):
            while {name for _, name in self.rings} != set(names):
                self._more.clear()
                await self._more.wait()


@pytest.mark.requirement("store:postgresql:doorbell")
async def test_the_doorbell_rings_for_what_another_server_writes_and_not_for_our_own(
    ours: PostgresStore, other: PostgresStore
) -> None:
    here, there = Heard(), Heard()
    ours.listen(here)
    other.listen(there)
    await ours.create_response(OURS, begun("a"))
    for step in (
        lambda: ours.append_events(OURS, "a", batch(0, b"e0")),
        lambda: ours.claim(OURS, "a", 1, "new"),
        lambda: ours.finish_response(OURS, ended("a", fence=2)),
    ):
        there.rings.clear()
        assert await step()
        await there.wait_for("a")
        assert set(there.rings) == {("ours", "a")}
    await other.create_response(OURS, begun("b"))
    await other.append_events(OURS, "b", batch(0, b"e0"))
    await here.wait_for("b")
    assert {name for _, name in here.rings} == {"b"}
    assert {name for _, name in there.rings} == {"a"}


@pytest.mark.requirement("store:postgresql:doorbell")
async def test_who_does_not_hear_does_not_keep_others_from_it_and_listening_may_begin_before_opening(
    ours: PostgresStore, postgres: Cluster, database: str
) -> None:
    def deaf(tenant: str, response_id: str) -> None:
        raise RuntimeError("deaf")

    heard = Heard()
    other = PostgresStore(postgres.url(database), ours.limits)
    other.listen(deaf)
    other.listen(heard)
    await other.open()
    await ours.create_response(OURS, begun("a"))
    await ours.append_events(OURS, "a", batch(0, b"e0"))
    await heard.wait_for("a")
    await other.close()


@pytest.mark.requirement("store:postgresql:doorbell")
async def test_a_lost_listening_connection_is_made_again(
    ours: PostgresStore, other: PostgresStore, postgres: Cluster, database: str
) -> None:
    heard = Heard()
    other.listen(heard)
    await ours.create_response(OURS, begun("a"))
    kill = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query = 'SELECT 1'"
    )
    assert int(postgres.execute(kill, database)) >= 1
    async with asyncio.timeout(10):
        while not heard.rings:
            # A ring may go before anyone listens again; it is a help only.
            await ours.append_events(OURS, "a", batch(await ours.last_sequence(OURS, "a") + 1, b"e"))
            await asyncio.sleep(0.01)
    assert other.reachable


@pytest.mark.requirement("store:postgresql:doorbell")
async def test_rings_that_do_not_get_through_are_counted_and_never_raised(
    ours: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = ours._open()
    bell = Bell(opened.database)
    bell.ring("t" * 8000, "a")
    assert bell.missed == 1
    monkeypatch.setattr("antiphon.store.postgres_session._MOST_WAITING", 3)
    for number in range(5):
        bell.ring("t", f"r{number}")
        bell.ring("t", f"r{number}")
    assert bell.missed > 1
    before = bell.missed
    await opened.database.close()
    await bell.close()
    assert bell.missed == before + 3
    bell.ring("t", "late")
    assert bell.missed == before + 4
    assert ours.missed_rings == opened.bell.missed == 0
    opened.bell.ring("t" * 8000, "a")
    assert ours.missed_rings == 1
    await ours.close()
    assert ours.missed_rings == 0


@pytest.mark.requirement("store:postgresql:doorbell")
def test_a_payload_of_something_else_rings_for_nobody() -> None:
    heard = Heard()
    session = Session("postgresql://", _NoDatabase())  # type: ignore[arg-type]
    session.listen(heard)
    session._rung(None, 1, "antiphon", "no separator")
    session._rung(None, 1, "antiphon", "ten\x1fant\x1fresp_1")
    assert heard.rings == [("ten\x1fant", "resp_1")]


class _NoDatabase:
    def is_ours(self, pid: int) -> bool:
        return False

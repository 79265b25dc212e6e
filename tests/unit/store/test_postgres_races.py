"""Servers that create, chain, delete, evict and sweep at the same time leave no row too many and none too few."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from antiphon.errors import ConflictError, InvalidRequestError
from antiphon.store import postgres_limits, postgres_removal
from antiphon.store.postgres import PostgresStore
from support.postgres import Cluster, Server
from support.stores import OURS, Clock, add, batch, begun, ended, ids, item, look_up, size, talk

SOUND = {
    "an item of a response is not there": """
        SELECT count(*) FROM response_items AS ri LEFT JOIN items AS i ON i.n = ri.item WHERE i.n IS NULL""",
    "an item of a conversation is not there": """
        SELECT count(*) FROM conversation_items AS ci LEFT JOIN items AS i ON i.n = ci.item WHERE i.n IS NULL""",
    "items are of no response": """
        SELECT count(*) FROM response_items AS ri LEFT JOIN responses AS r ON r.n = ri.response WHERE r.n IS NULL""",
    "items are of no conversation": """
        SELECT count(*) FROM conversation_items AS ci LEFT JOIN conversations AS c ON c.n = ci.conversation
        WHERE c.n IS NULL""",
    "events are of no response that is kept": """
        SELECT count(*) FROM event_batches AS b LEFT JOIN responses AS r ON r.n = b.response AND r.gone_at IS NULL
        WHERE r.n IS NULL""",
    "plans and samples are of no running response": """
        SELECT count(*) FROM (SELECT response FROM plans UNION ALL SELECT response FROM samples) AS p
        LEFT JOIN responses AS r ON r.n = p.response AND r.running WHERE r.n IS NULL""",
    "nothing has an item": """
        SELECT count(*) FROM items AS i WHERE NOT EXISTS (SELECT FROM response_items WHERE item = i.n)
        AND NOT EXISTS (SELECT FROM conversation_items WHERE item = i.n)""",
    "a gone response that nothing needs is not hidden": """
        SELECT count(*) FROM responses AS r WHERE gone_at IS NOT NULL AND removed_at IS NULL
        AND NOT EXISTS (SELECT FROM responses AS c WHERE c.parent = r.n AND c.removed_at IS NULL)""",
    "a response that is needed is hidden or erased": """
        SELECT count(*) FROM responses AS r LEFT JOIN responses AS p ON p.n = r.parent
        WHERE r.removed_at IS NULL AND r.parent IS NOT NULL AND (p.n IS NULL OR p.removed_at IS NOT NULL)""",
    "a hidden response is not gone": """
        SELECT count(*) FROM responses WHERE removed_at IS NOT NULL AND gone_at IS NULL""",
}
"""What is wrong, and the statement that counts it."""


class Traffic:
    """Calls at random, of many callers, to several servers over one database."""

    def __init__(self, stores: list[PostgresStore], clock: Clock, seed: int) -> None:
        self.stores = stores
        self.clock = clock
        self.random = random.Random(seed)
        self.names: list[str] = []
        self.running: list[str] = []

    async def caller(self, calls: int) -> None:
        for _ in range(calls):
            kinds = [
                self.create,
                self.create,
                self.begin,
                self.end,
                self.delete,
                self.delete_chain,
                self.sweep,
                self.say,
            ]
            with contextlib.suppress(ConflictError, InvalidRequestError):
                await self.random.choice(kinds)(self.random.choice(self.stores))

    def new(self) -> tuple[str, str | None]:
        parent = self.random.choice(self.names[-12:]) if self.names and self.random.random() < 0.7 else None
        self.names.append(f"r{len(self.names)}")
        return self.names[-1], parent

    def some_items(self, name: str) -> list:
        shared = [item(f"shared{self.random.randrange(4)}", 4) for _ in range(self.random.randrange(3))]
        return [item(name), *shared]

    async def create(self, store: PostgresStore) -> None:
        name, parent = self.new()
        with store.retain(OURS, parent or ""):
            found = parent and await store.get_response(OURS, parent)
            await asyncio.sleep(self.random.random() * 0.01)
            whole = begun(name, parent if found else None, self.some_items(f"in_{name}"))
            await store.create_finished_response(OURS, whole, ended(name, items=self.some_items(f"out_{name}")))

    async def begin(self, store: PostgresStore) -> None:
        name, parent = self.new()
        with store.retain(OURS, parent or ""):
            events = [batch(0, b"e0", sampled=b"s")]
            await store.create_response(
                OURS, begun(name, parent, self.some_items(f"in_{name}"), plan=b"p", events=events, owner="o")
            )
        self.running.append(name)

    async def end(self, store: PostgresStore) -> None:
        if self.running:
            name = self.running.pop(self.random.randrange(len(self.running)))
            await store.append_events(OURS, name, batch(1, b"e1", sampled=b"s"))
            await store.finish_response(
                OURS, ended(name, items=self.some_items(f"out_{name}"), events=[batch(2, b"e2")])
            )

    async def delete(self, store: PostgresStore) -> None:
        if self.names:
            await store.delete_response(OURS, self.random.choice(self.names[-20:]))

    async def delete_chain(self, store: PostgresStore) -> None:
        if self.names and self.random.random() < 0.3:
            await store.delete_chain(OURS, self.random.choice(self.names[-20:]))

    async def sweep(self, store: PostgresStore) -> None:
        self.clock.now += 0.05
        await store.sweep(self.clock())

    async def say(self, store: PostgresStore) -> None:
        talk_name = f"t{self.random.randrange(3)}"
        if self.random.random() < 0.3:
            await store.delete_conversation(OURS, talk_name)
        elif self.random.random() < 0.5:
            await store.create_conversation(OURS, talk(talk_name, *self.some_items("said")))
        else:
            await store.add_conversation_items(OURS, talk_name, self.some_items(f"said{self.random.randrange(9)}"))


@pytest.mark.requirement("store:postgresql:races")
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_lost_and_nothing_is_left_over(
    server: Server, postgres: Cluster, database: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_limits, "GRACE_SECONDS", 3.0)
    monkeypatch.setattr(postgres_limits, "_STEP", 7)
    monkeypatch.setattr(postgres_removal, "_STEP", 7)
    clock = Clock()
    limits = {"ttl_seconds": 40, "max_entries": 30, "max_conversations": 2}
    stores = [await server(clock, **limits) for _ in range(3)]
    traffic = Traffic(stores, clock, seed)
    await asyncio.gather(*(traffic.caller(40) for _ in range(12)))

    while traffic.running:
        await traffic.end(stores[0])
    for _ in range(3):
        clock.now += 10
        for store in stores:
            await store.sweep(clock())
    wrong = {what: int(postgres.execute(statement, database)) for what, statement in SOUND.items()}
    assert {what: count for what, count in wrong.items() if count} == {}
    kept = [name for name in traffic.names if await stores[0].get_response(OURS, name)]
    assert 0 < len(kept) <= 30
    for name in kept:
        parent_id = (await look_up(stores[0], name)).parent_id
        chain = await ids(stores[1], name)
        assert chain[-1] == name
        assert parent_id is None or (parent_id in chain) == (len(chain) > 1)

    # In the end all goes, and nothing stays behind.
    clock.now += 100
    for tenant in ("ours", "nobody"):
        await stores[2].delete_tenant(tenant)
    assert await size(stores[0]) == 0
    left = [
        postgres.execute(f"SELECT count(*) FROM {table}", database) for table in ("responses", "items", "conversations")
    ]
    assert left == ["0", "0", "0"]
    await add(stores[0], "new")


@pytest.mark.requirement("store:postgresql:races")
async def test_two_deletions_that_meet_hide_what_both_leave_unneeded(
    server: Server, postgres: Cluster, database: str
) -> None:
    ours, other = await server(), await server()
    for number in range(30):
        for name, parent in ((f"a{number}", None), (f"b{number}", f"a{number}"), (f"c{number}", f"a{number}")):
            await add(ours, name, parent)
        deleted = await asyncio.gather(
            ours.delete_response(OURS, f"a{number}"),
            other.delete_response(OURS, f"b{number}"),
            ours.delete_response(OURS, f"c{number}"),
        )
        assert deleted == [True, True, True]
    assert await size(ours) == 0
    hidden = "SELECT count(*) FROM responses WHERE removed_at IS NULL"
    assert postgres.execute(hidden, database) == "0"


@pytest.mark.requirement("store:postgresql:races")
async def test_a_child_that_meets_the_deletion_of_its_parent_has_its_history_or_none(server: Server) -> None:
    ours, other = await server(), await server()
    for number in range(40):
        await add(ours, f"a{number}")
        with ours.retain(OURS, f"a{number}"):
            await asyncio.gather(add(ours, f"b{number}", f"a{number}"), other.delete_response(OURS, f"a{number}"))
        assert await ids(other, f"b{number}") == [f"a{number}", f"b{number}"]


@pytest.mark.requirement("store:postgresql:races")
async def test_an_item_that_comes_back_while_it_is_removed_is_there(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_limits, "GRACE_SECONDS", 0.0)
    clock = Clock()
    ours, other = await server(clock), await server(clock)
    for number in range(40):
        shared = [item("shared", 9)]
        await ours.create_finished_response(OURS, begun(f"a{number}", items=shared), ended(f"a{number}", items=[]))
        await ours.delete_response(OURS, f"a{number}")
        again = begun(f"b{number}", items=shared), ended(f"b{number}", items=[])
        await asyncio.gather(other.sweep(clock()), ours.create_finished_response(OURS, *again))
        assert await other.get_items(OURS, ["shared"]) == {"shared": b"i" * 9}
        await other.delete_response(OURS, f"b{number}")
        await ours.sweep(clock())

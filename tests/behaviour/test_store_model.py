"""Every store does the same as a model that is too simple to be wrong."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from antiphon.errors import APIError
from antiphon.store.base import IdempotencyRecord, NewConversation, NewResponse, Store, StoredItem, StoreLimits
from support.store_model import ModelStore, RefusedError
from support.stores import KINDS, OURS, Clock, batch, begun, ended, make_exact_store

T = TypeVar("T")
SHARED = [StoredItem(f"shared{number}", b"s" * (number + 5)) for number in range(3)]
TALKS = ["t0", "t1", "t2"]
OWNERS = ["one", "two"]
OFF = st.sampled_from([0, 0, 0, 0, -1, 1])
"""How far a fence, or the number of an event, is from the right one."""


class StoreAgainstModel(RuleBasedStateMachine):
    """Random calls to the model and to a store."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.names: list[str] = []
        self.added = 0
        self.store: Store | None = None

    @initialize(
        entries=st.sampled_from([None, 1, 2, 4]),
        size=st.sampled_from([None, 0, 150, 400]),
        ttl=st.sampled_from([None, 10.0]),
        events=st.sampled_from([None, 3.0]),
        talks=st.sampled_from([None, 1, 2]),
        talk_size=st.sampled_from([None, 0, 40]),
        talk_ttl=st.sampled_from([None, 8.0]),
    )
    def start(
        self,
        entries: int | None,
        size: int | None,
        ttl: float | None,
        events: float | None,
        talks: int | None,
        talk_size: int | None,
        talk_ttl: float | None,
    ) -> None:
        limits = StoreLimits(entries, size, ttl, events, talks, talk_size, talk_ttl)
        self.model = ModelStore(limits, self.clock)
        self.store = make_exact_store(self.kind, Path(self.folder.name), limits, self.clock)
        self.do(lambda store: store.open())

    def teardown(self) -> None:
        if self.store is not None:
            self.do(lambda store: store.close())
        self.runner.close()
        self.folder.cleanup()

    def do(self, call: Callable[[Store], Awaitable[T]]) -> T:
        async def run() -> T:
            assert self.store is not None
            return await call(self.store)

        return self.runner.run(run())

    def agree(self, expected: Callable[[], T], call: Callable[[Store], Awaitable[T]]) -> T | None:
        """The store returns what the model returns, or refuses what it refuses; None where both refused."""
        try:
            wanted = expected()
        except RefusedError as refused:
            with pytest.raises(APIError) as refusal:
                self.do(call)
            assert refused.code is None or refusal.value.code == refused.code
            return None
        assert self.do(call) == wanted
        return wanted

    def a_name(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.names[-8:]))

    def a_fence(self, name: str, off: int) -> int:
        row = self.model.live(name)
        return (row.fence if row else 1) + off

    def a_next(self, name: str, off: int) -> int:
        row = self.model.live(name)
        return max(0, (row.last if row else -1) + 1 + off)

    # Responses

    @rule(
        data=st.data(),
        shared=st.lists(st.sampled_from(SHARED), max_size=2),
        finished=st.booleans(),
        talk=st.sampled_from([None, None, *TALKS]),
        owner=st.sampled_from(OWNERS),
        keep=st.sampled_from([None, None, 2.0, 15.0]),
        key=st.sampled_from([None, None, "k0", "k1"]),
    )
    def create(
        self,
        data: st.DataObject,
        shared: list[StoredItem],
        finished: bool,
        talk: str | None,
        owner: str,
        keep: float | None,
        key: str | None,
    ) -> None:
        name = f"r{len(self.names)}"
        parent = self.a_name(data) if self.names and data.draw(st.booleans()) else None
        new: NewResponse = begun(
            name,
            parent,
            [StoredItem(f"in_{name}", b"q" * 9), *shared],
            data.draw(st.sampled_from(["queued", "in_progress"])),
            conversation_id=talk,
            owner=owner,
            keep_seconds=keep,
            plan=b"plan of " + name.encode(),
            idempotency=key and IdempotencyRecord(key, b"digest", name, self.clock() + 5),
            events=[batch(0, b"first")] if data.draw(st.booleans()) else [],
        )
        self.names.append(name)
        if finished:
            end = ended(
                name,
                items=[StoredItem(f"out_{name}", b"a" * 7)],
                events=[batch(len(new.events), b"end")],
                to_conversation=data.draw(st.booleans()),
            )
            self.agree(
                lambda: self.model.create(new, end), lambda store: store.create_finished_response(OURS, new, end)
            )
        else:
            self.agree(lambda: self.model.create(new), lambda store: store.create_response(OURS, new))

    @precondition(lambda self: self.names)
    @rule(
        data=st.data(),
        shared=st.lists(st.sampled_from(SHARED), max_size=2),
        off=OFF,
        first=OFF,
        to_conversation=st.booleans(),
    )
    def finish(
        self, data: st.DataObject, shared: list[StoredItem], off: int, first: int, to_conversation: bool
    ) -> None:
        name = self.a_name(data)
        end = ended(
            name,
            items=[StoredItem(f"out_{name}", b"a" * 7), *shared],
            events=[batch(self.a_next(name, first), b"end")],
            fence=self.a_fence(name, off),
            to_conversation=to_conversation,
        )
        self.agree(lambda: self.model.finish(end), lambda store: store.finish_response(OURS, end))

    @precondition(lambda self: self.names)
    @rule(data=st.data(), off=OFF, first=OFF, status=st.sampled_from([None, "in_progress"]))
    def append(self, data: st.DataObject, off: int, first: int, status: str | None) -> None:
        name = self.a_name(data)
        more = batch(self.a_next(name, first), b"event", b" of " + name.encode())
        fence = self.a_fence(name, off)
        self.agree(
            lambda: self.model.append(name, more, fence, status),
            lambda store: store.append_events(OURS, name, more, fence=fence, status=status),
        )

    @precondition(lambda self: self.names)
    @rule(data=st.data(), off=OFF, owner=st.sampled_from(OWNERS))
    def claim(self, data: st.DataObject, off: int, owner: str) -> None:
        name = self.a_name(data)
        fence = self.a_fence(name, off)
        row = self.model.claim(name, fence, owner)
        claimed = self.do(lambda store: store.claim(OURS, name, fence, owner))
        assert (claimed is None) == (row is None)
        if claimed is not None and row is not None:
            assert (claimed.response.id, claimed.response.status) == (name, row.status)
            assert (claimed.response.owner, claimed.response.fence, claimed.plan) == (owner, row.fence, row.plan)

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def get(self, data: st.DataObject) -> None:
        name = self.a_name(data)
        row = self.model.live(name)
        self.model.use(name)
        found = self.do(lambda store: store.get_response(OURS, name))
        assert (found is None) == (row is None)
        if found is not None and row is not None:
            assert (found.status, found.snapshot, found.parent_id) == (row.status, row.snapshot, row.parent)
            assert (found.owner, found.fence, found.conversation_id) == (row.owner, row.fence, row.talk)
            assert (found.temporary, found.events_expired) == (row.keep is not None, row.events_expired)

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = self.a_name(data)
        self.agree(lambda: self.model.delete(name), lambda store: store.delete_response(OURS, name))

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def delete_chain(self, data: st.DataObject) -> None:
        name = self.a_name(data)

        async def delete(store: Store) -> list[str]:
            return sorted(await store.delete_chain(OURS, name))

        self.agree(lambda: sorted(self.model.delete_chain(name)), delete)

    # Conversations

    @rule(talk=st.sampled_from(TALKS), shared=st.lists(st.sampled_from(SHARED), max_size=2))
    def create_talk(self, talk: str, shared: list[StoredItem]) -> None:
        new = NewConversation(talk, 1000, b"{}", shared)
        self.agree(
            lambda: self.model.create_talk(talk, b"{}", shared), lambda store: store.create_conversation(OURS, new)
        )

    @rule(talk=st.sampled_from(TALKS), shared=st.lists(st.sampled_from(SHARED), max_size=2), fresh=st.booleans())
    def add_to_talk(self, talk: str, shared: list[StoredItem], fresh: bool) -> None:
        self.added += 1
        items = [*shared, StoredItem(f"said{self.added}", b"w" * 11)] if fresh else shared

        def expected() -> bool:
            added = self.model.add(talk, items)
            self.model.settle()
            return added

        self.agree(expected, lambda store: store.add_conversation_items(OURS, talk, items))

    @rule(talk=st.sampled_from(TALKS), data=st.data())
    def take_out_of_talk(self, talk: str, data: st.DataObject) -> None:
        found = self.model.talks.get(talk)
        name = data.draw(st.sampled_from(["never", *(found.items if found else [])]))

        def expected() -> bool:
            if found is None or name not in found.items:
                return False
            found.items.remove(name)
            self.model.prune()
            return True

        self.agree(expected, lambda store: store.delete_conversation_item(OURS, talk, name))

    @rule(talk=st.sampled_from(TALKS), metadata=st.sampled_from([None, b'{"a":"b"}']))
    def get_or_update_talk(self, talk: str, metadata: bytes | None) -> None:
        expected = self.model.used_talk(talk)
        if metadata is None:
            found = self.do(lambda store: store.get_conversation(OURS, talk))
        else:
            if expected is not None:
                expected.metadata = metadata
            found = self.do(lambda store: store.update_conversation(OURS, talk, metadata))
        assert (found and (found.id, found.metadata)) == (expected and (talk, expected.metadata))

    @rule(talk=st.sampled_from(TALKS))
    def delete_talk(self, talk: str) -> None:
        def expected() -> bool:
            there = self.model.talks.pop(talk, None) is not None
            self.model.prune()
            return there

        self.agree(expected, lambda store: store.delete_conversation(OURS, talk))

    # All of it

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.now += seconds
        self.do(lambda store: store.sweep(self.clock()))
        self.model.sweep()

    @precondition(lambda self: not self.kind.endswith("memory"))
    @rule()
    def reopen(self) -> None:
        self.do(lambda store: store.close())
        self.do(lambda store: store.open())

    @invariant()
    def all_agrees(self) -> None:
        if self.store is not None:
            self.do(self.compare)

    async def compare(self, store: Store) -> None:
        model = self.model
        status = await store.status()
        assert (status.responses, status.items, status.bytes) == model.totals()
        assert [(one.id, one.owner, one.fence) for one in await store.orphans([])] == model.running()
        assert await store.get_items(OURS, list(model.bodies)) == model.bodies
        for name in self.names:
            row = model.live(name)
            turns = await store.chain(OURS, name)
            assert [(turn.id, [*turn.input_items, *turn.output_items]) for turn in turns] == model.chain(name)
            events = b"".join([one.body for one in await store.events(OURS, name)])
            assert events == (b"".join(one.body for one in row.batches) if row else b"")
            assert await store.last_sequence(OURS, name) == (row.last if row else -1)
        for talk in TALKS:
            found = model.talks.get(talk)
            assert await store.conversation_item_ids(OURS, talk) == (found and found.items)
        for key in ("k0", "k1"):
            record = await store.find_idempotent(OURS, key, self.clock())
            assert (record and record.response_id) == model.record(key)


@pytest.mark.requirement("store:model")
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_agrees_with_the_model(kind: str) -> None:
    machine = type(f"{kind}AgainstModel", (StoreAgainstModel,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))

"""Both stores do the same as a model that is too simple to be wrong."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.store.base import EventBatch, Store, StoredItem, StoreLimits
from support.stores import OURS, Clock, batch, begun, ended, make_store

T = TypeVar("T")
SHARED = [StoredItem(f"shared{number}", b"s" * (number + 5)) for number in range(3)]
FINAL = ("completed", "failed")


class Row:
    """A response of the model."""

    def __init__(self, name: str, parent: str | None, items: list[StoredItem], expires: float) -> None:
        self.name, self.parent, self.expires = name, parent, expires
        self.status = "in_progress"
        self.snapshot = begun(name).snapshot
        self.inputs, self.outputs = items, list[StoredItem]()
        self.batches: list[EventBatch] = []
        self.gone = False
        self.used = 0

    @property
    def running(self) -> bool:
        return self.status == "in_progress"


class Model:
    """All rules by looking at all rows."""

    def __init__(self, limits: StoreLimits, clock: Clock) -> None:
        self.limits, self.clock = limits, clock
        self.rows: dict[str, Row] = {}
        self.bodies: dict[str, bytes] = {}
        self.tick = 0

    def live(self, name: str) -> Row | None:
        row = self.rows.get(name)
        return None if row is None or row.gone else row

    def use(self, name: str | None) -> None:
        row = self.live(name) if name else None
        if row is not None and not row.running:
            self.tick += 1
            row.used = self.tick

    def create(self, name: str, parent: str | None, items: list[StoredItem]) -> None:
        ttl = self.limits.ttl_seconds
        self.rows[name] = Row(name, parent, items, float("inf") if ttl is None else self.clock() + ttl)
        for item in items:
            self.bodies.setdefault(item.id, item.body)
        self.use(parent)
        self.settle()

    def finish(self, name: str, items: list[StoredItem], events: list[EventBatch]) -> bool:
        row = self.live(name)
        if row is None or not row.running:
            return False
        row.status, row.snapshot = "completed", ended(name).snapshot
        row.outputs = items
        row.batches += events
        for item in items:
            self.bodies.setdefault(item.id, item.body)
        self.use(name)
        self.settle()
        return True

    def settle(self) -> None:
        for row in self.rows.values():
            if not row.running and row.expires <= self.clock():
                row.gone = True
        self.prune()
        while self.too_much():
            evictable = [row for row in self.rows.values() if not row.gone and not row.running]
            if not evictable:
                return
            min(evictable, key=lambda row: row.used).gone = True
            self.prune()

    def too_much(self) -> bool:
        responses, _, size = self.totals()
        most, most_bytes = self.limits.max_entries, self.limits.max_bytes
        return (most is not None and responses > most) or (most_bytes is not None and size > most_bytes)

    def prune(self) -> None:
        while True:
            parents = {row.parent for row in self.rows.values()}
            unneeded = [name for name, row in self.rows.items() if row.gone and name not in parents]
            for name in unneeded:
                del self.rows[name]
            if not unneeded:
                break
        for row in self.rows.values():
            if row.gone:
                row.snapshot, row.batches = b"", []
        kept = {item.id for row in self.rows.values() for item in (*row.inputs, *row.outputs)}
        self.bodies = {name: body for name, body in self.bodies.items() if name in kept}

    def totals(self) -> tuple[int, int, int]:
        own = sum(len(row.snapshot) + sum(len(one.body) for one in row.batches) for row in self.rows.values())
        responses = sum(not row.gone for row in self.rows.values())
        return responses, len(self.bodies), own + sum(map(len, self.bodies.values()))

    def chain(self, name: str) -> list[tuple[str, list[bytes]]]:
        turns: list[tuple[str, list[bytes]]] = []
        row = self.rows.get(name)
        while row is not None:
            turns.insert(0, (row.name, [self.bodies[item.id] for item in (*row.inputs, *row.outputs)]))
            row = self.rows.get(row.parent or "")
        return turns


class StoresAgainstModel(RuleBasedStateMachine):
    """Random calls to the model and to both stores."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.names: list[str] = []
        self.stores: list[Store] = []

    @initialize(
        entries=st.sampled_from([None, 1, 2, 4]),
        size=st.sampled_from([None, 0, 150, 400]),
        ttl=st.sampled_from([None, 10.0]),
    )
    def start(self, entries: int | None, size: int | None, ttl: float | None) -> None:
        limits = StoreLimits(entries, size, ttl)
        self.model = Model(limits, self.clock)
        self.stores = [make_store(kind, Path(self.folder.name), limits, self.clock) for kind in ("memory", "sqlite")]
        self.both(lambda store: store.open())

    def teardown(self) -> None:
        self.both(lambda store: store.close())
        self.runner.close()
        self.folder.cleanup()

    def both(self, call: Callable[[Store], Awaitable[T]]) -> list[T]:
        async def run(store: Store) -> T:
            return await call(store)

        return [self.runner.run(run(store)) for store in self.stores]

    def a_name(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.names[-8:]))

    @rule(data=st.data(), shared=st.lists(st.sampled_from(SHARED), max_size=2), finished=st.booleans())
    def create(self, data: st.DataObject, shared: list[StoredItem], finished: bool) -> None:
        name = f"r{len(self.names)}"
        parent = self.a_name(data) if self.names and data.draw(st.booleans()) else None
        items = [StoredItem(f"in_{name}", b"q" * 9), *shared]
        outputs = [StoredItem(f"out_{name}", b"a" * 7)]
        self.names.append(name)
        if finished:
            whole = begun(name, parent, items), ended(name, items=outputs)
            self.both(lambda store: store.create_finished_response(OURS, *whole))
            limits, self.model.limits = self.model.limits, StoreLimits(ttl_seconds=self.model.limits.ttl_seconds)
            self.model.create(name, parent, items)
            self.model.limits = limits
            self.model.finish(name, outputs, [])
        else:
            self.both(lambda store: store.create_response(OURS, begun(name, parent, items)))
            self.model.create(name, parent, items)

    @precondition(lambda self: self.names)
    @rule(data=st.data(), shared=st.lists(st.sampled_from(SHARED), max_size=2))
    def finish(self, data: st.DataObject, shared: list[StoredItem]) -> None:
        name = self.a_name(data)
        end = ended(name, items=[StoredItem(f"out_{name}", b"a" * 7), *shared], events=[batch(1000, b"end")])
        expected = self.model.finish(name, list(end.output_items), list(end.events))
        assert self.both(lambda store: store.finish_response(OURS, end)) == [expected] * 2

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        name = self.a_name(data)
        row = self.model.live(name)
        more = batch(len(row.batches) if row else 0, b"event of " + name.encode())
        self.both(lambda store: store.append_events(OURS, name, more))
        if row is not None and row.running:
            row.batches.append(more)
            self.model.settle()

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def get(self, data: st.DataObject) -> None:
        name = self.a_name(data)
        row = self.model.live(name)
        self.model.use(name)
        for found in self.both(lambda store: store.get_response(OURS, name)):
            assert (found and (found.status, found.snapshot)) == (row and (row.status, row.snapshot))

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = self.a_name(data)
        row = self.model.live(name)
        if row is not None:
            row.gone = True
            self.model.prune()
        assert self.both(lambda store: store.delete_response(OURS, name)) == [row is not None] * 2

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.now += seconds
        self.both(lambda store: store.sweep(self.clock()))
        self.model.settle()

    @rule()
    def reopen_the_file(self) -> None:
        self.runner.run(self.stores[1].close())
        self.runner.run(self.stores[1].open())

    @invariant()
    def all_agree(self) -> None:
        if not self.stores:
            return
        for status in self.both(lambda store: store.status()):
            assert (status.responses, status.items, status.bytes) == self.model.totals()
        for name in self.names:
            row = self.model.live(name)
            frames = b"".join(one.body for one in row.batches) if row else b""
            for turns in self.both(lambda store, name=name: store.chain(OURS, name)):
                found = [(turn.id, [*turn.input_items, *turn.output_items]) for turn in turns]
                assert found == self.model.chain(name)
            for events in self.both(lambda store, name=name: store.events(OURS, name)):
                assert b"".join(one.body for one in events) == frames


@pytest.mark.requirement("store:model")
def test_both_stores_agree_with_the_model() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        StoresAgainstModel, settings=settings(max_examples=25, stateful_step_count=30, deadline=None)
    )

"""Vector stores of every other store do the same as those in memory, for any sequence of calls."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from antiphon.errors import APIError
from antiphon.store.base import Store, StoreLimits
from antiphon.store.corpora import (
    CorpusLimits,
    Ingestion,
    StoredBatch,
    StoredVectorStore,
    StoreFile,
    StoreFilePage,
    VectorStorePage,
)
from support.corpora import chunk, new_file, new_store, upload
from support.stores import KINDS, OURS, Clock, make_store

T = TypeVar("T")
LIMITS = CorpusLimits(most_stores=3, most_files=4)
STORES = st.sampled_from(["vs-1", "vs-2", "vs-3", "vs-4"])
FILES = st.sampled_from([f"file-{number}" for number in range(1, 7)])
NAMES = st.sampled_from([None, None, "x", "y"])
OWNERS = ("one", "two")
WORDS = ["red", "green", "apple", "apples", "pear"]


def told(result: object) -> object:
    """What two stores must agree on: not the fence of a claim, and not how many bytes are kept."""
    if isinstance(result, Ingestion):
        return result.scope, told(result.file), result.attempts
    if isinstance(result, StoreFile | StoredVectorStore):
        return replace(result, usage_bytes=bool(result.usage_bytes))
    if isinstance(result, list | tuple):
        return [told(one) for one in result]
    return result


class StoreAgainstMemory(RuleBasedStateMachine):
    """Random calls to a store in memory and to another one."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.stores: list[Store] = []
        self.claims: list[tuple[Ingestion, ...]] = []
        self.batches = 0

    @initialize()
    def start(self) -> None:
        for kind in ("memory", self.kind):
            store = make_store(kind, Path(self.folder.name), StoreLimits(), self.clock)
            self.runner.run(store.open())
            self.stores.append(store)
        for number in range(1, 5):
            self.both(lambda store, number=number: upload(store, f"file-{number}"))

    def each(self, call: Callable[[Store], Awaitable[T]]) -> list[T | str]:
        async def answer(store: Store) -> T | str:
            try:
                return await call(store)
            except APIError as error:
                return error.code or "refused"

        return [self.runner.run(answer(store)) for store in self.stores]

    def both(self, call: Callable[[Store], Awaitable[T]]) -> list[T | str]:
        answers = self.each(call)
        assert told(answers[0]) == told(answers[1])
        return answers

    @rule(name=STORES, days=st.sampled_from([None, None, 1]), title=st.sampled_from(["guide", "notes"]))
    def create(self, name: str, days: int | None, title: str) -> None:
        if self.runner.run(self.stores[0].find_vector_store(OURS, name)) is None:
            row = new_store(name, days, int(self.clock()), title)
            self.both(lambda store: store.create_vector_store(OURS, row, LIMITS))

    @rule(name=STORES)
    def delete(self, name: str) -> None:
        self.both(lambda store: store.delete_vector_store(OURS, name))

    @rule(name=STORES, days=st.sampled_from([None, 1, 2]), title=st.sampled_from(["guide", "other"]))
    def change(self, name: str, days: int | None, title: str) -> None:
        now = int(self.clock())
        self.both(
            lambda store: store.change_vector_store(
                OURS, name, name=title, expires_after_days=days, detail=b"changed", now=now
            )
        )

    @rule(name=STORES, files=st.lists(st.tuples(FILES, NAMES), max_size=3), in_batch=st.booleans())
    def add(self, name: str, files: list[tuple[str, str | None]], in_batch: bool) -> None:
        self.batches += in_batch
        batch = StoredBatch(f"batch-{self.batches}", name, 1) if in_batch else None
        # Times that differ, so that the order of claims is one.
        self.clock.now += 1
        new = [new_file(file, known, int(self.clock()) * 10 + place) for place, (file, known) in enumerate(files)]
        self.both(lambda store: store.add_store_files(OURS, name, new, LIMITS, batch))

    @rule(name=STORES, file=st.one_of(FILES, st.sampled_from(["x", "y"])))
    def remove(self, name: str, file: str) -> None:
        self.both(lambda store: store.remove_store_file(OURS, name, file))

    @rule(name=STORES, file=st.one_of(FILES, st.sampled_from(["x", "y"])))
    def attributes(self, name: str, file: str) -> None:
        self.both(lambda store: store.change_store_file(OURS, name, file, b"changed"))

    @rule(file=FILES)
    def delete_upload(self, file: str) -> None:
        self.both(lambda store: store.delete_file(OURS, file))

    @rule(file=FILES)
    def upload_again(self, file: str) -> None:
        if self.runner.run(self.stores[0].find_file(OURS, file)) is None:
            self.both(lambda store: upload(store, file))

    @rule(name=STORES, number=st.integers(1, 3))
    def cancel(self, name: str, number: int) -> None:
        self.both(lambda store: store.cancel_batch(OURS, name, f"batch-{number}"))

    @rule(owner=st.sampled_from(OWNERS), alone=st.booleans())
    def claim(self, owner: str, alone: bool) -> None:
        owners = [owner] if alone else OWNERS
        found = self.both(lambda store: store.claim_ingestion(owner, owners))
        if isinstance(found[0], Ingestion):
            self.claims.append(tuple(one for one in found if isinstance(one, Ingestion)))

    def with_claim(self, pick: int, call: Callable[[Store, Ingestion], Awaitable[object]]) -> None:
        if self.claims:
            claim = self.claims[pick % len(self.claims)]
            by_store = {id(store): one for store, one in zip(self.stores, claim, strict=True)}
            self.both(lambda store: call(store, by_store[id(store)]))

    @rule(pick=st.integers(-3, -1), first=st.integers(0, 2), texts=st.lists(st.sampled_from(WORDS), max_size=3))
    def fill(self, pick: int, first: int, texts: list[str]) -> None:
        chunks = [chunk(first + place, text, vector=(1.0, 0.0)) for place, text in enumerate(texts)]
        self.with_claim(pick, lambda store, claim: store.add_chunks(claim, chunks))

    @rule(pick=st.integers(-3, -1), error=st.sampled_from([None, None, None, ("bad", "no")]))
    def finish(self, pick: int, error: tuple[str, str] | None) -> None:
        self.with_claim(pick, lambda store, claim: store.finish_ingestion(claim, error))

    @rule(pick=st.integers(-3, -1))
    def release(self, pick: int) -> None:
        self.with_claim(pick, lambda store, claim: store.release_ingestion(claim))

    @rule(hours=st.sampled_from([1, 13, 30]))
    def wait(self, hours: int) -> None:
        self.clock.now += hours * 3600

    @rule()
    def sweep(self) -> None:
        self.each(lambda store: store.sweep(self.clock()))

    @invariant()
    def all_is_the_same(self) -> None:
        if not self.stores:
            return
        listed = self.both(lambda store: store.list_vector_stores(OURS, VectorStorePage(9)))[0]
        assert not isinstance(listed, str)
        for row in listed:
            self.both(lambda store, row=row: store.find_vector_store(OURS, row.id))
            self.both(lambda store, row=row: store.list_store_files(OURS, row.id, StoreFilePage(9)))
            self.both(lambda store, row=row: store.list_chunks(OURS, row.id, None, 99))
            self.both(lambda store, row=row: store.chunk_vectors(OURS, row.id, None, 99))
            for number in range(1, min(self.batches, 3) + 1):
                self.both(lambda store, row=row, number=number: store.find_batch(OURS, row.id, f"batch-{number}"))
            for words in (["apple"], ["red", "pear"]):
                hits = self.each(lambda store, row=row, words=words: store.search_text(OURS, row.id, words, 99))
                places = [
                    sorted((hit.file_id, hit.index) for hit in found) for found in hits if not isinstance(found, str)
                ]
                assert places[0] == places[1]

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())
        self.runner.close()
        self.folder.cleanup()


@pytest.mark.requirement("corpus-store:model")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])
def test_vector_stores_of_a_store_are_those_of_the_store_in_memory(kind: str) -> None:
    machine = type("Machine", (StoreAgainstMemory,), {"kind": kind})
    examples = 2 if kind == "postgres" else 5
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))

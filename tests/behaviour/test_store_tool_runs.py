"""Runs of hosted tools in a store: written under the fence, read by whoever takes over, gone with the response."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.errors import InternalError
from antiphon.store.base import Store, StoreLimits, ToolRun
from antiphon.store.memory import MemoryStore
from antiphon.store.sealed import SealedStore
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.toolruns import DONE, PENDING, RUNNING
from support.stores import MASTER, OURS, THEIRS, Clock, Make, begun, ended

requirement = pytest.mark.requirement

NUL = b'{"q":"\x00 \xff"}'


def a_run(position: int, state: str = PENDING, result: bytes = b"") -> ToolRun:
    return ToolRun(position, f"call_{position}", "sucht é".encode(), NUL, state, result)


@requirement("loop:runs-kept")
async def test_runs_are_read_in_order_and_each_replaces_the_one_at_its_position(store: Store):
    await store.create_response(OURS, begun("a", plan=b"plan"))
    assert await store.tool_runs(OURS, "a") == []
    assert await store.set_tool_runs(OURS, "a", [a_run(1), a_run(0)])
    assert await store.tool_runs(OURS, "a") == [a_run(0), a_run(1)]
    assert await store.set_tool_runs(OURS, "a", [a_run(0, RUNNING)])
    assert await store.set_tool_runs(OURS, "a", [a_run(0, DONE, NUL * 100_000), a_run(2)])
    assert await store.tool_runs(OURS, "a") == [a_run(0, DONE, NUL * 100_000), a_run(1), a_run(2)]
    assert await store.set_tool_runs(OURS, "a", []) in (True, False)


@requirement("loop:runs-kept:fence")
async def test_only_the_owner_of_a_running_response_writes_its_runs(store: Store):
    await store.create_response(OURS, begun("a", plan=b"plan"))
    assert not await store.set_tool_runs(OURS, "a", [a_run(0)], fence=2)
    assert not await store.set_tool_runs(OURS, "none", [a_run(0)])
    assert not await store.set_tool_runs(OURS, "no\0ne", [a_run(0)])
    assert await store.tool_runs(OURS, "no\0ne") == []
    assert not await store.set_tool_runs(THEIRS, "a", [a_run(0)])
    assert await store.set_tool_runs(OURS, "a", [a_run(0, RUNNING)])
    assert await store.tool_runs(THEIRS, "a") == []
    claimed = await store.claim(OURS, "a", 1, "another")
    assert claimed is not None
    assert claimed.response.fence == 2
    assert not await store.set_tool_runs(OURS, "a", [a_run(0, DONE, b"late")])
    assert await store.tool_runs(OURS, "a") == [a_run(0, RUNNING)]
    assert await store.set_tool_runs(OURS, "a", [a_run(0, DONE, b"r")], fence=2)
    assert await store.tool_runs(OURS, "a") == [a_run(0, DONE, b"r")]


@requirement("loop:runs-kept:end")
async def test_runs_go_when_the_response_has_ended_and_none_come_after(store: Store):
    await store.create_response(OURS, begun("a", plan=b"plan"))
    assert await store.set_tool_runs(OURS, "a", [a_run(0, DONE, b"r")])
    assert await store.finish_response(OURS, ended("a"))
    assert await store.tool_runs(OURS, "a") == []
    assert not await store.set_tool_runs(OURS, "a", [a_run(1)])


@requirement("loop:runs-kept:end")
async def test_what_nobody_could_go_on_with_keeps_no_runs(store: Store):
    await store.create_response(OURS, begun("a"))
    assert not await store.set_tool_runs(OURS, "a", [a_run(0)])
    assert await store.tool_runs(OURS, "a") == []


@requirement("loop:runs-kept:end")
async def test_the_runs_of_a_tenant_go_with_it(store: Store):
    await store.create_response(OURS, begun("a", plan=b"plan"))
    assert await store.set_tool_runs(OURS, "a", [a_run(0)])
    await store.delete_tenant(OURS.tenant)
    assert await store.tool_runs(OURS, "a") == []


@requirement("loop:runs-kept:end")
async def test_nothing_of_a_run_is_left_in_the_file(tmp_path: Path, clock: Clock):
    store = SQLiteStore(tmp_path / "a.db", StoreLimits(), clock)
    await store.open()
    await store.create_response(OURS, begun("a", plan=b"plan"))
    assert await store.set_tool_runs(OURS, "a", [a_run(0, DONE, b"r")])
    assert await store.finish_response(OURS, ended("a"))
    await store.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("SELECT count(*) FROM tool_runs").fetchone() == (0,)


@requirement("loop:runs-kept:sealed")
async def test_names_arguments_and_results_are_sealed_each_for_its_place(clock: Clock):
    inner = MemoryStore(StoreLimits(), clock, clock)
    store = SealedStore(inner, MASTER, clock)
    await store.open()
    await store.create_response(OURS, begun("a", plan=b"plan"))
    assert await store.set_tool_runs(OURS, "a", [a_run(0, DONE, b"a secret"), a_run(1)])
    plain, other = await inner.tool_runs(OURS, "a")
    assert b"sucht" not in plain.name
    assert b"secret" not in plain.result
    assert NUL not in plain.arguments
    assert (plain.state, plain.call_id, other.result) == (DONE, "call_0", b"")
    await inner.set_tool_runs(OURS, "a", [ToolRun(1, "call_1", other.name, other.arguments, DONE, plain.result)])
    with pytest.raises(InternalError):
        await store.tool_runs(OURS, "a")
    await store.close()


@requirement("loop:runs-kept")
async def test_a_store_with_limits_keeps_the_runs_of_what_runs(make: Make):
    store = await make(max_entries=1)
    await store.create_response(OURS, begun("a", plan=b"plan"))
    assert await store.set_tool_runs(OURS, "a", [a_run(0)])
    for name in ("b", "c"):
        await store.create_finished_response(OURS, begun(name), ended(name))
    assert await store.tool_runs(OURS, "a") == [a_run(0)]

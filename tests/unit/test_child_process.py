"""A process of our own: what it answers, how much of it is taken, and that it is gone when it is ended."""

from __future__ import annotations

import asyncio
import os

import psutil
import pytest

from antiphon.child_process import ChildProcess, bare_environment, engine_environment

requirement = pytest.mark.requirement


@requirement("project:child-process")
async def test_all_that_it_says_is_taken_up_to_a_bound() -> None:
    for most, want in ((100, b'{\n    "a": 1\n}\n'), (5, b"")):
        process = await ChildProcess.start("json.tool")
        assert await process.ask_all(b'{"a": 1}', most) == want
        await process.end()
        assert process.ended


@requirement("project:child-process")
async def test_lines_are_answered_one_by_one_and_one_that_is_too_long_is_nothing() -> None:
    process = await ChildProcess.start("antiphon.engines.checks.child", longest_line=64)
    try:
        assert await process.ask_line(b'{"schema": {}}\n') == b'""\n'
        assert await process.ask_line(b'{"schema": {"type": "%s"}}\n' % (b"x" * 200)) == b""
    finally:
        await process.end()


@requirement("project:child-process")
async def test_one_that_has_ended_answers_nothing_and_ending_it_twice_does_no_harm() -> None:
    process = await ChildProcess.start("antiphon.engines.checks.child")
    os.kill(process.pid, 0)
    await process.end()
    assert process.ended
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert await process.ask_line(b'{"schema": {}}\n') == b""
    await process.end()


@requirement("project:child-process")
async def test_a_process_that_never_answers_can_be_ended_while_it_is_waited_for() -> None:
    process = await ChildProcess.start("antiphon.engines.checks.child")
    waiting = asyncio.create_task(process.ask_line(b'{"schema": '))
    await asyncio.wait({waiting}, timeout=0.05)
    assert not waiting.done()
    await process.end()
    assert await waiting == b""


KEYS = ("ANTIPHON_API_KEY", "ANTIPHON_STORE", "PGPASSWORD", "OPENAI_API_KEY", "HF_TOKEN", "DATABASE_URL", "My_Secret")
"""Variables that hold what is nobody else's."""


@requirement("project:child-process:keys")
async def test_it_gets_what_python_needs_and_no_other_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "mine")
    process = await ChildProcess.start("antiphon.engines.checks.child")
    try:
        await process.ask_line(b'{"schema": {}}\n')
        found = psutil.Process(process.pid).environ()
    finally:
        await process.end()
    assert found == bare_environment()
    assert "PATH" in found
    assert "mine" not in found.values()


@requirement("project:child-process:keys")
def test_an_engine_gets_what_steers_it_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "mine")
    found = engine_environment()
    assert {name for name, value in found.items() if value == "mine"} == {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"}
    assert found["PATH"] == os.environ["PATH"]

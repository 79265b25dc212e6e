"""The child process of the local engine: how it dies, how it comes back, and what its callers see."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from antiphon.engines.llamacpp import LlamaCppEngine
from antiphon.engines.llamacpp.diagnosis import explain_failure
from antiphon.errors import ConfigurationError, EngineError, EngineUnavailableError, InvalidRequestError
from antiphon.settings import Settings
from support.local_engine import DEADLINE, ask, collect, running, stop_of, text_of, until

Make = Callable[..., Path]
ENDLESS: dict[str, Any] = {"script": ["tick, ", "tock. "], "endless": True, "context_length": 65536}


def child_of(parent: psutil.Process) -> psutil.Process | None:
    for process in parent.children():
        if "antiphon.engines.llamacpp.child" in process.cmdline():
            return process
    return None


def own_child() -> psutil.Process:
    child = child_of(psutil.Process())
    assert child is not None
    return child


@pytest.mark.requirement("engine:child:killed")
async def test_a_kill_in_mid_stream_fails_the_turn_and_the_next_one_works(tiny: Make) -> None:
    events: list[str] = []
    async with running(tiny(**ENDLESS), on_event=lambda model, name, fields: events.append(name)) as engine:
        stream = engine.generate(await engine.prepare(ask("Hello")))
        assert text_of(list(await anext(stream))).startswith("tick, ")
        own_child().kill()
        with pytest.raises(EngineError) as caught:
            async for _ in stream:
                pass
        assert "died" in caught.value.message
        assert caught.value.status == 500
        await until(lambda: engine.restarts == 1 and engine.ready, "the child is back")
        assert stop_of(await collect(engine, ask("Hello", max_output_tokens=4))).usage.output_tokens == 4
    assert events == ["loading", "ready", "died", "loading", "ready", "restarted"]


@pytest.mark.requirement("engine:child:restart")
async def test_meanwhile_callers_are_told_to_try_again(tiny: Make) -> None:
    async with running(tiny()) as engine:
        turn = await engine.prepare(ask("Hello"))
        own_child().kill()
        await until(lambda: not engine.ready, "the death is noticed")
        with pytest.raises(EngineUnavailableError) as caught:
            await engine.prepare(ask("Hello"))
        assert caught.value.retry_after is not None
        assert caught.value.http_status == 503
        deltas = [delta async for part in engine.generate(turn) for delta in part]
        assert stop_of(deltas), "a turn that had not begun waits for the new child"
        await engine.prepare(ask("Hello"))


@pytest.mark.requirement("engine:child:restart")
async def test_turns_in_the_queue_outlive_a_restart(tiny: Make) -> None:
    async with running(tiny(**ENDLESS), settings=Settings(threads=1, slots=1)) as engine:
        stream = engine.generate(await engine.prepare(ask("Hello")))
        await anext(stream)
        queued = asyncio.create_task(collect(engine, ask("Hello", max_output_tokens=4)))
        await until(lambda: engine._pool.waiting == 1, "the second turn is in the queue")
        own_child().kill()
        with pytest.raises(EngineError):
            async for _ in stream:
                pass
        assert stop_of(await queued).usage.output_tokens == 4


@pytest.mark.requirement("engine:child:restart")
async def test_closing_ends_what_waits_for_a_restart(tiny: Make) -> None:
    async with running(tiny()) as engine:
        turn = await engine.prepare(ask("Hello"))
        own_child().kill()
        await until(lambda: not engine.ready, "the death is noticed")
        waiting = asyncio.create_task(anext(engine.generate(turn)))
        await engine.close()
        with pytest.raises((EngineError, StopAsyncIteration)):
            await waiting


@pytest.mark.requirement("engine:child:restart")
async def test_a_child_that_dies_again_and_again_is_started_again(tiny: Make) -> None:
    async with running(tiny()) as engine:
        for count in (1, 2, 3):
            own_child().send_signal(signal.SIGSEGV if count == 2 else signal.SIGKILL)
            await until(lambda count=count: engine.restarts == count and engine.ready, "the child is back")
        assert stop_of(await collect(engine, ask("Hello", max_output_tokens=2)))


PARENT = """
import asyncio, sys
from pathlib import Path
from antiphon.engines.llamacpp import LlamaCppEngine
from antiphon.settings import Settings

async def main():
    engine = LlamaCppEngine(Path(sys.argv[1]), Settings(threads=1))
    await engine.start()
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.requirement("engine:child:parent-death")
def test_the_child_dies_with_its_parent(tiny: Make) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tiny())], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        child = child_of(psutil.Process(parent.pid))
        assert child is not None
        sockets = {Path(c.laddr) for c in child.net_connections(kind="unix") if c.laddr}
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()
    gone, _ = psutil.wait_procs([child], timeout=DEADLINE)
    assert gone
    assert sockets
    assert not any(path.parent.exists() for path in sockets if path.suffix == ".sock")


@pytest.mark.requirement("engine:child:parent-death")
def test_the_child_dies_with_its_parent_while_it_loads(smollm2_path: Path, tmp_path: Path) -> None:
    config = {
        "model": str(smollm2_path), "socket": str(tmp_path / "s"), "context_length": 0, "slots": 1, "batch_size": 256,
        "threads": 1, "gpu_layers": None, "chat_template": "",
    }  # fmt: skip
    command = [sys.executable, "-P", "-m", "antiphon.engines.llamacpp.child"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(config).encode() + b"\n")
    child.stdin.close()
    assert child.wait(DEADLINE) == 0
    assert child.stdout.read() == b"", "it ended before it was ready"
    child.stdout.close()


@pytest.mark.requirement("engine:child:imports")
def test_the_child_loads_no_library_of_the_server() -> None:
    code = "import sys, antiphon.engines.llamacpp.child as c; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(name not in modules for name in ("aiohttp", "msgspec", "uvloop"))


@pytest.mark.requirement("engine:load:reasons")
async def test_a_model_that_does_not_load_says_why(tiny: Make, tmp_path: Path) -> None:
    data = tiny().read_bytes()
    broken = {
        "cut.gguf": (data[: len(data) // 2], "truncated or damaged"),
        "header.gguf": (data[:1000], "truncated or damaged"),
        "text.gguf": (b"hello world", "not a GGUF file"),
        "empty.gguf": (b"", "the file is empty"),
        "template.gguf": (tiny(template="{% for x in %}").read_bytes(), "template cannot be parsed"),
    }
    for name, (content, reason) in broken.items():
        (tmp_path / name).write_bytes(content)
        await assert_refused(tmp_path / name, reason)
    await assert_refused(tmp_path / "missing.gguf", "there is no such file")
    await assert_refused(tmp_path, "it is a directory")


async def assert_refused(path: Path, reason: str) -> None:
    engine = LlamaCppEngine(path, Settings(threads=1))
    with pytest.raises(ConfigurationError) as caught:
        await engine.start()
    message = str(caught.value)
    assert reason in message, message
    assert str(path) in message
    assert "\n" not in message
    assert "Traceback" not in message
    assert not engine.ready
    assert child_of(psutil.Process()) is None


@pytest.mark.requirement("engine:load:reasons")
@pytest.mark.parametrize(
    ("stderr", "status", "reason"),
    [
        ("0.1 E ggml: failed to allocate CPU buffer of size 9", 3, "not enough memory"),
        ("terminate called: std::bad_alloc", -6, "not enough memory"),
        ("", -9, "memory ran out"),
        ("", -4, "processor lacks"),
        ("", -11, "crashed (signal 11)"),
        ("ModuleNotFoundError: No module named 'xllamacpp'", 1, "not installed"),
        ("0.1 E unknown model architecture: 'mamba9'", 3, "does not know its architecture"),
        (
            "0.1 E strange thing at /home/me/x.cpp:3\n0.2 E srv: exiting due to model loading error",
            3,
            "strange thing at …",
        ),
        ("", 3, "without a reason"),
    ],
)
def test_reasons_in_plain_words(stderr: str, status: int, reason: str) -> None:
    assert reason in explain_failure(stderr, status)


@pytest.mark.requirement("engine:load:timeout")
async def test_a_load_that_takes_too_long_is_given_up(tiny: Make) -> None:
    engine = LlamaCppEngine(tiny(), Settings(threads=1, load_timeout=0.001))
    with pytest.raises(ConfigurationError, match=r"did not load within 0\.001 seconds"):
        await engine.start()
    assert child_of(psutil.Process()) is None


SLOW = (
    "{% for message in messages %}{{ message.content }}{% endfor %}{% if 'forever' in messages[-1].content %}"
    "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}{% endif %}"
)


@pytest.mark.requirement("engine:template:slow")
async def test_a_template_that_does_not_end_is_stopped(tiny: Make) -> None:
    async with running(tiny(template=SLOW), settings=Settings(threads=1, render_timeout=0.5)) as engine:
        began = time.monotonic()
        with pytest.raises(InvalidRequestError, match=r"did not finish within 0\.5 seconds") as caught:
            await engine.prepare(ask("forever"))
        assert time.monotonic() - began < DEADLINE
        assert caught.value.code == "template_error"
        await until(lambda: engine.restarts == 1 and engine.ready, "the child is back")
        assert (await engine.prepare(ask("Hello"))).rendered == "Hello"


@pytest.mark.requirement("engine:child:killed")
async def test_a_cancelled_start_leaves_no_child(smollm2_path: Path) -> None:
    engine = LlamaCppEngine(smollm2_path, Settings(threads=1))
    task = asyncio.create_task(engine.start())
    await until(lambda: child_of(psutil.Process()) is not None, "the child is there")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert child_of(psutil.Process()) is None
    assert os.getpid()

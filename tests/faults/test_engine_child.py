"""The child process of the local engine: how it dies, how it comes back, and what its callers see."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from antiphon.engines.llamacpp import LlamaCppEngine
from antiphon.engines.llamacpp.diagnosis import explain_death, explain_failure
from antiphon.engines.llamacpp.process import Child, ChildConfig
from antiphon.errors import ConfigurationError, EngineError, EngineUnavailableError, InvalidRequestError
from antiphon.machine.deltas import Delta
from antiphon.settings import Settings
from support.local_engine import DEADLINE, ask, collect, reasoning_of, running, stop_of, text_of, until

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
async def test_a_turn_outlives_a_kill_in_mid_stream(tiny: Make) -> None:
    events: list[str] = []
    async with running(tiny(**ENDLESS), on_event=lambda model, name, fields: events.append(name)) as engine:
        prompt = ask("Hello", max_output_tokens=3000)
        undisturbed = await collect(engine, prompt)
        turn = await engine.prepare(prompt)
        deltas: list[Delta] = []
        kills = [0, 700, 1400]
        async for some in engine.generate(turn):
            deltas += some
            if kills and turn.sampled.generated > kills[0]:
                kills.pop(0)
                own_child().kill()
        assert not kills
        assert text_of(deltas) == text_of(undisturbed) == "tick, tock. " * 1500
        stop, before = stop_of(deltas), stop_of(undisturbed)
        assert (stop.reason, stop.usage.input_tokens, stop.usage.output_tokens) == (
            before.reason,
            before.usage.input_tokens,
            3000,
        )
        assert engine.restarts == 3
    assert events == ["loading", "ready", *["died", "loading", "ready", "restarted"] * 3]


@pytest.mark.requirement("engine:child:killed")
async def test_all_turns_of_a_child_outlive_its_death(tiny: Make) -> None:
    script = ["<think>", *(f"t{n} " for n in range(200)), "</think>", *(f"a{n} " for n in range(200))]
    async with running(tiny(script=script), settings=Settings(threads=1, slots=2)) as engine:
        prompts = [ask(f"Number {n}") for n in range(4)]
        began = [asyncio.Event() for _ in prompts]

        async def run(number: int) -> list[Delta]:
            deltas: list[Delta] = []
            async for some in engine.generate(await engine.prepare(prompts[number])):
                deltas += some
                began[number].set()
            return deltas

        tasks = [asyncio.create_task(run(number)) for number in range(4)]
        await asyncio.gather(began[0].wait(), began[1].wait())
        own_child().kill()
        for deltas in await asyncio.gather(*tasks):
            assert reasoning_of(deltas) == "".join(script[1:201]).strip()
            assert text_of(deltas) == "".join(script[202:])
            assert stop_of(deltas).usage.output_tokens == len(script) + 1
        assert engine.restarts == 1


@pytest.mark.requirement("engine:child:killed")
async def test_a_real_model_goes_on_with_its_sentence(smollm2_path: Path) -> None:
    async with running(smollm2_path) as engine:
        prompt = ask("Tell me a story about a lighthouse.", max_output_tokens=40)
        undisturbed = await collect(engine, prompt)
        turn = await engine.prepare(prompt)
        deltas: list[Delta] = []
        async for some in engine.generate(turn):
            deltas += some
            if engine.restarts == 0 and engine.ready and turn.sampled.generated >= 15:
                own_child().kill()
                await until(lambda: not engine.ready, "the death is noticed")
        assert engine.restarts == 1
        assert text_of(deltas) == text_of(undisturbed)
        assert stop_of(deltas).usage.output_tokens == stop_of(undisturbed).usage.output_tokens


@pytest.mark.requirement("engine:child:deadly")
@pytest.mark.parametrize("begun", [False, True])
async def test_a_turn_that_kills_three_children_in_a_row_fails(tiny: Make, begun: bool) -> None:
    deadly = False
    deaths: list[int] = []

    def observe(model: str, name: str, fields: Mapping[str, Any]) -> None:
        if name == "ready" and deadly:
            deaths.append(fields["pid"])
            os.kill(fields["pid"], signal.SIGKILL)

    async with running(tiny(**ENDLESS), on_event=observe) as engine:
        stream = engine.generate(await engine.prepare(ask("Hello")))
        if begun:
            assert text_of(list(await anext(stream))).startswith("tick, ")
        deadly = True
        own_child().kill()
        with pytest.raises(EngineError) as caught:
            async for _ in stream:
                pass
        deadly = False
        assert "died" in caught.value.message
        assert caught.value.status == 500
        # The last token before the first death was new.
        assert len(deaths) == 2
        await until(lambda: engine.ready, "the child is back")
        assert stop_of(await collect(engine, ask("Hello", max_output_tokens=4))).usage.output_tokens == 4


@pytest.mark.requirement("engine:child:deadly")
async def test_a_turn_waits_for_a_new_child_only_so_long(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*arguments: Any) -> Child:
        raise ConfigurationError("it does not load")

    async with running(tiny(**ENDLESS)) as engine:
        monkeypatch.setattr(engine, "_settings", Settings(threads=1, load_timeout=0.3))
        stream = engine.generate(await engine.prepare(ask("Hello")))
        await anext(stream)
        monkeypatch.setattr(Child, "start", never)
        own_child().kill()
        with pytest.raises(EngineError, match="could not be started again"):
            async for _ in stream:
                pass


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


@pytest.mark.requirement("engine:child:restart", "engine:child:killed")
async def test_a_turn_keeps_its_place_before_the_queue_over_a_restart(tiny: Make) -> None:
    async with running(tiny(**ENDLESS), settings=Settings(threads=1, slots=1)) as engine:
        stream = engine.generate(await engine.prepare(ask("Hello")))
        await anext(stream)
        queued = asyncio.create_task(collect(engine, ask("Hello", max_output_tokens=4)))
        await until(lambda: engine._pool.waiting == 1, "the second turn is in the queue")
        own_child().kill()
        while engine.restarts == 0:
            await anext(stream)
        assert text_of(list(await anext(stream)))
        assert not queued.done()
        await stream.aclose()
        assert stop_of(await queued).usage.output_tokens == 4


@pytest.mark.requirement("engine:child:restart")
@pytest.mark.parametrize("begun", [False, True])
async def test_closing_ends_what_waits_for_a_restart(tiny: Make, begun: bool) -> None:
    async with running(tiny(**ENDLESS)) as engine:
        stream = engine.generate(await engine.prepare(ask("Hello")))
        if begun:
            await anext(stream)
        own_child().kill()
        await until(lambda: not engine.ready, "the death is noticed")

        async def rest() -> None:
            async for _ in stream:
                pass

        waiting = asyncio.create_task(rest())
        await engine.close()
        with pytest.raises(EngineError):
            await waiting


@pytest.mark.requirement("engine:child:restart")
async def test_a_child_that_dies_again_and_again_is_started_again(tiny: Make) -> None:
    async with running(tiny()) as engine:
        for count in (1, 2, 3):
            own_child().send_signal(signal.SIGSEGV if count == 2 else signal.SIGKILL)
            await until(lambda count=count: engine.restarts == count and engine.ready, "the child is back")
        assert stop_of(await collect(engine, ask("Hello", max_output_tokens=2)))


@contextlib.contextmanager
def no_file_can_be_opened() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # No number that a file could have, not even that of one which is closed meanwhile.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.requirement("engine:child:spared")
async def test_our_own_want_of_files_kills_no_child(tiny: Make) -> None:
    async with running(tiny(**ENDLESS)) as engine:
        stream = engine.generate(await engine.prepare(ask("Hello")))
        await anext(stream)
        second = await engine.prepare(ask("Hello again"))
        child = own_child()
        with no_file_can_be_opened():
            with pytest.raises(EngineUnavailableError, match="too many open files") as refused:
                await engine.prepare(ask("Good morning"))
            with pytest.raises(EngineError, match="too many open files"):
                await anext(engine.generate(second))
        assert (refused.value.http_status, refused.value.retry_after) == (503, 1.0)
        assert text_of(list(await anext(stream)))
        await stream.aclose()
        assert stop_of(await collect(engine, ask("Good morning", max_output_tokens=4)))
        assert (own_child().pid, engine.restarts) == (child.pid, 0)


@pytest.mark.requirement("engine:child:spared")
async def test_only_a_child_that_does_not_answer_is_killed(tiny: Make) -> None:
    reasons: list[str] = []

    def observe(model: str, name: str, fields: Mapping[str, Any]) -> None:
        if name == "died":
            reasons.append(fields["reason"])

    async with running(tiny(), on_event=observe) as engine:
        child = engine._supervisor.require()
        await engine._supervisor.ended(child, 5.0)
        assert engine._supervisor.child is child
        process = own_child()
        process.suspend()
        await until(lambda: process.status() == psutil.STATUS_STOPPED, "it is stopped")
        await engine._supervisor.ended(child, 0.05)
        await until(lambda: engine.restarts == 1 and engine.ready, "the child is back")
        assert reasons == ["stopped by the server: it did not answer"]


@pytest.mark.requirement("engine:child:restart")
async def test_nothing_keeps_a_dead_child_from_being_started_again(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context["exception"]))
    names: list[str] = []
    start = Child.start
    broken = [ValueError("Separator is not found, and chunk exceed the limit"), RuntimeError()]

    async def sometimes(*arguments: Any) -> Child:
        if broken:
            raise broken.pop(0)
        return await start(*arguments)

    def observe(model: str, name: str, fields: Mapping[str, Any]) -> None:
        names.append(f"{name} {fields['reason']}" if name == "restart_failed" else name)
        raise KeyError(name)

    async with running(tiny(), on_event=observe) as engine:
        monkeypatch.setattr(Child, "start", sometimes)
        own_child().kill()
        await until(lambda: engine.restarts == 1 and engine.ready, "the child is back")
    failures = ["restart_failed Separator is not found, and chunk exceed the limit", "restart_failed RuntimeError"]
    assert [name for name in names if name.startswith("restart_failed")] == failures
    assert [type(fault) for fault in faults] == [KeyError] * len(names)


def imposter(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a shell script in the place of the child's program."""
    path = folder / "child"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(path))


@pytest.mark.requirement("engine:load:timeout")
@pytest.mark.parametrize("script", ["echo nonsense; exec sleep 1000", "exec sleep 1000 >&-"])
async def test_a_child_that_is_never_ready_is_given_up(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    model = tiny()
    imposter(tmp_path, monkeypatch, script)
    engine = LlamaCppEngine(model, Settings(threads=1, load_timeout=0.3))
    before = psutil.Process().children()
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ConfigurationError, match=r"did not load within 0\.3 seconds"):
            await engine.start()
    assert psutil.Process().children() == before


@pytest.mark.requirement("engine:load:timeout")
async def test_lines_before_the_one_that_counts_are_skipped(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imposter(tmp_path, monkeypatch, "echo loading; head -c 200000 /dev/zero; echo; echo ready; exec sleep 1000")
    config = ChildConfig(str(tiny()), str(tmp_path / "s"), 0, 1, 256, 1, None, "")
    child = await Child.start(config, DEADLINE)
    assert child.exit_status is None
    await child.stop()


@pytest.mark.requirement("engine:child:end")
@pytest.mark.parametrize(
    ("stderr", "status", "facts", "end"),
    [
        ("", -9, {}, "killed by signal 9 (SIGKILL)"),
        ("", -9, {"out_of_memory": True}, "killed by signal 9 (SIGKILL), because memory ran out"),
        ("", -9, {"out_of_memory": True, "stopped": "it was closed"}, "stopped by the server: it was closed"),
        ("one\nat /home/me/x.cpp:3 it broke\n\n", -6, {}, "killed by signal 6 (SIGABRT); its last line: at … it broke"),
        ("failed to allocate\n", 3, {}, "ended with exit status 3; its last line: failed to allocate"),
        ("", -99, {"out_of_memory": True}, "killed by signal 99"),
    ],
)
def test_the_end_of_a_child_is_told_as_it_was(stderr: str, status: int, facts: dict[str, Any], end: str) -> None:
    assert explain_death(stderr, status, **facts) == end


@pytest.mark.requirement("engine:child:end")
async def test_a_kill_by_somebody_else_is_not_called_want_of_memory(tiny: Make) -> None:
    reasons: list[str] = []

    def observe(model: str, name: str, fields: Mapping[str, Any]) -> None:
        if name == "died":
            reasons.append(fields["reason"])

    async with running(tiny(), on_event=observe) as engine:
        own_child().kill()
        await until(lambda: engine.restarts == 1, "the child is back")
    assert len(reasons) == 1
    assert reasons[0].startswith("killed by signal 9")
    assert "memory" not in reasons[0]


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


@pytest.mark.requirement("engine:child:folder")
async def test_what_a_killed_server_and_child_leave_behind_goes_at_the_next_start(
    tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder of its own, where nobody else's start removes it, and with a name that is short enough for a socket.
    place = tempfile.mkdtemp(prefix="t", dir="/tmp")
    monkeypatch.setattr(tempfile, "tempdir", place)
    command = [sys.executable, "-c", PARENT, str(tiny())]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": place})
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        child = child_of(psutil.Process(parent.pid))
        assert child is not None
        sockets = {Path(c.laddr) for c in child.net_connections(kind="unix") if c.laddr}
        child.suspend()
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()
    child.kill()
    psutil.wait_procs([child], timeout=DEADLINE)
    folder = next(path.parent for path in sockets if path.suffix == ".sock")
    assert folder.is_dir()
    assert folder.name.startswith(f"antiphon-{parent.pid}-")
    async with running(tiny()):
        assert not folder.exists()
    Path(place).rmdir()


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
        ("", -9, "killed by signal 9"),
        ("", -4, "processor lacks"),
        ("", -11, "killed by signal 11 (SIGSEGV)"),
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
    assert "memory ran out" in explain_failure("", -9, out_of_memory=True)


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

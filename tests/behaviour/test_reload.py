"""Models that come, change and go while a server runs."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import msgspec
import pytest

from antiphon.engines.base import PreparedTurn
from antiphon.engines.registry import Registry, build_registry
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import ConfigurationError, NotFoundError
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt
from antiphon.settings import ModelConfig, Settings
from antiphon.tables import LimitsConfig
from support.inprocess import inprocess_app
from support.server import RunningServer, running_server, wait_until

SCRIPTED = ModelConfig(path="scripted", name="one")


class Told:
    """A hook that keeps what it is told; `seen` waits for an event of a model."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self._changed = asyncio.Event()

    def __call__(self, model: str, event: str, fields: Any) -> None:
        self.events.append((model, event))
        self._changed.set()

    async def seen(self, model: str, event: str) -> None:
        """Return when that has been told."""
        while (model, event) not in self.events:
            self._changed.clear()
            await self._changed.wait()


def tables(*configs: ModelConfig, **fields: Any) -> Settings:
    """The settings of those tables."""
    return Settings(models=configs, **fields)


def found(registry: Registry, name: str) -> str | None:
    """The own name of the model that a name stands for."""
    model = registry.find(name)
    return None if model is None else model.name


@pytest.mark.requirement("registry:reload", "registry:reload:drain")
async def test_a_response_ends_on_the_model_that_it_began_with():
    told = Told()
    settings = tables(SCRIPTED, ModelConfig(path="scripted", name="two", aliases=("gpt",)))
    # Both have the path as a hidden name; the file is one of names.
    with pytest.raises(ConfigurationError, match="named 'scripted'"):
        build_registry(settings)
    registry = build_registry(tables(SCRIPTED), told)
    async with inprocess_app(settings=tables(SCRIPTED), registry=registry) as app:
        first = registry.engines[0]
        running = asyncio.create_task(app.create("!SLOW 5\n!COUNT 20", model="one"))
        while not first.gate.running:
            await asyncio.sleep(0)
        change = registry.reload(tables(msgspec.structs.replace(SCRIPTED, name="two", aliases=("one",))))
        assert (change.added, change.replaced, change.removed) == (["two"], [], ["one"])
        await told.seen("two", "added")
        assert registry.names() == ["two", "one"]
        assert found(registry, "one") == "two"
        assert ("one", "removed") not in told.events
        assert (await running)["output_text"].split()[-1] == "20"
        await told.seen("one", "removed")
        assert (await app.create("!TEXT new", model="one"))["output_text"] == "new"


@pytest.mark.requirement("registry:reload")
async def test_what_has_not_changed_is_kept_and_heeds_its_new_terms():
    registry = build_registry(tables(SCRIPTED))
    async with inprocess_app(settings=tables(SCRIPTED), registry=registry) as app:
        engine = registry.engines[0]
        limits = LimitsConfig(max_output_tokens=3, max_concurrent=2)
        table = msgspec.structs.replace(SCRIPTED, aliases=("gpt",), defaults={"top_p": 0.5}, limits=limits)
        change = registry.reload(tables(table, default_model="gpt"))
        assert (change.added, change.replaced, change.removed) == ([], [], [])
        assert registry.engines == [engine]
        response = await app.create("!COUNT 9", model=None)
        assert (response["model"], response["top_p"], response["max_output_tokens"]) == ("gpt", 0.5, 3)
        registry.reload(tables(SCRIPTED))
        assert registry.engines == [engine]
        error = await app.refused(404, "Hi", model="gpt")
        assert error["code"] == "model_not_found"
        assert (await app.create("Hi", model="one"))["top_p"] == 1


@pytest.mark.requirement("registry:reload:fault")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (tables(ModelConfig(name="m", base_url="ftp://x")), "base_url"),
        (tables(SCRIPTED, ModelConfig(name="one", base_url="http://127.0.0.1:9/v1")), "named 'one'"),
        (tables(SCRIPTED, msgspec.structs.replace(SCRIPTED, defaults={"top_p": 0.5})), "named 'one'"),
        (tables(SCRIPTED, alias=("x=none",)), "--alias"),
        (tables(SCRIPTED, default_model="none"), "--default-model"),
    ],
)
async def test_tables_that_cannot_be_used_change_nothing(settings: Settings, words: str):
    registry = build_registry(tables(SCRIPTED, alias=("a=one",)))
    await registry.start()
    names, engines = registry.names(), registry.engines
    with pytest.raises(ConfigurationError, match=words):
        registry.reload(settings)
    assert (registry.names(), registry.engines) == (names, engines)
    await registry.close()


class Delay:
    """Lets models start when the test says so, or fail to."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.fault: Exception | None = None
        self.closed = asyncio.Event()


class Delayed(ScriptedEngine):
    """A scripted model that starts so."""

    def __init__(self, delay: Delay, name: str) -> None:
        super().__init__(1000)
        self.name = name
        self.delay = delay

    async def start(self) -> None:
        """Wait for the test."""
        await self.delay.let.wait()
        if self.delay.fault is not None:
            raise self.delay.fault
        await super().start()

    async def close(self) -> None:
        """Say so."""
        self.delay.closed.set()
        await super().close()


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> Delay:
    """When models with a URL start."""
    delay = Delay()
    monkeypatch.setattr("antiphon.engines.upstream.chat_engine", lambda config, on_event: Delayed(delay, config.name))
    return delay


NEW = ModelConfig(name="new", base_url="http://127.0.0.1:9/v1", aliases=("gpt",))


@pytest.mark.requirement("registry:reload")
async def test_a_name_stands_for_the_old_model_until_the_new_one_has_started(delayed: Delay):
    told = Told()
    registry = build_registry(
        tables(msgspec.structs.replace(SCRIPTED, aliases=("gpt", "*")), default_model="gpt"), told
    )
    await registry.start()
    registry.reload(tables(msgspec.structs.replace(NEW, aliases=("gpt", "*")), default_model="new"))
    assert registry.names() == ["gpt"]
    assert (found(registry, "gpt"), found(registry, "anything"), registry.resolve(None)[1].name) == ("one",) * 3
    assert registry.ready
    delayed.let.set()
    await told.seen("one", "removed")
    assert registry.names() == ["new", "gpt"]
    assert (found(registry, "gpt"), found(registry, "anything"), registry.resolve(None)[1].name) == ("new",) * 3
    await registry.close()


@pytest.mark.requirement("registry:reload", "registry:reload:fault")
async def test_a_model_that_cannot_be_started_takes_no_name_away_and_is_tried_again(delayed: Delay):
    told = Told()
    registry = build_registry(tables(SCRIPTED, alias=("gpt=one",)), told)
    await registry.start()
    delayed.fault = ConfigurationError("It is no model.")
    delayed.let.set()
    registry.reload(tables(SCRIPTED, NEW))
    await told.seen("new", "load_failed")
    await delayed.closed.wait()
    assert (found(registry, "gpt"), registry.names()) == ("one", ["one", "gpt"])
    with pytest.raises(NotFoundError):
        registry.resolve("new")
    delayed.fault = None
    registry.reload(tables(SCRIPTED, NEW))
    await told.seen("new", "added")
    assert (found(registry, "gpt"), registry.names()) == ("new", ["one", "new", "gpt"])
    await registry.close()


@pytest.mark.requirement("registry:reload")
async def test_a_model_that_nobody_wants_any_more_is_not_waited_for(delayed: Delay):
    registry = build_registry(tables(SCRIPTED))
    await registry.start()
    registry.reload(tables(SCRIPTED, NEW))
    await asyncio.sleep(0)
    registry.reload(tables(SCRIPTED))
    await delayed.closed.wait()
    assert registry.names() == ["one"]
    await registry.close()


@pytest.mark.requirement("registry:reload")
async def test_a_model_is_closed_once_its_start_has_let_go(delayed: Delay, monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    ended = asyncio.Event()

    async def start(_engine: Delayed) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("leaving")
            await ended.wait()
            told.append("left")

    async def close(_engine: Delayed) -> None:
        told.append("closed")
        delayed.closed.set()

    monkeypatch.setattr(Delayed, "start", start)
    monkeypatch.setattr(Delayed, "close", close)
    registry = build_registry(tables(SCRIPTED))
    await registry.start()
    registry.reload(tables(SCRIPTED, NEW))
    await asyncio.sleep(0)
    registry.reload(tables(SCRIPTED))
    await wait_until_told(told, "leaving")
    ended.set()
    await delayed.closed.wait()
    assert told == ["leaving", "left", "closed"]
    await registry.close()


async def wait_until_told(told: list[str], word: str) -> None:
    """Return a few steps of the loop after that has been told."""
    async with asyncio.timeout(10):
        while word not in told:
            await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.requirement("registry:reload", "registry:reload:drain")
async def test_the_model_of_every_name_is_not_closed_before_the_next_one_has_started(delayed: Delay):
    told = Told()
    first = ModelConfig(name="first", base_url="http://127.0.0.1:9/v1", aliases=("*",))
    delayed.let.set()
    registry = build_registry(tables(first), told)
    await registry.start()
    old = registry.engines[0]
    delayed.let.clear()
    registry.reload(tables(msgspec.structs.replace(NEW, aliases=("*",))))
    for _ in range(5):
        await asyncio.sleep(0)
    assert registry.find("anything") is old
    assert (registry.ready, delayed.closed.is_set()) == (True, False)
    delayed.let.set()
    await told.seen("first", "removed")
    assert delayed.closed.is_set()
    assert found(registry, "anything") == "new"
    await registry.close()


@pytest.mark.requirement("registry:reload", "registry:ready")
async def test_a_key_that_changed_makes_its_model_anew_and_one_away_leaves_the_server_ready(tmp_path: Path):
    key = tmp_path / "key"
    key.write_text("first")
    far = ModelConfig(name="far", base_url="http://127.0.0.1:9/v1", api_key_file=str(key))
    async with inprocess_app(settings=tables(far, SCRIPTED)) as app:
        registry = app.service.registry
        assert [engine.ready for engine in registry.engines] == [False, True]
        assert (await app.client.get("http://127.0.0.1/ready")).status_code == 200
        exposed = (await app.client.get("http://127.0.0.1/metrics")).text
        assert 'antiphon:model_ready{model_name="far"} 0.0' in exposed
        assert 'antiphon:model_ready{model_name="one"} 1.0' in exposed
        assert registry.reload(tables(far, SCRIPTED)).replaced == []
        key.write_text("second")
        before = registry.engines[0]
        assert registry.reload(tables(far, SCRIPTED)).replaced == ["far"]
        while registry.engines[0] is before:
            await asyncio.sleep(0.01)
    async with inprocess_app(settings=tables(far)) as app:
        assert (await app.client.get("http://127.0.0.1/ready")).status_code == 503


class Guarded(ScriptedEngine):
    """A scripted model that fails the test where it is used after its end."""

    made: ClassVar[list[Guarded]] = []

    def __init__(self) -> None:
        super().__init__(1_000_000)
        self.name = "new"
        self.ended = False
        self.made.append(self)

    async def close(self) -> None:
        """Be of no use any more."""
        self.ended = True
        await super().close()

    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        """Take a while, as counting does."""
        await asyncio.sleep(0)
        assert not self.ended
        return await super().prepare(prompt)

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """Look before each batch."""
        async for deltas in super().generate(turn):
            assert not self.ended
            yield deltas
            await asyncio.sleep(0)


@pytest.mark.requirement("registry:reload:drain")
async def test_no_request_meets_a_model_that_has_been_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("antiphon.engines.upstream.chat_engine", lambda config, on_event: Guarded())
    monkeypatch.setattr(Guarded, "made", [])
    told = Told()
    variants = [tables(msgspec.structs.replace(NEW, idle_timeout=float(seconds))) for seconds in range(1, 11)]
    registry = build_registry(variants[0], told)
    async with inprocess_app(settings=variants[0], registry=registry) as app:

        async def ask(number: int) -> None:
            for _ in range(4):
                if number % 3:
                    background = number % 3 == 2
                    response = await app.create("!COUNT 30", model="gpt", background=background)
                    if background:
                        # The end of its stream is its own end.
                        await app.client.get(f"/responses/{response['id']}?stream=true")
                        response = (await app.client.get(f"/responses/{response['id']}")).json()
                    assert response["output_text"].split()[-1] == "30", response
                else:
                    body = {"model": "gpt", "messages": [{"role": "user", "content": "!COUNT 30"}]}
                    answer = (await app.client.post("/chat/completions", json=body)).json()
                    assert answer["choices"][0]["message"]["content"].split()[-1] == "30", answer

        asking = [asyncio.create_task(ask(number)) for number in range(6)]
        for settings in variants[1:]:
            registry.reload(settings)
            for _ in range(30):
                await asyncio.sleep(0)
        await asyncio.gather(*asking)
        while told.events.count(("new", "removed")) < len(variants) - 1:
            await asyncio.sleep(0)
        assert [engine.ended for engine in Guarded.made] == [True] * (len(variants) - 1) + [False]


def names(server: RunningServer, key: str) -> list[str]:
    """The models that a server lists."""
    answer = httpx2.get(f"{server.base_url}/models", headers={"authorization": f"Bearer {key}"}, trust_env=False)
    return [model["id"] for model in answer.json()["data"]] if answer.status_code == 200 else []


@pytest.mark.requirement("registry:reload", "registry:reload:fault", "registry:reload:rest", "registry:reload:keys")
def test_a_signal_has_a_server_read_its_file_anew(tmp_path: Path):
    file, keys = tmp_path / "antiphon.toml", tmp_path / "keys"
    head = f'store = "memory"\napi_key_file = "{keys}"\n[[models]]\npath = "scripted"\n'
    file.write_text(head)
    keys.write_text("first\n")
    with running_server(["--config", str(file)]) as server:

        def reloaded(text: str, words: str) -> None:
            del server.lines[:]
            file.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: words in "".join(server.lines))

        assert names(server, "first") == ["scripted"]
        keys.write_text("second\n")
        reloaded(f'{head}aliases = ["gpt-4o-mini"]\n', "settings read anew")
        wait_until(lambda: names(server, "second") == ["scripted", "gpt-4o-mini"])
        assert names(server, "first") == []
        reloaded(f"{head}aliases = [", "is not TOML")
        assert "nothing has changed" in "".join(server.lines)
        reloaded(f'{head}defaults = {{ temperature = 3 }}\naliases = ["other"]\n', "'defaults'")
        reloaded(f"{head}naem = 1\n", "naem")
        assert names(server, "second") == ["scripted", "gpt-4o-mini"]
        reloaded(f'drain_timeout = 3.0\n{head}name = "m"\n', "drain_timeout")
        wait_until(lambda: names(server, "second") == ["m"])


@pytest.mark.requirement("registry:hangup")
def test_a_server_whose_terminal_is_gone_ends():
    master, slave = pty.openpty()
    take_terminal = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "antiphon", "serve", "--port", "0", "--model", "scripted", "--store", "memory"]
    with subprocess.Popen(
        [sys.executable, "-c", take_terminal, *command],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        os.close(slave)
        assert process.stdout is not None
        assert any("Ctrl-C" in line for line in process.stdout)
        os.close(master)
        process.communicate(timeout=20)
        assert process.returncode == 0

"""Chat templates that loop, eat memory or crash what reads them: the start says so, and in time."""

from __future__ import annotations

import asyncio
import functools
import os
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from antiphon.engines.llamacpp import LlamaCppEmbedder, LlamaCppEngine, trial
from antiphon.engines.llamacpp import engine as engine_module
from antiphon.engines.llamacpp.rendering import TooHungryError, held
from antiphon.engines.llamacpp.template import MOST_CANDIDATES, special_candidates
from antiphon.engines.llamacpp.trial import templates_of
from antiphon.engines.registry import build_registry
from antiphon.errors import ConfigurationError, InvalidRequestError
from antiphon.settings import ModelConfig, Settings
from support.local_engine import DEADLINE, ask, running, until
from support.server import running_server
from support.tiny_gguf import CHATML, HERMES

Make = Callable[..., Path]

SECONDS = 20.0
"""What a refused start may take: a few seconds where nothing else runs."""

LOOP = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
ENDLESS = {
    "loops": (LOOP, "does not come to an end"),
    "late": ("{% if messages | length > 2 %}" + LOOP + "{% endif %}", "does not come to an end"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "crashes llama.cpp"),
    "parentheses": ("{{ " + "(" * 60_000 + "1" + ")" * 60_000 + " }}", "crashes llama.cpp"),
    "blocks": ("{% if true %}" * 20_000 + "{% endif %}" * 20_000, "crashes llama.cpp"),
    "unclosed": ("{% for x in %}", "cannot be parsed"),
}
HUNGRY = {
    "replaces": (
        "{% set ns = namespace(s='aaaaaaaaaa') %}{% for a in range(9) %}{% set ns.s = ns.s | replace('a', ns.s) %}"
        "{% endfor %}",
        "takes more memory than there is for it",
    ),
    "lists": ("{% set x = range(100000000) | list %}", "takes more memory than there is for it"),
}


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "antiphon.engines.llamacpp.child" in child.cmdline()]


async def refusal(path: Path) -> str:
    """Why the engine does not start with this model, without what is said of every such model."""
    engine = LlamaCppEngine(path, Settings(threads=1))
    with pytest.raises(ConfigurationError) as caught:
        await engine.start()
    message = str(caught.value)
    assert message.startswith(f"The model {path} cannot be loaded: its chat template ")
    assert message.endswith("; give it another one with --chat-template-file.")
    return message.partition("its chat template ")[2].partition(";")[0]


@pytest.mark.requirement("template:trial")
@pytest.mark.parametrize(("seconds", "memory"), [(0.3, 2**30), (30.0, 2**27)], ids=("time", "memory"))
async def test_hostile_templates_are_refused_in_time(
    tiny: Make, monkeypatch: pytest.MonkeyPatch, seconds: float, memory: int
) -> None:
    monkeypatch.setattr(trial, "CPU_SECONDS", seconds)
    monkeypatch.setattr(trial, "MEMORY", memory)
    hostile = ENDLESS if memory == 2**30 else HUNGRY
    began = time.monotonic()
    reasons = await asyncio.gather(*(refusal(tiny(template=template + CHATML)) for template, _ in hostile.values()))
    assert time.monotonic() - began < SECONDS
    assert dict(zip(hostile, reasons, strict=True)) == {name: reason for name, (_, reason) in hostile.items()}
    assert not children()


@pytest.mark.requirement("template:trial")
def test_a_server_that_is_given_one_says_so_and_ends(tiny: Make) -> None:
    model = tiny(template=ENDLESS["recursion"][0] + CHATML)
    began = time.monotonic()
    with (
        pytest.raises(RuntimeError, match=r"its chat template crashes llama\.cpp; .* --chat-template-file"),
        running_server(["--model", str(model), "--store", "memory", "--threads", "1"]),
    ):
        pass
    assert time.monotonic() - began < SECONDS


@pytest.mark.requirement("template:trial")
async def test_a_model_for_vectors_is_tried_as_well(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "CPU_SECONDS", 0.3)
    embedder = LlamaCppEmbedder(tiny(template=LOOP), Settings(threads=1))
    with pytest.raises(ConfigurationError, match="its chat template does not come to an end"):
        await embedder.start()
    assert not children()


@pytest.mark.requirement("template:file")
async def test_another_template_mends_a_model_with_a_hostile_one(tiny: Make, tmp_path: Path) -> None:
    path, other = tiny(template=LOOP + CHATML), tmp_path / "other.jinja"
    other.write_text("{{ 'Ölçü: ' }}" + HERMES, encoding="utf-8")
    for settings in (
        Settings(model=(str(path),), chat_template_file=str(other), threads=1),
        Settings(models=(ModelConfig(path=str(path), chat_template_file=str(other)),), threads=1),
    ):
        engine = build_registry(settings).engines[0]
        assert isinstance(engine, LlamaCppEngine)
        await engine.start()
        try:
            assert (await engine.prepare(ask("Hello"))).rendered.startswith("Ölçü: <|im_start|>user\nHello")
        finally:
            await engine.close()


@pytest.mark.requirement("template:file")
async def test_another_template_is_tried_as_well(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "CPU_SECONDS", 0.3)
    engine = LlamaCppEngine(tiny(template=None), Settings(threads=1), chat_template=LOOP)
    with pytest.raises(ConfigurationError, match="its chat template does not come to an end"):
        await engine.start()


@pytest.mark.requirement("template:file")
def test_a_file_that_holds_no_template_is_no_start(tiny: Make, tmp_path: Path) -> None:
    model = str(tiny())
    contents = {"empty": (b" \n", "is empty"), "bytes": (b"\xff\xfe", "UTF-8"), "long": (b"a" * 2**21, "longer than")}
    for name, (content, reason) in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigurationError, match=f"--chat-template-file .*{name}: .*{reason}"):
            build_registry(Settings(model=(model,), chat_template_file=str(tmp_path / name)))
    with pytest.raises(ConfigurationError, match="no such file"):
        build_registry(Settings(model=(model,), chat_template_file=str(tmp_path / "none")))
    with pytest.raises(ConfigurationError, match="--chat-template-file belongs to one --model"):
        build_registry(Settings(model=("scripted", model), chat_template_file=str(tmp_path / "none")))


@pytest.mark.requirement("template:trial")
async def test_a_trial_that_fails_for_another_reason_says_nothing(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_PREFIX", b"general.architecture")
    async with running(tiny()) as engine:
        assert engine.ready


@pytest.mark.requirement("template:header")
def test_templates_are_found_in_headers_and_lies_are_no_matter(tiny: Make, tmp_path: Path) -> None:
    data = tiny(template=CHATML).read_bytes()
    key = b"tokenizer.chat_template"
    whole = tmp_path / "whole.gguf"
    whole.write_bytes(data)
    assert templates_of(whole) == {key: CHATML.encode()}
    tokens = data.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens")
    count = data[:tokens] + struct.pack("<IIQ", 9, 8, 2**63) + data[tokens + 16 :]
    length = data[: tokens + 16] + struct.pack("<Q", 2**64 - 1) + data[tokens + 24 :]
    kind = data[:tokens] + struct.pack("<I", 77) + data[tokens + 4 :]
    entries = data[:16] + struct.pack("<Q", 2**64 - 1) + data[24:]
    cut = data[: data.index(key) + 40]
    for number, lie in enumerate((count, length, kind, cut, b"", b"GGUF", b"hello world, this is no model")):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(lie)
        began = time.monotonic()
        assert templates_of(path) == {}
        assert time.monotonic() - began < 10
    (tmp_path / "entries.gguf").write_bytes(entries)
    assert templates_of(tmp_path / "entries.gguf") == {}
    assert templates_of(tmp_path / "none.gguf") == {}


@pytest.mark.requirement("template:header")
def test_very_many_special_tokens_do_not_hold_the_start() -> None:
    template = "<|im_start|>" + "".join(f"<|a{number}|>" for number in range(100_000))
    found = special_candidates(template)
    assert len(found) == MOST_CANDIDATES
    assert found[:2] == ["<|im_start|>", "<|a0|>"]


@pytest.mark.requirement("template:serving")
def test_a_template_that_goes_astray_later_harms_its_own_request_only(tiny: Make) -> None:
    seldom = "{% if 'loop' in messages[-1].content %}" + LOOP + "{% endif %}"
    model = tiny(template=seldom + HERMES)
    arguments = ["--model", str(model), "--store", "memory", "--threads", "1", "--render-timeout", "0.5"]
    with running_server(arguments) as server:

        def post(text: str) -> httpx.Response:
            body: dict[str, Any] = {"model": "tiny", "input": text, "max_output_tokens": 16}
            return httpx.post(f"{server.base_url}/responses", json=body, timeout=30)

        with ThreadPoolExecutor(1) as beside:
            attack = beside.submit(post, "loop")
            while not attack.done():
                assert post("Hello").status_code == 200
        answer = attack.result()
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "template_error"
        assert post("Hello").status_code == 200


@pytest.mark.requirement("template:serving:memory")
async def test_a_template_that_eats_memory_later_is_stopped(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    hungry = "{% if 'grow' in messages[-1].content %}{% set x = range(1000000000) | list %}{% endif %}"
    monkeypatch.setattr(engine_module, "held", functools.partial(held, growth=2**27))
    async with running(tiny(template=hungry + HERMES), settings=Settings(threads=1, render_timeout=60)) as engine:
        [child] = children()
        with pytest.raises(InvalidRequestError, match="chat template took more memory than it may") as caught:
            await engine.prepare(ask("grow"))
        assert caught.value.code == "template_error"
        await until(lambda: engine.restarts == 1 and engine.ready, "the child is back")
        assert not child.is_running()
        assert "Hello" in (await engine.prepare(ask("Hello"))).rendered


@pytest.mark.requirement("template:serving:memory")
async def test_what_is_held_has_its_result_its_error_or_its_end() -> None:
    loop = asyncio.get_running_loop()

    async def done(result: int) -> int:
        return result

    async def failing() -> int:
        raise KeyError("a")

    ended: list[bool] = []

    async def endless() -> int:
        try:
            return await loop.create_future()
        finally:
            ended.append(True)

    assert await held(done(3), os.getpid(), loop.time() + DEADLINE) == 3
    with pytest.raises(KeyError):
        await held(failing(), os.getpid(), loop.time() + DEADLINE)
    for pid in (os.getpid(), 0):
        with pytest.raises(TimeoutError):
            await held(endless(), pid, loop.time() + 0.15, growth=2**40)
    with pytest.raises(TooHungryError):
        await held(endless(), os.getpid(), loop.time() + DEADLINE, growth=-(2**40))
    task = asyncio.create_task(held(endless(), os.getpid(), loop.time() + DEADLINE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(ended) == 4

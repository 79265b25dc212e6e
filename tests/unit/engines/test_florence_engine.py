"""The engine of Florence-2 over a child that speaks its frames and has no model."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import sys
import types
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import UNSET
from PIL import Image

from antiphon.cli.access import missing_libraries
from antiphon.engines.florence import FlorenceEngine
from antiphon.engines.florence.coordinates import TASKS
from antiphon.engines.florence.folder import is_florence
from antiphon.engines.florence.process import Child, ChildConfig
from antiphon.engines.registry import build_registry
from antiphon.errors import (
    APIError,
    ConfigurationError,
    ContextOverflowError,
    EngineError,
    EngineUnavailableError,
    InvalidRequestError,
    UnsupportedError,
)
from antiphon.machine.deltas import Delta, Stop, TextDelta, TokenUsage
from antiphon.prompt.prompt import ChatMessage, Prompt, Sampling
from antiphon.protocol.florence import FlorenceResult
from antiphon.protocol.sampling import Samplers
from antiphon.protocol.tools import FunctionTool
from antiphon.settings import ModelConfig, Settings
from antiphon.tables import LimitsConfig
from support.fake_florence import CONTEXT, command, noted
from support.local_engine import until

requirement = pytest.mark.requirement
BOX = [0, 0, 99, 99]
"""Half of the image, as the child's bins have it."""

GROUND = "<CAPTION_TO_PHRASE_GROUNDING>"


def picture() -> dict[str, Any]:
    """An image of 200 by 100 pixels."""
    out = io.BytesIO()
    Image.new("RGB", (200, 100), "red").save(out, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def said(text: str, *images: Mapping[str, Any]) -> ChatMessage:
    return ChatMessage("user", [*(images or (picture(),)), {"type": "text", "text": text}])


def prompt(text: str, **more: Any) -> Prompt:
    return Prompt([said(text)], **more)


async def answer(engine: FlorenceEngine, text: str, **more: Any) -> tuple[str, Stop]:
    """The text and the end of a turn."""
    turn = await engine.prepare(prompt(text, **more))
    deltas: list[Delta] = [delta async for batch in engine.generate(turn) for delta in batch]
    first, last = deltas
    assert isinstance(first, TextDelta)
    assert isinstance(last, Stop)
    assert last.usage.input_tokens == turn.input_tokens
    return first.text, last


def model_folder(parent: Path, **config: Any) -> Path:
    folder = parent / "florence-tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "florence2", **config}))
    return folder


class Made:
    """A started engine, what it was told of, and what its child was asked."""

    def __init__(self, engine: FlorenceEngine, notes: Path, events: list[str]) -> None:
        self.engine = engine
        self.events = events
        self.notes = notes

    @property
    def asked(self) -> list[str]:
        return [line for line in noted(self.notes) if not line.startswith("count")]


@asynccontextmanager
async def started(parent: Path, *, loads: str = "well", **settings: Any) -> AsyncIterator[Made]:
    events: list[str] = []
    notes = parent / "notes"
    engine = FlorenceEngine(
        model_folder(parent),
        Settings(**settings),
        on_event=lambda model, event, fields: events.append(event),
        command=command(notes, loads),
    )
    await engine.start()
    try:
        yield Made(engine, notes, events)
    finally:
        await engine.close()


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    async with started(tmp_path) as found:
        yield found


@requirement("florence:engine", "florence:tasks")
async def test_every_task_is_answered_with_its_kind_and_in_text(made: Made) -> None:
    kinds: dict[str, str] = {}
    for task, known in TASKS.items():
        text, stop = await answer(made.engine, f"{task} the car" if known.takes_input else f" {task}\n")
        assert stop.result is not None
        assert stop.reason == "stop"
        assert text
        assert (stop.result.bboxes is UNSET) == (known.kind not in ("bboxes", "bboxes_or_polygons"))
        kinds[stop.result.task] = stop.result.kind
    assert kinds == {task: known.kind for task, known in TASKS.items()}


@requirement("florence:engine", "florence:pixels")
async def test_places_are_pixels_of_the_image_and_banned_phrases_are_left_out(made: Made) -> None:
    text, stop = await answer(made.engine, f"{GROUND} it is a car")
    assert stop.result == FlorenceResult(GROUND, "bboxes", bboxes=[BOX], labels=["car"])
    assert text == "car: [0, 0, 99, 99]"
    assert stop.usage == TokenUsage(input_tokens=5 + 10, output_tokens=11)


@requirement("florence:engine")
async def test_a_limit_cuts_an_answer_and_what_is_whole_of_it_stands(made: Made) -> None:
    text, stop = await answer(made.engine, f"{GROUND} a car", max_output_tokens=5)
    assert (stop.reason, stop.usage.output_tokens, text) == ("length", 5, "car: [0, 0, 99, 99]")
    _, stop = await answer(made.engine, f"{GROUND} a car", max_output_tokens=4)
    assert stop.result == FlorenceResult(GROUND, "bboxes", bboxes=[], labels=[])


TOOL = FunctionTool("look", {"type": "object"})
TURN = [ChatMessage("user", "Hello"), ChatMessage("assistant", "Hello.")]
REFUSED: list[tuple[Prompt, str, type[InvalidRequestError], str]] = [
    (Prompt([ChatMessage("user", "<OD>")]), "input", InvalidRequestError, "the last message has none"),
    (Prompt([said("<OD>", picture(), picture())]), "input", InvalidRequestError, "the last message has 2"),
    (Prompt([said(" ")]), "input", InvalidRequestError, "one text with a task, but the message has none"),
    (
        Prompt([ChatMessage("user", [picture(), *({"type": "text", "text": text} for text in ("<OD>", "Now!"))])]),
        "input",
        InvalidRequestError,
        "has 2 texts",
    ),
    (prompt("What is it?"), "input", InvalidRequestError, "'What is it\\?' begins with no task.*<OD>.*<OCR>"),
    (prompt("<SEG>"), "input", InvalidRequestError, "begins with no task"),
    (prompt("<OD> cars"), "input", InvalidRequestError, "<OD> takes no text after it"),
    (prompt(GROUND), "input", InvalidRequestError, "needs a text after it"),
    (prompt(f"{GROUND} <image>"), "input", InvalidRequestError, "spells a token"),
    (Prompt([*TURN, ChatMessage("assistant", "<OD>")]), "input", InvalidRequestError, "as the last message"),
    (Prompt([]), "input", InvalidRequestError, "as the last message"),
    (Prompt([ChatMessage("system", "Be brief."), said("<OD>")]), "input", UnsupportedError, "no instructions"),
    (prompt("<OD>", tools=[TOOL]), "tools", UnsupportedError, "calls no tools"),
    (prompt("<OD>", sampling=Sampling(stop=["a"])), "stop", UnsupportedError, "does not take 'stop'"),
    (prompt("<OD>", sampling=Sampling(top_logprobs=0)), "top_logprobs", UnsupportedError, "top_logprobs"),
    (prompt("<OD>", sampling=Sampling(presence_penalty=0.5)), "presence_penalty", UnsupportedError, "presence"),
    (prompt("<OD>", sampling=Sampling(samplers=Samplers(mirostat=1))), "mirostat", UnsupportedError, "mirostat"),
    (
        Prompt([said("<OD>", {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}})]),
        "input",
        InvalidRequestError,
        "in base64 only",
    ),
    (prompt(f"{GROUND} {'car ' * CONTEXT}"), "input", ContextOverflowError, f"is {CONTEXT} tokens.*in 75 tokens"),
    (prompt(f"{GROUND} {'car' * CONTEXT * 64}"), "input", ContextOverflowError, "estimated"),
]


@requirement("florence:refused")
async def test_what_is_no_question_for_it_is_refused_with_what_is_missing(made: Made) -> None:
    for refused, param, kind, message in REFUSED:
        with pytest.raises(kind, match=message) as caught:
            await made.engine.prepare(refused)
        assert caught.value.param == param, message
    assert made.asked == ["loaded"]


@requirement("florence:refused")
async def test_earlier_turns_are_not_read(made: Made) -> None:
    turn = await made.engine.prepare(Prompt([said("<OCR>"), ChatMessage("assistant", "STOP"), said("<OD>")]))
    assert turn.input_tokens == (await made.engine.prepare(prompt("<OD>"))).input_tokens


@requirement("florence:restart")
@pytest.mark.parametrize("word", ["die", "garbage", "endless"])
async def test_a_task_that_the_child_does_not_survive_fails_and_the_next_one_is_answered(made: Made, word: str) -> None:
    with pytest.raises(EngineError, match="died over this task"):
        await answer(made.engine, f"{GROUND} {word}")
    assert await made.engine.wait_ready(15)
    assert (await answer(made.engine, "<CAPTION>"))[0] == "a car"
    assert made.engine.restarts == 1
    assert made.events == ["loading", "ready", "died", "loading", "ready", "restarted"]


@requirement("florence:restart")
async def test_another_child_is_started_whatever_goes_wrong_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["message"]))
    start, starts = Child.start, 0

    async def second_fails(config: ChildConfig, program: Sequence[str], seconds: float) -> Child:
        nonlocal starts
        starts += 1
        if starts == 2:
            raise RuntimeError("no pipes")
        return await start(config, program, seconds)

    def observe(_: str, event: str, fields: Mapping[str, Any]) -> None:
        if event in ("died", "restart_failed"):
            raise ValueError(f"{event} {fields['reason']}")

    monkeypatch.setattr(Child, "start", second_fails)
    engine = FlorenceEngine(
        model_folder(tmp_path), Settings(), on_event=observe, command=command(tmp_path / "notes", "well")
    )
    await engine.start()
    try:
        with pytest.raises(EngineError, match="died over this task"):
            await answer(engine, f"{GROUND} die")
        assert await engine.wait_ready(15)
        assert (await answer(engine, "<CAPTION>"))[0] == "a car"
    finally:
        await engine.close()
    assert faults == ["an observer of 'died' failed", "an observer of 'restart_failed' failed"]


@requirement("florence:restart")
async def test_a_question_that_comes_while_the_child_is_dead_waits_for_the_next_one(made: Made) -> None:
    deadly = await made.engine.prepare(prompt(f"{GROUND} die"))
    harmless = await made.engine.prepare(prompt("<CAPTION>"))
    with pytest.raises(EngineError):
        await anext(made.engine.generate(deadly))
    assert not made.engine.ready
    with pytest.raises(EngineUnavailableError):
        await made.engine.prepare(prompt("<OD>"))
    first, _ = await anext(made.engine.generate(harmless))
    assert first == TextDelta("a car")


@requirement("florence:deadline")
@pytest.mark.parametrize("word", ["hang", "stray"])
async def test_a_task_that_takes_too_long_ends_the_child(tmp_path: Path, word: str) -> None:
    async with started(tmp_path, vision_timeout=1.0) as made:
        with pytest.raises(EngineError, match="took longer than it may"):
            await answer(made.engine, f"{GROUND} {word}")
        assert await made.engine.wait_ready(15)
        assert (await answer(made.engine, "<CAPTION>"))[0] == "a car"
        assert made.engine.restarts == 1


@requirement("florence:cancel")
async def test_leaving_a_task_cancels_it_and_lets_the_next_one_begin(made: Made) -> None:
    first = asyncio.create_task(answer(made.engine, f"{GROUND} hang"))
    await until(lambda: "task 2" in made.asked, "the first task is worked on")
    second = asyncio.create_task(answer(made.engine, "<CAPTION>"))
    await until(lambda: "count 3" in noted(made.notes), "the second question is counted")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await second)[0] == "a car"
    # One at a time: the second one was sent only when nobody waited for the first one any more.
    assert made.asked == ["loaded", "task 2", "cancel 2", "task 4"]
    assert made.engine.restarts == 0


FAULTS: list[tuple[str, type[APIError], str]] = [
    ("too_large", InvalidRequestError, "more pixels than the 50000000"),
    ("unreadable", InvalidRequestError, "cannot be read"),
    ("too_much", EngineError, "not enough memory"),
    ("failed", EngineError, "failed over this task"),
]


@requirement("florence:faults")
async def test_what_the_child_refuses_is_told_in_plain_words(made: Made) -> None:
    for code, kind, message in FAULTS:
        with pytest.raises(kind, match=message):
            await answer(made.engine, f"{GROUND} fault={code}")
    assert made.engine.restarts == 0


@requirement("florence:load")
@pytest.mark.parametrize(
    "loads, reason",
    [
        ("never", "did not load within 0.2 seconds"),
        ("badly", "OSError: no weights"),
        ("wrongly", "says nothing of the model"),
        ("dead", "its process ended: exit status 0; its last line: out of memory"),
    ],
)
async def test_a_model_that_does_not_load_says_why(tmp_path: Path, loads: str, reason: str) -> None:
    timeout = 0.2 if loads == "never" else 20.0
    with pytest.raises(ConfigurationError, match=f"florence-tiny cannot be loaded: .*{reason}"):
        async with started(tmp_path, loads=loads, load_timeout=timeout):
            pass


@requirement("florence:load")
async def test_the_real_child_says_what_a_folder_lacks(tmp_path: Path) -> None:
    # Where torch is not installed, that is what it says.
    engine = FlorenceEngine(model_folder(tmp_path), Settings())
    with pytest.raises(ConfigurationError, match=r"cannot be loaded: .*Error: "):
        await engine.start()
    assert not engine.ready
    await engine.close()


@requirement("florence:load")
async def test_a_folder_is_known_by_its_content(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        assert (made.engine.name, made.engine.capabilities.media) == ("florence-tiny", frozenset({"image"}))
        first = made.engine.fingerprint
    (tmp_path / "florence-tiny" / "model.safetensors").write_bytes(b"weights")
    other = FlorenceEngine(tmp_path / "florence-tiny", Settings(), command=command(tmp_path / "notes"))
    await other.start()
    await other.close()
    assert len(first) == len(other.fingerprint) == 64
    assert first != other.fingerprint


@requirement("florence:registry")
def test_a_folder_of_the_model_is_served_where_the_extra_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(tmp_path)
    for name in ("torch", "transformers"):
        module = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    registry = build_registry(Settings(model=(str(folder), "scripted"), alias=("eye=florence-tiny",)))
    assert isinstance(registry.resolve("eye")[1], FlorenceEngine)
    assert registry.names() == ["florence-tiny", "scripted", "eye"]
    named = build_registry(Settings(models=(ModelConfig(path=str(folder), name="seer"),)))
    assert named.names() == ["seer"]
    short = ModelConfig(path=str(folder), limits=LimitsConfig(context_length=9))
    with pytest.raises(ConfigurationError, match="whose context cannot be made shorter"):
        build_registry(Settings(models=(short,)))
    unused: list[dict[str, Any]] = [{name: "x"} for name in ("mmproj", "chat_template_file", "tool_dialect")]
    for more in (*unused, {"embedding": True}):
        with pytest.raises(
            ConfigurationError, match="makes no vectors, and has neither an 'mmproj' nor a chat template"
        ):
            build_registry(Settings(models=(ModelConfig(path=str(folder), **more),)))


@requirement("florence:registry")
def test_a_missing_extra_is_said_with_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_folder(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigurationError, match=r'\(torch.*\).*pip install "antiphon\[vision\]"'):
        build_registry(Settings(model=(str(folder),)))
    # llama.cpp is not asked for where no model needs it.
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert missing_libraries([str(folder)]) == []
    assert missing_libraries([str(folder), "a.gguf"]) == ["xllamacpp"]


@requirement("florence:registry")
@pytest.mark.parametrize("config", ['{"model_type": "bart"}', "[]", "{", '{"model_type": 1}', "\xff"])
def test_other_folders_are_not_taken_for_one(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config, encoding="latin-1")
    assert not is_florence(tmp_path)
    assert not is_florence(tmp_path / "nothing")


@requirement("project:child-process:keys")
async def test_the_child_knows_no_key_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_API_KEY", "mine")
    async with started(tmp_path):
        child = next(process for process in psutil.Process().children() if "fake_florence" in str(process.cmdline()))
        assert "mine" not in child.environ().values()

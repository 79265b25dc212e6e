"""Images reach a model through its projector, on the real llama.cpp with a tiny projector."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from antiphon.engines.base import Sampled
from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.engines.registry import build_registry
from antiphon.errors import ConfigurationError, ContextOverflowError, InvalidRequestError
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice, Sampling
from antiphon.protocol.tools import FunctionTool
from antiphon.settings import ModelConfig, Settings
from support import tiny_gguf, tiny_mmproj
from support.local_engine import all_idle, ask, calls_of, collect, running, stop_of, text_of, until

GREEDY = Sampling(temperature=0.0)
LONG = 3000
"""Tokens of a turn that has not ended when its child is killed."""
TOOL = FunctionTool("look", {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and its projector."""
    folder = tmp_path_factory.mktemp("media")
    return tiny_gguf.build(folder, template=tiny_gguf.CHATML), tiny_mmproj.build(folder)


def image(color: str) -> Mapping[str, Any]:
    buffer = BytesIO()
    Image.new("RGB", (50, 40), color).save(buffer, "PNG")
    url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def look(*parts: Mapping[str, Any], **fields: Any) -> Prompt:
    content = [{"type": "text", "text": "Look: "}, *parts, {"type": "text", "text": " what?"}]
    message = ChatMessage("user", content)
    given: dict[str, Any] = {"messages": [message], "sampling": GREEDY, "max_output_tokens": 24}
    return Prompt(**(given | fields))


async def drawn(engine: LlamaCppEngine, prompt: Prompt, sampled: Sampled | None = None) -> Sequence[Delta]:
    turn = await engine.prepare(prompt)
    if sampled is not None:
        turn.sampled = sampled
    return [delta async for deltas in engine.generate(turn) for delta in deltas]


@pytest.mark.requirement("engine:media:image", "engine:media:tokens", "engine:media:cached")
async def test_images_reach_the_model(files: tuple[Path, Path]) -> None:
    async with running(files[0], mmproj=files[1]) as engine:
        assert engine.capabilities.media == {"image"}
        plain = stop_of(await drawn(engine, look()))
        red, blue, again = [await drawn(engine, look(image(color))) for color in ("red", "blue", "red")]
        both = await drawn(engine, look(image("red"), image("blue")))
        turned = await drawn(engine, look(image("blue"), image("red")))
    assert text_of(red)
    assert text_of(red) == text_of(again) != text_of(blue)
    assert text_of(both) != text_of(turned)
    assert stop_of(red).usage.input_tokens > plain.usage.input_tokens + tiny_mmproj.TOKENS - 4
    assert stop_of(both).usage.input_tokens == stop_of(red).usage.input_tokens + tiny_mmproj.TOKENS
    # The picture itself is kept, and another one is not taken for it.
    assert stop_of(again).usage.cached_tokens == stop_of(red).usage.input_tokens - 1
    assert stop_of(blue).usage.cached_tokens < tiny_mmproj.TOKENS


@pytest.mark.requirement("engine:media:tokens")
async def test_what_is_counted_is_what_llama_cpp_reads(files: tuple[Path, Path]) -> None:
    async with running(files[0], mmproj=files[1]) as engine:
        turn = await engine.prepare(look(image("red"), image("green")))
        prompt = {"prompt_string": turn.rendered, "multimodal_data": list(turn.media)}
        body = {"prompt": prompt, "n_predict": 4, "stream": True, "return_progress": True}
        totals: list[int] = []
        async for chunks in engine._client_now().completion({**body, "cache_prompt": False}):
            totals += [chunk.timings.prompt_n for chunk in chunks if chunk.timings is not None]
    assert totals[-1] == turn.input_tokens


@pytest.mark.requirement("engine:media:context")
async def test_images_that_do_not_fit_are_refused(files: tuple[Path, Path]) -> None:
    async with running(files[0], settings=Settings(threads=1, context_length=256), mmproj=files[1]) as engine:
        with pytest.raises(ContextOverflowError):
            await engine.prepare(look(*[image("red")] * 16))
        assert text_of(await drawn(engine, look(image("red"))))


@pytest.mark.requirement("engine:media:forced")
async def test_a_call_is_forced_about_an_image(files: tuple[Path, Path]) -> None:
    asked = look(
        image("red"), tools=[TOOL], choice=ResolvedChoice("required", ["look"]), max_output_tokens=200,
        sampling=Sampling(temperature=1.0, seed=5),
    )  # fmt: skip
    async with running(files[0], mmproj=files[1]) as engine:
        calls = calls_of(await drawn(engine, asked))
    assert calls
    assert all(name == "look" and json.loads(arguments)["n"] in (1, 2) for name, arguments in calls)


@pytest.mark.requirement("engine:media:stop")
async def test_a_stop_word_ends_a_turn_with_an_image(files: tuple[Path, Path]) -> None:
    async with running(files[0], mmproj=files[1]) as engine:
        whole = text_of(await drawn(engine, look(image("red"))))
        word = whole[len(whole) // 2 :][:3]
        stopped = await drawn(engine, look(image("red"), sampling=Sampling(temperature=0.0, stop=[word])))
    assert text_of(stopped) == whole[: whole.index(word)]
    assert stop_of(stopped).reason == "stop"


@pytest.mark.requirement("engine:media:resume")
async def test_a_turn_goes_on_after_a_death(files: tuple[Path, Path]) -> None:
    async with running(files[0], mmproj=files[1]) as engine:
        turn = await engine.prepare(look(image("red"), max_output_tokens=LONG))
        stream = engine.generate(turn)
        deltas = [*(await anext(stream))]
        while len(text_of(deltas)) < 20:
            deltas += await anext(stream)
        told = text_of(deltas)
        kept = msgspec.json.decode(msgspec.json.encode(turn.sampled), type=Sampled)
        engine._supervisor.kill_child("a test")
        deltas += [delta async for more in stream for delta in more]
        assert engine.restarts == 1
    # Another life of the server goes on from what was kept.
    async with running(files[0], mmproj=files[1]) as engine:
        known, before = "".join(kept.text), kept.generated
        later = await drawn(engine, look(image("red"), max_output_tokens=LONG), kept)
    assert known.startswith(told)
    assert text_of(later).startswith(known)
    assert len(text_of(later)) > len(known)
    assert before < stop_of(later).usage.output_tokens <= LONG
    assert text_of(deltas).startswith(told)
    assert before < stop_of(deltas).usage.output_tokens <= LONG
    assert len(text_of(deltas)) > len(told)


@pytest.mark.requirement("engine:media:cancel")
async def test_closing_a_turn_frees_its_slot(files: tuple[Path, Path]) -> None:
    async with running(files[0], mmproj=files[1]) as engine:
        stream = engine.generate(await engine.prepare(look(image("red"), max_output_tokens=4000)))
        await anext(stream)
        await stream.aclose()
        await until(lambda: all_idle(engine), "idle")


@pytest.mark.requirement("engine:media:unreadable")
async def test_what_is_no_image_is_refused(files: tuple[Path, Path]) -> None:
    def part(url: str) -> Mapping[str, Any]:
        return {"type": "image_url", "image_url": {"url": url}}

    refused = ["https://127.0.0.1/a.png", "file:///etc/hostname", "data:image/png,abc", "data:image/png;base64,AAAA"]
    async with running(files[0], mmproj=files[1]) as engine:
        for url in refused:
            with pytest.raises(InvalidRequestError):
                await engine.prepare(look(part(url)))
        with pytest.raises(InvalidRequestError):
            await engine.prepare(look({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}))
        # The marker of another server stands for nothing.
        assert text_of(await collect(engine, ask("<__media__>", max_output_tokens=4)))


@pytest.mark.requirement("engine:media:projector")
async def test_a_projector_that_does_not_fit_is_no_start(files: tuple[Path, Path], tmp_path: Path) -> None:
    for projector in (tiny_mmproj.build(tmp_path, width=96), files[0], tmp_path / "none.gguf"):
        engine = LlamaCppEngine(files[0], Settings(threads=1), mmproj=projector)
        with pytest.raises(ConfigurationError, match="cannot be loaded"):
            await engine.start()
    async with running(files[0]) as engine:
        assert engine.capabilities.media == frozenset()


@pytest.mark.requirement("engine:media:settings")
def test_a_projector_is_named_by_flag_or_by_model(files: tuple[Path, Path]) -> None:
    model, projector = (str(path) for path in files)
    for settings in (
        Settings(model=(model,), mmproj=projector),
        Settings(models=(ModelConfig(path=model, mmproj=projector),)),
    ):
        engine = build_registry(settings).engines[0]
        assert isinstance(engine, LlamaCppEngine)
        assert engine._mmproj == files[1]
    with pytest.raises(ConfigurationError, match="--mmproj"):
        build_registry(Settings(model=("scripted", model), mmproj=projector))

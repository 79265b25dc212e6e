"""Florence-2 through the whole server, over a child that speaks the frames of its engine and has no model."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from antiphon.engines.florence import FlorenceEngine
from antiphon.engines.florence.coordinates import TASKS
from antiphon.engines.registry import Registry
from antiphon.engines.scripted import ScriptedEngine
from antiphon.protocol.sse import SSEParser
from antiphon.settings import Settings
from support.fake_florence import command
from support.inprocess import InProcess, inprocess_app, sse_events

requirement = pytest.mark.requirement
GROUND = "<CAPTION_TO_PHRASE_GROUNDING>"
BOX = [0, 0, 99, 99]
OUTLINE = [0, 0, 99, 0, 99, 99]
ARRAYS = {"bboxes", "quad_boxes", "polygons", "labels", "bboxes_labels", "polygons_labels"}
OF_KIND = {
    "text": set[str](),
    "bboxes": {"bboxes", "labels"},
    "quad_boxes": {"quad_boxes", "labels"},
    "polygons": {"polygons", "labels"},
    "bboxes_or_polygons": {"bboxes", "bboxes_labels", "polygons", "polygons_labels"},
}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[InProcess]:
    """A server over the model `eye`, and the scripted one."""
    folder = tmp_path / "eye"
    folder.mkdir()
    settings = Settings(max_image_pixels=1_000_000)
    eye = FlorenceEngine(folder, settings, command=command(tmp_path / "notes"))
    registry = Registry([eye, ScriptedEngine(1000)], {}, {}, None)
    async with inprocess_app(settings=settings, registry=registry) as made:
        yield made


def uri(width: int = 200, height: int = 100) -> str:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def asked(text: str, *urls: str, **more: Any) -> dict[str, Any]:
    """A chat request with these images."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {
        "model": "eye",
        "messages": [{"role": "user", "content": [*images, {"type": "text", "text": text}]}],
        **more,
    }


async def chat(api: InProcess, text: str, **more: Any) -> dict[str, Any]:
    found = await api.client.post("/chat/completions", json=asked(text, uri(), **more))
    assert found.status_code == 200, found.text
    return found.json()


async def refused(api: InProcess, path: str, body: dict[str, Any]) -> dict[str, Any]:
    found = await api.client.post(path, json=body)
    assert found.status_code == 400, found.text
    return found.json()["error"]


@requirement("florence:result")
async def test_a_whole_chat_answer_has_the_task_its_kind_and_the_arrays_of_it(api: InProcess) -> None:
    for task, known in TASKS.items():
        answer = await chat(api, f"{task} the car" if known.takes_input else task)
        message = answer["choices"][0]["message"]
        result = message["florence2_result"]
        assert (result["task"], result["kind"]) == (task, known.kind)
        assert set(result) - {"task", "kind"} == OF_KIND[known.kind] <= ARRAYS
        assert message["content"]
        assert answer["choices"][0]["finish_reason"] == "stop"


@requirement("florence:result")
async def test_coordinates_are_pixels_and_the_content_is_their_text(api: InProcess) -> None:
    found = (await chat(api, "<OPEN_VOCABULARY_DETECTION>the car"))["choices"][0]["message"]
    assert found == {
        "role": "assistant",
        "content": "car: [0, 0, 99, 99]\nroad: [0, 0, 99, 0]",
        "refusal": None,
        "florence2_result": {
            "task": "<OPEN_VOCABULARY_DETECTION>",
            "kind": "bboxes_or_polygons",
            "bboxes": [BOX],
            "polygons": [[[0, 0, 99, 0]]],
            "bboxes_labels": ["car"],
            "polygons_labels": ["road"],
        },
    }
    found = (await chat(api, "<REGION_TO_SEGMENTATION>the car"))["choices"][0]["message"]
    assert found["florence2_result"]["polygons"] == [[OUTLINE]]
    text = (await chat(api, "<CAPTION>"))["choices"][0]["message"]
    assert text["content"] == "a car"
    assert text["florence2_result"] == {"task": "<CAPTION>", "kind": "text"}


@requirement("florence:result")
async def test_every_choice_has_a_result_and_a_cut_one_says_so(api: InProcess) -> None:
    answer = await chat(api, "<OD>", n=2, max_tokens=5)
    assert [choice["message"]["florence2_result"]["bboxes"] for choice in answer["choices"]] == [[BOX], [BOX]]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "length"]
    assert answer["usage"]["completion_tokens"] == 10


@requirement("florence:result")
async def test_streams_responses_and_other_models_have_the_text_alone(api: InProcess) -> None:
    streamed = await api.client.post("/chat/completions", json=asked("<OD>", uri(), stream=True))
    frames = SSEParser().feed(streamed.content)
    assert frames[-1].data == "[DONE]"
    chunks = [msgspec.json.decode(frame.data) for frame in frames[:-1]]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "car: [0, 0, 99, 99]"
    assert b"florence2_result" not in streamed.content

    part = {"type": "input_image", "image_url": uri()}
    body: dict[str, Any] = {"model": "eye"}
    body["input"] = [{"role": "user", "content": [part, {"type": "input_text", "text": "<OD>"}]}]
    whole = await api.client.post("/responses", json=body)
    assert whole.json()["output_text"] == "car: [0, 0, 99, 99]"
    assert b"florence2_result" not in whole.content
    events = sse_events((await api.client.post("/responses", json={**body, "stream": True})).content)
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "car: [0, 0, 99, 99]"
    assert "florence2_result" not in str(events)
    # The next task of a chain is read by itself.
    onward = {**body, "previous_response_id": whole.json()["id"]}
    assert (await api.client.post("/responses", json=onward)).json()["usage"] == whole.json()["usage"]

    scripted = await api.client.post(
        "/chat/completions", json={"model": "scripted", "messages": [{"role": "user", "content": "Hello"}]}
    )
    assert "florence2_result" not in scripted.json()["choices"][0]["message"]


@requirement("florence:result")
async def test_a_task_can_be_worked_on_in_the_background_and_counted(api: InProcess) -> None:
    content = [{"type": "input_image", "image_url": uri()}, {"type": "input_text", "text": "<OD>"}]
    body = {"model": "eye", "input": [{"role": "user", "content": content}]}
    begun = (await api.client.post("/responses", json={**body, "background": True})).json()
    path = f"/responses/{begun['id']}?stream=true"
    events = sse_events((await api.client.get(path)).content)
    ended = events[-1]["response"]
    assert (ended["status"], ended["output"][0]["content"][0]["text"]) == ("completed", "car: [0, 0, 99, 99]")
    count = (await api.client.post("/responses/input_tokens", json=body)).json()
    assert count["input_tokens"] == ended["usage"]["input_tokens"]


@requirement("florence:refused")
async def test_requests_that_the_model_cannot_meet_are_a_400_that_names_the_field(api: InProcess) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    for body, param, message in [
        (asked("<OD>"), "messages", "has none"),
        (asked("<OD>", uri(), uri()), "messages", "has 2"),
        (asked("What is it?", uri()), "messages", "begins with no task"),
        (asked("<OD>", uri(), tools=[tool]), "tools", "calls no tools"),
        (asked("<OD>", uri(), stop="a"), "stop", "does not take"),
        (asked("<OD>", uri(), logprobs=True), "top_logprobs", "does not take"),
        (asked("<OD> json", uri(), response_format={"type": "json_object"}), "response_format.type", "json_object"),
        (asked("<OD>", uri(), tools=[tool], tool_choice="required"), "tool_choice", "cannot be enforced"),
        (asked("<OD>", uri(1001, 1000)), "messages[0].content[0]", "more pixels"),
        (asked("<OD>", "data:image/png;base64,AAAA"), "messages[0].content[0]", "png, jpeg, gif or webp"),
    ]:
        error = await refused(api, "/chat/completions", body)
        assert (error["param"], error["type"]) == (param, "invalid_request_error")
        assert message in error["message"]
    assert "conversations only" in (await refused(api, "/completions", {"model": "eye", "prompt": "<OD>"}))["message"]


@requirement("florence:restart")
async def test_a_task_that_kills_the_child_fails_and_the_next_one_is_answered(api: InProcess) -> None:
    failed = await api.client.post("/chat/completions", json=asked(f"{GROUND} die", uri()))
    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
    assert (await chat(api, "<CAPTION>"))["choices"][0]["message"]["content"] == "a car"

"""Images and documents of requests reach a local model: from data, from a URL and from uploaded files."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from antiphon.runtime import media
from antiphon.runtime.media import MAX_IMAGE_BYTES, MAX_MEDIA
from antiphon.settings import Settings
from support import tiny_gguf, tiny_mmproj
from support.inprocess import InProcess, inprocess_app
from support.receiver import receiver, reply

requirement = pytest.mark.requirement
DENIED = ["http://127.0.0.1:1/", "http://169.254.169.254/latest", "http://[::1]/", "file:///etc/hostname", "ftp://h/x"]


def png(color: str) -> bytes:
    """A small image."""
    out = io.BytesIO()
    Image.new("RGB", (50, 40), color).save(out, "PNG")
    return out.getvalue()


def uri(data: bytes, kind: str = "image/png") -> str:
    """The data URI of it."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A tiny model and its projector."""
    return tiny_gguf.build(tmp_path, template=tiny_gguf.CHATML), tiny_mmproj.build(tmp_path)


@pytest.fixture
async def api(files: tuple[Path, Path]) -> AsyncIterator[InProcess]:
    """A server over a model that sees, which may ask the loopback host by name."""
    model, mmproj = str(files[0]), str(files[1])
    settings = Settings(
        model=(model,), alias=(f"eye={model}",), mmproj=mmproj, threads=1, allow_outbound=("localhost",)
    )
    async with inprocess_app(settings=settings) as made:
        yield made


def asked(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A request with these parts before a question."""
    content = [*parts, {"type": "input_text", "text": "What is it?"}]
    said = [{"role": "user", "content": content}]
    return {"model": "eye", "input": said, "temperature": 0, "max_output_tokens": 12, **more}


async def answer(api: InProcess, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The response to them."""
    found = await api.client.post("/responses", json=asked(*parts, **more))
    assert found.status_code == 200, found.text
    return found.json()


async def error(api: InProcess, *parts: dict[str, Any]) -> dict[str, Any]:
    """The error that refuses them."""
    found = await api.client.post("/responses", json=asked(*parts))
    assert found.status_code == 400, found.text
    return found.json()["error"]


def said(response: dict[str, Any]) -> tuple[str, int]:
    """What depends on the prompt alone: its text at temperature 0 and its input tokens."""
    return response["output_text"], response["usage"]["input_tokens"]


async def uploaded(api: InProcess, name: str, data: bytes) -> str:
    """The id of an uploaded file."""
    found = await api.client.post("/files", data={"purpose": "user_data"}, files={"file": (name, data)})
    assert found.status_code == 200, found.text
    return found.json()["id"]


@requirement("media:image", "api:images")
async def test_an_image_is_the_same_from_data_from_a_url_and_from_a_file(api: InProcess) -> None:
    red, blue = png("red"), png("blue")
    first = await answer(api, {"type": "input_image", "image_url": uri(red)})
    assert said(first) != said(await answer(api, {"type": "input_image", "image_url": uri(blue)}))
    async with receiver("localhost") as server:
        server.answers = [reply(body=red)]
        url = f"http://localhost:{server.port}/red.png"
        from_url = await answer(api, {"type": "input_image", "image_url": url})
        onward = await answer(api, {"type": "input_text", "text": "And?"}, previous_response_id=from_url["id"])
        assert [each.path for each in server.requests] == ["/red.png"]
    from_file = await answer(api, {"type": "input_image", "file_id": await uploaded(api, "red.png", red)})
    assert said(first) == said(from_url) == said(from_file)
    assert onward["usage"]["input_tokens"] > first["usage"]["input_tokens"]


@requirement("media:kept")
async def test_what_a_url_gave_stands_for_it_for_a_time(api: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(media, "time", SimpleNamespace(monotonic=lambda: now))
    async with receiver("localhost") as server:
        server.answers = [reply(body=png("red")), reply(body=png("blue"))]
        part = {"type": "input_image", "image_url": f"http://localhost:{server.port}/now.png"}
        red = said(await answer(api, part))
        now += media.KEPT_SECONDS - 1
        assert said(await answer(api, part)) == red
        assert len(server.requests) == 1
        now += 1
        assert said(await answer(api, part)) != red
        assert len(server.requests) == 2


@requirement("media:chat")
async def test_a_chat_has_the_image_of_a_response(api: InProcess) -> None:
    part = {"type": "image_url", "image_url": {"url": uri(png("red"))}}
    body: dict[str, Any] = {"model": "eye", "temperature": 0, "max_tokens": 12}
    body["messages"] = [{"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}]
    found = (await api.client.post("/chat/completions", json=body)).json()
    whole = await answer(api, {"type": "input_image", "image_url": uri(png("red"))})
    assert (found["choices"][0]["message"]["content"], found["usage"]["prompt_tokens"]) == said(whole)


@requirement("media:document")
async def test_a_document_is_text_to_the_model(api: InProcess) -> None:
    text = b"The lighthouse has 199 steps."
    plain = await answer(api, {"type": "input_text", "text": f"File: a.txt\n\n{text.decode()}"})
    encoded = base64.b64encode(text).decode()
    async with receiver("localhost") as server:
        server.answers = [reply(body=text)]
        forms = [
            {"file_data": encoded, "filename": "a.txt"},
            {"file_data": uri(text, "text/plain"), "filename": "a.txt"},
            {"file_url": f"http://localhost:{server.port}/a.txt"},
            {"file_id": await uploaded(api, "a.txt", text)},
        ]
        for form in forms:
            assert said(await answer(api, {"type": "input_file", **form})) == said(plain), form


@requirement("media:document:any-model")
async def test_a_model_without_eyes_reads_documents_and_no_images(files: tuple[Path, Path]) -> None:
    model = str(files[0])
    async with inprocess_app(settings=Settings(model=(model,), alias=(f"eye={model}",), threads=1)) as api:
        data = base64.b64encode(b"<p>Hello <b>there</b></p>").decode()
        read = await answer(api, {"type": "input_file", "file_data": data, "filename": "a.html"})
        plain = await answer(api, {"type": "input_text", "text": "File: a.html\n\nHello **there**\n"})
        assert said(read) == said(plain)
        refused = await error(api, {"type": "input_image", "image_url": "http://127.0.0.1:1/never.png"})
        assert refused["message"] == "image input is not supported by this model."


@requirement("media:refused")
@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"type": "input_image", "image_url": "data:image/png;base64,%%%"}, "invalid_base64_image"),
        ({"type": "input_image", "image_url": "data:image/png,plain"}, "invalid_base64_image"),
        ({"type": "input_image", "image_url": "data:image/png;base64,"}, "empty_image_file"),
        ({"type": "input_image", "image_url": uri(b"no image at all")}, "unsupported_image_media_type"),
        ({"type": "input_image", "image_url": uri(png("red")[:60])}, "image_parse_error"),
        ({"type": "input_image", "file_id": "file-0"}, "image_file_not_found"),
        ({"type": "input_image", "image_url": "not a url"}, "invalid_image_url"),
        ({"type": "input_file", "file_data": "%%%", "filename": "a.txt"}, "invalid_file_data"),
        ({"type": "input_file", "file_id": "file-0"}, "file_not_found"),
        ({"type": "input_file", "filename": "a.txt"}, "invalid_value"),
        ({"type": "input_file", "file_data": uri(b"\0\1\2" * 99), "filename": "a.bin"}, "unsupported_file"),
    ],
)
async def test_what_cannot_be_read_is_a_400_that_names_its_place(
    api: InProcess, part: dict[str, Any], code: str
) -> None:
    refused = await error(api, {"type": "input_text", "text": "Look:"}, part)
    assert (refused["code"], refused["param"]) == (code, "input[0].content[1]")


@requirement("media:limits")
async def test_sizes_are_held_before_anything_is_decoded(api: InProcess) -> None:
    huge = "A" * (4 * (MAX_IMAGE_BYTES // 3 + 2))
    assert (await error(api, {"type": "input_image", "image_url": "data:image/png;base64," + huge}))["code"] == (
        "image_too_large"
    )
    uploads = await uploaded(api, "huge.png", b"A" * (MAX_IMAGE_BYTES + 1))
    assert (await error(api, {"type": "input_image", "file_id": uploads}))["code"] == "image_too_large"
    many = [{"type": "input_image", "image_url": "http://localhost:1/x.png"}] * (MAX_MEDIA + 1)
    assert (await error(api, *many))["code"] == "array_above_max_length"


@requirement("media:limits")
async def test_all_media_together_are_bounded(api: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    data = png("red")
    monkeypatch.setattr(media, "MAX_TOTAL_BYTES", 2 * len(data))
    image = {"type": "input_image", "image_url": uri(data)}
    assert (await api.client.post("/responses", json=asked(image, image))).status_code == 200
    refused = await error(api, image, {"type": "input_text", "text": "And:"}, image, image)
    assert (refused["code"], refused["param"]) == ("request_too_large", "input[0].content[0]")


@requirement("media:room")
async def test_all_requests_together_hold_so_much_and_no_more(api: InProcess) -> None:
    room = api.service.planner.media._room
    image = {"type": "input_image", "image_url": uri(png("red"))}
    by_file = {"type": "input_image", "file_id": await uploaded(api, "a.png", png("red"))}
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    document = {"type": "input_file", "filename": "a.txt", "file_data": base64.b64encode(b"words").decode()}
    chat = {"type": "image_url", "image_url": {"url": uri(png("red"))}}
    asks = {"messages": [{"role": "user", "content": [chat]}], "model": "eye", "max_completion_tokens": 4}
    for part in (image, by_file, document):
        await answer(api, part)
        assert room.held == 0
    assert (await api.client.post("/chat/completions", json=asks)).status_code == 200
    assert (await api.client.post("/responses/input_tokens", json={**asked(image)})).status_code == 200
    assert (await api.client.post("/responses", json=asked(image, image, sound))).status_code == 400
    assert room.held == 0
    made = await api.client.post("/responses", json=asked(image, image, stream=True))
    assert made.status_code == 200
    assert room.held == 0
    # Room for the bytes, and not for those and what is made of them.
    room.most = 2 * len(png("red"))
    for part in (image, by_file):
        refused = await api.client.post("/responses", json=asked(part, part))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_busy")
        assert room.held == 0
    room.most = len(png("red")) - 1
    refused = await api.client.post("/responses", json=asked(by_file))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_busy")
    assert room.held == 0
    await answer(api, document)
    room.most = len(b"words") - 1
    refused = await api.client.post("/responses", json=asked(document))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_busy")
    assert room.held == 0


@requirement("media:outbound")
@pytest.mark.parametrize("url", DENIED)
async def test_a_url_that_is_not_public_is_refused_unasked(files: tuple[Path, Path], url: str) -> None:
    model, mmproj = str(files[0]), str(files[1])
    settings = Settings(model=(model,), alias=(f"eye={model}",), mmproj=mmproj, threads=1)
    async with inprocess_app(settings=settings) as api, receiver() as listener:
        for place in (url, f"http://127.0.0.1:{listener.port}/a.png"):
            refused = await error(api, {"type": "input_image", "image_url": place})
            assert refused["code"] == "invalid_image_url"
            assert (await error(api, {"type": "input_file", "file_url": place}))["code"] == "invalid_file_url"
        assert listener.connections == 0


@requirement("media:outbound")
async def test_a_download_that_fails_is_a_400(api: InProcess) -> None:
    async with receiver("localhost") as server:
        server.answers = [reply(404), reply(body=b"")]
        part = {"type": "input_image", "image_url": f"http://localhost:{server.port}/a.png"}
        assert (await error(api, part))["code"] == "failed_to_download_image"
        assert (await error(api, part))["code"] == "empty_image_file"
    assert (await error(api, part))["code"] == "failed_to_download_image"


def outcome(output: Any) -> list[dict[str, Any]]:
    """A call, and what its tool gave."""
    return [
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": output},
    ]


@requirement("media:output", "subset:M17")
async def test_a_document_of_a_tool_is_told_as_its_text_also_in_a_chain(api: InProcess) -> None:
    name = await uploaded(api, "note.txt", b"Twelve degrees.")
    parts = [
        [{"type": "input_text", "text": "Found:"}, {"type": "input_file", "file_id": name}],
        [
            {"type": "input_text", "text": "Found:"},
            {"type": "input_file", "filename": "note.txt", "file_data": uri(b"Twelve degrees.", "text/plain")},
        ],
    ]
    plain = await answer(api, input=outcome("Found:\nFile: note.txt\n\nTwelve degrees."))
    onward = {"input": [{"role": "user", "content": "And?"}]}
    after = said(await answer(api, **onward, previous_response_id=plain["id"]))
    for output in parts:
        told = await answer(api, input=outcome(output))
        assert said(told) == said(plain)
        assert said(await answer(api, **onward, previous_response_id=told["id"])) == after


@requirement("media:output", "subset:M17")
async def test_an_image_of_a_tool_is_seen(api: InProcess) -> None:
    seen = [
        said(await answer(api, input=outcome([{"type": "input_image", "image_url": uri(png(color))}])))
        for color in ("red", "blue", "red")
    ]
    assert seen[0] == seen[2] != seen[1]


@requirement("media:output", "media:refused")
async def test_what_cannot_be_read_of_a_tools_output_is_named_by_its_place(api: InProcess) -> None:
    part = {"type": "input_file", "filename": "a.pdf", "file_data": "data:text/plain;base64,%%"}
    found = await api.client.post("/responses", json=asked(input=outcome([{"type": "input_text", "text": "a"}, part])))
    assert found.status_code == 400
    assert found.json()["error"]["param"] == "input[2].output[1]"

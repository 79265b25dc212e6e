"""Files as the OpenAI SDK uploads, lists, reads and deletes them, over a real server."""

from __future__ import annotations

import os
from pathlib import Path

import openai
import pytest

from clients.conftest import Target

requirement = pytest.mark.requirement


@requirement("client:openai:files")
def test_the_family_of_calls(scripted: Target, tmp_path: Path) -> None:
    files = scripted.client.files
    content = os.urandom(700_000)
    path = tmp_path / "blåbær.bin"
    path.write_bytes(content)
    made = files.create(file=path, purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600})
    assert (made.bytes, made.filename, made.purpose) == (len(content), path.name, "user_data")
    assert made.expires_at == made.created_at + 3600
    assert files.wait_for_processing(made.id) == made
    assert files.retrieve(made.id) == made
    assert files.content(made.id).read() == content
    with files.with_streaming_response.content(made.id) as reply:
        reply.stream_to_file(tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == content
    assert files.delete(made.id).deleted
    for call in (files.retrieve, files.content, files.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            call(made.id)
        assert caught.value.code == "not_found"


@requirement("client:openai:files")
def test_the_sdk_lists_and_deletes_as_it_goes(scripted: Target) -> None:
    files = scripted.client.files
    made = [files.create(file=(f"{number}.txt", b"x"), purpose="batch") for number in range(7)]
    listed = [file.id for file in files.list(purpose="batch", order="asc", limit=3)]
    assert listed == [file.id for file in made]
    pages = list(files.list(purpose="batch", limit=3).iter_pages())
    assert [len(page.data) for page in pages] == [3, 3, 1]
    for file in files.list(purpose="batch", limit=2):
        files.delete(file.id)
    assert list(files.list(purpose="batch")) == []


@requirement("client:openai:files")
def test_what_is_wrong_with_an_upload_is_told(scripted: Target) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        scripted.client.files.create(file=b"", purpose="batch")
    assert caught.value.code == "empty_file"
    with pytest.raises(openai.BadRequestError) as caught:
        scripted.client.files.create(file=b"x", purpose="fun")  # type: ignore[arg-type]
    assert caught.value.param == "purpose"


@requirement("client:openai:files")
async def test_the_async_client_uploads_too(async_scripted: openai.AsyncOpenAI) -> None:
    made = await async_scripted.files.create(file=b"bytes", purpose="vision")
    assert (await async_scripted.files.content(made.id)).content == b"bytes"
    assert (await async_scripted.files.delete(made.id)).deleted

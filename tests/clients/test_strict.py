"""The strict reading of the SDK's types notices what it is for."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
from pydantic import ValidationError

from clients.strict import strict_events, strict_response

Change = Callable[[bytes], bytes]


def replaced(old: bytes, new: bytes, count: int = 1) -> Change:
    def change(body: bytes) -> bytes:
        assert old in body
        return body.replace(old, new, count)

    return change


@pytest.mark.requirement("client:openai:strict")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(replaced(b"response.output_text.delta", b"response.output_text.piece", 2), id="unknown event"),
        pytest.param(replaced(b"event: response.created", b"event: response.queued"), id="another name"),
        pytest.param(replaced(b'"logprobs":[],', b""), id="missing field"),
        pytest.param(replaced(b'"content_index":0', b'"content_index":"0"'), id="another type"),
        pytest.param(replaced(b'"sequence_number":3', b'"sequence_number":4'), id="gap"),
        pytest.param(replaced(b'"item_id":"msg_', b'"item_id":"msg_f'), id="another id"),
        pytest.param(replaced(b'"output_index":0', b'"output_index":1'), id="another index"),
        pytest.param(replaced(b'"status":"in_progress"', b'"status":"working"'), id="unknown status"),
        pytest.param(replaced(b'"delta":', b'"extra":1,"delta":'), id="unknown field"),
        pytest.param(replaced(b'"delta":', b'"delta": '), id="spaces"),
        pytest.param(replaced(b"data: [DONE]\n\n", b""), id="no end"),
        pytest.param(replaced(b'"output_text":"1 2"', b'"output_text":"1 3"'), id="another text"),
    ],
)
def test_a_stream_that_is_not_right_is_noticed(scripted_server: str, change: Change) -> None:
    body = {"model": "scripted", "input": "!COUNT 2", "stream": True}
    stream = httpx2.post(f"{scripted_server}/responses", json=body).content
    assert strict_events(stream)
    with pytest.raises((AssertionError, ValidationError, IndexError)):
        strict_events(change(stream))


@pytest.mark.requirement("client:openai:strict")
@pytest.mark.parametrize(
    "change",
    [
        replaced(b'"tools":[],', b""),
        replaced(b'"cache_write_tokens":0', b'"cache_write_token":0'),
        replaced(b'"total_tokens":', b'"total_tokens":1'),
        replaced(b'"annotations":[],', b""),
        replaced(b'"error":null', b'"error":"none"'),
    ],
)
def test_an_object_that_is_not_right_is_noticed(scripted_server: str, change: Change) -> None:
    whole = httpx2.post(f"{scripted_server}/responses", json={"model": "scripted", "input": "!COUNT 2"}).content
    assert strict_response(whole)
    with pytest.raises((AssertionError, ValidationError)):
        strict_response(change(whole))

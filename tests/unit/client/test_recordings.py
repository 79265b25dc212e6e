"""Recorded answers of real endpoints, where a folder of them is named: `NAME.chunks.txt` is a stream, one event a line.

What is expected is what a plain reader of the last event, or of the whole answer, finds in it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from antiphon.client.decode import decode
from antiphon.client.loose import close_brackets
from antiphon.client.stream import StreamDecoder
from antiphon.client.types import Chunk, ContentChunk, MetaChunk, Response, thinking_text

FOLDER = os.environ.get("ANTIPHON_RECORDED_STREAMS", "")
STREAMS = sorted(Path(FOLDER).glob("*.chunks.txt")) if FOLDER else []
WHOLES = sorted(Path(FOLDER).glob("*.json")) if FOLDER else []

pytestmark = [
    pytest.mark.requirement("driver:recordings"),
    pytest.mark.skipif(not FOLDER, reason="ANTIPHON_RECORDED_STREAMS names no folder of recorded streams"),
]

SERVERS = ("web_search_call", "file_search_call", "mcp_call", "image_generation_call")


def read(line: str) -> dict[str, Any]:
    try:
        return json.loads(line)
    except ValueError:
        return json.loads(close_brackets(line))


def expected(body: dict[str, Any], output: list[dict[str, Any]]) -> dict[str, Any]:
    """What a reader finds in an answer."""
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    thoughts = [item for item in output if item["type"] == "reasoning"]
    summaries = [part["text"] for item in thoughts for part in item.get("summary") or []]
    contents = [part["text"] for item in thoughts for part in item.get("content") or []]
    calls = [item for item in output if item["type"].endswith("_call") and item["type"] != "code_interpreter_call"]
    ours = [item for item in calls if item["type"] not in SERVERS and item.get("execution") != "server"]
    usage = body.get("usage") or {}
    finish = "tool_calls" if ours else "stop"
    return {
        "text": "".join(part.get("text") or part.get("refusal") or "" for part in parts),
        "thinking": "\n\n".join([*summaries, *contents]),
        "signatures": [item.get("encrypted_content") for item in thoughts],
        "calls": [(item.get("call_id") or item["id"], item["type"]) for item in calls],
        "arguments": [item["arguments"] for item in calls if item["type"] == "function_call"],
        "annotations": [annotation for part in parts for annotation in part.get("annotations") or []],
        "usage": (
            usage.get("input_tokens", 0),
            usage.get("output_tokens", 0),
            (usage.get("output_tokens_details") or {}).get("reasoning_tokens", 0),
            (usage.get("input_tokens_details") or {}).get("cached_tokens", 0),
        ),
        "finish": "error" if body.get("error") else "length" if body.get("status") == "incomplete" else finish,
        "id": body.get("id"),
        "output": output,
    }


def found(response: Response) -> dict[str, Any]:
    usage = response.usage
    return {
        "text": response.text,
        "thinking": response.thinking,
        "signatures": [detail.signature for detail in response.reasoning_details],
        "calls": [(call.id, call.type) for call in response.tool_calls],
        "arguments": [call.arguments for call in response.tool_calls if call.type == "function_call"],
        "annotations": response.annotations,
        "usage": (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens, usage.cached_tokens),
        "finish": response.finish_reason,
        "id": response.response_id,
        "output": response.output,
    }


@pytest.mark.parametrize("path", STREAMS or [Path("none")], ids=lambda path: path.name)
def test_a_recorded_stream_is_decoded_without_loss(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    answers: list[list[dict[str, Any]]] = []
    decoder = StreamDecoder()
    chunks: list[Chunk] = []
    for line in lines:
        event = read(line)
        if event["type"] == "response.created":
            answers.append([])
        answers[-1].append(event)
        chunks += decoder.feed(line)
    assert decoder.unreadable == 0
    assert len(decoder.responses) == len(answers)
    for events, response in zip(answers, decoder.responses, strict=True):
        body = events[-1]["response"]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert found(response) == expected(body, body["output"] or done)
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, ContentChunk))
    assert text == "".join(response.text for response in decoder.responses)
    assert thinking_text(chunks) == "".join(response.thinking for response in decoder.responses)
    assert sum(isinstance(chunk, MetaChunk) and chunk.terminal for chunk in chunks) == len(answers)


@pytest.mark.parametrize("path", WHOLES or [Path("none")], ids=lambda path: path.name)
def test_a_recorded_answer_is_decoded_without_loss(path: Path) -> None:
    body = json.loads(path.read_bytes())
    assert found(decode(path.read_bytes())) == expected(body, body.get("output", []))

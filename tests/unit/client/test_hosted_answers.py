"""The driver reads hosted items: streamed and whole are one answer, also of calls beside the output."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.client.decode import decode
from antiphon.client.stream import StreamDecoder
from antiphon.machine.assembler import Assembler
from antiphon.machine.deltas import (
    HostedEnd,
    HostedStart,
    ReasoningDelta,
    Stop,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.log import EventLog
from antiphon.protocol.json import encode
from antiphon.protocol.response import Response
from antiphon.protocol.sse import SSEParser
from support.programs import USAGE

KINDS: dict[str, dict[str, Any]] = {
    "search_corpus_call": {"queries": ["q"], "results": None, "error": None},
    "grep_call": {"pattern": "p", "results": [{"chunk_id": "f:0", "text": "t"}]},
    "list_stores_call": {"stores": [{"name": "s"}]},
    "file_search_call": {"queries": ["q"], "results": None},
    "web_search_call": {"action": {"type": "search", "query": "q"}},
    "code_interpreter_call": {"code": "1+1", "container_id": "c", "outputs": [{"type": "logs", "logs": "2"}]},
    "mcp_list_tools": {"server_label": "s", "tools": [{"name": "add", "input_schema": {}}]},
    "mcp_call": {"name": "add", "server_label": "s", "arguments": '{"a":1}', "output": "3", "error": None},
    "mcp_approval_request": {"name": "add", "server_label": "s", "arguments": "{}"},
}
STATELESS = ("mcp_list_tools", "mcp_approval_request")


def deltas_of(number: int, kind: str) -> list[Any]:
    if kind == "text":
        return [TextDelta(f"t{number}")]
    if kind == "thought":
        return [ReasoningDelta(f"r{number}")]
    if kind == "call":
        return [ToolCallStart("f"), ToolCallDelta("{}")]
    body = {"type": kind, "id": f"item_{number}", **KINDS[kind]}
    if kind in STATELESS:
        return [HostedStart(body), HostedEnd(body)]
    status = "failed" if number % 3 == 2 else "completed"
    return [HostedStart({**body, "status": "in_progress"}), HostedEnd({**body, "status": status})]


def answers(program: list[str], *, declared: bool) -> tuple[Any, Any, list[Any]]:
    """The streamed answer, the whole one, and the chunks of the stream."""
    response = Response(id="resp_1", created_at=1, model="m")
    if declared:
        response.hosted_tool_calls = []
    log = EventLog(response)
    log.open()
    assembler = Assembler(log)
    for number, kind in enumerate(program):
        assembler.feed(deltas_of(number, kind))
    assembler.feed([Stop("stop", USAGE)])
    assembler.finish(2)
    decoder = StreamDecoder()
    parsed = SSEParser().feed(b"".join(log.frames))
    chunks = [chunk for event in parsed for chunk in decoder.feed(json.loads(event.data))]
    return decoder.finish(), decode(encode(log.response)), chunks


programs = st.lists(st.sampled_from(["text", "thought", "call", *KINDS]), max_size=6)


@pytest.mark.requirement("hosted:driver")
@settings(max_examples=60)
@given(programs, st.booleans())
@example(["thought", "search_corpus_call", "search_corpus_call", "file_search_call", "text"], True)
def test_a_streamed_answer_is_the_whole_one(program: list[str], declared: bool) -> None:
    streamed, whole, _ = answers(program, declared=declared)
    assert msgspec.to_builtins(streamed) == msgspec.to_builtins(whole)
    assert streamed == whole


@pytest.mark.requirement("hosted:driver")
def test_calls_beside_the_output_are_the_servers_own_calls() -> None:
    _, whole, _ = answers(["search_corpus_call", "text"], declared=True)
    (call,) = whole.tool_calls
    assert (call.type, call.builtin) == ("search_corpus_call", True)
    assert whole.text == "t1"

"""The driver over Antiphon's own streams: random programs, every ending, both dialects."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.decode import decode
from antiphon.client.stream import StreamDecoder
from antiphon.client.types import Chunk, ContentChunk, MetaChunk, ToolCallChunk, thinking_text
from antiphon.machine.deltas import Delta
from antiphon.protocol.sse import SSEParser
from support.programs import endings, programs, run_program

dialects = st.sampled_from(["openai", "openresponses"])


@pytest.mark.requirement("driver:law", "driver:own-streams")
@settings(max_examples=60, deadline=None)
@given(programs, endings, st.booleans(), dialects, st.booleans())
def test_an_antiphon_stream_is_decoded_to_what_the_server_keeps(
    program: list[list[Delta]], ending: str, parallel: bool, dialect: str, whole_parts: bool
) -> None:
    log = run_program(program, ending, parallel=parallel, dialect=dialect, whole_parts=whole_parts)
    decoder = StreamDecoder(provider="antiphon")
    chunks: list[Chunk] = []
    for frame in SSEParser().feed(b"".join(log.frames)):
        chunks += decoder.feed(frame)
    response = decoder.finish()
    assert response == decode(msgspec.json.encode(log.response), provider="antiphon")
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ContentChunk)) == response.text
    assert thinking_text(chunks) == response.thinking
    arguments: dict[int, str] = {}
    for chunk in chunks:
        if isinstance(chunk, ToolCallChunk):
            arguments[chunk.index] = arguments.get(chunk.index, "") + (chunk.arguments or "")
        elif isinstance(chunk, MetaChunk) and chunk.tool_call_args is not None:
            arguments[chunk.tool_call_args.index] += chunk.tool_call_args.fragment
    assert [arguments[index] for index in sorted(arguments)] == [call.arguments for call in response.tool_calls]

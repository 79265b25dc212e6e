"""Server-sent events: the same events however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.sse import DONE, KEEP_ALIVE, ServerSentEvent, SSEError, SSEParser, encode_frame

ENDS = ["\n", "\r", "\r\n"]
fields = st.sampled_from(["data", "event", "id", "retry", ": comment", "unknown"])
values = st.text(alphabet=st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=8)
lines = st.one_of(
    st.just(""),
    st.builds(lambda name, value: f"{name}:{value}", fields, values),
    st.builds(lambda name, value: f"{name}: {value}", fields, values),
    fields,
)
streams = st.lists(st.tuples(lines, st.sampled_from(ENDS)), max_size=20).map(
    lambda parts: "".join(line + end for line, end in parts)
)


def parse(chunks):
    parser = SSEParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.requirement("wire:sse:cuts")
@given(streams, st.lists(st.integers(0, 400), max_size=12))
def test_any_cut_of_the_bytes_gives_the_same_events(stream, cuts):
    data = stream.encode()
    whole = parse([data])
    edges = sorted({0, len(data), *(cut for cut in cuts if cut <= len(data))})
    assert parse([data[a:b] for a, b in zip(edges, edges[1:], strict=False)]) == whole
    assert parse([data[i : i + 1] for i in range(len(data))]) == whole


@pytest.mark.requirement("wire:sse:encode")
@given(st.text(alphabet="abc._", min_size=1, max_size=20), st.binary(max_size=40))
def test_an_encoded_frame_is_parsed_back(name, payload):
    data = payload.hex().encode()
    assert parse([encode_frame(name.encode(), data)]) == [ServerSentEvent(name, data.decode())]


@pytest.mark.requirement("wire:sse:rules")
@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"\xef\xbb\xbfdata: a\n\n", [ServerSentEvent("message", "a")]),
        (b"data: a\ndata: b\n\n", [ServerSentEvent("message", "a\nb")]),
        (b"data:a\r\rdata:b\r\n\r\n", [ServerSentEvent("message", "a"), ServerSentEvent("message", "b")]),
        (b"event: x\n\ndata: a\n\n", [ServerSentEvent("message", "a")]),
        (
            b"id: 7\ndata: a\n\ndata: b\n\n",
            [ServerSentEvent("message", "a", "7"), ServerSentEvent("message", "b", "7")],
        ),
        (b"data\n\n", [ServerSentEvent("message", "")]),
        (b"data: a\n", []),
        (KEEP_ALIVE, []),
        (DONE, [ServerSentEvent("message", "[DONE]")]),
    ],
)
def test_the_rules_of_the_event_stream_format_hold(stream, events):
    assert parse([stream]) == events


@pytest.mark.requirement("wire:sse:bounds")
@pytest.mark.parametrize("line", [b"data: " + b"x" * 2000, b"data: x\n" * 600, b"x" * 2000])
def test_an_event_larger_than_the_limit_is_refused_even_if_its_line_never_ends(line):
    parser = SSEParser(max_event_bytes=1000)
    with pytest.raises(SSEError):
        for start in range(0, len(line), 100):
            parser.feed(line[start : start + 100])


@pytest.mark.requirement("wire:sse:bounds")
def test_a_stream_that_is_not_utf8_is_refused():
    with pytest.raises(SSEError):
        SSEParser().feed(b"data: \xff\n\n")

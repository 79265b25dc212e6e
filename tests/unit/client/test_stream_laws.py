"""Laws of the stream: however it is cut, whatever it leaves out or repeats, its answer is the whole one's."""

from __future__ import annotations

import contextlib
import itertools
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.decode import decode
from antiphon.client.stream import REMEMBERED, StreamDecoder
from antiphon.client.types import (
    BodyError,
    Chunk,
    ContentChunk,
    MetaChunk,
    Response,
    StreamCutError,
    ToolCallChunk,
    thinking_text,
)
from antiphon.protocol.sse import SSEParser
from support.hosted_streams import SCENES, Scene, frames, message

Event = dict[str, Any]

NAMES = st.sampled_from(sorted(SCENES))
TWIN = "twins"
"""Its stream says twice what its answer says once."""


def fed(events: list[Event]) -> tuple[list[Chunk], Response]:
    decoder = StreamDecoder()
    chunks = [chunk for event in events for chunk in decoder.feed(event)]
    return chunks, decoder.finish()


def heard(chunks: list[Chunk]) -> tuple[str, str, list[tuple[str, str, str]]]:
    """Text, thinking and calls as a caller puts them together from the chunks."""
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, ContentChunk))
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        if isinstance(chunk, ToolCallChunk):
            known = calls.setdefault(chunk.index, ["", "", ""])
            known[0], known[1] = chunk.id, chunk.name
            known[2] += chunk.arguments or ""
        elif isinstance(chunk, MetaChunk) and chunk.tool_call_args is not None:
            calls.setdefault(chunk.tool_call_args.index, ["", "", ""])[2] += chunk.tool_call_args.fragment
    found = [(call[0], call[1], call[2]) for _, call in sorted(calls.items())]
    return text, thinking_text(chunks), found


def told(response: Response) -> tuple[str, str, list[tuple[str, str, str]]]:
    return (
        response.text,
        response.thinking,
        [(call.id, call.name, call.arguments) for call in response.tool_calls if call.type != "search_corpus_call"],
    )


def kind(event: Event) -> str:
    return str(event["type"]).rsplit(".", 1)[-1]


def is_text_done(event: Event) -> bool:
    return kind(event) == "done" and not str(event["type"]).startswith("response.output_item")


def bare_end(events: list[Event]) -> list[Event]:
    """The same stream with nothing in the output of its last event."""
    found = deepcopy(events)
    found[-1]["response"]["output"] = []
    return found


@pytest.mark.requirement("driver:law")
@pytest.mark.parametrize("name", SCENES)
def test_the_streamed_answer_is_the_whole_one(name: str) -> None:
    scene = SCENES[name]
    chunks, response = fed(scene.events())
    assert response == decode(msgspec.json.encode(scene.body()))
    assert fed(bare_end(scene.events()))[1] == response
    if name != TWIN:
        assert heard(chunks) == told(response)


@pytest.mark.requirement("driver:law")
@settings(max_examples=40, deadline=None)
@given(st.lists(NAMES.filter(lambda name: SCENES[name].status == "completed"), min_size=2, max_size=4))
def test_answers_of_many_tools_too(names: list[str]) -> None:
    items = [deepcopy(item) for name in names for item in SCENES[name].items]
    for number, item in enumerate(items):
        item["id"] = f"{item['id']}_{number}"
        if item.get("call_id") and item["type"] not in ("shell_call", "shell_call_output"):
            item["call_id"] = f"call_{number}"
        item.pop("phase", None)
    scene = Scene(items, indexes=[3 * number for number in range(len(items))])
    chunks, response = fed(scene.events())
    assert response == decode(scene.body()) == fed(bare_end(scene.events()))[1]
    assert heard(chunks)[0] == response.text
    assert [call[2] for call in heard(chunks)[2]] == [call.arguments for call in response.tool_calls]


@pytest.mark.requirement("driver:cuts")
@settings(max_examples=60, deadline=None)
@given(NAMES, st.lists(st.integers(0, 20_000), max_size=30), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans())
def test_where_the_bytes_are_cut_makes_no_difference(name: str, cuts: list[int], end: bytes, named: bool) -> None:
    events = SCENES[name].events()
    whole = frames(events, named=named, end=end)
    places = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    parser, decoder = SSEParser(), StreamDecoder()
    chunks = [
        chunk
        for start, stop in itertools.pairwise(places)
        for event in parser.feed(whole[start:stop])
        for chunk in decoder.feed(event)
    ]
    assert (chunks, decoder.finish()) == fed(events)


@pytest.mark.requirement("driver:drops")
@settings(max_examples=100, deadline=None)
@given(NAMES, st.data())
def test_whatever_is_missing_the_terminal_event_has_it(name: str, data: st.DataObject) -> None:
    *events, end = SCENES[name].events()
    kept = data.draw(st.lists(st.sampled_from(range(len(events))), unique=True).map(sorted))
    assert fed([*(events[place] for place in kept), end])[1] == decode(SCENES[name].body())


@pytest.mark.requirement("driver:drops")
@settings(max_examples=100, deadline=None)
@given(NAMES.filter(lambda name: name != TWIN), st.data())
def test_missing_events_that_bring_nothing_new_are_not_missed(name: str, data: st.DataObject) -> None:
    events = bare_end(SCENES[name].events())
    told_twice = ("in_progress", "searching", "completed", "generating", "interpreting", "failed")
    spare = [
        place
        for place, event in enumerate(events[:-1])
        if is_text_done(event)
        or str(event["type"]).startswith(("response.content_part", "response.reasoning_summary_part"))
        or (kind(event) in told_twice and "_call." in str(event["type"]))
    ]
    dropped = set(data.draw(st.lists(st.sampled_from(spare), unique=True)) if spare else [])
    chunks, response = fed([event for place, event in enumerate(events) if place not in dropped])
    assert response == decode(SCENES[name].body())
    assert heard(chunks) == told(response)


@pytest.mark.requirement("driver:drops", "driver:S7")
@pytest.mark.parametrize("name", [name for name in SCENES if name != TWIN])
def test_items_without_anything_else_are_enough(name: str) -> None:
    events = [
        event
        for event in bare_end(SCENES[name].events())
        if event["type"] == "response.output_item.done" or "response" in event or event["type"] == "error"
    ]
    chunks, response = fed(events)
    assert response == decode(SCENES[name].body())
    assert heard(chunks) == told(response)


@pytest.mark.requirement("driver:drops")
@pytest.mark.parametrize("name", [name for name in SCENES if name != TWIN])
@pytest.mark.parametrize("end", ["terminal", "bare", "done"])
def test_texts_without_done_items_are_enough(name: str, end: str) -> None:
    scene = SCENES[name]
    streamed = {"message", "reasoning", "function_call", "custom_tool_call"}
    events = [
        event
        for event in bare_end(scene.events())
        if event["type"] != "response.output_item.done" or event["item"]["type"] not in streamed
    ]
    decoder = StreamDecoder()
    chunks = [chunk for event in events[:-1] for chunk in decoder.feed(event)]
    if end == "terminal":
        chunks += decoder.feed(scene.events()[-1])
    elif end == "bare":
        chunks += decoder.feed({"type": events[-1]["type"]})
    elif scene.status == "completed":
        chunks += decoder.feed("[DONE]")
    else:
        return
    response, whole = decoder.finish(), decode(scene.body())
    assert told(response) == told(whole)
    assert heard(chunks) == told(whole)
    assert (response.refusals, response.annotations) == (whole.refusals, whole.annotations)
    if end == "terminal":
        assert response == whole
    if whole.problem is None and scene.reason is None:
        assert response.finish_reason == whole.finish_reason


@pytest.mark.requirement("driver:drops")
@pytest.mark.parametrize("name", [name for name in SCENES if name != TWIN])
def test_the_terminal_event_alone_is_enough(name: str) -> None:
    chunks, response = fed(SCENES[name].events()[-1:])
    assert response == decode(SCENES[name].body())
    assert heard(chunks) == told(response)


@pytest.mark.requirement("driver:duplicates")
@settings(max_examples=60, deadline=None)
@given(NAMES, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=8))
def test_repeated_events_say_nothing_again(name: str, repeats: list[tuple[int, int]]) -> None:
    events = SCENES[name].events()
    repeated = list(enumerate(events))
    for source, place in repeats:
        original = source % len(events)
        earliest = next(at for at, (number, _) in enumerate(repeated) if number == original)
        repeated.insert(earliest + 1 + place % (len(repeated) - earliest), (original, events[original]))
    assert fed([event for _, event in repeated]) == fed(events)


@pytest.mark.requirement("driver:duplicates")
def test_a_long_stream_that_is_sent_again_from_its_start_says_nothing_again() -> None:
    events = Scene([message("wave " * 7000)]).events()
    half = len(events) // 2
    assert half > REMEMBERED / 2
    assert fed([*events[:half], *events]) == fed(events)
    assert fed([*events[:-1], *events]) == fed(events)
    second = Scene([message("So.")], beside={"id": "resp_2"})
    assert fed([*events, *events, *second.events()])[1] == decode(second.body())


@pytest.mark.requirement("driver:duplicates")
@settings(max_examples=40, deadline=None)
@given(NAMES.filter(lambda name: name != TWIN), st.sets(st.integers(0, 60)))
def test_without_numbers_what_is_not_a_delta_may_be_repeated(name: str, repeats: set[int]) -> None:
    events = [
        {key: value for key, value in event.items() if key != "sequence_number"} for event in SCENES[name].events()
    ]
    repeated = [
        event
        for place, event in enumerate(events)
        for _ in range(2 if place in repeats and kind(event) != "delta" else 1)
    ]
    chunks, response = fed(repeated)
    assert response == decode(SCENES[name].body())
    assert heard(chunks) == told(response)
    assert sum(isinstance(chunk, MetaChunk) and chunk.terminal for chunk in chunks) == 1


@pytest.mark.requirement("driver:identity")
@pytest.mark.parametrize("name", [name for name in SCENES if name != TWIN])
@pytest.mark.parametrize(
    "lost", [("item_id",), ("output_index",), ("item_id", "output_index"), ("rotated",), ("zero",)]
)
def test_items_are_told_apart_by_whatever_names_them(name: str, lost: tuple[str, ...]) -> None:
    events = SCENES[name].events()
    for number, event in enumerate(events):
        if lost == ("rotated",):
            if "item_id" in event:
                event["item_id"] = f"other_{number}"
            elif "item" in event:
                event["item"] = {**event["item"], "id": f"other_{number}"}
        elif lost == ("zero",):
            if "output_index" in event and ("item_id" in event or "item" in event):
                event["output_index"] = 0
        else:
            for field in lost:
                event.pop(field, None)
    if lost != ("rotated",):
        assert fed(bare_end(events))[1] == decode(SCENES[name].body())
    chunks, response = fed(events)
    assert response == decode(SCENES[name].body())
    got, expected = heard(chunks), told(response)
    assert got[:2] == expected[:2]
    assert [call[1:] for call in got[2]] == [call[1:] for call in expected[2]]


@pytest.mark.requirement("driver:numbers")
def test_numbers_that_count_nothing_are_not_believed() -> None:
    events = SCENES["text"].events()
    for event in events:
        event["sequence_number"] = 0
    chunks, response = fed(events)
    assert response == decode(SCENES["text"].body())
    assert heard(chunks)[0] == response.text


@pytest.mark.requirement("driver:loose")
def test_half_a_character_waits_for_its_other_half() -> None:
    decoder = StreamDecoder()
    place = '{"type":"response.output_text.delta","output_index":0,"delta":'
    chunks = [*decoder.feed(place + '"a\\ud83c"}'), *decoder.feed(place + '"\\udf0a!"}')]
    assert chunks == [ContentChunk("a"), ContentChunk("🌊!")]


@pytest.mark.requirement("driver:loose")
def test_an_event_without_its_last_brackets_is_read() -> None:
    decoder = StreamDecoder()
    for event in SCENES["calls"].events():
        text = msgspec.json.encode(event)
        decoder.feed(text[:-1] if "response" in event else text)
    assert decoder.unreadable == 0
    assert decoder.finish() == decode(SCENES["calls"].body())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def containers(value: Any) -> list[Any]:
    if not isinstance(value, dict | list):
        return []
    members = value.values() if isinstance(value, dict) else value
    return [value] * bool(value) + [inner for member in members for inner in containers(member)]


def spoil(value: Any, data: st.DataObject) -> None:
    """Put garbage in up to three places of the value."""
    for _ in range(data.draw(st.integers(1, 3))):
        found = containers(value)
        holder = found[data.draw(st.integers(0, len(found) - 1))]
        keys = sorted(holder) if isinstance(holder, dict) else range(len(holder))
        holder[keys[data.draw(st.integers(0, len(keys) - 1))]] = data.draw(JSON)


@pytest.mark.requirement("driver:garbage")
@settings(max_examples=60, deadline=None)
@given(NAMES, st.data())
def test_no_answer_however_spoiled_is_a_crash(name: str, data: st.DataObject) -> None:
    decoder = StreamDecoder(schema={"type": "object"}, repair_json=True)
    events = SCENES[name].events()
    spoil(events, data)
    for event in events:
        for chunk in decoder.feed(msgspec.json.encode(event)):
            msgspec.json.encode(chunk)
    try:
        msgspec.json.encode(decoder.finish())
    except StreamCutError:
        assert not decoder.responses
    body = SCENES[name].body()
    spoil(body, data)
    with contextlib.suppress(BodyError):
        decode(msgspec.json.encode(body), schema={})

"""The laws of the log, over random programs of deltas."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.machine.deltas import PatchStart, RawItemDelta, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta
from antiphon.machine.fold import fold
from antiphon.machine.transitions import IllegalTransitionError, Transitions
from antiphon.protocol import events as e
from antiphon.protocol.events import RawEvent, decode_event
from antiphon.protocol.json import encode, loads
from antiphon.protocol.sse import encode_frame
from support.programs import endings, events_of, programs, run_program

DELTAS = (
    e.AnnotationAdded,
    e.ReasoningSummaryTextDelta,
    e.OutputTextDelta,
    e.RefusalDelta,
    e.ReasoningTextDelta,
    e.FunctionCallArgumentsDelta,
    e.CustomToolCallInputDelta,
    e.ShellCommandDelta,
    e.ApplyPatchDiffDelta,
)
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


def body(frame: bytes) -> dict[str, Any]:
    return loads(frame.split(b"\ndata: ", 1)[1])


@pytest.mark.requirement("law:1:fold")
@given(programs, endings, st.booleans(), st.booleans())
def test_the_fold_of_all_events_is_the_object_of_the_terminal_event(program, ending, parallel, whole_parts):
    log = run_program(program, ending, parallel=parallel, whole_parts=whole_parts)
    events = events_of(log.frames)
    terminal = events[-1]
    assert isinstance(terminal, e.TERMINAL_EVENTS)
    assert encode(fold(events)) == encode(terminal.response) == encode(log.response)


@pytest.mark.requirement("law:1:prefix")
@given(programs, endings, st.data())
def test_the_fold_of_a_prefix_is_the_snapshot_that_was_true_there(program, ending, data):
    log = run_program(program, ending)
    cut = data.draw(st.integers(1, len(log.frames)))
    snapshot = fold(events_of(log.frames[:cut]))
    said = "".join(
        event["delta"] for event in map(body, log.frames[:cut]) if event["type"] == "response.output_text.delta"
    )
    held = "".join(
        part.text
        for item in snapshot.output
        if not isinstance(item, dict) and item.__struct_config__.tag == "message"
        for part in item.content
        if part.__struct_config__.tag == "output_text"
    )
    assert held == said


@pytest.mark.requirement("law:2:frames")
@given(programs, endings)
def test_each_event_is_one_frame_named_by_its_type_and_numbered_without_gaps(program, ending):
    log = run_program(program, ending)
    for number, frame in enumerate(log.frames):
        assert frame.endswith(b"\n\n")
        assert frame.count(b"\n") == 3
        event = body(frame)
        assert frame.startswith(b"event: " + event["type"].encode() + b"\ndata: ")
        assert event["sequence_number"] == number


@pytest.mark.requirement("law:2:frames")
@given(programs, endings, st.booleans(), st.sampled_from(["openai", "openresponses"]))
def test_every_frame_is_the_encoding_of_its_event(program, ending, logprobs, dialect):
    for frame in run_program(program, ending, logprobs=logprobs, dialect=dialect).frames:
        name, data = frame.removeprefix(b"event: ").removesuffix(b"\n\n").split(b"\ndata: ", 1)
        event = decode_event(data.replace(b"response.reasoning.", b"response.reasoning_text."))
        if not isinstance(event, RawEvent):
            ours = encode(event).replace(event.TYPE.encode(), name, 1)
            assert encode_frame(name, ours) == frame


@pytest.mark.requirement("machine:lifecycle")
@given(programs, endings)
def test_a_log_begins_with_created_and_in_progress_and_has_one_terminal_event_at_its_end(program, ending):
    types = [body(frame)["type"] for frame in run_program(program, ending).frames]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert [kind for kind in types if kind in TERMINAL] == [types[-1]]
    assert ("error" in types) == (ending == "fail")
    if ending == "fail":
        assert types[-2:] == ["error", "response.failed"]


@pytest.mark.requirement("machine:ids", "machine:indexes")
@given(programs, endings)
def test_an_item_keeps_one_id_for_life_and_output_indexes_are_dense(program, ending):
    log = run_program(program, ending)
    added: dict[int, str] = {}
    for event in map(body, log.frames):
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == len(added)
            added[event["output_index"]] = event["item"]["id"]
        elif "item_id" in event:
            assert event["item_id"] == added[event["output_index"]]
        elif event["type"] == "response.output_item.done":
            assert event["item"]["id"] == added[event["output_index"]]
    final = body(log.frames[-1])["response"]["output"]
    assert [item["id"] for item in final] == list(added.values())
    assert len(set(added.values())) == len(added)


@pytest.mark.requirement("machine:nothing-lost")
@given(programs, st.sampled_from(["stop", "length"]))
def test_no_text_thinking_or_refusal_is_lost_or_moved_to_another_kind(program, ending):
    flat = [delta for batch in program for delta in batch]
    output = body(run_program(program, ending).frames[-1])["response"]["output"]
    for kind, read in (
        (TextDelta, lambda item, part: part["text"] if part["type"] == "output_text" else ""),
        (RefusalDelta, lambda item, part: part["refusal"] if part["type"] == "refusal" else ""),
        (ReasoningDelta, lambda item, part: part["text"] if part["type"] == "reasoning_text" else ""),
    ):
        sent = "".join(delta.text for delta in flat if isinstance(delta, kind))
        got = "".join(read(item, part) for item in output for part in item.get("content") or [])
        assert got == sent
    assert sum(item["type"] == "file_search_call" for item in output) == sum(
        isinstance(delta, RawItemDelta) for delta in flat
    )


@pytest.mark.requirement("machine:cut")
@given(programs, st.sampled_from(["length", "fail", "cancel"]))
def test_an_early_end_closes_what_is_open_as_incomplete_and_only_the_last_item(program, ending):
    log = run_program(program, ending)
    response = body(log.frames[-1])["response"]
    assert response["status"] == {"length": "incomplete", "fail": "failed", "cancel": "cancelled"}[ending]
    assert all(item["status"] == "completed" for item in response["output"][:-1])
    assert response["completed_at"] is None
    expected = {"reason": "max_output_tokens"} if ending == "length" else None
    assert response["incomplete_details"] == expected


@pytest.mark.requirement("machine:transitions")
@given(programs, endings, st.data())
def test_an_event_out_of_place_is_refused(program, ending, data):
    log = run_program(program, ending)
    events = events_of(log.frames)
    structural = [
        index
        for index, event in enumerate(events[:-1])
        if type(event) not in DELTAS
        and not isinstance(event, e.ErrorEvent | e.ResponseInProgress)
        # Not every log tells of diffs: only one that has begun must be whole.
        and not (isinstance(event, e.ApplyPatchDiffDone) and not isinstance(events[index - 1], e.ApplyPatchDiffDelta))
    ]
    dropped = data.draw(st.sampled_from(structural))
    transitions = Transitions()
    with pytest.raises(IllegalTransitionError):
        for event in events[:dropped] + events[dropped + 1 :]:
            transitions.move(event)


@pytest.mark.requirement("machine:transitions")
@pytest.mark.parametrize("diff", ["", "@@"])
def test_a_diff_that_was_begun_is_whole_before_its_call_ends(diff):
    log = run_program([[PatchStart("create_file", "a"), *([ToolCallDelta(diff)] if diff else [])]], "stop")
    events = [event for event in events_of(log.frames) if not isinstance(event, e.ApplyPatchDiffDone)]
    transitions = Transitions()
    if not diff:
        for event in events:
            transitions.move(event)
        return
    with pytest.raises(IllegalTransitionError, match="OutputItemDone while the item is patch diff"):
        for event in events:
            transitions.move(event)


@pytest.mark.requirement("machine:transitions")
@given(programs, endings)
def test_nothing_comes_after_the_terminal_event(program, ending):
    log = run_program(program, ending)
    before = list(log.frames)
    for event in events_of(log.frames):
        with pytest.raises(IllegalTransitionError):
            log.append(event)
    assert log.frames == before
    assert log.ended


@pytest.mark.requirement("machine:parallel")
@given(programs)
def test_only_the_first_call_passes_where_parallel_calls_are_off(program):
    output = body(run_program(program, "stop", parallel=False).frames[-1])["response"]["output"]
    calls = [item for item in output if item["type"].endswith("_call") and item["type"] != "file_search_call"]
    assert len(calls) <= 1


@pytest.mark.requirement("machine:logprobs")
@given(programs, st.booleans())
def test_logprobs_are_there_only_when_asked_for_and_have_bytes_only_in_parts(program, wanted):
    log = run_program(program, "stop", logprobs=wanted)
    for event in map(body, log.frames):
        if event["type"] in ("response.output_text.delta", "response.output_text.done"):
            assert wanted or event["logprobs"] == []
            assert all("bytes" not in entry for entry in event["logprobs"])
        if event["type"] == "response.content_part.done" and event["part"]["type"] == "output_text":
            assert wanted or event["part"]["logprobs"] == []
            assert all("bytes" in entry for entry in event["part"]["logprobs"])


@pytest.mark.requirement("machine:whole-parts")
@given(programs, endings, st.booleans())
def test_an_answer_in_whole_parts_is_the_same_with_one_delta_a_part_at_most(program, ending, logprobs):
    streamed = run_program(program, ending, logprobs=logprobs)
    whole = run_program(program, ending, logprobs=logprobs, whole_parts=True)
    deltas = [event for event in events_of(whole.frames) if isinstance(event, DELTAS) and hasattr(event, "delta")]
    indexes = ("content_index", "command_index", "summary_index")
    places = [(delta.output_index, *(getattr(delta, index, None) for index in indexes)) for delta in deltas]
    assert len(places) == len(set(places))
    strip = re.compile(rb'"(?:id|call_id)":"[a-z]+_[0-9a-f]{44}"')
    assert strip.sub(b"", encode(whole.response)) == strip.sub(b"", encode(streamed.response))


@pytest.mark.requirement("wire:dialect")
@given(programs, endings)
def test_the_open_responses_dialect_renames_only_the_raw_reasoning_events(program, ending):
    ours = [body(frame)["type"] for frame in run_program(program, ending).frames]
    theirs = [
        (frame.split(b"\n", 1)[0].decode().removeprefix("event: "), body(frame)["type"])
        for frame in run_program(program, ending, dialect="openresponses").frames
    ]
    assert all(name == kind for name, kind in theirs)
    assert [kind.replace("reasoning_text", "reasoning") for kind in ours] == [kind for _, kind in theirs]

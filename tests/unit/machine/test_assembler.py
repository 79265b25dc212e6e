"""Golden sequences of the assembler: the event orders that clients rely on."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from antiphon.machine.assembler import Assembler
from antiphon.machine.deltas import (
    AnnotationDelta,
    MessageStart,
    ReasoningDelta,
    RefusalDelta,
    Stop,
    SummaryDelta,
    TextDelta,
    ThoughtEnd,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.log import EventLog
from antiphon.machine.transitions import IllegalTransitionError
from antiphon.protocol import events as e
from antiphon.protocol.json import encode
from antiphon.protocol.response import Response, ResponseError
from support.programs import USAGE, events_of, run_program


def types(deltas, ending="stop"):
    return [event.TYPE.removeprefix("response.") for event in events_of(run_program([deltas], ending).frames)]


@pytest.mark.requirement("subset:M38", "machine:order")
def test_thinking_then_text_then_a_call_come_in_the_order_that_clients_expect():
    program = [
        ReasoningDelta("hm"),
        TextDelta("a"),
        TextDelta("b"),
        ToolCallStart("f"),
        ToolCallDelta("{"),
        ToolCallDelta("}"),
    ]
    assert types(program) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


@pytest.mark.requirement("machine:order")
def test_a_refusal_after_text_is_a_second_part_of_the_same_message():
    log = run_program([[TextDelta("a"), RefusalDelta("no")]], "stop")
    (message,) = log.response.output
    assert [part.__struct_config__.tag for part in message.content] == ["output_text", "refusal"]


@pytest.mark.requirement("subset:M24", "machine:cut")
@pytest.mark.parametrize(
    "program",
    [
        [TextDelta("cut")],
        [ReasoningDelta("cut")],
        [ToolCallStart("f"), ToolCallDelta('{"a')],
        [ToolCallStart("f", custom=True), ToolCallDelta("cut")],
        [],
    ],
)
def test_the_token_limit_gives_incomplete_also_inside_thinking_and_calls(program):
    log = run_program([program], "length")
    assert log.response.status == "incomplete"
    assert log.response.output[-1].status == "incomplete"
    assert log.response.incomplete_details.reason == "max_output_tokens"
    assert log.frames[-1].startswith(b"event: response.incomplete\n")


@pytest.mark.requirement("machine:content-filter")
@pytest.mark.parametrize("program", [[TextDelta("cut")], [ToolCallStart("f"), ToolCallDelta('{"a')], []])
def test_what_a_filter_cut_is_incomplete_for_that_reason(program):
    log = run_program([program], "content_filter")
    assert log.response.status == "incomplete"
    assert log.response.output[-1].status == "incomplete"
    assert log.response.incomplete_details.reason == "content_filter"


@pytest.mark.requirement("machine:empty-answer")
def test_a_turn_without_any_output_is_a_message_with_empty_text():
    log = run_program([], "stop")
    (message,) = log.response.output
    assert message.content[0].text == ""
    assert log.response.output_text == ""


@pytest.mark.requirement("machine:empty-arguments")
def test_a_call_without_arguments_gets_an_empty_object():
    log = run_program([[ToolCallStart("f")]], "stop")
    assert log.response.output[0].arguments == "{}"


@pytest.mark.requirement("machine:usage")
def test_usage_adds_up_and_keeps_cached_and_reasoning_tokens():
    usage = run_program([[TextDelta("a")]], "stop").response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 11, 18)
    assert usage.input_tokens_details.cached_tokens == USAGE.cached_tokens
    assert usage.output_tokens_details.reasoning_tokens == USAGE.reasoning_tokens


@pytest.mark.requirement("machine:error-shapes")
def test_a_fault_is_told_in_both_shapes_of_the_error_event_and_then_as_failed():
    error, failed = events_of(run_program([[TextDelta("a")]], "fail").frames)[-2:]
    assert isinstance(error, e.ErrorEvent)
    assert (error.code, error.message) == ("server_error", "It broke.")
    assert error.error == {"type": "server_error", "code": "server_error", "message": "It broke.", "param": None}
    assert isinstance(failed, e.ResponseFailed)
    assert failed.response.error == ResponseError("server_error", "It broke.")


@pytest.mark.requirement("machine:retract")
@pytest.mark.parametrize("ending", ["stop", "length", "fail", "cancel"])
def test_an_end_that_could_not_be_stored_is_taken_back_and_becomes_failed(ending):
    log = run_program([[TextDelta("a")]], ending)
    log.retract_end()
    assert not log.ended
    log.fail(ResponseError("service_unavailable", "The disk is full."))
    types_ = [event.TYPE for event in events_of(log.frames)]
    assert types_[-2:] == ["error", "response.failed"]
    assert types_.count("error") == 1
    assert log.response.incomplete_details is None


@pytest.mark.requirement("machine:queued")
def test_a_queued_response_is_created_queued_and_then_in_progress():
    log = EventLog(Response(id="resp_x", created_at=1, model="m"))
    log.open(queued=True)
    log.start()
    assert [(event.TYPE.removeprefix("response."), event.response.status) for event in events_of(log.frames)] == [
        ("created", "queued"),
        ("queued", "queued"),
        ("in_progress", "in_progress"),
    ]
    with pytest.raises(IllegalTransitionError):
        log.start()


@pytest.mark.requirement("machine:queued", "machine:retract")
@pytest.mark.parametrize("ending", ["fail", "cancel", "steer"])
def test_a_queued_response_can_end_and_its_end_can_be_taken_back(ending):
    log = EventLog(Response(id="resp_x", created_at=1, model="m"))
    log.open(queued=True)
    before = list(log.frames)
    assembler = Assembler(log)
    arguments = (ResponseError("server_error", "It broke."),) if ending == "fail" else ()
    getattr(assembler, ending)(*arguments)
    statuses = {"fail": "failed", "cancel": "cancelled", "steer": "incomplete"}
    assert events_of(log.frames)[-1].response.status == statuses[ending]
    log.retract_end()
    assert (log.frames, log.ended, log.response.status) == (before, False, "queued")
    log.start()
    assert encode(events_of(log.frames)[-1].response) == encode(Response(id="resp_x", created_at=1, model="m"))


@pytest.mark.requirement("machine:steer")
def test_a_steered_response_ends_as_incomplete_with_what_it_has():
    log = EventLog(Response(id="resp_x", created_at=1, model="m"))
    log.open()
    assembler = Assembler(log, input_tokens=7)
    assembler.feed([ReasoningDelta("hm"), TextDelta("a")])
    assembler.steer()
    final = events_of(log.frames)[-1]
    assert isinstance(final, e.ResponseIncomplete)
    assert (final.response.status, final.response.incomplete_details.reason) == ("incomplete", "steered")
    assert [item.status for item in final.response.output] == ["completed", "incomplete"]
    assert (final.response.usage.input_tokens, final.response.usage.output_tokens) == (7, 2)


@pytest.mark.requirement("machine:seal")
@pytest.mark.parametrize("whole_parts", [False, True])
def test_thinking_is_sealed_when_it_closes(whole_parts):
    log = EventLog(Response(id="resp_x", created_at=1, model="m"))
    log.open()
    assembler = Assembler(log, whole_parts=whole_parts, seal=lambda text: f"sealed {text}")
    assembler.feed([ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("a")])
    assembler.cancel()
    items = [(type(event), event.item) for event in events_of(log.frames) if hasattr(event, "item")]
    assert [item.encrypted_content for _, item in items[:2]] == [UNSET, "sealed hm"]
    assert log.response.output[0].encrypted_content == "sealed hm"
    assert not hasattr(log.response.output[1], "encrypted_content")


@pytest.mark.requirement("machine:transitions")
def test_a_turn_that_has_not_stopped_cannot_be_finished():
    log = EventLog(Response(id="resp_x", created_at=1, model="m"))
    log.open()
    assembler = Assembler(log)
    assembler.feed([TextDelta("a")])
    with pytest.raises(LookupError):
        assembler.finish(1)
    with pytest.raises(IllegalTransitionError):
        log.complete(None, 1)
    assert assembler.feed([Stop("stop", USAGE)])


@pytest.mark.requirement("machine:snapshot")
def test_created_and_in_progress_show_the_response_as_it_was_then():
    first, second, *_ = events_of(run_program([[TextDelta("a")]], "stop").frames)
    for event in (first, second):
        assert event.response.status == "in_progress"
        assert event.response.output == []
        assert event.response.usage is None


@pytest.mark.requirement("machine:native")
def test_summaries_seals_phases_and_citations_stand_where_they_belong():
    program = [
        ReasoningDelta("hm"),
        SummaryDelta("a"),
        SummaryDelta("b"),
        SummaryDelta("c", begins=True),
        ThoughtEnd("blob"),
        SummaryDelta("d"),
        MessageStart("commentary"),
        TextDelta("x"),
        AnnotationDelta({"type": "url_citation", "url": "u"}),
        MessageStart(),
        TextDelta("y"),
    ]
    log = run_program([program], "stop")
    first, second, said, more = log.response.output
    assert [part.text for part in first.content] == ["hm"]
    assert [part.text for part in first.summary] == ["ab", "c"]
    assert first.encrypted_content == "blob"
    assert ([part.text for part in second.summary], second.encrypted_content) == (["d"], UNSET)
    assert (said.phase, said.content[0].annotations) == ("commentary", [{"type": "url_citation", "url": "u"}])
    assert (more.phase, more.content[0].text, more.content[0].annotations) == (UNSET, "y", [])
    assert types(program)[3:17] == [
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    whole = run_program([program], "stop", whole_parts=True)
    assert encode(whole.response.output).count(b'"text":"ab"') == 1

"""A log restored from its events goes on as if nothing had happened, and a turn run again says nothing twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from antiphon.errors import DivergedError
from antiphon.machine.assembler import Assembler
from antiphon.machine.deltas import (
    AnnotationDelta,
    Delta,
    MessageStart,
    PatchStart,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    ShellLimits,
    ShellStart,
    Stop,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.log import EventLog
from antiphon.machine.opening import open_response
from antiphon.machine.restore import FrameFold, Restored, fold_frames, restore
from antiphon.machine.suppressor import Suppressor, segments_of
from antiphon.machine.transitions import IllegalTransitionError
from antiphon.protocol.parts import Logprob
from antiphon.protocol.request import decode_create_response
from antiphon.protocol.response import Response, ResponseError
from support.programs import USAGE, endings, events_of, programs

dialects = st.sampled_from(["openai", "openresponses"])


class Ids:
    """Ids in a known order: those after a cut are the same whoever draws them."""

    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self, prefix: str) -> str:
        self.drawn += 1
        return f"{prefix}_{self.drawn}"


@contextmanager
def drawing(ids: Ids) -> Iterator[None]:
    """Ids of the assembler come from there."""
    with (
        mock.patch("antiphon.machine.assembler.new_id", ids),
        mock.patch("antiphon.machine.callitems.new_id", ids),
        mock.patch("antiphon.machine.opened.new_id", ids),
    ):
        yield


def opened(dialect: str, queued: bool, diffs: bool = True) -> EventLog:
    log = EventLog(Response(id="resp_test", created_at=1, model="m"), dialect, diffs=diffs)
    log.open(queued)
    if queued:
        log.start()
    return log


def end(assembler: Assembler, ending: str) -> None:
    if ending == "fail":
        assembler.fail(ResponseError("server_error", "It broke."))
    elif ending == "cancel":
        assembler.cancel()
    elif ending == "steer":
        assembler.steer()
    else:
        assembler.feed([Stop(ending, USAGE)])
        assembler.finish(2)


@given(
    programs,
    st.one_of(endings, st.just("steer")),
    dialects,
    st.fixed_dictionaries({"logprobs": st.booleans(), "parallel_tool_calls": st.booleans()}),
    st.booleans(),
    st.booleans(),
    st.data(),
)
@pytest.mark.requirement("resume:restore")
def test_a_restored_log_goes_on_byte_for_byte(program, ending, dialect, options, queued, diffs, data) -> None:
    options = {**options, "input_tokens": 7, "seal": lambda text: f"sealed {len(text)}"}
    ids = Ids()
    with drawing(ids):
        log = opened(dialect, queued, diffs)
        assembler = Assembler(log, **options)
        boundaries = [(len(log.frames), ids.drawn)]
        for batch in program:
            assembler.feed(batch)
            boundaries.append((len(log.frames), ids.drawn))
        end(assembler, ending)
        cut = data.draw(st.integers(0, len(program)))
        # Without events of their own, diffs are known again only from a turn that is run again.
        assume(diffs or not any(isinstance(delta, PatchStart) for delta in pieces(program[:cut])))
        # What is said of a message before it begins is in no event either.
        assume(not announced(program[:cut]))
        count, ids.drawn = boundaries[cut]
        restored = restore(log.frames[:count], dialect, diffs=diffs, **options)
        assert restored.log.frames == log.frames[:count]
        # They only show at the end of their call; a turn that is run again says them again.
        restored.assembler.feed(last_limits(program[:cut]))
        for batch in program[cut:]:
            restored.assembler.feed(batch)
        end(restored.assembler, ending)
    assert restored.log.frames == log.frames
    assert msgspec.json.encode(restored.log.snapshot()) == msgspec.json.encode(log.snapshot())


@given(programs, endings, st.data())
@pytest.mark.requirement("replay:fold")
def test_a_log_folds_the_same_some_frames_at_a_time(program, ending, data) -> None:
    log = opened("openai", queued=True)
    assembler = Assembler(log)
    raw = {"type": "odd_call", "odd": [1.0, None], "id": "odd_1"}
    assembler.feed([RawItemDelta(raw)])
    begun = len(log.frames)
    for batch in program:
        assembler.feed(batch)
    end(assembler, ending)
    frames = log.frames[: data.draw(st.integers(begun, len(log.frames)))]
    fold, taken = FrameFold(), 0
    assert fold.empty
    while taken < len(frames):
        count = data.draw(st.integers(1, 5))
        fold.take(frames[taken : taken + count])
        taken += count
    assert not fold.empty
    assert msgspec.json.encode(fold.response()) == msgspec.json.encode(fold_frames(frames))


@pytest.mark.requirement("resume:restore")
@pytest.mark.parametrize("queued", [False, True])
def test_the_lifecycle_before_the_first_item_is_restored_too(queued) -> None:
    request = decode_create_response(
        b'{"model": "m", "input": "Hi", "tools": [{"type": "function", "name": "f"}], "temperature": 0,'
        b' "metadata": {"a": "b"}, "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},'
        b' "reasoning": {"effort": "low"}, "background": %s}' % (b"true" if queued else b"false")
    )
    log = EventLog(open_response(request, stored=True, response_id="resp_x", model="m", created_at=1))
    log.open(queued)
    whole = list(log.frames)
    restored = restore(whole)
    if queued:
        assert [event.response.status for event in events_of(whole)] == ["queued", "queued"]
        assert restored.log.snapshot().status == "queued"
        log.start()
        restored.log.start()
    for one in (log, restored.log):
        assert one.snapshot().status == "in_progress"
        Assembler(one).cancel()
    assert restored.log.frames == log.frames


@pytest.mark.requirement("resume:restore")
def test_frames_that_nothing_can_go_on_from_are_refused() -> None:
    log = opened("openai", queued=False)
    assembler = Assembler(log)
    assembler.feed([TextDelta("a"), ToolCallStart("f"), ToolCallDelta("{}"), RawItemDelta({"type": "x"})])
    assembler.feed([Stop("stop", USAGE)])
    assembler.finish(2)
    refused = {count for count in range(len(log.frames) + 1) if not _can_be_restored(log.frames[:count])}
    names = ["", *(frame.split(b"\n", 1)[0].removeprefix(b"event: ").decode() for frame in log.frames)]
    assert {names[count] for count in refused} == {
        "",
        "response.output_item.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.function_call_arguments.done",
        "response.completed",
    }
    with pytest.raises(ValueError, match="event 2 is missing"):
        restore(log.frames[:2] + log.frames[3:5])
    with pytest.raises(IllegalTransitionError):
        restore([log.frames[0], log.frames[2].replace(b'"sequence_number":2', b'"sequence_number":1')])
    with pytest.raises(ValueError, match="no frame"):
        restore([b": keep-alive\n\n"])


def _can_be_restored(frames: Sequence[bytes]) -> bool:
    try:
        restore(frames)
    except ValueError:
        return False
    return True


@pytest.mark.requirement("resume:restore")
def test_a_call_begins_open_and_an_item_that_is_whole_at_once_stays_the_object_it_was() -> None:
    log = opened("openai", queued=False)
    raw = {"type": "message", "odd": [1.0, 10**30, None], "id": "msg_1"}
    assembler = Assembler(log)
    assembler.feed([RawItemDelta(raw), ToolCallStart("f", custom=True, namespace="ns")])
    restored = restore(log.frames)
    assert restored.log.snapshot().output[0] == raw
    restored.assembler.feed([ToolCallDelta("now")])
    restored.assembler.cancel()
    assert restored.log.snapshot().output[1].input == "now"


def pieces(program: Sequence[Sequence[Delta]]) -> Iterator[Delta]:
    yield from itertools.chain.from_iterable(program)


def announced(program: Sequence[Sequence[Delta]]) -> bool:
    """Whether something was said of a message that has not begun."""
    waits = False
    for delta in pieces(program):
        if isinstance(delta, MessageStart):
            waits = delta.phase is not None
        elif isinstance(delta, TextDelta | RefusalDelta) and (delta.text or getattr(delta, "logprobs", None)):
            waits = False
    return waits


def last_limits(program: Sequence[Sequence[Delta]]) -> list[Delta]:
    """The limits of the last call of a shell, if it has any."""
    found: list[Delta] = []
    for delta in pieces(program):
        if isinstance(delta, ShellStart | ShellLimits):
            found = [delta] if isinstance(delta, ShellLimits) else []
    return found


def recut(delta: Delta, data: st.DataObject) -> list[Delta]:
    """The same delta in one or two parts; log probabilities go with the second."""
    if isinstance(delta, TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta) and len(delta.text) > 1:
        place = data.draw(st.integers(0, len(delta.text) - 1))
        if place:
            rest = TextDelta(delta.text[place:], delta.logprobs) if isinstance(delta, TextDelta) else None
            return [type(delta)(delta.text[:place]), rest or type(delta)(delta.text[place:])]
    return [delta]


def run_again(restored: Restored, deltas: Sequence[Delta], *, first_item: int = 0) -> list[Delta]:
    suppressor = restored.suppressor(first_item)
    fresh: list[Delta] = []
    for delta in deltas:
        some = suppressor.feed([delta])
        fresh += some
        restored.assembler.feed(some)
    return fresh


@given(programs, st.sampled_from(["stop", "length"]), dialects, st.booleans(), st.data())
@pytest.mark.requirement("resume:suppress")
def test_a_turn_run_again_adds_only_what_is_new_however_it_is_cut(program, ending, dialect, parallel, data) -> None:
    ids = Ids()
    with drawing(ids):
        log = opened(dialect, queued=False)
        assembler = Assembler(log, parallel_tool_calls=parallel)
        boundaries = [(len(log.frames), ids.drawn)]
        for delta in pieces(program):
            assembler.feed([delta])
            boundaries.append((len(log.frames), ids.drawn))
        end(assembler, ending)
        count, ids.drawn = data.draw(st.sampled_from(boundaries))
        restored = restore(log.frames[:count], dialect, parallel_tool_calls=parallel)
        again = [part for delta in pieces(program) for part in recut(delta, data)]
        run_again(restored, [*again, Stop(ending, USAGE)])
        assert restored.log.frames[:count] == log.frames[:count]
        restored.assembler.finish(2)
    assert msgspec.json.encode(restored.log.snapshot()) == msgspec.json.encode(log.snapshot())


@given(programs, st.booleans(), st.booleans(), st.data())
@pytest.mark.requirement("resume:suppress")
def test_a_turn_run_again_as_it_was_gives_the_log_that_it_would_have_had(program, parallel, logprobs, data) -> None:
    ids = Ids()
    options = {"parallel_tool_calls": parallel, "logprobs": logprobs}
    with drawing(ids):
        log = opened("openai", queued=False)
        assembler = Assembler(log, **options)
        boundaries = [(len(log.frames), ids.drawn)]
        for batch in program:
            assembler.feed(batch)
            boundaries.append((len(log.frames), ids.drawn))
        end(assembler, "stop")
        count, ids.drawn = data.draw(st.sampled_from(boundaries))
        restored = restore(log.frames[:count], **options)
        run_again(restored, [*pieces(program), Stop("stop", USAGE)])
        restored.assembler.finish(2)
    assert msgspec.json.encode(restored.log.snapshot().output) == msgspec.json.encode(log.snapshot().output)


def held_log(deltas: Sequence[Delta]) -> Restored:
    log = opened("openai", queued=False)
    Assembler(log, logprobs=True).feed(deltas)
    return restore(log.frames, logprobs=True)


TURN: list[Delta] = [
    ReasoningDelta("think"),
    TextDelta("text"),
    RefusalDelta("no"),
    ToolCallStart("f", namespace="ns"),
    ToolCallDelta('{"a":1}'),
    RawItemDelta({"type": "x", "n": 1}),
    ToolCallStart("c", custom=True),
    ToolCallDelta("input"),
]


@pytest.mark.requirement("resume:diverged")
@pytest.mark.parametrize(
    ("place", "other"),
    [
        (0, ReasoningDelta("thank")),
        (0, ReasoningDelta("thinking")),
        (0, ReasoningDelta("thin")),
        (0, TextDelta("think")),
        (1, TextDelta("texts")),
        (1, RefusalDelta("text")),
        (2, TextDelta("no")),
        (3, ToolCallStart("g", namespace="ns")),
        (3, ToolCallStart("f")),
        (3, ToolCallStart("f", namespace="ns", custom=True)),
        (4, ToolCallDelta("")),
        (4, ToolCallDelta('{"a":2}')),
        (5, RawItemDelta({"type": "x", "n": 2})),
        (5, RawItemDelta({"type": "x", "n": 1, "id": "x_1"})),
        (6, ToolCallStart("c")),
        (6, Stop("stop", USAGE)),
        (7, ToolCallDelta("inpux")),
        (7, Stop("stop", USAGE)),
    ],
)
def test_the_first_difference_ends_the_turn(place, other) -> None:
    restored = held_log(TURN)
    before = list(restored.log.frames)
    with pytest.raises(DivergedError) as caught:
        run_again(restored, [*TURN[:place], other, *TURN[place + 1 :]])
    assert caught.value.code == "resume_diverged"
    assert restored.log.frames == before


@pytest.mark.requirement("resume:suppress")
def test_the_same_turn_passes_nothing_but_what_comes_after_it() -> None:
    restored = held_log(TURN)
    assert run_again(restored, TURN) == []
    more: list[Delta] = [ToolCallDelta(" more"), TextDelta("end"), Stop("stop", USAGE)]
    assert run_again(restored, [*TURN, *more]) == more


@pytest.mark.requirement("resume:suppress")
def test_a_call_without_arguments_is_known_again_by_its_empty_object() -> None:
    turn: list[Delta] = [ToolCallStart("f"), TextDelta("done")]
    assert run_again(held_log(turn), turn) == []
    assert run_again(held_log(turn[:1]), turn) == turn[1:]


@pytest.mark.requirement("resume:suppress")
@pytest.mark.parametrize("between", [[ReasoningDelta("01")], [RawItemDelta({"type": "x"})], [TextDelta("")]])
def test_what_was_said_of_a_message_before_it_began_is_said_of_the_one_that_begins_now(between) -> None:
    start = MessageStart("commentary")
    turn: list[Delta] = [
        TextDelta("a"),
        start,
        *between,
        TextDelta(""),
        TextDelta("b"),
        MessageStart(None),
        TextDelta("c"),
    ]
    for count in range(len(turn)):
        held = held_log(turn[:count])
        run_again(held, [*turn, Stop("stop", USAGE)])
        held.assembler.finish(2)
        messages = [item for item in held.log.snapshot().output if getattr(item, "role", "") == "assistant"]
        assert [item.phase for item in messages] == [msgspec.UNSET, "commentary", msgspec.UNSET]
        assert "".join(part.text for item in messages for part in item.content) == "abc"


@pytest.mark.requirement("resume:suppress")
def test_items_from_before_the_turn_are_not_compared() -> None:
    log = opened("openai", queued=False)
    Assembler(log).feed([RawItemDelta({"type": "compaction", "encrypted_content": "x"}), TextDelta("a")])
    assert run_again(restore(log.frames), [TextDelta("abc")], first_item=1) == [TextDelta("bc")]


def entry(token: str) -> Logprob:
    return Logprob(token, list(token.encode()), -1.0, [])


@pytest.mark.requirement("resume:suppress")
def test_log_probabilities_stay_with_their_part_of_the_text() -> None:
    restored = held_log([TextDelta("ab", [entry("ab")])])
    whole = TextDelta("abcde", [entry("ab"), entry("cd"), entry("e")])
    assert run_again(restored, [whole]) == [TextDelta("cde", [entry("cd"), entry("e")])]
    restored.assembler.cancel()
    (part,) = restored.log.snapshot().output[0].content
    assert "".join(logprob.token for logprob in part.logprobs) == part.text == "abcde"


@pytest.mark.requirement("resume:suppress")
def test_log_probabilities_without_text_are_known_again_by_their_number() -> None:
    turn = [TextDelta("a", [entry("a")]), TextDelta("", [entry("x")]), TextDelta("", [entry("y")])]
    for count in range(1, 4):
        assert run_again(held_log(turn[:count]), turn) == turn[count:]


@pytest.mark.requirement("resume:suppress")
def test_log_probabilities_that_are_not_logged_are_nothing_new() -> None:
    citation = AnnotationDelta({"type": "url_citation", "url": "u", "title": "t"})
    turn: list[Delta] = [TextDelta("", [entry("a")]), citation, TextDelta("b")]
    for count in range(1, 4):
        log = opened("openai", queued=False)
        Assembler(log).feed(turn[:count])
        assert run_again(restore(log.frames), turn) == turn[count:]


@pytest.mark.requirement("resume:suppress")
def test_a_suppressor_of_an_empty_log_passes_everything() -> None:
    suppressor = Suppressor(segments_of([]))
    assert not suppressor.caught_up
    assert suppressor.feed(TURN) == TURN
    assert suppressor.caught_up

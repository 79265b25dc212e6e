"""The events of hosted items: the orders that real streams have, the laws of the log, and what a crash leaves."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.errors import DivergedError
from antiphon.machine.assembler import Assembler
from antiphon.machine.deltas import HostedEnd, HostedStart, RawItemDelta, ReasoningDelta, Stop, TextDelta
from antiphon.machine.fold import fold
from antiphon.machine.log import EventLog
from antiphon.machine.restore import fold_frames, restore
from antiphon.machine.transitions import IllegalTransitionError
from antiphon.protocol import events as e
from antiphon.protocol.hosted import HOSTED_ITEMS, project, project_response, stands_beside
from antiphon.protocol.items import RawItem
from antiphon.protocol.json import encode
from antiphon.protocol.response import Response
from support.programs import USAGE, events_of

SHELL = {"type": "shell_call", "call_id": "c", "environment": {"type": "container_reference", "container_id": "x"}}
OUTPUT = {"stdout": "out", "stderr": "err", "outcome": {"type": "exit", "exit_code": 0}}

CASES = {
    "file_search_call": (
        {"queries": ["q", "r"], "results": None},
        {"queries": ["q", "r"], "results": [{"file_id": "f", "text": "t"}]},
        ["file_search_call.in_progress", "file_search_call.searching"],
        ["file_search_call.completed"],
    ),
    "web_search_call": (
        {"action": {"type": "search", "query": "q"}},
        {"action": {"type": "search", "query": "q", "sources": []}},
        ["web_search_call.in_progress", "web_search_call.searching"],
        ["web_search_call.completed"],
    ),
    "code_interpreter_call": (
        {"code": "1+1", "container_id": "cntr_1", "outputs": None},
        {"code": "1+1", "container_id": "cntr_1", "outputs": [{"type": "logs", "logs": "2"}]},
        [
            "code_interpreter_call.in_progress",
            "code_interpreter_call_code.delta",
            "code_interpreter_call_code.done",
            "code_interpreter_call.interpreting",
        ],
        ["code_interpreter_call.completed"],
    ),
    "image_generation_call": (
        {"result": None},
        {"result": "aGk="},
        ["image_generation_call.in_progress", "image_generation_call.generating"],
        ["image_generation_call.completed"],
    ),
    "mcp_list_tools": (
        {"server_label": "s", "tools": []},
        {"server_label": "s", "tools": [{"name": "add"}]},
        ["mcp_list_tools.in_progress"],
        ["mcp_list_tools.completed"],
    ),
    "mcp_call": (
        {"name": "add", "server_label": "s", "arguments": "{}"},
        {"name": "add", "server_label": "s", "arguments": "{}", "output": "3", "error": None},
        ["mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done"],
        ["mcp_call.completed"],
    ),
    "mcp_approval_request": ({"name": "add", "arguments": "{}"}, {"name": "add", "arguments": "{}"}, [], []),
    "search_corpus_call": (
        {"queries": ["q"], "results": None},
        {"queries": ["q"], "results": [{"chunk_id": "f:0"}]},
        [],
        [],
    ),
    "shell_call": (
        {**SHELL, "action": {"commands": ["ls", ""], "timeout_ms": None}},
        {**SHELL, "action": {"commands": ["ls", ""], "timeout_ms": None}},
        [
            "shell_call_command.added",
            "shell_call_command.delta",
            "shell_call_command.done",
            "shell_call_command.added",
            "shell_call_command.done",
        ],
        [],
    ),
    "shell_call_output": (
        {"call_id": "c", "output": []},
        {"call_id": "c", "output": [OUTPUT, OUTPUT]},
        [],
        ["shell_call_output_content.delta", "shell_call_output_content.delta", "shell_call_output_content.done"] * 2,
    ),
}
STATELESS = ("mcp_list_tools", "mcp_approval_request")


def bodies(kind, number=0, status="completed"):
    """How an item of that type begins, and how it ends."""
    identity = {"id": f"item_{number}", "type": kind}
    begun, done = CASES[kind][:2]
    if kind in STATELESS:
        return {**identity, **begun}, {**identity, **done}
    if kind == "shell_call_output":
        return {**identity, "status": "completed", **begun}, {**identity, "status": status, **done}
    return {**identity, "status": "in_progress", **begun}, {**identity, "status": status, **done}


def opened(declared=False):
    response = Response(id="resp_1", created_at=1, model="m")
    if declared:
        response.hosted_tool_calls = []
    log = EventLog(response)
    log.open()
    return log, Assembler(log)


def told(frames, start=0):
    return [frame.split(b"\n")[0].removeprefix(b"event: response.").decode() for frame in frames[start:]]


def ended(log, assembler):
    assembler.feed([Stop("stop", USAGE)])
    assembler.finish(2)
    return log


@pytest.mark.requirement("hosted:order")
@pytest.mark.parametrize("kind", CASES)
def test_each_type_is_told_in_the_order_of_real_streams(kind):
    log, assembler = opened()
    begun, done = bodies(kind)
    assembler.feed([HostedStart(begun)])
    _, _, before, after = CASES[kind]
    assert told(log.frames, 2) == ["output_item.added", *before]
    assert log.can_go_on
    assembler.feed([HostedEnd(done)])
    assert told(log.frames, 2) == ["output_item.added", *before, *after, "output_item.done"]
    assert log.items() == [done]


@pytest.mark.requirement("hosted:order")
@pytest.mark.parametrize("kind", CASES)
def test_every_event_has_every_field_of_its_type(kind):
    log, assembler = opened()
    begun, done = bodies(kind)
    assembler.feed([HostedStart(begun), HostedEnd(done)])
    for number, event in enumerate(events_of(log.frames)):
        body = event.body if isinstance(event, e.RawEvent) else None
        if body is None:
            continue
        assert set(body) == {"type", "sequence_number", *e.EVENT_FIELDS[event.type]}
        assert body["sequence_number"] == number
        assert body["item_id"] == "item_0"
        assert body["output_index"] == 0


@pytest.mark.requirement("hosted:order")
def test_what_is_added_is_empty_and_what_a_call_says_comes_after_it():
    added = {}
    for kind in CASES:
        log, assembler = opened()
        assembler.feed([HostedStart(bodies(kind)[0])])
        added[kind] = next(event.item for event in events_of(log.frames) if isinstance(event, e.OutputItemAdded))
    assert added["file_search_call"] == {
        "id": "item_0",
        "type": "file_search_call",
        "status": "in_progress",
        "queries": [],
        "results": None,
    }
    assert added["web_search_call"] == {"id": "item_0", "type": "web_search_call", "status": "in_progress"}
    assert (added["code_interpreter_call"]["code"], added["code_interpreter_call"]["outputs"]) == ("", [])
    assert (added["mcp_call"]["arguments"], added["mcp_call"]["output"]) == ("", None)
    assert added["mcp_list_tools"]["tools"] == []
    assert added["shell_call"]["action"] == {"commands": [], "timeout_ms": None}
    assert added["search_corpus_call"]["queries"] == ["q"]


@pytest.mark.requirement("hosted:order:failed")
@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("file_search_call", []),
        ("web_search_call", []),
        ("code_interpreter_call", []),
        ("mcp_call", ["mcp_call.failed"]),
        ("search_corpus_call", []),
    ],
)
def test_a_failed_call_is_never_told_as_completed(kind, after):
    log, assembler = opened()
    begun, done = bodies(kind, status="failed")
    assembler.feed([HostedStart(begun)])
    count = len(log.frames)
    assembler.feed([HostedEnd(done)])
    assert told(log.frames, count) == [*after, "output_item.done"]


@pytest.mark.requirement("hosted:order:failed")
def test_a_list_of_tools_that_failed_has_an_error_and_its_event():
    log, assembler = opened()
    begun, done = bodies("mcp_list_tools")
    assembler.feed([HostedStart(begun), HostedEnd({**done, "error": "no answer"})])
    assert told(log.frames, 2)[-2:] == ["mcp_list_tools.failed", "output_item.done"]


@pytest.mark.requirement("hosted:beside")
def test_corpus_calls_stand_beside_the_output_in_order_and_take_an_index():
    log, assembler = opened()
    assembler.feed([ReasoningDelta("hm")])
    for number, kind in enumerate(["search_corpus_call", "file_search_call", "search_corpus_call"]):
        begun, done = bodies(kind, number)
        assembler.feed([HostedStart(begun), HostedEnd(done)])
    assembler.feed([TextDelta("so")])
    response = ended(log, assembler).response
    assert [item["id"] for item in response.hosted_tool_calls] == ["item_0", "item_2"]
    assert [getattr(item, "role", None) or encode(item)[:40] for item in response.output][-1] == "assistant"
    assert len(response.output) == 3
    indexes = [event.output_index for event in events_of(log.frames) if isinstance(event, e.OutputItemDone)]
    assert indexes == [0, 1, 2, 3, 4]
    assert response.output_text == "so"
    assert [item["id"] for item in log.items() if isinstance(item, dict)] == ["item_0", "item_1", "item_2"]


@pytest.mark.requirement("hosted:beside:declared")
def test_hosted_tool_calls_are_absent_where_no_corpus_tool_is_declared():
    log, assembler = opened()
    assembler.feed([TextDelta("so")])
    assert b"hosted_tool_calls" not in ended(log, assembler).frames[-1]
    log, assembler = opened(declared=True)
    assembler.feed([TextDelta("so")])
    assert b'"hosted_tool_calls":[]' in ended(log, assembler).frames[-1]
    assert stands_beside([{"type": "grep"}])
    assert not stands_beside([{"type": "file_search"}])


programs = st.lists(
    st.tuples(st.sampled_from([*CASES, "text", "thought"]), st.sampled_from(["completed", "failed", "incomplete"])),
    max_size=6,
)


def steps(program):
    """The feeds of a program, one delta each."""
    for number, (kind, status) in enumerate(program):
        if kind == "text":
            yield TextDelta(f"t{number}")
        elif kind == "thought":
            yield ReasoningDelta(f"r{number}")
        else:
            begun, done = bodies(kind, number, status)
            yield HostedStart(begun)
            yield HostedEnd(done)


@pytest.mark.requirement("hosted:law")
@given(programs, st.booleans())
def test_all_events_add_up_to_the_terminal_object(program, declared):
    log, assembler = opened(declared)
    for delta in steps(program):
        assembler.feed([delta])
    ended(log, assembler)
    events = events_of(log.frames)
    terminal = encode(events[-1].response)
    assert encode(fold(events)) == terminal
    assert encode(fold_frames(log.frames)) == terminal
    assert encode(log.snapshot()) == terminal


@pytest.mark.requirement("hosted:restore", "hosted:law")
@given(programs, st.data())
def test_a_log_that_ends_anywhere_between_steps_goes_on_as_it_would_have(program, data):
    deltas = list(steps(program))
    cut = data.draw(st.integers(0, len(deltas)))
    log, assembler = opened()
    for delta in deltas[:cut]:
        assembler.feed([delta])
    held = list(log.frames)
    for delta in deltas[cut:]:
        assembler.feed([delta])
    ended(log, assembler)
    restored = restore(held)
    assert encode(restored.log.items()) == encode(fold_items(held))
    # A loop that goes on tells what it knows from the first item; what is in the log already is told no second time.
    hosted = [delta for delta in deltas if isinstance(delta, HostedStart | HostedEnd)]
    before = sum(isinstance(delta, HostedStart | HostedEnd) for delta in deltas[:cut])
    for delta in itertools.chain(hosted[:before], deltas[cut:]):
        restored.assembler.feed([delta])
    ended(restored.log, restored.assembler)
    assert told(restored.log.frames) == told(log.frames)


def fold_items(frames):
    log = restore(frames).log
    return log.items()


@pytest.mark.requirement("hosted:restore")
def test_the_turn_before_a_tool_ran_is_compared_without_what_the_tool_made():
    log, assembler = opened()
    begun, done = bodies("file_search_call")
    assembler.feed([ReasoningDelta("hm"), HostedStart(begun), HostedEnd(done)])
    restored = restore(list(log.frames))
    suppressor = restored.suppressor(0, HOSTED_ITEMS)
    assert suppressor.feed([ReasoningDelta("hm"), HostedStart(begun)]) == [HostedStart(begun)]
    assert suppressor.feed([Stop("stop", USAGE)]) == [Stop("stop", USAGE)]


@pytest.mark.requirement("hosted:restore")
def test_what_an_upstream_ran_in_the_turn_is_compared_as_the_turns_own():
    theirs = {**bodies("mcp_call")[1], "upstream_id": "mcp_1"}
    log, assembler = opened()
    assembler.feed([RawItemDelta(theirs), HostedStart(bodies("file_search_call", 1)[0])])
    restored = restore(list(log.frames))
    suppressor = restored.suppressor(0, HOSTED_ITEMS)
    assert suppressor.feed([RawItemDelta(theirs), Stop("stop", USAGE)]) == [Stop("stop", USAGE)]
    with pytest.raises(DivergedError):
        restored.suppressor(0, HOSTED_ITEMS).feed([Stop("stop", USAGE)])


@pytest.mark.requirement("hosted:cut")
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("file_search_call", "incomplete"),
        ("web_search_call", "failed"),
        ("mcp_call", "incomplete"),
        ("grep_call", "failed"),
    ],
)
def test_a_run_that_is_cut_closes_its_item(kind, status):
    log, assembler = opened()
    begun = bodies(kind)[0] if kind in CASES else {"id": "x", "type": kind, "status": "in_progress", "pattern": "p"}
    assembler.feed([HostedStart(begun)])
    assembler.cancel()
    assert log.items() == [{**begun, "status": status}]
    assert told(log.frames)[-2:] == ["output_item.done", "incomplete"]
    again, other = opened()
    other.feed([HostedStart(begun)])
    restored = restore(list(again.frames))
    restored.assembler.cancel()
    assert restored.log.items()[0]["status"] == status


@pytest.mark.requirement("hosted:order")
def test_events_out_of_their_order_are_refused():
    log, assembler = opened()
    assembler.feed([HostedStart(bodies("mcp_call")[0])])
    place = {"item_id": "item_0", "output_index": 0, "sequence_number": 0}

    def event(name, **fields):
        return e.RawEvent(f"response.{name}", 0, {"type": f"response.{name}", **place, **fields})

    for wrong in (
        event("mcp_call.in_progress"),
        event("file_search_call.completed"),
        event("mcp_call_arguments.delta", delta="x"),
        event("mcp_call.completed", item_id="other"),
        event("mcp_call.completed", output_index=1),
    ):
        with pytest.raises(IllegalTransitionError):
            log.append(wrong)
    log.append(event("mcp_call.completed"))
    with pytest.raises(IllegalTransitionError):
        log.append(event("mcp_call.failed"))


@pytest.mark.requirement("hosted:order")
def test_an_item_that_began_ends_only_when_its_call_was_told():
    log, _ = opened()
    item = bodies("mcp_call")[0]
    log.append(e.OutputItemAdded(0, dict(item)))
    assert not log.can_go_on
    name = "response.mcp_call.in_progress"
    log.append(e.RawEvent(name, 0, {"type": name, "item_id": "item_0", "output_index": 0}))
    assert not log.can_go_on
    with pytest.raises(IllegalTransitionError):
        log.append(e.OutputItemDone(0, {**item, "status": "completed"}))


@pytest.mark.requirement("hosted:law")
def test_a_prefix_says_how_far_a_call_is():
    log, assembler = opened()
    assembler.feed([HostedStart(bodies("code_interpreter_call")[0])])
    item = fold_frames(log.frames).output[0]
    assert (item["code"], item["status"]) == ("1+1", "interpreting")
    log, assembler = opened()
    assembler.feed([HostedStart(bodies("file_search_call")[0])])
    assert fold_frames(log.frames).output[0]["status"] == "searching"


@pytest.mark.requirement("hosted:order")
def test_whole_items_of_an_upstream_stay_what_they_are():
    log, assembler = opened()
    body = {**bodies("file_search_call")[1], "queries": ["q"]}
    assembler.feed([RawItemDelta(body)])
    assert told(log.frames, 2) == ["output_item.added", "output_item.done"]
    assert restore(list(log.frames)).log.items() == [body]
    assembler.feed([RawItemDelta(bodies("mcp_call", 1)[1], begins=True)])
    assert told(log.frames, 4) == ["output_item.added", "output_item.done"]


FULL = {
    "search_corpus_call": {"results": [{"chunk_id": "f:0", "_number": 1}]},
    "file_search_call": {"results": [{"file_id": "f", "_number": 1}]},
    "grep_call": {"results": []},
    "get_chunks_call": {"results": [{"chunk_id": "f:0"}]},
}


@pytest.mark.requirement("hosted:include", "hosted:include:private")
@pytest.mark.parametrize("kind", FULL)
def test_results_are_there_by_include_and_null_without(kind):
    body = {"type": kind, "id": "x", "status": "completed", "_told": "text", **FULL[kind]}
    seen = project(body, ["nothing.there", f"{kind}.results"])
    assert "_told" not in seen
    assert [entry.get("_number") for entry in seen["results"]] == [None] * len(body["results"])
    assert len(seen["results"]) == len(body["results"])
    assert project(body, ["other_call.results"])["results"] is None
    assert project({"type": kind, "id": "x", "status": "failed"})["results"] is None


@pytest.mark.requirement("hosted:include")
def test_what_is_asked_for_without_include_is_always_there():
    assert project({"type": "inspect_metadata_call", "facets": {"a": 1}}) == {
        "type": "inspect_metadata_call",
        "facets": {"a": 1},
    }
    assert project({"type": "list_stores_call", "stores": []})["stores"] == []
    code = {"type": "code_interpreter_call", "code": "1", "outputs": [{"type": "logs", "logs": "2"}]}
    assert project(code)["outputs"] is None
    assert project(code, ["code_interpreter_call.outputs"])["outputs"] == code["outputs"]
    web = {"type": "web_search_call", "results": [1], "action": {"type": "search", "query": "q", "sources": [2]}}
    assert project(web) == {"type": "web_search_call", "action": {"type": "search", "query": "q"}}
    assert project(web, ["web_search_call.results", "web_search_call.action.sources"]) == web


@pytest.mark.requirement("hosted:include")
def test_a_response_is_seen_by_the_include_that_it_is_looked_up_with():
    full = bodies("search_corpus_call")[1]
    response = Response(id="resp_1", created_at=1, model="m", hosted_tool_calls=[project(full)])
    assert response.hosted_tool_calls[0]["results"] is None
    project_response(response, [RawItem(full["type"], full["id"], full)], ["search_corpus_call.results"])
    assert response.hosted_tool_calls == [full]
    plain = Response(id="resp_1", created_at=1, model="m", output=[project(full)])
    project_response(plain, [], ["search_corpus_call.results"])
    assert plain.output[0]["results"] is None
    assert plain.hosted_tool_calls is UNSET

"""What follows a turn, by what it called."""

from __future__ import annotations

import pytest

from antiphon.machine.turn import Progress, Step, calls_here, next_step, progress, waits_for_client
from antiphon.protocol.items import CustomToolCall, FunctionCall, Message, RawItem, Reasoning

SEARCH = {"type": "tool_search_call", "execution": "server", "call_id": None}
FOUND = {"type": "tool_search_output", "execution": "server", "call_id": None, "tools": []}
CLIENTS = {"type": "tool_search_call", "execution": "client", "call_id": "c"}
SHELL = {"type": "shell_call", "call_id": "c"}
TEXT, CALL = Message("assistant", "a"), FunctionCall("c", "f", "{}")


@pytest.mark.requirement("tools:rounds", "machine:content-filter")
@pytest.mark.parametrize(
    ("items", "reason", "step"),
    [
        ([], "stop", Step.FINISH),
        ([TEXT], "stop", Step.FINISH),
        ([TEXT, CALL], "stop", Step.FINISH),
        ([SHELL], "stop", Step.FINISH),
        ([CLIENTS], "stop", Step.FINISH),
        ([Reasoning(), SEARCH], "stop", Step.CONTINUE),
        ([SEARCH, SEARCH], "stop", Step.CONTINUE),
        ([SEARCH, CALL], "stop", Step.WAIT),
        ([SHELL, SEARCH], "stop", Step.WAIT),
        ([CLIENTS, SEARCH], "stop", Step.WAIT),
        ([SEARCH], "length", Step.FINISH),
        ([SEARCH], "content_filter", Step.FINISH),
        ([SEARCH, FOUND], "stop", Step.FINISH),
    ],
)
def test_a_turn_is_followed_by_another_by_the_client_or_by_the_end(items, reason, step):
    assert next_step(items, reason) is step


@pytest.mark.requirement("tools:rounds")
def test_calls_that_run_here_are_those_without_an_output():
    assert calls_here([SEARCH, TEXT, {**SEARCH, "n": 2}, CLIENTS]) == [SEARCH, {**SEARCH, "n": 2}]
    assert calls_here([SEARCH, {**SEARCH, "n": 2}, FOUND]) == [{**SEARCH, "n": 2}]


@pytest.mark.requirement("tools:rounds")
@pytest.mark.parametrize(
    ("output", "stands"),
    [
        ([], Progress()),
        ([TEXT, SEARCH], Progress()),
        ([TEXT, SEARCH, FOUND], Progress(1, 3)),
        ([SEARCH, SEARCH, FOUND, FOUND, TEXT], Progress(1, 4)),
        ([SEARCH, FOUND, SEARCH, FOUND, CALL], Progress(2, 4)),
        ([SEARCH, CALL, FOUND], Progress(1, 3, waiting=True)),
        ([SEARCH, FOUND, SHELL, SEARCH, FOUND], Progress(2, 5, waiting=True)),
    ],
)
def test_where_a_response_stands_is_said_by_its_items(output, stands):
    assert progress(output) == stands
    raw = [RawItem(item["type"], None, item) if isinstance(item, dict) else item for item in output]
    assert progress(raw) == stands


@pytest.mark.requirement("tools:rounds")
def test_the_client_answers_its_own_calls():
    for item in (CALL, CustomToolCall("c", "n", ""), SHELL, CLIENTS, {"type": "apply_patch_call"}):
        assert waits_for_client(item)
    for item in (TEXT, SEARCH, FOUND, {"type": "web_search_call"}):
        assert not waits_for_client(item)


HERE = frozenset({"file_search_call", "mcp_call", "mcp_list_tools", "mcp_approval_request", "shell_call"})
FILES = {"type": "file_search_call", "id": "fs_1", "status": "completed"}
RUNS = {**FILES, "status": "in_progress"}
LISTED = {"type": "mcp_list_tools", "id": "mcpl_1"}
APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1"}
CONTAINED = {"type": "shell_call", "call_id": "c", "environment": {"type": "container_reference"}}


@pytest.mark.requirement("hosted:steps")
def test_a_turn_whose_calls_were_held_goes_on_unless_it_called_the_client_too():
    assert next_step([TEXT], "stop", held=1) is Step.CONTINUE
    assert next_step([TEXT, CALL], "stop", held=2) is Step.WAIT
    assert next_step([SEARCH], "stop", held=1) is Step.CONTINUE
    assert next_step([], "length", held=1) is Step.FINISH
    assert next_step([CONTAINED], "stop") is Step.FINISH
    assert not waits_for_client(CONTAINED)


@pytest.mark.requirement("hosted:steps")
@pytest.mark.parametrize(
    ("output", "stands"),
    [
        ([FILES], Progress(1, 1)),
        ([Reasoning(), FILES, FILES, TEXT], Progress(1, 3)),
        ([FILES, TEXT, FILES], Progress(2, 3)),
        ([FILES, TEXT, FILES, RUNS], Progress(1, 1)),
        ([CALL, FILES], Progress(1, 2, waiting=True)),
        ([LISTED], Progress(0, 1)),
        ([LISTED, TEXT, FILES], Progress(1, 3)),
        ([LISTED, FILES], Progress(1, 2)),
        ([TEXT, FILES, APPROVAL], Progress(1, 3, waiting=True)),
        ([SEARCH, FOUND, FILES], Progress(1, 3)),
        ([{"type": "web_search_call", "status": "completed"}, TEXT], Progress()),
        ([RawItem("file_search_call", "fs_1", FILES), TEXT], Progress(1, 1)),
    ],
)
def test_where_a_response_stands_is_said_by_what_ran_here(output, stands):
    assert progress(output, HERE) == stands

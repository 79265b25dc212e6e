"""Calls by the names that a model is told become calls as they are items."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.machine.deltas import (
    CallItemDelta,
    CommandStart,
    Delta,
    PatchStart,
    ReasoningDelta,
    ShellLimits,
    ShellStart,
    Stop,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.router import APPLY_PATCH, HOSTED, LOCAL_SHELL, SHELL, TOOL_SEARCH, CallRouter, MadeCall, Target

TARGETS = {
    "crm__get": Target("get", "crm"),
    "shell": Target("shell", item=SHELL),
    "apply_patch": Target("apply_patch", item=APPLY_PATCH),
    "local_shell": Target("local_shell", item=LOCAL_SHELL),
    "tool_search": Target("tool_search", item=TOOL_SEARCH, execution="server"),
}
USAGE = TokenUsage(1, 1)
STOP = Stop("stop", USAGE)


def route(*deltas: Delta) -> list[Delta]:
    router = CallRouter(TARGETS)
    routed = [made for delta in deltas for made in router.feed([delta])]
    assert router.fault is None
    return _joined(routed)


def call(name: str, arguments: Any, ending: Delta = STOP) -> list[Delta]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    pieces: list[Delta] = [ToolCallDelta(text[start : start + 3]) for start in range(0, len(text), 3)]
    return [ToolCallStart(name), *pieces, ending]


def _joined(deltas: list[Delta]) -> list[Delta]:
    joined: list[Delta] = []
    for delta in deltas:
        if isinstance(delta, ToolCallDelta) and joined and isinstance(joined[-1], ToolCallDelta):
            joined[-1] = ToolCallDelta(joined[-1].text + delta.text)
        else:
            joined.append(delta)
    return joined


@pytest.mark.requirement("tools:namespace:call")
def test_a_flat_name_becomes_the_name_and_the_namespace_that_it_stands_for():
    made = route(*call("crm__get", {"id": 1}))
    assert made == [ToolCallStart("get", namespace="crm"), ToolCallDelta('{"id": 1}'), STOP]
    custom = route(ToolCallStart("crm__get", custom=True), ToolCallDelta("x"))
    assert custom == [ToolCallStart("get", custom=True, namespace="crm"), ToolCallDelta("x")]


@pytest.mark.requirement("tools:namespace:call")
def test_what_is_no_target_passes_as_it_is():
    deltas = [ReasoningDelta("r"), TextDelta("t"), ToolCallStart("other"), ToolCallDelta("{}"), STOP]
    assert route(*deltas) == deltas


@pytest.mark.requirement("tools:shell")
@pytest.mark.parametrize(
    ("arguments", "commands", "limits"),
    [
        ({"commands": ["ls", "pwd"]}, ["ls", "pwd"], None),
        ({"timeout_ms": 5, "commands": ["ls"], "max_output_length": 9}, ["ls"], (5, 9)),
        ({"commands": ["a\nb"], "timeout_ms": None}, ["a\nb"], None),
        ({"commands": "ls"}, ["ls"], None),
        ({"command": "ls", "timeout_ms": 7}, ["ls"], (7, None)),
        ({"action": {"commands": ["ls", ""]}}, ["ls", ""], None),
        ({"commands": ["ls"], "why": "to see", "more": {"commands": ["rm"]}}, ["ls"], None),
    ],
)
def test_a_call_of_the_shell_is_its_commands_and_limits(arguments, commands, limits):
    expected: list[Delta] = [ShellStart()]
    for command in commands:
        expected.append(CommandStart())
        expected += [ToolCallDelta(command)] if command else []
    expected += [ShellLimits(*limits)] if limits else []
    assert route(*call("shell", arguments)) == [*expected, STOP]


@pytest.mark.requirement("tools:shell")
def test_a_command_leaves_while_it_is_written():
    router = CallRouter(TARGETS)
    assert router.feed([ToolCallStart("shell"), ToolCallDelta('{"commands": ["echo')]) == [
        ShellStart(),
        CommandStart(),
        ToolCallDelta("echo"),
    ]
    assert router.feed([ToolCallDelta(" on")]) == [ToolCallDelta(" on")]


@pytest.mark.requirement("tools:apply-patch")
@pytest.mark.parametrize("order", [["type", "path", "diff"], ["diff", "path", "type"], ["path", "diff", "type"]])
@pytest.mark.parametrize("inside", [False, True])
def test_a_patch_is_its_operation_its_path_and_its_diff_in_whatever_order_they_come(order, inside):
    fields = {"type": "update_file", "path": "a.txt", "diff": '@@\n-a\n+"b"\n'}
    arguments: Any = {name: fields[name] for name in order}
    made = route(*call("apply_patch", {"operation": arguments} if inside else arguments))
    assert made == [PatchStart("update_file", "a.txt"), ToolCallDelta(fields["diff"]), STOP]


@pytest.mark.requirement("tools:apply-patch")
def test_a_deletion_has_no_diff_and_a_patch_leaves_while_it_is_written():
    made = route(*call("apply_patch", {"type": "delete_file", "path": "a", "diff": "x"}))
    assert made == [PatchStart("delete_file", "a"), STOP]
    router = CallRouter(TARGETS)
    begun = router.feed([ToolCallStart("apply_patch"), ToolCallDelta('{"type":"create_file","path":"a","diff":"+h')])
    assert begun == [PatchStart("create_file", "a"), ToolCallDelta("+h")]


@pytest.mark.requirement("tools:local-shell")
def test_a_call_of_the_local_shell_is_a_whole_item():
    arguments = {"command": ["ls", "-l"], "env": {"A": "b"}, "timeout_ms": 5, "working_directory": "/tmp", "user": 3}
    action = {"type": "exec", "command": ["ls", "-l"], "env": {"A": "b"}, "timeout_ms": 5, "working_directory": "/tmp"}
    assert route(*call("local_shell", arguments)) == [CallItemDelta({"type": LOCAL_SHELL, "action": action}), STOP]
    (item, _) = route(*call("local_shell", {"command": "ls"}))
    assert isinstance(item, CallItemDelta)
    assert item.body["action"] == {"type": "exec", "command": ["ls"], "env": {}}


@pytest.mark.requirement("tools:search:call")
def test_a_search_is_a_whole_item_that_says_who_searches():
    made = route(*call("tool_search", {"query": "mail"}))
    body = {"type": TOOL_SEARCH, "execution": "server", "arguments": {"query": "mail"}}
    assert made == [CallItemDelta(body), STOP]
    assert route(ToolCallStart("tool_search"), STOP)[0] == CallItemDelta({**body, "arguments": {}})


@pytest.mark.requirement("tools:arguments:malformed")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shell", "ls -l"),
        ("shell", {}),
        ("shell", {"commands": []}),
        ("shell", '{"commands": ["ls"'),
        ("apply_patch", {"path": "a"}),
        ("apply_patch", {"type": "rename_file", "path": "a"}),
        ("apply_patch", {"type": "create_file", "path": "", "diff": "x"}),
        ("local_shell", {"command": []}),
        ("local_shell", {"command": [1]}),
        ("local_shell", {"command": ["ls"], "env": {"A": 1}}),
        ("tool_search", "[1]"),
        ("tool_search", "{"),
    ],
)
def test_arguments_that_make_no_item_are_a_fault_that_names_the_tool_and_keeps_what_came_before(name, arguments):
    router = CallRouter(TARGETS)
    made = router.feed([TextDelta("before"), *call(name, arguments)])
    assert made[0] == TextDelta("before")
    assert router.fault is not None
    assert f"'{name}'" in router.fault.message


@pytest.mark.requirement("tools:arguments:cut")
@pytest.mark.parametrize("name", [name for name in TARGETS if name != "crm__get"])
@given(st.integers(0, 60))
def test_a_call_that_a_limit_cuts_is_no_fault(name, length):
    text = json.dumps({"commands": ["ls"], "command": ["ls"], "type": "create_file", "path": "a", "diff": "+x"})
    made = route(*call(name, text[:length], Stop("length", USAGE)))
    assert made[-1] == Stop("length", USAGE)
    assert not any(isinstance(delta, CallItemDelta) for delta in made)


@pytest.mark.requirement("tools:shell", "tools:apply-patch")
@given(st.data())
def test_calls_are_routed_the_same_however_their_text_is_cut(data):
    program: list[Delta] = []
    for name, arguments in (
        ("shell", {"commands": ["ls 'é'\n", "\\d"], "timeout_ms": 10}),
        ("apply_patch", {"path": "a", "type": "create_file", "diff": '+"x"\n+😀'}),
        ("crm__get", {}),
    ):
        text = json.dumps(arguments, ensure_ascii=data.draw(st.booleans()))
        places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
        program.append(ToolCallStart(name))
        program += [ToolCallDelta(text[a:b]) for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    made = route(*program, TextDelta("", None), STOP)
    assert made == [
        ShellStart(),
        CommandStart(),
        ToolCallDelta("ls 'é'\n"),
        CommandStart(),
        ToolCallDelta("\\d"),
        ShellLimits(10, None),
        PatchStart("create_file", "a"),
        ToolCallDelta('+"x"\n+😀'),
        ToolCallStart("get", namespace="crm"),
        ToolCallDelta("{}"),
        STOP,
    ]


HELD = {**TARGETS, "find": Target("search_corpus", item=HOSTED), "other": Target("other", item=HOSTED)}


def held(*deltas: Delta, parallel: bool = True) -> tuple[list[Delta], list[MadeCall]]:
    router = CallRouter(HELD, parallel=parallel)
    routed = [made for delta in deltas for made in router.feed([delta])]
    assert router.fault is None
    return routed, router.made


@pytest.mark.requirement("hosted:held")
def test_calls_of_hosted_tools_are_held_and_nothing_is_told_of_them():
    routed, made = held(
        TextDelta("I look."),
        ToolCallStart("find"),
        ToolCallDelta('{"queries":'),
        ToolCallDelta('["a"]}'),
        ToolCallStart("f"),
        ToolCallDelta("{}"),
        ToolCallStart("other"),
        STOP,
    )
    assert routed == [TextDelta("I look."), ToolCallStart("f"), ToolCallDelta("{}"), STOP]
    assert made == [MadeCall("search_corpus", '{"queries":["a"]}', "find"), MadeCall("other", "", "other")]


@pytest.mark.requirement("hosted:held")
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_held_call_that_was_cut_is_none(reason):
    cut = Stop(reason, USAGE)
    routed, made = held(ToolCallStart("find"), ToolCallDelta("{}"), ToolCallStart("other"), ToolCallDelta('{"a'), cut)
    assert routed == [cut]
    assert [call.name for call in made] == ["search_corpus"]


@pytest.mark.requirement("hosted:held:one")
@pytest.mark.parametrize(
    ("names", "told", "made"),
    [
        (["find", "other", "f"], [], ["search_corpus"]),
        (["f", "find", "g"], ["f", "g"], []),
        (["find", "shell"], [], ["search_corpus"]),
    ],
)
def test_without_parallel_calls_only_the_first_counts_whoever_answers_it(names, told, made):
    deltas = [delta for name in names for delta in (ToolCallStart(name), ToolCallDelta("{}"))]
    routed, calls = held(*deltas, STOP, parallel=False)
    # Further calls of the client's after one of its own are for the assembler to leave out.
    assert [delta.name for delta in routed if isinstance(delta, ToolCallStart)] == told
    assert [call.name for call in calls] == made
    assert sum(isinstance(delta, ToolCallDelta) for delta in routed) == len(told)

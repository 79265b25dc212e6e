"""Tools that a client runs and that have items of their own: a shell, patches, the local shell."""

from __future__ import annotations

from typing import Any

import pytest

from support.inprocess import InProcess, sse_events

requirement = pytest.mark.requirement

SHELL = {"type": "shell", "environment": {"type": "local"}}
PATCH = {"type": "apply_patch"}
DIFFS = "apply_patch_call.operation_diff"
LOCAL = {"type": "local_shell"}
CREATE = '{"type":"create_file","path":"a.txt","diff":"+one\\n+two\\n"}'


def without_ids(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in ("id", "call_id")}


def told(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events[2:-1]]


@requirement("tools:shell")
async def test_a_call_of_the_shell_is_an_item_of_its_own_with_the_events_of_its_commands(api: InProcess):
    events = await api.stream('!CALL shell {"commands":["ls -l","pwd"],"timeout_ms":5}', tools=[SHELL])
    (item,) = events[-1]["response"]["output"]
    assert without_ids(item) == {
        "type": "shell_call",
        "status": "completed",
        "action": {"commands": ["ls -l", "pwd"], "timeout_ms": 5, "max_output_length": None},
        "environment": {"type": "local"},
    }
    assert (item["id"][:3], item["call_id"][:5]) == ("sh_", "call_")
    kinds = told(events)
    assert kinds[0] == "output_item.added"
    assert [kind for kind in kinds if kind != "shell_call_command.delta"] == [
        "output_item.added",
        "shell_call_command.added",
        "shell_call_command.done",
        "shell_call_command.added",
        "shell_call_command.done",
        "output_item.done",
    ]
    commands = [event for event in events if "command_index" in event]
    assert all(event["output_index"] == 0 and "item_id" not in event for event in commands)
    for index, command in enumerate(["ls -l", "pwd"]):
        of_one = [event for event in commands if event["command_index"] == index]
        assert "".join(event.get("delta", "") for event in of_one) == of_one[-1]["command"] == command
    assert events[2]["item"]["action"]["commands"] == []


@requirement("tools:apply-patch:diffs", "tools:apply-patch")
async def test_without_the_word_for_them_a_patch_has_no_events_of_its_diff(api: InProcess):
    asked = f"!TEXT so\n!CALL apply_patch {CREATE}\n!CALL apply_patch {CREATE}"
    with_diffs, plain = [
        await api.stream(asked, tools=[PATCH], include=include) for include in ([DIFFS, "unknown.value"], [])
    ]
    kinds = [kind for kind in told(with_diffs) if "diff" not in kind]
    assert told(plain) == kinds
    assert kinds[-4:] == ["output_item.added", "output_item.done"] * 2
    assert [event["sequence_number"] for event in plain] == list(range(len(plain)))
    outputs = [[without_ids(item) for item in events[-1]["response"]["output"]] for events in (with_diffs, plain)]
    assert outputs[0] == outputs[1]
    whole = await api.create(asked, tools=[PATCH])
    assert [without_ids(item) for item in whole["output"]] == outputs[1]
    for events in (with_diffs, plain):
        replay = await api.client.get(f"/responses/{events[0]['response']['id']}?stream=true")
        assert sse_events(replay.content) == events


@requirement("tools:apply-patch")
async def test_a_patch_is_an_item_of_its_own_with_the_events_of_its_diff(api: InProcess):
    events = await api.stream(f"!CALL apply_patch {CREATE}", tools=[PATCH], include=[DIFFS])
    (item,) = events[-1]["response"]["output"]
    operation = {"type": "create_file", "path": "a.txt", "diff": "+one\n+two\n"}
    assert without_ids(item) == {"type": "apply_patch_call", "status": "completed", "operation": operation}
    assert item["id"].startswith("apc_")
    assert events[2]["item"] == {**item, "status": "in_progress", "operation": {**operation, "diff": ""}}
    assert set(told(events)[1:-2]) == {"apply_patch_call_operation_diff.delta"}
    assert told(events)[-2:] == ["apply_patch_call_operation_diff.done", "output_item.done"]
    assert "".join(event["delta"] for event in events if "delta" in event) == operation["diff"]


@requirement("tools:apply-patch")
async def test_a_deletion_has_no_diff_and_no_events_of_one(api: InProcess):
    events = await api.stream('!CALL apply_patch {"type":"delete_file","path":"a"}', tools=[PATCH])
    assert told(events) == ["output_item.added", "output_item.done"]
    assert events[3]["item"]["operation"] == {"type": "delete_file", "path": "a"}
    assert [event["item"]["status"] for event in events[2:4]] == ["in_progress", "completed"]


@requirement("tools:local-shell")
async def test_a_call_of_the_local_shell_is_an_item_of_its_own(api: InProcess):
    events = await api.stream('!CALL local_shell {"command":["ls"],"working_directory":"/x"}', tools=[LOCAL])
    (item,) = events[-1]["response"]["output"]
    action = {"type": "exec", "command": ["ls"], "env": {}, "working_directory": "/x"}
    assert without_ids(item) == {"type": "local_shell_call", "status": "completed", "action": action}
    assert told(events) == ["output_item.added", "output_item.done"]


@requirement("tools:client:loop")
@pytest.mark.parametrize(
    ("tool", "call", "output", "said"),
    [
        (
            SHELL,
            '!CALL shell {"commands":["ls"]}',
            {
                "type": "shell_call_output",
                "output": [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
                "max_output_length": None,
            },
            "a.txt",
        ),
        (
            PATCH,
            f"!CALL apply_patch {CREATE}",
            {"type": "apply_patch_call_output", "status": "failed", "output": "no"},
            "no",
        ),
        (
            LOCAL,
            '!CALL local_shell {"command":["ls"]}',
            {"type": "local_shell_call_output", "output": "a.txt"},
            "a.txt",
        ),
    ],
    ids=["shell", "apply_patch", "local_shell"],
)
async def test_the_output_of_a_client_goes_to_the_model_by_chain_and_inline(
    api: InProcess, tool: dict[str, Any], call: str, output: dict[str, Any], said: str
):
    asked = {"role": "user", "content": call}
    first = await api.create([asked], tools=[tool])
    (item,) = first["output"]
    given = {**output, "call_id": item["call_id"]}
    error = await api.refused(400, "next", previous_response_id=first["id"], tools=[tool])
    assert error["code"] == "missing_tool_output"
    answer = await api.create([given], previous_response_id=first["id"], tools=[tool])
    assert answer["output_text"] == f"FINAL: {said}"
    chained = await api.echo([given], previous_response_id=first["id"], tools=[tool])
    assert chained == await api.echo([asked, item, given], tools=[tool])
    assert f'"name":"{tool["type"]}"' in chained


@requirement("tools:local-shell")
async def test_an_output_of_the_local_shell_may_name_its_call_by_id_alone(api: InProcess):
    first = await api.create('!CALL local_shell {"command":["ls"]}', tools=[LOCAL])
    output = {"type": "local_shell_call_output", "id": first["output"][0]["call_id"], "output": "a.txt"}
    answer = await api.create([output], previous_response_id=first["id"], tools=[LOCAL])
    assert answer["output_text"] == "FINAL: a.txt"


@requirement("tools:client:choice")
@pytest.mark.parametrize(
    ("tool", "kind"),
    [(SHELL, "shell_call"), (PATCH, "apply_patch_call"), (LOCAL, "local_shell_call")],
    ids=["shell", "apply_patch", "local_shell"],
)
async def test_a_choice_forces_such_a_tool(api: InProcess, tool: dict[str, Any], kind: str):
    function = {"type": "function", "name": "f"}
    answer = await api.create("hi", tools=[function, tool], tool_choice={"type": tool["type"]})
    assert [item["type"] for item in answer["output"]] == [kind]
    error = await api.refused(400, "hi", tools=[function], tool_choice={"type": tool["type"]})
    assert (error["code"], error["param"]) == ("invalid_tool_choice", "tool_choice.type")


@requirement("tools:client:parallel")
async def test_only_the_first_call_passes_where_calls_may_not_be_parallel(api: InProcess):
    text = f'!CALL shell {{"commands":["ls"]}}\n!CALL apply_patch {CREATE}\n!CALL local_shell {{"command":["ls"]}}'
    tools = [SHELL, PATCH, LOCAL]
    both = await api.create(text, tools=tools)
    assert [item["type"] for item in both["output"]] == ["shell_call", "apply_patch_call", "local_shell_call"]
    one = await api.create(text, tools=tools, parallel_tool_calls=False)
    assert [item["type"] for item in one["output"]] == ["shell_call"]


@requirement("tools:arguments:cut")
@pytest.mark.parametrize("more", [0, 2, 4])
async def test_a_call_that_the_limit_cuts_is_incomplete_and_is_not_told_again(api: InProcess, more: int):
    for tool, least, call, status in (
        (SHELL, 4, '!CALL shell {"commands":["echo one","echo two","echo three"]}', "incomplete"),
        (PATCH, 12, f'!CALL apply_patch {CREATE[:-2]}+three more lines"}}', "in_progress"),
    ):
        cut = await api.create(f"!TEXT a\n{call}", tools=[tool], max_output_tokens=least + more)
        assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        told = [(item["type"], item["status"]) for item in cut["output"]]
        assert told == [("message", "completed"), (f"{tool['type']}_call", status)]
        prompt = await api.echo("go on", previous_response_id=cut["id"])
        assert "tool_call" not in prompt


@requirement("tools:arguments:malformed")
async def test_arguments_that_make_no_item_fail_the_response_with_what_came_before(api: InProcess):
    answer = await api.create('!TEXT before\n!CALL apply_patch {"path":"a"}', tools=[PATCH])
    assert (answer["status"], answer["error"]["code"]) == ("failed", "server_error")
    assert "'apply_patch'" in answer["error"]["message"]
    assert answer["output"][0]["content"][0]["text"] == "before"


@requirement("tools:client:names")
async def test_a_function_of_that_name_stays_a_function(api: InProcess):
    function = {"type": "function", "name": "shell", "parameters": {"type": "object"}}
    answer = await api.create('!CALL shell {"a":1}', tools=[SHELL, function])
    assert [(item["type"], item["name"]) for item in answer["output"]] == [("function_call", "shell")]


@requirement("tools:client:ignored")
async def test_unknown_tools_are_accepted_and_not_told(api: InProcess):
    tools: list[dict[str, Any]] = [{"type": "brand_new", "x": [1]}]
    answer = await api.create("hi", tools=tools)
    assert (answer["status"], answer["tools"]) == ("completed", tools)
    error = await api.refused(400, "hi", tools=tools, tool_choice="required")
    assert error["code"] == "invalid_tool_choice"

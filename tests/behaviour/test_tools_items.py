"""Items that say something of the requests after them: tools, settings, phases."""

from __future__ import annotations

from typing import Any

import pytest

from support.inprocess import InProcess

requirement = pytest.mark.requirement

EXEC = {"type": "namespace", "name": "functions", "description": "", "tools": [{"type": "custom", "name": "exec"}]}
CLOCK = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}}
ADD = {"type": "additional_tools", "role": "developer", "tools": [EXEC, CLOCK]}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
FORM = {"type": "json_schema", "name": "out", "schema": SCHEMA, "strict": True}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@requirement("tools:additional")
async def test_tools_of_an_item_can_be_called_without_any_in_the_request(api: InProcess):
    answer = await api.create([ADD, user("!CUSTOM functions::exec text(1)\n!CALL now {}")])
    assert [(item["type"], item.get("namespace"), item["name"]) for item in answer["output"]] == [
        ("custom_tool_call", "functions", "exec"),
        ("function_call", None, "now"),
    ]
    assert answer["tools"] == []
    forced = await api.create([ADD, user("hi")], tool_choice={"type": "function", "name": "now"})
    assert [item["name"] for item in forced["output"]] == ["now"]


@requirement("tools:additional")
async def test_they_stand_in_a_chain_and_are_kept_as_they_came(api: InProcess):
    first = await api.create([{**ADD, "id": "at_1"}, user("hi")])
    now = {"type": "function", "name": "now"}
    answer = await api.create("hi", previous_response_id=first["id"], tool_choice=now)
    assert [item["name"] for item in answer["output"]] == ["now"]
    listed = (await api.client.get(f"/responses/{answer['id']}/input_items?order=asc")).json()["data"]
    assert {name: listed[0][name] for name in ADD} == ADD
    await api.refused(400, "hi", tool_choice=now)


@requirement("tools:additional")
async def test_they_are_no_message_and_no_input_of_their_own(api: InProcess):
    assert await api.echo([ADD, user("hi")]) == await api.echo([user("hi")])
    assert (await api.refused(400, [ADD]))["code"] == "empty_input"


@requirement("tools:additional")
@pytest.mark.parametrize(
    ("tools", "param"), [({}, None), ("x", "input[0].tools"), ([{"type": "custom"}], "input[0].tools[0].name")]
)
async def test_malformed_tools_of_an_item_are_a_400_that_names_their_place(api: InProcess, tools: Any, param: str):
    items = [{"type": "additional_tools", "role": "developer", "tools": tools}, user("hi")]
    if param is None:
        assert (await api.create(items))["status"] == "completed"
    else:
        assert (await api.refused(400, items))["param"] == param


@requirement("tools:configuration")
async def test_a_format_stays_until_another_replaces_it_also_in_a_chain(api: InProcess):
    update = {"type": "configuration_update", "text": {"format": FORM}}
    first = await api.create([user("hi"), update])
    assert first["output_text"] == '{"n":0}'
    assert first["text"]["format"]["type"] == "json_schema"
    second = await api.create("hi", previous_response_id=first["id"])
    assert second["output_text"] == '{"n":0}'
    plain = {"type": "configuration_update", "text": {"format": {"type": "text"}}}
    third = await api.create([plain, user("hi")], previous_response_id=second["id"])
    assert third["output_text"] == "Hello from scripted."
    fourth = await api.create("hi", previous_response_id=third["id"])
    assert (fourth["output_text"], fourth["text"]["format"]) == ("Hello from scripted.", {"type": "text"})


@requirement("tools:configuration")
async def test_an_effort_stands_before_that_of_the_request_until_another_replaces_it(api: InProcess):
    update = {"type": "configuration_update", "reasoning": {"effort": "xhigh"}}
    fields = {"reasoning": {"effort": "low", "summary": "auto"}}
    first = await api.create([update, user("hi")], **fields)
    assert first["reasoning"] == {"effort": "xhigh", "summary": "auto"}
    second = await api.create("hi", previous_response_id=first["id"], **fields)
    assert second["reasoning"]["effort"] == "xhigh"
    later = {"type": "configuration_update", "reasoning": {"effort": "none"}}
    third = await api.create([later, user("hi")], previous_response_id=second["id"], **fields)
    assert third["reasoning"]["effort"] == "none"


@requirement("tools:configuration")
async def test_an_update_is_no_message_and_is_kept_as_it_came(api: InProcess):
    update = {"type": "configuration_update", "reasoning": {"effort": "low"}, "x": 1}
    assert await api.echo([update, user("hi")]) == await api.echo([user("hi")])
    answer = await api.create([update, user("hi")])
    (kept, _) = (await api.client.get(f"/responses/{answer['id']}/input_items?order=asc")).json()["data"]
    assert {name: kept[name] for name in update} == update


@requirement("tools:configuration")
async def test_an_update_in_a_conversation_stands_for_its_next_responses(api: InProcess):
    talk = (await api.client.post("/conversations", json={})).json()["id"]
    update = {"type": "configuration_update", "text": {"format": FORM}}
    await api.create([update, user("hi")], conversation=talk)
    assert (await api.create("hi", conversation=talk))["output_text"] == '{"n":0}'


@requirement("tools:configuration")
@pytest.mark.parametrize(
    ("update", "param"),
    [
        ({"reasoning": {"effort": 5}}, "input[0].reasoning.effort"),
        ({"text": {"format": {"name": "x"}}}, "input[0].text.format.type"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
    ],
)
async def test_a_malformed_update_is_a_400_that_names_its_place(api: InProcess, update: dict[str, Any], param: str):
    error = await api.refused(400, [{"type": "configuration_update", **update}, user("hi")])
    assert error["param"] == param


@requirement("tools:phase")
async def test_the_phase_of_a_message_is_kept_listed_and_sent_again_without_loss(api: InProcess):
    said = {
        "type": "message",
        "role": "assistant",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
    }
    final = {"role": "assistant", "content": "Done.", "phase": "final_answer"}
    first = await api.create([user("a"), said, final, {"role": "assistant", "content": "x", "phase": None}, user("b")])
    listed = (await api.client.get(f"/responses/{first['id']}/input_items?order=asc")).json()["data"]
    assert [item.get("phase") for item in listed] == [None, "commentary", "final_answer", None, None]
    assert "phase" not in listed[3]
    # What was listed can be sent as it is, by value and by reference, and is the same item.
    again = await api.create([*listed[:2], {"type": "item_reference", "id": listed[2]["id"]}, user("c")])
    second = (await api.client.get(f"/responses/{again['id']}/input_items?order=asc")).json()["data"]
    assert second[:3] == listed[:3]
    talk = (await api.client.post("/conversations", json={"items": [said]})).json()["id"]
    (kept,) = (await api.client.get(f"/conversations/{talk}/items")).json()["data"]
    assert kept["phase"] == "commentary"

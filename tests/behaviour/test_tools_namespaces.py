"""Tools of namespaces: told by flat names, called and replayed with their namespace."""

from __future__ import annotations

from typing import Any

import pytest

from support.inprocess import InProcess

requirement = pytest.mark.requirement

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": "get", "parameters": CITY}, {"type": "custom", "name": "note"}],
}
TOP = {"type": "function", "name": "get", "parameters": CITY}


def calls(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (item["type"], item.get("namespace"), item["name"], item.get("arguments", item.get("input")))
        for item in answer["output"]
    ]


@requirement("tools:namespace:call")
async def test_a_call_of_a_namespace_comes_back_with_its_bare_name_and_its_namespace(api: InProcess):
    answer = await api.create(
        '!CALL crm::get {"city":"Oslo"}\n!CUSTOM crm::note by hand\n!CALL get {}', tools=[CRM, TOP]
    )
    assert calls(answer) == [
        ("function_call", "crm", "get", '{"city":"Oslo"}'),
        ("custom_tool_call", "crm", "note", "by hand"),
        ("function_call", None, "get", "{}"),
    ]
    assert "namespace" not in answer["output"][2]
    assert answer["tools"] == [CRM, {**TOP, "strict": None, "description": None}]


@requirement("tools:namespace:call")
async def test_the_events_of_such_a_call_are_those_of_any_other(api: InProcess):
    events = await api.stream('!CALL crm::get {"city":"Oslo"}', tools=[CRM])
    added = next(event["item"] for event in events if event["type"] == "response.output_item.added")
    assert (added["name"], added["namespace"], added["arguments"]) == ("get", "crm", "")
    done = next(event for event in events if event["type"] == "response.function_call_arguments.done")
    assert (done["name"], done["arguments"]) == ("get", '{"city":"Oslo"}')


@requirement("tools:namespace:call", "scripted:namespaces")
async def test_a_call_that_is_not_declared_in_its_namespace_is_not_made(api: InProcess):
    for name in ("erp::get", "crm::drop"):
        answer = await api.create(f"!CALL {name} {{}}", tools=[CRM, TOP])
        assert answer["output_text"] == "Hello from scripted."


@requirement("tools:namespace:choice")
@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "get", "namespace": "crm"},
        {"type": "function", "name": "crm.get"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "namespace", "name": "crm"}]},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "crm__get"}]},
    ],
)
async def test_a_choice_can_name_a_tool_of_a_namespace(api: InProcess, choice: dict[str, Any]):
    answer = await api.create("hi", tools=[TOP, CRM], tool_choice=choice)
    assert calls(answer) == [("function_call", "crm", "get", '{"city":""}')]
    assert answer["tool_choice"] == choice


@requirement("tools:namespace:choice")
async def test_a_choice_of_a_tool_that_no_namespace_has_is_a_400(api: InProcess):
    choice = {"type": "function", "name": "get", "namespace": "erp"}
    error = await api.refused(400, "hi", tools=[TOP, CRM], tool_choice=choice)
    assert (error["code"], error["param"]) == ("invalid_tool_choice", "tool_choice.name")


@requirement("tools:namespace:history")
async def test_a_call_of_a_namespace_is_told_by_the_same_name_in_a_chain_and_inline(api: InProcess):
    asked = {"role": "user", "content": '!CALL crm::get {"city":"Oslo"}'}
    first = await api.create([asked], tools=[CRM])
    output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "12C"}
    chained = await api.echo([output], previous_response_id=first["id"], tools=[CRM])
    inline = await api.echo([asked, *first["output"], output], tools=[CRM])
    assert chained == inline
    assert '{"name":"crm__get","arguments":"{\\"city\\":\\"Oslo\\"}"}' in chained


@requirement("tools:namespace:names")
async def test_a_function_that_is_named_like_a_tool_of_a_namespace_is_told_apart_from_it(api: InProcess):
    tools = [{"type": "function", "name": "crm__get", "parameters": CITY}, CRM]
    asked = {"role": "user", "content": "!CALL crm::get {}\n!CALL crm__get {}"}
    answer = await api.create([asked], tools=tools)
    assert calls(answer) == [("function_call", "crm", "get", "{}"), ("function_call", None, "crm__get", "{}")]
    outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "x"} for call in answer["output"]]
    told = await api.echo(outputs, previous_response_id=answer["id"], tools=tools)
    assert told.count('"name":"crm__get"') == 1
    assert told.count('"name":"crm__get_') == 1


@requirement("tools:namespace:malformed")
@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "namespace", "tools": []}, "tools[0].name"),
        ({"type": "namespace", "name": "", "tools": []}, "tools[0].name"),
        ({"type": "namespace", "name": "crm", "tools": {}}, None),
        ({"type": "namespace", "name": "crm", "tools": "x"}, "tools[0].tools"),
        ({"type": "namespace", "name": "crm", "tools": [{"type": "function"}]}, "tools[0].tools[0].name"),
        ({"type": "namespace", "name": "crm", "tools": [TOP] * 1025}, "tools[0].tools"),
    ],
)
async def test_a_malformed_namespace_is_a_400_that_names_its_place(api: InProcess, tool: dict[str, Any], param: str):
    if param is None:
        assert (await api.create("hi", tools=[tool]))["status"] == "completed"
    else:
        assert (await api.refused(400, "hi", tools=[tool]))["param"] == param

"""Tools that are not shown at first: searches that the server makes, and searches that the client makes."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.engines.base import PreparedTurn
from antiphon.engines.scripted import ScriptedEngine
from antiphon.prompt.prompt import Prompt
from support.inprocess import InProcess

requirement = pytest.mark.requirement

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": CITY,
    "strict": None,
    "defer_loading": True,
}
MAIL = {"type": "function", "name": "send_mail", "description": "Send a mail.", "defer_loading": True}
CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": "find", "description": "Find one.", "defer_loading": True}],
}
SEARCH = {"type": "tool_search"}
TOOLS = [WEATHER, MAIL, CRM, SEARCH]
ASK = '!CALL tool_search {"query":"weather"}\n!THEN\n!CALL get_weather {"city":"Oslo"}'
BY_CLIENT = {**SEARCH, "execution": "client", "description": "Ask the user's registry.", "parameters": CITY}


def kinds(answer: dict[str, Any]) -> list[str]:
    return [item["type"] for item in answer["output"]]


@requirement("tools:search:server", "tools:search:namespace")
async def test_a_search_of_the_server_is_two_items_and_the_turn_goes_on_with_what_was_found(api: InProcess):
    answer = await api.create(ASK, tools=TOOLS)
    call, output, made = answer["output"]
    assert {**call, "id": None} == {
        "id": None,
        "type": "tool_search_call",
        "status": "completed",
        "call_id": None,
        "execution": "server",
        "arguments": {"query": "weather"},
    }
    assert {**output, "id": None} == {
        "id": None,
        "type": "tool_search_output",
        "status": "completed",
        "call_id": None,
        "execution": "server",
        "tools": [WEATHER],
    }
    assert (call["id"][:4], output["id"][:4]) == ("tsc_", "tso_")
    assert (made["name"], made["namespace"], made["arguments"]) == ("get_weather", "get_weather", '{"city":"Oslo"}')
    assert (answer["status"], answer["tools"]) == (
        "completed",
        [WEATHER, {**MAIL, "parameters": None, "strict": None}, CRM, SEARCH],
    )


@requirement("tools:search:server")
async def test_its_items_begin_in_progress_and_no_event_comes_between(api: InProcess):
    events = await api.stream(ASK, tools=TOOLS)
    told = [(event["type"], event["item"]["type"], event["item"]["status"]) for event in events if "item" in event]
    assert told[:4] == [
        ("response.output_item.added", "tool_search_call", "in_progress"),
        ("response.output_item.done", "tool_search_call", "completed"),
        ("response.output_item.added", "tool_search_output", "in_progress"),
        ("response.output_item.done", "tool_search_output", "completed"),
    ]
    assert events[2]["item"]["arguments"] == {}
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    stored = await api.client.get(f"/responses/{events[-1]['response']['id']}")
    assert stored.json() == events[-1]["response"]


@requirement("tools:search:deferred")
async def test_a_tool_cannot_be_called_before_it_was_found(api: InProcess):
    answer = await api.create('!CALL get_weather {"city":"Oslo"}', tools=TOOLS, tool_choice="required")
    assert kinds(answer)[0] == "tool_search_call"
    answer = await api.create("!CALL crm::find {}", tools=TOOLS)
    assert answer["output_text"] == "Hello from scripted."


@requirement("tools:search:server")
async def test_a_search_that_finds_nothing_says_so_to_the_model(api: InProcess):
    answer = await api.create('!CALL tool_search {"query":"quantum"}', tools=TOOLS)
    assert kinds(answer) == ["tool_search_call", "tool_search_output", "message"]
    assert answer["output"][1]["tools"] == []
    assert answer["output_text"] == "FINAL: No tool was found."


@requirement("tools:search:server")
async def test_a_tool_of_a_namespace_is_found_inside_it(api: InProcess):
    answer = await api.create('!CALL tool_search {"query":"crm"}\n!THEN\n!CALL crm::find {}', tools=TOOLS)
    tool = {**CRM["tools"][0], "parameters": None, "strict": None}
    assert answer["output"][1]["tools"] == [{**CRM, "tools": [tool]}]
    assert (answer["output"][2]["name"], answer["output"][2]["namespace"]) == ("find", "crm")


@requirement("tools:search:history")
async def test_what_was_found_stays_found_in_a_chain_and_inline(api: InProcess):
    asked = {"role": "user", "content": ASK}
    first = await api.create([asked], tools=TOOLS)
    output = {"type": "function_call_output", "call_id": first["output"][2]["call_id"], "output": "12C"}
    again = {"role": "user", "content": '!CALL get_weather {"city":"Rome"}'}
    chained = await api.create([output, again], previous_response_id=first["id"], tools=TOOLS)
    assert kinds(chained) == ["function_call"]
    inline = await api.create([asked, *first["output"], output, again], tools=TOOLS, store=False)
    assert kinds(inline) == ["function_call"]
    told = await api.echo([output], previous_response_id=first["id"], tools=TOOLS)
    assert told == await api.echo([asked, *first["output"], output], tools=TOOLS)
    assert "These tools can be called now: get_weather" in told


@requirement("tools:rounds")
async def test_the_next_turn_sees_what_a_chain_would_see(api: InProcess):
    fields = {"tools": TOOLS, "instructions": "Be kind.", "reasoning": {"effort": "low"}}
    asked = {"role": "user", "content": '!REASON so\n!CALL tool_search {"query":"weather"}\n!THEN\n!ECHO'}
    answer = await api.create([asked], **fields)
    shown = answer["output_text"]
    thought, call, output = answer["output"][:3]
    # The same history, sent inline: its last item is the output, so that the same turn follows.
    again = await api.create([asked, thought, call, output], **fields)
    assert again["output_text"] == shown
    assert shown.startswith("<|im_start|>system\nBe kind.")


@requirement("tools:rounds:bound")
async def test_the_server_searches_four_times_and_then_no_more(api: InProcess, monkeypatch: pytest.MonkeyPatch):
    shown: list[list[str]] = []
    prepare = ScriptedEngine.prepare

    async def noting(self: ScriptedEngine, prompt: Prompt) -> PreparedTurn:
        shown.append([tool.name for tool in prompt.tools])
        return await prepare(self, prompt)

    monkeypatch.setattr(ScriptedEngine, "prepare", noting)
    text = "\n!THEN\n".join(['!CALL tool_search {"query":"none"}'] * 4 + ["!TEXT enough"])
    answer = await api.create(text, tools=TOOLS)
    assert kinds(answer) == ["tool_search_call", "tool_search_output"] * 4 + ["message"]
    assert answer["output_text"] == "enough"
    assert shown == [["tool_search"]] * 4 + [[]]


@requirement("tools:rounds:bound")
async def test_max_tool_calls_bounds_the_searches_and_what_is_more_finds_nothing(api: InProcess):
    twice = '!CALL tool_search {"query":"weather"}\n!CALL tool_search {"query":"mail"}'
    answer = await api.create(twice, tools=TOOLS, max_tool_calls=1)
    assert [len(item["tools"]) for item in answer["output"] if item["type"] == "tool_search_output"] == [1, 0]
    again = "\n!THEN\n".join('!CALL tool_search {"query":"weather"}' for _ in range(3))
    answer = await api.create(again, tools=TOOLS, max_tool_calls=2)
    assert kinds(answer).count("tool_search_call") == 2


@requirement("tools:rounds:wait")
async def test_a_call_of_the_client_beside_a_search_gives_the_client_the_word(api: InProcess):
    function = {"type": "function", "name": "f"}
    answer = await api.create('!CALL tool_search {"query":"weather"}\n!CALL f {}', tools=[*TOOLS, function])
    assert kinds(answer) == ["tool_search_call", "function_call", "tool_search_output"]
    assert answer["status"] == "completed"
    output = {"type": "function_call_output", "call_id": answer["output"][1]["call_id"], "output": "ok"}
    after = await api.create([output], previous_response_id=answer["id"], tools=[*TOOLS, function])
    assert after["output_text"] == "FINAL: ok"


@requirement("tools:rounds:usage")
async def test_usage_is_that_of_all_turns(api: InProcess):
    answer = await api.create(ASK, tools=TOOLS)
    first = await api.client.post("/responses/input_tokens", json={"model": "scripted", "input": ASK, "tools": TOOLS})
    assert answer["usage"]["input_tokens"] > 2 * first.json()["input_tokens"]
    assert answer["usage"]["output_tokens"] == 5 + 4


@requirement("tools:rounds:limit")
async def test_max_output_tokens_is_a_limit_of_all_turns_together(api: InProcess):
    text = '!CALL tool_search {"query":"weather"}\n!THEN\n!COUNT 50'
    cut = await api.create(text, tools=TOOLS, max_output_tokens=15)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert cut["usage"]["output_tokens"] == 15
    spent = await api.create(text, tools=TOOLS, max_output_tokens=5)
    assert (spent["status"], kinds(spent)[:2]) == ("incomplete", ["tool_search_call", "tool_search_output"])
    assert spent["usage"]["output_tokens"] == 5


@requirement("tools:rounds:choice")
async def test_a_forced_search_is_forced_once(api: InProcess):
    answer = await api.create("hi", tools=TOOLS, tool_choice={"type": "tool_search"})
    assert kinds(answer) == ["tool_search_call", "tool_search_output", "message"]


@requirement("tools:search:choice")
async def test_a_deferred_tool_that_a_choice_names_is_shown(api: InProcess):
    answer = await api.create("hi", tools=TOOLS, tool_choice={"type": "function", "name": "get_weather"})
    assert [(item["type"], item["name"]) for item in answer["output"]] == [("function_call", "get_weather")]


@requirement("tools:search:client")
async def test_a_search_of_the_client_ends_the_response_and_its_output_adds_the_tools(api: InProcess):
    asked = {"role": "user", "content": '!CALL tool_search {"city":"Oslo"}'}
    first = await api.create([asked], tools=[BY_CLIENT])
    (call,) = first["output"]
    assert (call["type"], call["execution"], call["arguments"]) == ("tool_search_call", "client", {"city": "Oslo"})
    assert call["call_id"].startswith("call_")
    assert (first["status"], call["status"]) == ("completed", "completed")
    error = await api.refused(400, "next", previous_response_id=first["id"], tools=[BY_CLIENT])
    assert error["code"] == "missing_tool_output"
    found = {
        "type": "tool_search_output",
        "execution": "client",
        "call_id": call["call_id"],
        "status": "completed",
        "tools": [WEATHER, CRM],
    }
    again = {"role": "user", "content": '!CALL get_weather {"city":"Oslo"}\n!CALL crm::find {}'}
    second = await api.create([found, again], previous_response_id=first["id"], tools=[BY_CLIENT])
    assert [(item["name"], item["namespace"]) for item in second["output"]] == [
        ("get_weather", "get_weather"),
        ("find", "crm"),
    ]
    listed = await api.client.get(f"/responses/{second['id']}/input_items?order=asc")
    kept = next(item for item in listed.json()["data"] if item["type"] == "tool_search_output")
    assert {name: kept[name] for name in found} == found


@requirement("tools:search:client")
async def test_deferred_tools_of_the_request_wait_for_the_search_of_the_client_too(api: InProcess):
    answer = await api.create('!CALL get_weather {"city":"Oslo"}', tools=[WEATHER, BY_CLIENT], tool_choice="required")
    assert kinds(answer) == ["tool_search_call"]


@requirement("tools:search:malformed")
@pytest.mark.parametrize(
    ("tools", "param"),
    [("x", "input[0].tools"), ([{"type": "function"}], "input[0].tools[0].name"), ([{}], "input[0].tools[0].type")],
)
async def test_a_malformed_output_of_a_search_is_a_400_that_names_its_place(api: InProcess, tools: Any, param: str):
    item = {"type": "tool_search_output", "call_id": "c", "tools": tools}
    error = await api.refused(400, [item, {"role": "user", "content": "hi"}])
    assert error["param"] == param

"""The search for tools: by name, by words, and what the model is told of it."""

from __future__ import annotations

import pytest

from antiphon.prompt.toolsearch import MOST_FOUND, MOST_NAMED, Hidden, find_tools, output_tools, search_tool, told_tools
from antiphon.protocol.tools import CustomTool, FunctionTool

WEATHER = Hidden(
    "get_weather",
    FunctionTool(
        "get_weather",
        {"type": "object", "properties": {"city": {"type": "string", "description": "Where to look."}}},
        description="Get the current weather at a place.",
        defer_loading=True,
    ),
)
MAIL = Hidden("sendEmail", FunctionTool("sendEmail", description="Send an email to a recipient."))
FILES = Hidden("search_files", FunctionTool("search_files", description="Search through files in the workspace."))
ORDER = Hidden("crm__getOrder", FunctionTool("getOrder", description="One order."), "crm", "Customers and sales.")
NOTE = Hidden("crm__note", CustomTool("note", description="Keep a note."), "crm", "Customers and sales.")
ALL = [WEATHER, MAIL, FILES, ORDER, NOTE]


@pytest.mark.requirement("tools:search:find")
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"query": "weather"}, [WEATHER]),
        ({"query": "What will the WEATHER be?"}, [WEATHER]),
        ({"query": "sending emails"}, [MAIL]),
        ({"query": "look for a file"}, [FILES]),
        ({"query": "city"}, [WEATHER]),
        ({"query": "orders"}, [ORDER]),
        ({"query": "customers"}, [ORDER, NOTE]),
        ({"query": "get_weather"}, [WEATHER]),
        ({"query": "crm"}, [ORDER, NOTE]),
        ({"paths": ["crm.getOrder", "get_weather"]}, [WEATHER, ORDER]),
        ({"query": "crm::note"}, [NOTE]),
        ({"query": "quantum chromodynamics"}, []),
        ({"query": ""}, []),
        ({}, []),
        ({"query": 5, "other": [1]}, []),
    ],
)
def test_a_search_finds_by_name_and_else_by_words(arguments, found):
    assert find_tools(arguments, ALL) == found


@pytest.mark.requirement("tools:search:find")
def test_a_search_is_bounded():
    many = [Hidden(f"mail_{n}", FunctionTool(f"mail_{n}", description="Send mail.")) for n in range(200)]
    assert len(find_tools({"query": "send mail " + "and more " * 10_000}, many)) == MOST_FOUND
    of_one = [Hidden(f"crm__f{n}", FunctionTool(f"f{n}"), "crm") for n in range(200)]
    assert len(find_tools({"query": "crm"}, of_one)) == MOST_NAMED
    told = search_tool({"type": "tool_search"}, many).description or ""
    assert len(told) < 3_000
    assert told.endswith("- and more")


@pytest.mark.requirement("tools:search:output")
def test_the_output_holds_tools_as_they_were_declared_those_of_a_namespace_inside_it():
    weather, crm = output_tools([WEATHER, ORDER, NOTE])
    assert weather["type"] == "function"
    assert (weather["name"], weather["defer_loading"]) == ("get_weather", True)
    assert (crm["type"], crm["name"], crm["description"]) == ("namespace", "crm", "Customers and sales.")
    assert [(tool["type"], tool["name"]) for tool in crm["tools"]] == [("function", "getOrder"), ("custom", "note")]
    assert told_tools([weather, crm]) == "These tools can be called now: get_weather, crm__getOrder, crm__note"
    assert told_tools([]) == "No tool was found."


@pytest.mark.requirement("tools:search:function")
def test_the_model_is_told_what_there_is_to_find():
    tool = search_tool({"type": "tool_search"}, ALL)
    assert (tool.description or "").splitlines()[1:] == [
        "- crm (Customers and sales.): getOrder, note",
        "- get_weather: Get the current weather at a place.",
        "- sendEmail: Send an email to a recipient.",
        "- search_files: Search through files in the workspace.",
    ]
    assert tool.parameters is not None
    assert tool.parameters["required"] == ["query"]


@pytest.mark.requirement("tools:search:function")
def test_a_search_that_the_client_makes_is_shown_as_the_client_declares_it():
    schema = {"type": "object", "properties": {"goal": {"type": "string"}}}
    tool = search_tool({"type": "tool_search", "execution": "client", "description": "D", "parameters": schema}, ALL)
    assert (tool.name, tool.description, tool.parameters) == ("tool_search", "D", schema)
    assert search_tool({"type": "tool_search", "execution": "client"}, []).description

"""Tools of a request and of its history as the one flat list that a model knows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidRequestError
from antiphon.machine.deltas import ToolCallStart
from antiphon.machine.router import Target
from antiphon.prompt.names import MAX_FLAT_NAME, flat_name
from antiphon.prompt.toolbox import AddedTool, HostedFunction, Toolbox, merge_added, toolbox
from antiphon.prompt.toolsearch import output_tools
from antiphon.protocol.tools import CustomTool, FunctionTool

SEARCH = {"type": "tool_search"}


def space(name: str, *tools: dict[str, Any], description: str = "") -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": description, "tools": list(tools)}


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **fields}


def shown(box: Toolbox) -> list[str]:
    return [tool.name for tool in box.shown]


@pytest.mark.requirement("tools:namespace:names")
def test_a_name_of_a_namespace_is_the_two_joined():
    assert flat_name("crm", "get_weather") == "crm__get_weather"
    assert flat_name(None, "get") == flat_name("", "get") == flat_name("get", "get") == "get"


@pytest.mark.requirement("tools:namespace:names")
@pytest.mark.parametrize(
    ("namespace", "name"),
    [("a__b", "c"), ("a", "b__c"), ("a_", "b"), ("a", "_b"), ("a" * 40, "b" * 40), ("my crm", "get"), ("a.b", "c")],
)
def test_a_name_that_could_be_read_in_two_ways_or_is_unfit_ends_with_a_digest(namespace, name):
    made = flat_name(namespace, name)
    assert made != f"{namespace}__{name}"
    assert len(made) <= MAX_FLAT_NAME
    assert made == flat_name(namespace, name)
    assert all(char.isascii() and (char.isalnum() or char in "_-") for char in made)


_words = st.text(alphabet="ab_.", min_size=1, max_size=4)


@given(st.tuples(_words, _words), st.tuples(_words, _words))
@pytest.mark.requirement("tools:namespace:names")
def test_two_tools_of_namespaces_never_have_one_name(one, other):
    if one != other and one[0] != one[1] and other[0] != other[1]:
        assert flat_name(*one) != flat_name(*other)


@pytest.mark.requirement("tools:namespace:flat")
def test_tools_of_a_namespace_stand_in_the_list_where_it_stands():
    crm = space(
        "crm", function("get", description="Get one."), {"type": "custom", "name": "note"}, description="Customers."
    )
    box = toolbox([FunctionTool("f"), crm, CustomTool("c")])
    assert shown(box) == ["f", "crm__get", "crm__note", "c"]
    assert box.shown[1].description == "Get one.\n[Tools crm__…: Customers.]"
    assert isinstance(box.shown[2], CustomTool)
    assert box.entries["crm__get"].target == Target("get", "crm")
    assert box.router() is not None
    assert toolbox([FunctionTool("f"), CustomTool("c"), {"type": "web_search"}]).router() is None


@pytest.mark.requirement("tools:namespace:names")
def test_a_function_keeps_its_name_and_what_would_have_the_same_gets_another():
    box = toolbox([space("crm", function("get")), FunctionTool("crm__get"), {"type": "shell"}, FunctionTool("shell")])
    other, second = box.renames["crm__get"], box.renames["shell"]
    assert shown(box) == [other, "crm__get", second, "shell"]
    router = box.router()
    assert router is not None
    (call,) = router.feed([ToolCallStart(other)])
    assert call == ToolCallStart("get", namespace="crm")
    assert router.feed([ToolCallStart("crm__get")]) == [ToolCallStart("crm__get")]


@pytest.mark.requirement("tools:additional")
def test_a_tool_that_is_declared_again_replaces_what_it_was():
    again = AddedTool(FunctionTool("f", description="new"))
    box = toolbox([FunctionTool("f", description="old"), FunctionTool("g")], [again, AddedTool(FunctionTool("h"))])
    assert [(tool.name, tool.description) for tool in box.shown] == [("f", "new"), ("g", None), ("h", None)]


@pytest.mark.requirement("tools:shell", "tools:apply-patch", "tools:local-shell")
def test_tools_that_a_client_runs_are_shown_as_functions_and_others_are_left_out():
    kinds = ["shell", "apply_patch", "local_shell", "web_search", "brand_new"]
    box = toolbox([{"type": kind} for kind in kinds])
    assert shown(box) == kinds[:3]
    assert all(isinstance(tool, FunctionTool) and tool.parameters and tool.description for tool in box.shown)
    assert shown(toolbox([{"type": "shell", "environment": {"type": "container_auto"}}])) == []


@pytest.mark.requirement("computer:returned")
def test_a_computer_is_shown_to_models_that_can_use_one_and_left_to_upstreams_that_have_the_tool():
    kinds = ["computer", "computer_use_preview"]
    assert shown(toolbox([{"type": kind} for kind in kinds], computer=True)) == kinds
    box = toolbox([{"type": kind} for kind in kinds])
    assert shown(box) == []
    assert [tool["type"] for tool in box.hosted] == kinds


@pytest.mark.requirement("tools:search:deferred")
def test_a_deferred_tool_waits_for_a_search_where_there_is_one():
    later, inner = FunctionTool("mail", defer_loading=True), space("crm", function("get", defer_loading=True))
    assert shown(toolbox([later, inner])) == ["mail", "crm__get"]
    box = toolbox([FunctionTool("f"), later, inner, SEARCH])
    assert shown(box) == ["f", "tool_search"]
    assert [tool.name for tool in box.hidden] == ["mail", "crm__get"]
    assert box.searches
    found = [AddedTool(inner, loaded=True)]
    assert shown(toolbox([FunctionTool("f"), later, inner, SEARCH], found)) == ["f", "crm__get", "tool_search"]


@pytest.mark.requirement("tools:search:deferred")
def test_a_search_that_could_find_nothing_is_not_shown_unless_the_client_makes_it():
    assert shown(toolbox([FunctionTool("f"), SEARCH])) == ["f"]
    later = FunctionTool("mail", defer_loading=True)
    assert shown(toolbox([later, SEARCH], may_search=False)) == []
    client = {**SEARCH, "execution": "client", "description": "Ask.", "parameters": {"type": "object"}}
    box = toolbox([client], may_search=False)
    assert [(tool.name, tool.description) for tool in box.shown] == [("tool_search", "Ask.")]
    assert not box.searches


@pytest.mark.requirement("tools:search:namespace")
def test_calls_of_a_deferred_tool_come_back_in_a_namespace_of_its_name():
    box = toolbox([FunctionTool("mail", defer_loading=True)])
    assert box.entries["mail"].target == Target("mail", "mail")


@pytest.mark.requirement("tools:bounds")
def test_namespaces_and_the_conversation_count_against_the_bound_of_tools():
    many = [space(f"n{index}", *(function(f"f{place}") for place in range(600))) for index in range(2)]
    with pytest.raises(InvalidRequestError) as caught:
        toolbox(many)
    assert (caught.value.param, caught.value.code) == ("tools", "array_above_max_length")


@pytest.mark.requirement("tools:additional")
def test_added_tools_are_merged_by_name_and_the_later_one_stands():
    first, second = AddedTool(FunctionTool("f", description="a")), AddedTool(FunctionTool("f", description="b"))
    other = AddedTool(space("crm", function("get")))
    assert merge_added([[first, other], [second, other]]) == (second, other)
    assert merge_added([[other], [AddedTool(space("crm", function("put")))]])[0] == other


@pytest.mark.requirement("mcp:defer")
def test_functions_of_a_server_are_shown_once_a_search_has_found_them():
    look, change = (HostedFunction(FunctionTool(name), "mcp", "here", deferred=True) for name in ("look", "change"))
    other = HostedFunction(FunctionTool("look"), "mcp", "there", deferred=True)
    box = toolbox([SEARCH], hosted=[look, change], here=["mcp"])
    assert shown(box) == ["tool_search"]
    found = output_tools([tool for tool in box.hidden if tool.name == "look"])
    later = [AddedTool(tool, loaded=True) for tool in found]
    box = toolbox([SEARCH], later, hosted=[look, change, other], here=["mcp"])
    assert "look" in shown(box)
    assert {tool.server for tool in box.hidden} == {"here", "there"}
    assert [tool["type"] for tool in box.declared if isinstance(tool, dict)] == ["tool_search"]
    assert shown(toolbox([], hosted=[look, change], here=["mcp"])) == ["look", "change"]
    assert shown(toolbox([SEARCH], later, hosted=[change], here=["mcp"])) == ["tool_search"]
    assert len(merge_added([later, [AddedTool({**found[0], "server_label": "there"}, loaded=True)]])) == 2

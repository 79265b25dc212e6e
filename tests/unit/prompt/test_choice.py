"""The tool choice against the declared tools."""

from __future__ import annotations

import pytest

from antiphon.errors import InvalidRequestError
from antiphon.prompt.choice import after_first_turn, resolve_choice
from antiphon.prompt.prompt import ResolvedChoice
from antiphon.prompt.toolbox import toolbox
from antiphon.protocol.tools import AllowedTools, CustomTool, FunctionChoice, FunctionTool, NamedToolChoice

F, G, C = FunctionTool("f"), FunctionTool("g"), CustomTool("c")
WEB = {"type": "web_search"}
TOOLS = [F, WEB, G, C]
CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {"type": "function", "name": "get", "parameters": {"type": "object"}},
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "note"},
        {"type": "function", "name": "drop", "defer_loading": True},
    ],
}
MAIL = FunctionTool("mail", defer_loading=True)
SHELL, SEARCH = {"type": "shell", "environment": {"type": "local"}}, {"type": "tool_search"}
ALL = [*TOOLS, CRM, MAIL, SHELL, SEARCH]


@pytest.mark.requirement("prompt:choice", "subset:M9")
@pytest.mark.parametrize(
    ("choice", "told", "mode", "allowed"),
    [
        ("none", [], "none", ()),
        ("auto", [F, G, C], "auto", ("f", "g", "c")),
        ("required", [F, G, C], "required", ("f", "g", "c")),
        (FunctionChoice("g"), [G], "required", ("g",)),
        (NamedToolChoice("custom", "c", {}), [C], "required", ("c",)),
        (AllowedTools("auto", [{"type": "function", "name": "g"}]), [F, G, C], "auto", ("g",)),
        (AllowedTools("required", [{"type": "function", "name": "g"}, WEB]), [F, G, C], "required", ("g",)),
        (AllowedTools("auto", [WEB]), [F, G, C], "auto", ()),
        (AllowedTools("auto", [{"type": "function", "function": {"name": "g"}}]), [F, G, C], "auto", ("g",)),
    ],
)
def test_a_choice_says_what_the_model_is_told_and_what_it_may_call(choice, told, mode, allowed):
    assert resolve_choice(toolbox(TOOLS), choice) == (told, ResolvedChoice(mode, allowed))


@pytest.mark.requirement("tools:namespace:choice", "tools:shell", "tools:search:choice")
@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        (FunctionChoice("get"), ["crm__get"]),
        (FunctionChoice("get", "crm"), ["crm__get"]),
        (FunctionChoice("crm.get"), ["crm__get"]),
        (FunctionChoice("crm::get"), ["crm__get"]),
        (FunctionChoice("crm__get"), ["crm__get"]),
        (FunctionChoice("f"), ["f"]),
        (FunctionChoice("f", "crm"), ["crm__f"]),
        (FunctionChoice("mail"), ["mail"]),
        (FunctionChoice("mail", "mail"), ["mail"]),
        (NamedToolChoice("custom", "note", {"namespace": "crm"}), ["crm__note"]),
        (NamedToolChoice("custom", "note", {}), ["crm__note"]),
        (NamedToolChoice("shell", None, {}), ["shell"]),
        (NamedToolChoice("tool_search", None, {}), ["tool_search"]),
        (
            AllowedTools("required", [{"type": "namespace", "name": "crm"}]),
            ["crm__get", "crm__f", "crm__note", "crm__drop"],
        ),
        (AllowedTools("auto", [{"type": "function", "name": "get", "namespace": "crm"}, SHELL]), ["crm__get", "shell"]),
    ],
)
def test_a_choice_may_name_tools_of_namespaces_and_those_that_have_items_of_their_own(choice, allowed):
    told, resolved = resolve_choice(toolbox(ALL), choice)
    assert list(resolved.allowed) == allowed
    assert resolved.mode == getattr(choice, "mode", "required")
    assert set(allowed) <= {tool.name for tool in told}


@pytest.mark.requirement("prompt:choice:unmeetable", "subset:M9")
@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([], "required", "tool_choice"),
        ([WEB], "required", "tool_choice"),
        (TOOLS, FunctionChoice("F"), "tool_choice.name"),
        (TOOLS, FunctionChoice("c"), "tool_choice.name"),
        (TOOLS, NamedToolChoice("custom", "f", {}), "tool_choice.name"),
        (TOOLS, NamedToolChoice("web_search", None, {}), "tool_choice.type"),
        (TOOLS, NamedToolChoice("shell", None, {}), "tool_choice.type"),
        (ALL, NamedToolChoice("apply_patch", None, {}), "tool_choice.type"),
        (ALL, FunctionChoice("get", "erp"), "tool_choice.name"),
        (ALL, FunctionChoice("note"), "tool_choice.name"),
        (TOOLS, AllowedTools("required", [WEB]), "tool_choice.tools"),
        (TOOLS, AllowedTools("auto", [{"type": "function", "name": "h"}]), "tool_choice.tools[0]"),
        (ALL, AllowedTools("auto", [SHELL, {"type": "namespace", "name": "erp"}]), "tool_choice.tools[1]"),
    ],
)
def test_a_choice_that_nothing_can_meet_is_a_400(tools, choice, param):
    with pytest.raises(InvalidRequestError) as caught:
        resolve_choice(toolbox(tools), choice)
    assert caught.value.param == param


@pytest.mark.requirement("tools:rounds:choice")
def test_what_is_forced_is_forced_once_and_a_limit_stays():
    assert [after_first_turn(choice) for choice in ("none", "auto", "required")] == ["none", "auto", "auto"]
    assert after_first_turn(FunctionChoice("f")) == "auto"
    assert after_first_turn(NamedToolChoice("tool_search", None, {})) == "auto"
    entries = [{"type": "function", "name": "f"}]
    assert after_first_turn(AllowedTools("required", entries)) == AllowedTools("auto", entries)


@pytest.mark.requirement("responses-upstream:choice")
def test_a_choice_that_a_tool_of_the_upstream_may_meet_is_for_the_upstream():
    box = toolbox(TOOLS)
    names = ("f", "g", "c")

    def hosted(choice):
        tools, resolved = resolve_choice(box, choice, hosted=True)
        assert tools == [F, G, C]
        assert (resolved.mode, resolved.allowed) == ("auto", names)
        return resolved.hosted

    assert hosted("auto") is None
    assert hosted("required") == "required"
    assert hosted(NamedToolChoice("web_search", None, WEB)) == WEB
    entries = [{"type": "function", "name": "g"}, {"type": "custom", "name": "c"}, WEB]
    assert hosted(AllowedTools("required", entries)) == {"type": "allowed_tools", "mode": "required", "tools": entries}
    assert resolve_choice(box, "none", hosted=True) == ([], ResolvedChoice("none", ()))
    assert resolve_choice(box, FunctionChoice("g"), hosted=True) == ([G], ResolvedChoice("required", ("g",)))
    assert resolve_choice(toolbox([WEB]), "required", hosted=True) == ([], ResolvedChoice("auto", (), "required"))
    with pytest.raises(InvalidRequestError):
        resolve_choice(box, NamedToolChoice("mcp", None, {"type": "mcp"}), hosted=True)
    with pytest.raises(InvalidRequestError):
        resolve_choice(box, NamedToolChoice("web_search", None, WEB))


@pytest.mark.requirement("computer:returned")
def test_a_choice_of_a_computer_is_for_whoever_owns_it():
    tool = {"type": "computer"}
    choice = NamedToolChoice("computer", None, tool)
    mine = toolbox([tool], computer=True)
    assert resolve_choice(mine, choice)[1] == ResolvedChoice("required", ("computer",))
    assert resolve_choice(toolbox([F, tool]), choice, hosted=True)[1] == ResolvedChoice("auto", ("f",), tool)
    with pytest.raises(InvalidRequestError):
        resolve_choice(toolbox([tool]), choice)

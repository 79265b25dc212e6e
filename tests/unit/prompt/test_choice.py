"""The tool choice against the declared tools."""

from __future__ import annotations

import pytest

from antiphon.errors import InvalidRequestError
from antiphon.prompt.choice import resolve_choice
from antiphon.prompt.prompt import ResolvedChoice
from antiphon.protocol.tools import AllowedTools, CustomTool, FunctionChoice, FunctionTool, NamedToolChoice

F, G, C = FunctionTool("f"), FunctionTool("g"), CustomTool("c")
WEB = {"type": "web_search"}
TOOLS = [F, WEB, G, C]


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
    assert resolve_choice(TOOLS, choice) == (told, ResolvedChoice(mode, allowed))


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
        (TOOLS, AllowedTools("required", [WEB]), "tool_choice.tools"),
        (TOOLS, AllowedTools("auto", [{"type": "function", "name": "h"}]), "tool_choice.tools[0]"),
    ],
)
def test_a_choice_that_nothing_can_meet_is_a_400(tools, choice, param):
    with pytest.raises(InvalidRequestError) as caught:
        resolve_choice(tools, choice)
    assert caught.value.param == param

"""Custom tools with a grammar of their own, in the families whose arguments are JSON or Python."""

from __future__ import annotations

import re
from typing import Any

import pytest

from antiphon.prompt.dialects import Dialect, named
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.tools import CustomTool
from support.dialects import TOOLS, grammar, pieces_of, prompt_of, read
from support.families import FAMILIES
from support.grammar_walk import accepts, complaints, walk

DEFINITION = 'start: "SELECT " name ("," name)* ";"\nname: /[a-z]{1,5}/'
INPUT = re.compile(r"SELECT [a-z]{1,5}(,[a-z]{1,5})*;")
QUERY = CustomTool("query", "Asks.", {"type": "grammar", "syntax": "lark", "definition": DEFINITION})
DIGITS = CustomTool("dial", "Dials.", {"type": "grammar", "syntax": "regex", "definition": "[0-9]{3}"})
MIXED = (*TOOLS[:1], QUERY, DIGITS)
FORMS = ("mistral", "mistral_ids", "mistral_array", "kimi", "deepseek", "deepseek_r1", "llama3", "pythonic", "lfm2")
CALLS = {
    "mistral": ("[TOOL_CALLS]query[ARGS]", ""),
    "mistral_ids": ("[TOOL_CALLS]query[CALL_ID]abcdefgh1[ARGS]", ""),
    "mistral_array": ("[TOOL_CALLS]query[ARGS]", ""),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.query:0<|tool_call_argument_begin|>",
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>query<｜tool▁sep｜>",
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "deepseek_r1": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>query<｜tool▁sep｜>",
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "llama3": ('{"name": "query"}\n', ""),
    "pythonic": ('[query(input=r"""', '""")]'),
    "lfm2": ('<|tool_call_start|>[query(input=r"""', '""")]<|tool_call_end|>'),
}
BY_FORM = pytest.mark.parametrize("family", FORMS)


def form(family: str) -> Dialect:
    return named(FAMILIES[family].dialect, FAMILIES[family].text(), {"supports_tools": True})


def prompt(**fields: Any) -> Prompt:
    return prompt_of(MIXED, **fields)


@BY_FORM
@pytest.mark.requirement("prompt:dialect:bare-input")
def test_the_input_of_a_tool_with_a_grammar_stands_as_it_is(family: str) -> None:
    dialect, (before, behind) = form(family), CALLS[family]
    assert dialect.binds_lark
    for text in ("SELECT a,b;", "a \"b\"\\n {c}\n'd' [e]", "{}", ""):
        expected = [("query", text)]
        assert read(dialect, before + text + behind, prompt()) == expected
        assert read(dialect, list(before + text + behind), prompt()) == expected
        assert read(dialect, before + text, prompt()) == expected
        assert read(dialect, list(before + text), prompt()) == expected


@BY_FORM
@pytest.mark.requirement("prompt:dialect:bare-input")
def test_the_input_leaves_while_it_is_generated(family: str) -> None:
    before, behind = CALLS[family]
    pieces = pieces_of(form(family), [before, "SELECT a", ",b;", behind], prompt())
    assert [type(piece).__name__ for piece in pieces] == ["ToolCallStart", "ToolCallDelta", "ToolCallDelta"]


@BY_FORM
@pytest.mark.requirement("prompt:dialect:bare-input")
@pytest.mark.parametrize("parallel", [True, False])
def test_the_grammar_of_the_tool_binds_its_input(family: str, parallel: bool) -> None:
    dialect, (before, behind) = form(family), CALLS[family]
    asked = prompt(parallel=parallel)
    openings = dialect.call_openings(asked)
    for opened in ("", *openings):
        made = grammar(dialect, asked, opened=opened)
        assert complaints(made) == []
        names: set[str] = set()
        for seed in range(24 if not opened else 6):
            text = walk(made, seed)
            if text is None:
                continue
            items = read(dialect, opened + text, asked)
            assert items
            assert parallel or len(items) == 1
            for name, written in items:
                names.add(name)
                assert name != "query" or INPUT.fullmatch(written), text
                assert name != "dial" or re.fullmatch("[0-9]{3}", written), text
        assert opened or names == {tool.name for tool in MIXED}
    made = grammar(dialect, asked)
    assert accepts(made, f"{before}SELECT a,b;{behind}")
    assert accepts(made, f"{before}SELECT a,b;")
    assert not accepts(made, f"{before}SELECT A;{behind}")
    alone = grammar(dialect, prompt(allowed=["query"]))
    assert accepts(alone, f"{before}SELECT a;{behind}")
    assert not accepts(grammar(dialect, prompt(allowed=["dial"])), f"{before}SELECT a;{behind}")


@BY_FORM
@pytest.mark.requirement("prompt:dialect:bare-input")
def test_the_model_is_told_how_to_write_it(family: str) -> None:
    _, tools = form(family).arrange(prompt())
    weather, query, dial = (tool["function"] for tool in tools)
    assert "as it is" in query["description"]
    # As Python it is still called with its parameter.
    assert query["parameters"]["properties"].keys() == ({"input"} if form(family).name == "pythonic" else set())
    assert "as it is" not in weather["description"] + dial["description"]
    assert dial["parameters"]["required"] == ["input"]

"""Whatever is declared as the parameters of a tool or as a format is bound or is a 400 (faults B3 13)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.engines.checks.checker import Checker
from antiphon.engines.llamacpp.bindings import Bindings
from antiphon.errors import InvalidRequestError
from antiphon.prompt.dialects import named
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import CustomTool, FunctionTool

requirement = pytest.mark.requirement

WORDS = st.sampled_from(
    [
        "string",
        "object",
        "array",
        "integer",
        "null",
        "nonsense",
        "#",
        "#/$defs/a",
        "^a+$",
        "(",
        "date",
        "http://a/b",
        "",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | WORDS | st.text()
KEYWORDS = st.sampled_from(
    "type pattern enum const $ref $defs definitions anyOf oneOf allOf not if then properties patternProperties "
    "required additionalProperties items prefixItems contains minItems maxItems uniqueItems minimum maximum "
    "multipleOf minLength maxLength format dependentRequired $id $schema $anchor $dynamicRef x-guidance a".split()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4), max_leaves=12
)
SCHEMAS = st.dictionaries(KEYWORDS, VALUES, max_size=5)


class Loop:
    """A checking process that is used by many examples."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.checker = Checker()
        self._bindings = Bindings(self.checker, named("hermes"), {})

    def bind(self, **fields: Any) -> None:
        self._runner.run(self._bindings.of(Prompt([ChatMessage("user", "Hi")], **fields)))

    def close(self) -> None:
        self._runner.run(self.checker.close())
        self._runner.close()


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@requirement("attacks:tools")
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(schema=SCHEMAS)
def test_any_parameters_are_bound_or_refused(loop: Loop, schema: dict[str, Any]) -> None:
    try:
        loop.bind(tools=[FunctionTool("f", schema)], choice=ResolvedChoice("auto", ("f",)))
    except InvalidRequestError as error:
        assert (error.param or "").startswith("tools")
        assert error.status == 400


@requirement("attacks:tools")
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(schema=SCHEMAS)
def test_any_schema_of_a_format_is_bound_or_refused(loop: Loop, schema: dict[str, Any]) -> None:
    try:
        loop.bind(format=TextFormat("json_schema", name="a", schema=schema))
    except InvalidRequestError as error:
        assert (error.param or "").startswith("text.format")


@requirement("attacks:tools")
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    syntax=st.sampled_from(["lark", "regex"]),
    definition=st.text("start:AB \"'/(){}[]|*+?^$.~%<>&!,0123456789\\\n", max_size=60) | st.text(max_size=30),
)
def test_any_grammar_of_a_custom_tool_is_bound_or_refused(loop: Loop, syntax: str, definition: str) -> None:
    tool = CustomTool("c", format={"type": "grammar", "syntax": syntax, "definition": definition})
    try:
        loop.bind(tools=[tool], choice=ResolvedChoice("auto", ("c",)))
    except InvalidRequestError as error:
        assert (error.param or "").startswith("tools")

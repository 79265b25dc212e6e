"""Which variables a chat template is given, and whose word counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.engines.llamacpp.template import MARKER_PAIRS, template_variables, thinking_markers
from antiphon.machine.deltas import ReasoningDelta, TextDelta
from support.local_engine import ask, running

SHOW = "[{{ enable_thinking }}|{{ reasoning_effort }}|{{ preserve_thinking }}]"

CASES: list[tuple[str | None, dict[str, Any], dict[str, Any], str]] = [
    (None, {}, {"enable_thinking": True, "reasoning_effort": "max"}, "[True|max|True]"),
    ("low", {}, {"reasoning_effort": "max", "preserve_thinking": False}, "[True|low|False]"),
    ("none", {}, {"enable_thinking": True}, "[False||True]"),
    ("none", {}, {"reasoning_effort": "max"}, "[False||True]"),
    ("none", {"reasoning_effort": "low"}, {"reasoning_effort": "max"}, "[False|low|True]"),
    (" Disabled ", {"enable_thinking": True}, {}, "[True||True]"),
    ("low", {"reasoning_effort": "high"}, {"reasoning_effort": "max"}, "[True|high|True]"),
]
"""Effort, variables of the request, variables of the settings, and what a template shows of it."""


@pytest.mark.requirement("reasoning:template-kwargs")
async def test_variables_come_from_the_request_the_effort_and_the_settings_in_that_order(
    tiny: Callable[..., Path],
) -> None:
    async with running(tiny(template=SHOW)) as engine:
        for effort, explicit, defaults, shown in CASES:
            prompt = ask("x", reasoning_effort=effort, template_kwargs=explicit, template_defaults=defaults)
            assert (await engine.prepare(prompt)).rendered == shown


@pytest.mark.requirement("engine:template:effort")
@pytest.mark.parametrize(
    ("template", "read"),
    [
        ("{% if thinking %}", True),
        ("{%- if thinking is defined and not thinking %}", True),
        ("{{ enable_thinking }}", False),
        ("{{ message.thinking }}{{ message['thinking'] }}", False),
    ],
)
@pytest.mark.parametrize(("effort", "on"), [("high", True), ("none", False)])
def test_a_template_that_reads_thinking_is_told_by_that_name_too(
    template: str, read: bool, effort: str, on: bool
) -> None:
    found = template_variables(template, effort, {})
    assert found["enable_thinking"] is on
    assert found.get("thinking") is (on if read else None)
    assert template_variables(template, effort, {"thinking": "own"})["thinking"] == "own"
    assert "thinking" not in template_variables(template, None, {})


@pytest.mark.requirement("reasoning:template-kwargs", "engine:template:preserve-thinking")
def test_without_any_word_past_thinking_is_kept() -> None:
    assert template_variables(SHOW, None, {}, {}) == {"preserve_thinking": True}
    assert template_variables(SHOW, None, {}, {"x": 1}) == {"preserve_thinking": True, "x": 1}


@pytest.mark.requirement("engine:reasoning")
@pytest.mark.parametrize("pair", MARKER_PAIRS)
async def test_thinking_is_known_by_the_markers_of_its_family(tiny: Callable[..., Path], pair: tuple[str, str]) -> None:
    begin, end = pair
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{# " + f"{begin} {end}" + " #}"
    assert thinking_markers(template) == pair
    primed = template + begin
    async with running(tiny(template=primed)) as engine:
        turn = await engine.prepare(ask("x"))
        splitter = engine._dialect.splitter(engine._markers, primed=turn.primed)
        told = [*splitter.feed(f"so{end}\n\nA."), *splitter.finish()]
    assert [(type(delta), delta.text) for delta in told] == [(ReasoningDelta, "so"), (TextDelta, "A.")]

"""Answers drawn from the grammar of each dialect, read alike wherever they are cut: whole, unfinished, after a text."""

from __future__ import annotations

import random

import pytest

from antiphon.prompt.dialects import Dialect, named
from support.dialect_table import text_before
from support.dialects import grammar, prompt_of, read
from support.families import FAMILIES
from support.grammar_walk import walk

ANSWERS = 200
LONGEST = 160


def answers(dialect: Dialect) -> list[str]:
    """As many answers as are asked for: calls, calls after a text, calls twice, and calls that are not finished."""
    prompt = prompt_of()
    made = grammar(dialect, prompt)
    drawn: list[str] = []
    for seed in range(ANSWERS * 10):
        text = walk(made, seed, most=LONGEST)
        if text is not None:
            drawn.append(text)
        if len(drawn) == ANSWERS:
            break
    forms = (
        lambda text, place: text,
        lambda text, place: text_before(dialect) + text,
        lambda text, place: f"{text}\n{text}",
        lambda text, place: text[:place],
    )
    chance = random.Random(1)
    return [forms[number % 4](text, chance.randrange(len(text))) for number, text in enumerate(drawn)]


@pytest.mark.requirement("prompt:dialect:splits")
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_two_hundred_answers_are_read_alike_wherever_they_are_cut(name: str) -> None:
    family = FAMILIES[name]
    dialect, prompt = named(family.dialect, family.text()), prompt_of()
    found = answers(dialect)
    assert len(found) == ANSWERS
    calls = 0
    for text in found:
        whole = read(dialect, text, prompt)
        calls += sum(isinstance(item, tuple) for item in whole)
        assert read(dialect, list(text), prompt) == whole
        for place in range(1, len(text)):
            assert read(dialect, [text[:place], text[place:]], prompt) == whole, (text, place)
    assert calls > ANSWERS

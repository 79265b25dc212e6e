"""Answers drawn from the grammar of each dialect, read alike wherever they are cut.

They are calls, calls after a text, one after the other, unfinished, and after thinking that speaks of a call.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from antiphon.machine.deltas import ReasoningDelta
from antiphon.prompt.dialects import Dialect, Piece, named
from support.dialect_table import text_before
from support.dialects import folded, grammar, prompt_of
from support.families import FAMILIES
from support.grammar_walk import walk

ANSWERS = 200
LONGEST = 160
MARKERS = ("<think>", "</think>")
FAMILY_OF = {FAMILIES[name].dialect: name for name in sorted(FAMILIES, reverse=True)}
"""A family for each dialect."""

CALL = '{"name": "get_time", "arguments": {}}'


def thought_before(dialect: Dialect, opening: str) -> str:
    """Thinking in which a call is spoken of, and begun where markers of calls mean nothing in thinking."""
    if dialect.name == "harmony":
        return f"<|channel|>analysis<|message|>Maybe {CALL}<|end|><|start|>assistant"
    return f"<think>\nMaybe {CALL} {opening}\n</think>\n\n"


FORMS: Sequence[Callable[[Dialect, str, int], str]] = (
    lambda dialect, text, place: text,
    lambda dialect, text, place: text_before(dialect) + text,
    lambda dialect, text, place: f"{text}\n{text}",
    lambda dialect, text, place: text[:place],
    lambda dialect, text, place: thought_before(dialect, text[:place]) + text,
)


def drawn(dialect: Dialect) -> list[str]:
    """As many answers as are asked for, as many of each form."""
    made, chance = grammar(dialect, prompt_of()), random.Random(1)
    texts = filter(None, (walk(made, seed, most=LONGEST) for seed in range(ANSWERS * 10)))
    return [
        form(dialect, text, chance.randrange(len(text)))
        for text in itertools.islice(texts, ANSWERS // len(FORMS))
        for form in FORMS
    ]


def told(dialect: Dialect, parts: Sequence[str]) -> tuple[str, list[Any]]:
    """The thinking, and the texts and calls, of an answer that comes in these parts."""
    splitter, parser = dialect.splitter(MARKERS, primed=False), dialect.parser(prompt_of())
    thought, pieces = "", list[Piece]()
    for deltas in (*map(splitter.feed, parts), splitter.finish()):
        for delta in deltas:
            if isinstance(delta, ReasoningDelta):
                thought += delta.text
            else:
                pieces += parser.feed(delta.text)
    return thought, folded([*pieces, *parser.finish()])


@pytest.mark.requirement("prompt:dialect:splits")
@pytest.mark.parametrize("name", FAMILY_OF.values(), ids=FAMILY_OF)
def test_two_hundred_answers_are_read_alike_wherever_they_are_cut(name: str) -> None:
    family = FAMILIES[name]
    dialect = named(family.dialect, family.text())
    answers = drawn(dialect)
    assert len(answers) == ANSWERS
    calls = thoughts = 0
    for text in answers:
        thought, items = whole = told(dialect, [text])
        thoughts += CALL in thought
        calls += sum(isinstance(item, tuple) for item in items)
        assert told(dialect, list(text)) == whole
        for place in range(1, len(text)):
            assert told(dialect, [text[:place], text[place:]]) == whole, (text, place)
    assert thoughts == ANSWERS // len(FORMS)
    assert calls > ANSWERS

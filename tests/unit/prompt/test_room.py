"""Schemas narrowed to the room of a turn, which never allow more than before and never less than they ask for."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.prompt.lark import Lark
from antiphon.prompt.room import LITTLE_ROOM, narrowed
from antiphon.prompt.schema import express
from support.grammars import accepts


def units(most: int) -> str:
    return rf"^(?:[a-z]{{3}}|[a-z]{{0,2}}[^a-z]){{0,{most}}}[a-z]{{0,2}}$"


@pytest.mark.requirement("constrain:grammar:forced")
def test_what_has_no_end_is_given_one_and_the_rest_stays_as_it_is() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "open": {"type": "string"},
            "long": {"type": ["string", "null"], "minLength": 500},
            "short": {"type": ["string", "null"], "minLength": 5},
            "map": {"type": "object", "additionalProperties": {"type": "null"}},
            "bound": {"type": "string", "maxLength": 900},
            "fixed": {"type": "string", "enum": ["a"]},
            "many": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            "most": {"type": "array", "items": {"type": "integer"}, "minItems": 40},
        },
    }
    before = express(schema).schema
    made = narrowed(before, 400)["properties"]
    assert made["open"] == {"type": "string", "pattern": units(55)}
    assert made["long"]["maxLength"] == 500
    assert made["short"] == {"type": ["string", "null"], "minLength": 5, "pattern": units(55)}
    assert made["many"]["maxItems"] == 6
    assert made["many"]["items"]["anyOf"] == [
        {"type": "string", "pattern": units(16)},
        {"type": "integer", "minimum": -(10**15), "maximum": 10**15},
    ]
    assert made["most"]["maxItems"] == 40
    assert made["map"] == {"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 6}
    assert [made[name] == before["properties"][name] for name in ("bound", "fixed")] == [True, True]
    assert narrowed(before, LITTLE_ROOM) == narrowed(before, None) == before


@pytest.mark.requirement("constrain:grammar:forced")
def test_a_text_may_be_as_long_as_its_tokens_allow() -> None:
    lark = Lark(room=400, parallel=False)
    made = lark.text(lark.rule("value", lark.json(express({"type": "string"}).schema)))
    for piece, most in (("a", 220 * 3 + 2), ("1", 220), ("A", 220), ("\\n", 220), ("é", 220), ("the ", 110)):
        assert accepts(made, f'"{piece * most}"')
        assert not accepts(made, f'"{piece * (most + 1)}"')


@pytest.mark.requirement("constrain:grammar:forced")
def test_a_value_of_which_nothing_is_said_counts_as_one() -> None:
    lark = Lark(room=200, parallel=False)
    made = lark.text(lark.rule("value", lark.json(express({"properties": {"a": {}}}).schema)))
    assert accepts(made, '{"a": "' + "1" * 95 + '"}')
    assert not accepts(made, '{"a": "' + "1" * 96 + '"}')


@pytest.mark.requirement("constrain:grammar:forced")
def test_schemas_that_hold_together_are_left_as_they_are() -> None:
    schema = {"allOf": [{"type": "string"}, {"type": "string", "minLength": 500}]}
    assert narrowed(schema, 100) == schema

"""Schemas narrowed to the room of a turn, which never allow more than before and never less than they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.prompt.lark import Lark
from antiphon.prompt.room import LITTLE_ROOM, ended, narrowed
from antiphon.prompt.schema import express
from support.grammars import accepts

Schema = dict[str, Any]


def grammar(schema: Schema) -> str:
    lark = Lark()
    return lark.text(lark.rule("value", lark.json(schema)))


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
        {"type": "integer", "minimum": -(2**62), "maximum": 2**62},
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


@pytest.mark.requirement("constrain:grammar:forced", "constrain:grammar:format")
@pytest.mark.parametrize("made", [narrowed, ended])
def test_numbers_and_patterns_have_an_end_too(made: Callable[[Schema, int], Schema]) -> None:
    assert made({"type": "integer", "minimum": 5}, 400) == {"type": "integer", "minimum": 5, "maximum": 2**62}
    number = made({"type": "number"}, 400)
    for text, good in (("1.5", True), ("-3", True), ("0.123456789", True), ("0.1234567891", False), ("1" * 19, False)):
        assert accepts(grammar(number), text) is good
    tiny = {"type": "number", "minimum": 0, "maximum": 1e-9}
    assert made(tiny, 400) == tiny
    open_pattern = grammar(made({"type": "string", "pattern": "a+"}, 100))
    assert accepts(open_pattern, '"bab"')
    assert not accepts(open_pattern, '"' + "a" * 53 + '"')
    for kept in ({"pattern": "^.{500}$"}, {"pattern": "(?=a)"}, {"pattern": "a", "minLength": 9}):
        assert made({"type": "string", **kept}, 100) == {"type": "string", **kept}


@pytest.mark.requirement("constrain:grammar:forced", "constrain:grammar:format")
@pytest.mark.parametrize("made", [narrowed, ended])
@pytest.mark.parametrize(
    ("schema", "wrap", "inner"),
    [
        ({"properties": {"n": {"$ref": "#"}}}, '{{"n": {}}}', "{}"),
        (
            {
                "$ref": "#/$defs/node",
                "$defs": {
                    "node": {
                        "properties": {"n": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                        "required": ["n"],
                    }
                },
            },
            '{{"n": {}}}',
            "null",
        ),
        ({"type": "array", "items": {"$ref": "#"}}, "[{}]", "[]"),
        ({"properties": {"enum": {"$ref": "#"}, "const": {"const": {"$ref": "#"}}}}, '{{"enum": {}}}', "{}"),
    ],
)
def test_a_schema_within_itself_has_an_end(
    made: Callable[[Schema, int], Schema], schema: Schema, wrap: str, inner: str
) -> None:
    whole, bound = express(schema).schema, grammar(made(express(schema).schema, 400))
    for deep, good in ((5, True), (9, False)):
        text = inner
        for _ in range(deep):
            text = wrap.format(text)
        assert accepts(bound, text) is good
        assert accepts(grammar(whole), text)


@pytest.mark.requirement("constrain:grammar:format")
def test_long_texts_and_lists_of_a_format_are_kept_whole() -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in "abc"}}
    assert ended(schema, 400)["properties"]["c"] == {"type": "string", "pattern": units(352)}
    assert ended({"type": "array", "items": {"type": "null"}}, 400)["maxItems"] == 50
    assert ended({"type": "object", "additionalProperties": {"type": "null"}}, 400)["maxProperties"] == 16
    anything = ended(express({"properties": {"a": {}}}).schema, 400)
    assert anything["properties"]["a"] == {"$ref": "#/$defs/any2"}
    assert ended(schema, 1024) == ended(schema, None) == schema


@pytest.mark.requirement("constrain:grammar:forced")
def test_schemas_that_hold_together_are_left_as_they_are() -> None:
    schema = {"allOf": [{"type": "string"}, {"type": "string", "minLength": 500}]}
    assert narrowed(schema, 100) == ended(schema, 100) == schema

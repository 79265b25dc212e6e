"""The choice of schemas of the JSON Schema Test Suite, and the judgement of what is answered under them."""

from __future__ import annotations

from collections import Counter

import pytest

from support.real_schemas import Case, chosen, expressible, fault, object_schema

INTEGER = {"type": "integer", "minimum": 2}


@pytest.mark.requirement("constrain:suite")
def test_what_is_no_object_becomes_the_value_of_one() -> None:
    assert object_schema({"$schema": "x", **INTEGER})["properties"] == {"value": INTEGER}
    for kept in ({"type": "object"}, {"properties": {}}, {"$ref": "#/$defs/a", "$defs": {"a": INTEGER}}):
        assert object_schema(kept) == kept


@pytest.mark.requirement("constrain:suite")
def test_each_file_has_its_turn() -> None:
    found = [Case(file, title, {}) for file, title in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1"))]
    assert [case.name for case in chosen(found, 4)] == ["a: 1", "b: 1", "c: 1", "a: 2"]
    assert len(chosen(found, 9)) == 5


@pytest.mark.requirement("constrain:suite")
async def test_what_a_grammar_does_not_express_whole_is_left_out_and_counted() -> None:
    counted: Counter[str] = Counter()
    schemas = [INTEGER, {"not": INTEGER}, {"allOf": [INTEGER]}, {"const": 1}, {"type": "strange"}]
    found = [Case("f", str(place), object_schema(schema)) for place, schema in enumerate(schemas)]
    whole = await expressible(found, counted)
    assert [case.title for case in whole] == ["0", "3"]
    assert counted == {"beyond": 2, "refused": 1}


@pytest.mark.requirement("constrain:suite")
@pytest.mark.parametrize(
    ("text", "wrong"),
    [('{"value": 2}', False), ('{"value": 1}', True), ('{"value": "2"}', True), ("{}", True), ('{"value": 2', True)],
)
def test_an_answer_that_is_not_valid_is_a_fault(text: str, wrong: bool) -> None:
    assert bool(fault(Case("f", "t", object_schema(INTEGER)), text)) is wrong

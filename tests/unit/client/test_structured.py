"""The structured answer: where it is found, how it is mended, and what it is held against."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.decode import decode
from antiphon.client.loose import close_brackets, loads, well_formed
from antiphon.client.repair import repair
from antiphon.client.schema import violations
from support.hosted_streams import message

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer", "minimum": 0}},
    "required": ["city"],
    "additionalProperties": False,
}


def body(*items: dict[str, Any]) -> dict[str, Any]:
    return {"id": "resp_1", "status": "completed", "output": list(items)}


def called(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": arguments}


@pytest.mark.requirement("driver:D14")
def test_the_object_is_the_text_of_the_answer() -> None:
    response = decode(body(message('{"city": "Rome", "people": 3}')), schema=SCHEMA)
    assert (response.object, response.object_error) == ({"city": "Rome", "people": 3}, None)
    assert "object_parse_error" not in response.provider_meta
    assert decode(body(message('{"city": "Rome"}'))).object is None


@pytest.mark.requirement("driver:D14")
def test_without_text_the_object_is_the_call_of_structured_output() -> None:
    calls = [called("other", '{"city": "Oslo"}'), called("structured_output", '{"city": "Rome"}')]
    assert decode(body(message(""), *calls), schema=SCHEMA).object == {"city": "Rome"}
    assert decode(body(message("Rome"), *calls), schema=SCHEMA).object_error == "invalid_json"


@pytest.mark.requirement("driver:D14")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Rome", "invalid_json"),
        ("", "invalid_json"),
        ('{"city": "Rome"', "invalid_json"),
        ("[1]", "not_an_object"),
        ('"Rome"', "not_an_object"),
        ('{"people": 3}', "validation_failed"),
        ('{"city": "Rome", "people": -1}', "validation_failed"),
        ('{"city": 1, "mayor": "x"}', "validation_failed"),
        ('{"city": "Rome", "mayor": "x"}', "invalid_keys"),
    ],
)
def test_what_is_wrong_with_an_object_is_said(text: str, error: str) -> None:
    response = decode(body(message(text)), schema=SCHEMA)
    assert response.object is None
    assert response.object_error == response.provider_meta["object_parse_error"] == error
    assert response.text == text


@pytest.mark.requirement("driver:D14")
@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"city": "Rome"}\n```',
        '```\n{"city": "Rome"}',
        'Here you are: {"city": "Rome"} I hope it helps {you}.',
        '{"city": "Rome",}',
        '{"city": "Rome"',
        '{"city": "Rome',
        '{"city": "Rome", ',
    ],
)
def test_json_is_mended_where_that_is_asked_for(text: str) -> None:
    assert decode(body(message(text)), schema=SCHEMA).object_error == "invalid_json"
    assert decode(body(message(text)), schema=SCHEMA, repair_json=True).object == {"city": "Rome"}


@pytest.mark.requirement("driver:D14", "driver:repair")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "x,}", "b": ["```", "]", ",]"],}', {"a": "x,}", "b": ["```", "]", ",]"]}),
        ("{'a': 'it', b: True, c-d: None, e: +1.5}", {"a": "it", "b": True, "c-d": None, "e": 1.5}),
        ('{"a": "she said "no" twice", "b": 1}', {"a": 'she said "no" twice', "b": 1}),
        ('{"a": "two\nlines"}', {"a": "two\nlines"}),
        ('{"a": 1 /* one */, // two\n "b": 2}', {"a": 1, "b": 2}),
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": 1, "b":', {"a": 1}),
        ('{"a": 1, "b": tr', {"a": 1}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('{"a": "\\ud83c\\udf0a \\x \\u12"}', {"a": "🌊 x u12"}),
        ('[Note] see [1]: {"a": 1} and {"b": 2}', {"a": 1}),
        ("only [1, 2] here", [1, 2]),
        ('```\nnothing\n``` {"a": 1}', {"a": 1}),
    ],
)
def test_json_is_read_as_it_was_meant(text: str, value: Any) -> None:
    assert repair(text) == value


@pytest.mark.requirement("driver:repair")
@pytest.mark.parametrize("text", ["", "no", "{you}", "[maybe]", "{1: 2}", "[" * 1000 + "x", "{" * 50_000, '{"a": /'])
def test_what_was_never_json_is_not_made_up(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        repair(text)


@pytest.mark.requirement("driver:repair")
@settings(max_examples=100, deadline=None)
@given(st.deferred(lambda: JSON), st.integers(0, 40))
def test_whole_json_is_read_the_same_and_cut_json_never_breaks(value: Any, cut: int) -> None:
    text = json.dumps({"value": value})
    assert repair(text) == {"value": value}
    assert isinstance(repair(text[: max(1, len(text) - cut)]), dict)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, 1.0, -2.25]) | st.text("abé", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
COUNT = st.integers(0, 3)
NAMES = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    some = st.lists(inner, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "enum": st.lists(JSON, min_size=1, max_size=2),
            "const": JSON,
            "properties": members,
            "additionalProperties": st.booleans() | inner,
            "required": NAMES,
            "dependentRequired": st.dictionaries(st.sampled_from("abc"), NAMES, max_size=1),
            "minProperties": COUNT,
            "maxProperties": COUNT,
            "items": inner,
            "prefixItems": some,
            "contains": inner,
            "minContains": COUNT,
            "maxContains": COUNT,
            "minItems": COUNT,
            "maxItems": COUNT,
            "uniqueItems": st.booleans(),
            "minLength": COUNT,
            "maxLength": COUNT,
            "minimum": COUNT,
            "exclusiveMaximum": COUNT,
            "multipleOf": st.integers(1, 3),
            "anyOf": some,
            "oneOf": some,
            "allOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
        },
    ).map(lambda schema: {key: schema[key] for key in sorted(schema)[:5]})


SCHEMAS = st.recursive(st.booleans() | TYPES.map(lambda name: {"type": name}), _schemas, max_leaves=5)
DEFINITIONS = {"one": {"type": ["string", "array"]}, "two": {"properties": {"a": {"$ref": "#/$defs/one"}}}}


@pytest.mark.requirement("driver:D14", "driver:schema")
@settings(max_examples=150, deadline=None)
@given(SCHEMAS, JSON)
def test_a_value_is_judged_as_by_a_full_validator(schema: Any, value: Any) -> None:
    whole = {"$defs": DEFINITIONS, **schema} if isinstance(schema, dict) else schema
    assert (violations(value, whole) == set()) == jsonschema.Draft202012Validator(whole).is_valid(value)


@pytest.mark.requirement("driver:schema")
def test_no_schema_hangs_the_judge() -> None:
    endless = {"$ref": "#"}
    assert violations({}, endless) == {"value"}
    assert violations({}, {"$ref": "https://example.com/schema"}) == {"value"}
    assert violations({"a": 1}, {"patternProperties": {"(a+)+$": {}}, "additionalProperties": False}) == set()
    assert violations("a" * 40 + "!", {"pattern": "(a+)+$"}) == set()
    assert violations([True, 1, 1.0], {"uniqueItems": True}) == {"value"}
    assert violations([True, 1], {"uniqueItems": True}) == set()


@pytest.mark.requirement("driver:loose")
def test_json_that_strict_parsers_refuse_is_read() -> None:
    assert loads('{"a": NaN}')["a"] != loads('{"a": NaN}')["a"]
    assert well_formed(loads('"\\ud83c"') + loads('"\\udf0a"')) == "🌊"
    assert well_formed(loads('"x\\ud83c"')) == "x�"
    with pytest.raises(ValueError, match="nested"):
        loads("[" * 100_000)


@pytest.mark.requirement("driver:loose")
@pytest.mark.parametrize("text", ['{"a": [1, {"b": "c\\"]}"', '{"a": "b', '{"a": "b\\', "[[", '{"a": {}'])
def test_open_brackets_are_closed(text: str) -> None:
    loads(close_brackets(text))

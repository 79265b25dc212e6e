"""The smallest instance of a schema is an instance of it."""

from __future__ import annotations

import jsonschema
import pytest

from antiphon.errors import InvalidRequestError
from antiphon.prompt.instance import smallest_instance

NODE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer", "minimum": 3},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["value", "next"],
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.requirement("prompt:instance")
@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({}, {}),
        ({"type": "object"}, {}),
        ({"type": "string"}, ""),
        ({"type": "string", "minLength": 3}, "aaa"),
        ({"type": "string", "format": "date"}, "1970-01-01"),
        ({"type": ["string", "null"]}, None),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "number", "maximum": -2}, -2),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"enum": ["b", "a"]}, "b"),
        ({"const": 7}, 7),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [0, 0]),
        (
            {
                "type": "object",
                "properties": {"b": {"type": "string"}, "a": {"type": "integer"}},
                "required": ["a", "b"],
            },
            {"b": "", "a": 0},
        ),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
        ({"anyOf": [{"type": "object"}, {"type": "string"}]}, ""),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "a"),
        (NODE, {"value": 3, "next": None}),
        (
            {"allOf": [{"required": ["a"], "properties": {"a": {"type": "string"}}}, {"required": ["b"]}]},
            {"a": "", "b": {}},
        ),
        ({"type": "number", "exclusiveMaximum": 0}, -1),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "integer", "minimum": 0.5}, 1),
        ({"type": "integer", "minimum": 1, "multipleOf": 5}, 5),
        ({"type": "integer", "maximum": -1, "multipleOf": 3}, -3),
        ({"type": "integer", "default": None}, 0),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2}, ["", 0]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True}, [0, 1, 2]),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "uniqueItems": True}, ["a", "b"]),
        ({"type": "array", "contains": {"const": 7}}, [7]),
        ({"type": "object", "required": ["x"]}, {"x": {}}),
        ({"type": "object", "minProperties": 2, "properties": {"a": {"type": "null"}}}, {"a": None, "property1": {}}),
        ({"properties": {"a": {"const": 1}}, "anyOf": [{"required": ["a"]}]}, {"a": 1}),
        ({"type": "string", "pattern": r"^\d{4}-\d{2}$"}, "0000-00"),
    ],
)
def test_the_smallest_instance_is_valid_and_in_the_order_of_the_schema(schema, instance):
    made = smallest_instance(schema)
    assert made == instance
    if isinstance(made, dict):
        assert list(made) == list(instance)
    jsonschema.validate(made, schema, format_checker=jsonschema.FormatChecker())


@pytest.mark.requirement("prompt:instance")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/none"},
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "string", "minLength": 10**9},
        {"type": "array", "minItems": 10**9},
        {"type": "object", "minProperties": 10**9},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"not": {"type": "string"}},
        {"type": "string", "pattern": "(?=a)b"},
        {"type": "string", "pattern": "^ab$", "minLength": 5},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "uniqueItems": True},
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"properties": 5, "required": ["a"]},
        {"anyOf": [False]},
    ],
)
def test_a_schema_without_end_or_with_a_dangling_reference_is_a_400(schema):
    with pytest.raises(InvalidRequestError):
        smallest_instance(schema)

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
    ],
)
def test_a_schema_without_end_or_with_a_dangling_reference_is_a_400(schema):
    with pytest.raises(InvalidRequestError):
        smallest_instance(schema)

"""Schemas of servers' tools as models are told of them: plain ones as they are, and no other that is not sound."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.prompt.instance import smallest_instance
from antiphon.prompt.schema import check_schema, express
from antiphon.tools.mcp.parameters import MOST_DEPTH, MOST_NODES, parameters_of

requirement = pytest.mark.requirement

PLAIN = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "Some text."},
        "when": {"type": "string", "format": "date"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["text"],
    "additionalProperties": False,
}


@requirement("mcp:parameters")
def test_a_plain_schema_is_told_as_it_is() -> None:
    assert parameters_of(PLAIN) == PLAIN


@requirement("mcp:parameters")
@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "banana"}, {}),
        ({"type": "array"}, {}),
        ({"not": {}}, {}),
        ({"properties": None}, {}),
        ({"properties": {"a": False}, "required": ["a", "b"]}, {"properties": {"a": {}}, "required": ["a"]}),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, {"properties": {"a": {}}}),
        ({"properties": {"a": {"$ref": "https://evil.example/"}}}, {"properties": {"a": {}}}),
        ({"properties": {"a": {"type": "string", "pattern": "(("}}}, {"properties": {"a": {"type": "string"}}}),
        (
            {"properties": {"a": {"type": "integer", "minimum": 0.2, "maximum": 0.8}}},
            {"properties": {"a": {"type": "integer"}}},
        ),
        ({"properties": {"a": {"enum": []}}}, {"properties": {"a": {}}}),
        ({"properties": {"a": {"const": 5, "type": "string"}}}, {"properties": {"a": {"enum": [5]}}}),
        (
            {"properties": {"a": {"allOf": [{"$ref": "#/$defs/n"}]}}, "$defs": {"n": {"type": "null"}}},
            {"properties": {"a": {"type": "null"}}},
        ),
        (
            {"properties": {"a": {"type": ["string", "null", "pear"]}}},
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        ),
    ],
)
def test_what_is_not_plain_is_left_out(schema: dict[str, Any], told: dict[str, Any]) -> None:
    assert parameters_of(schema) == {"type": "object", "properties": {}, **told}


@requirement("mcp:parameters")
def test_schemas_within_themselves_come_to_an_end() -> None:
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    depth, inner = 0, parameters_of(endless)
    while inner.get("properties"):
        inner = inner["properties"]["a"]
        depth += 1
    assert depth <= MOST_DEPTH
    wide = {"type": "object", "properties": {str(index): {"$ref": "#"} for index in range(50)}}
    assert str(parameters_of(wide)).count("type") <= MOST_NODES + 1
    loop = {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/b"}}}
    assert parameters_of(loop)["properties"] == {"a": {}}


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["string", "object", "#", "((", "a"]))
KEYS = st.sampled_from(
    "type properties required items enum const anyOf oneOf allOf not $ref $defs pattern minimum maximum format "
    "additionalProperties patternProperties minItems if then a b".split()
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


@requirement("mcp:parameters")
@settings(max_examples=60)
@given(st.dictionaries(KEYS, SCHEMAS, max_size=5))
def test_whatever_a_server_says_is_a_schema_that_can_be_met(schema: dict[str, Any]) -> None:
    told = parameters_of(schema)
    check_schema(told, "tools")
    express(told, "tools")
    validator = jsonschema_rs.validator_for(told)
    assert validator.is_valid(smallest_instance(told))

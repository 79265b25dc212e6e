"""What of a schema a grammar is asked to hold to: limits, what is left out, what is closed, and what may follow."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from antiphon.errors import InvalidRequestError
from antiphon.prompt.arguments import express_arguments, parameters_of
from antiphon.prompt.keywords import without
from antiphon.prompt.lark import Lark
from antiphon.prompt.schema import MAX_BYTES, check_schema, express
from antiphon.protocol.tools import CustomTool, FunctionTool
from support.grammars import accepts, draw, fault

Schema = dict[str, Any]


def grammar(schema: Schema) -> str:
    lark = Lark()
    return lark.text(lark.rule("value", lark.json(express(schema).schema)))


def deep(levels: int) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.requirement("constrain:limits")
@pytest.mark.parametrize(
    ("inside", "beyond"),
    [
        (deep(32), deep(33)),
        (
            {"properties": {f"p{n}": {"$ref": "#/$defs/a"} for n in range(64)}, "$defs": {"a": {}}},
            {"properties": {f"p{n}": {"$ref": "#/$defs/a"} for n in range(65)}, "$defs": {"a": {}}},
        ),
        ({"description": "a" * (MAX_BYTES - 18)}, {"description": "a" * (MAX_BYTES - 17)}),
        ({"$defs": {"a": deep(31)}}, {"$defs": {"a": deep(32)}}),
        ({"items": [deep(31)]}, {"items": [deep(32)]}),
    ],
    ids=("depth", "references", "bytes", "definitions", "lists"),
)
def test_a_schema_has_limits_and_the_fault_names_its_place(inside: Schema, beyond: Schema) -> None:
    check_schema(inside, "text.format.schema")
    with pytest.raises(InvalidRequestError) as caught:
        express(beyond, "text.format.schema")
    assert caught.value.param == "text.format.schema"
    assert caught.value.code == "invalid_json_schema"


STRICT: list[tuple[str, Schema, list[str], list[str]]] = [
    ("string", {"type": "string"}, ['"a"', '""', '"\\n"'], ["1", "a"]),
    ("enum", {"enum": ["a", 1, None, {"x": [1]}]}, ['"a"', "1", "null", '{"x": [1]}'], ['"b"', "2"]),
    ("const", {"const": {"x": 1}}, ['{"x": 1}'], ['{"x": 2}']),
    ("any-of", {"anyOf": [{"type": "string"}, {"type": "null"}]}, ['"a"', "null"], ["1"]),
    ("types", {"type": ["string", "null"]}, ['"a"', "null"], ["1"]),
    ("pattern", {"type": "string", "pattern": r"^\d{4}-\d{2}$"}, ['"1999-12"'], ['"99-12"', '"1999-12 "']),
    ("search", {"type": "string", "pattern": "b"}, ['"abc"'], ['"ac"']),
    ("lengths", {"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"🙂🙂🙂"'], ['"a"', '"abcd"']),
    ("integer", {"type": "integer", "minimum": -3, "maximum": 12}, ["-3", "0", "12"], ["-4", "13", "1.5"]),
    ("number", {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}, ["0.1", "1.5"], ["0", "1.6", "-1"]),
    ("multiple", {"type": "integer", "multipleOf": 5}, ["0", "25"], ["7"]),
    ("items", {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, ["[1]", "[1, 2]"], ["[]"]),
    ("tuple", {"prefixItems": [{"type": "integer"}, {"type": "string"}]}, ['[1, "a"]'], ['["a"]', '[1, "a", 2]']),
    ("old-tuple", {"items": [{"type": "integer"}], "additionalItems": False}, ["[1]"], ['["a"]', "[1, 2]"]),
    (
        "order",
        {"properties": {"b": {"type": "integer"}, "a": {"type": "integer"}}, "required": ["a", "b"]},
        ['{"b": 1, "a": 2}'],
        ['{"b":1,"a":2}', '{"a": 2, "b": 1}', '{"b": 1}', '{"b": 1, "a": 2, "c": 3}'],
    ),
    ("optional", {"properties": {"a": {}, "b": {"type": "null"}}}, ["{}", '{"b": null}'], ['{"c": 1}', '{"b": 1}']),
    ("map", {"type": "object", "additionalProperties": {"type": "null"}}, ["{}", '{"x": null}'], ['{"x": 1}']),
    ("required-elsewhere", {"properties": {}, "required": ["a"]}, ['{"a": [1]}'], ["{}"]),
    (
        "definitions",
        {"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], "$defs": {"n": {"type": "integer"}}},
        ['{"a": 1}'],
        ['{"a": "x"}'],
    ),
    (
        "recursion",
        {
            "$ref": "#/definitions/node",
            "definitions": {
                "node": {
                    "properties": {"v": {}, "next": {"anyOf": [{"$ref": "#/definitions/node"}, {"type": "null"}]}},
                    "required": ["v", "next"],
                }
            },
        },
        ['{"v": 1, "next": {"v": 2, "next": null}}'],
        ['{"v": 1, "next": {"v": 2}}', "null"],
    ),
    (
        "root-recursion",
        {"properties": {"n": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["n"]},
        ['{"n": {"n": null}}'],
        ['{"n": {}}'],
    ),
    ("anchor", {"items": {"$ref": "#x"}, "$defs": {"a": {"$anchor": "x", "type": "integer"}}}, ["[1]"], ['["a"]']),
    (
        "all-of",
        {
            "allOf": [
                {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {}}, "required": ["b"]},
            ]
        },
        ['{"a": 1, "b": 2}'],
        ['{"a": 1}', '{"a": "x", "b": 2}'],
    ),
    (
        "one-of",
        {
            "oneOf": [
                {"properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k", "x"]},
                {"properties": {"k": {"const": "b"}}, "required": ["k"]},
            ]
        },
        ['{"k": "a", "x": 1}', '{"k": "b"}'],
        ['{"k": "a"}', '{"k": "c"}'],
    ),
    (
        "alternatives-of-required",
        {"properties": {"a": {"type": "integer"}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a": 1}', '{"b": 1}', '{"a": 1, "b": 2}'],
        ["{}", '{"a": 1, "c": 2}'],
    ),
    (
        "unevaluated",
        {"properties": {"a": {"type": "integer"}}, "unevaluatedProperties": {"type": "null"}},
        ['{"a": 1, "b": null}'],
        ['{"a": 1, "b": 1}'],
    ),
    ("unevaluated-items", {"prefixItems": [{}], "unevaluatedItems": False}, ['["a"]', "[]"], ["[1, 2]"]),
    (
        "patterns",
        {"patternProperties": {"^a": {"type": "integer"}}},
        ['{"a": 1, "ab": 2}', "{}"],
        ['{"a": "x"}', '{"b": 1}', '{"\\u0061": "x"}'],
    ),
    (
        "anchor-in-a-value",
        {
            "$defs": {"a": {"enum": [{"$anchor": "x", "type": "null"}]}, "b": {"$anchor": "x", "type": "integer"}},
            "$ref": "#x",
        },
        ["1"],
        ["null"],
    ),
    ("anything", {}, ["1", '"a"', "[1, {}]", '{"a": {"b": null}}'], ["nothing"]),
    *(
        (form, {"type": "string", "format": form}, [f'"{good}"'], [f'"{bad}"'])
        for form, good, bad in (
            ("date-time", "2020-02-29T12:30:00Z", "2020-02-29"),
            ("time", "12:30:00Z", "12"),
            ("date", "2020-02-29", "2022-02-29"),
            ("duration", "P1DT2H", "1D"),
            ("email", "ada@example.com", "ada"),
            ("hostname", "example.com", "-a-"),
            ("ipv4", "127.0.0.1", "256.0.0.1"),
            ("ipv6", "::1", "1"),
            ("uuid", "12345678-1234-1234-1234-123456789abc", "1234"),
        )
    ),
]  # fmt: skip


@pytest.mark.requirement("constrain:schema:strict")
@pytest.mark.parametrize(("schema", "good", "bad"), [case[1:] for case in STRICT], ids=[case[0] for case in STRICT])
def test_the_strict_subset_is_expressed_whole(schema: Schema, good: list[str], bad: list[str]) -> None:
    assert express(schema).complete
    made = grammar(schema)
    assert [text for text in good if not accepts(made, text)] == []
    assert [text for text in bad if accepts(made, text)] == []


@pytest.mark.requirement("constrain:schema:rest")
@pytest.mark.parametrize(
    ("more", "rejected"),
    [
        ({"not": {"required": ["b"]}}, '{"a": "x"}'),
        ({"if": {"required": ["b"]}, "then": {"required": ["c"]}}, '{"a": "x"}'),
        ({"dependentRequired": {"a": ["b"]}}, '{"a": "x"}'),
        ({"propertyNames": {"maxLength": 1}}, '{"a": "x"}'),
        ({"minProperties": 2}, '{"a": "x"}'),
        ({"patternProperties": {"(?=a)": {}}}, '{"a": "x"}'),
        ({"allOf": [{"properties": {"b": {}}}], "unevaluatedProperties": False}, '{"a": "x"}'),
        ({"$dynamicRef": "#x"}, '{"a": "x"}'),
        ({"$ref": "https://example.com/x"}, '{"a": "x"}'),
    ],
)
def test_what_cannot_be_expressed_is_left_out_and_the_rest_binds(more: Schema, rejected: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "c": {}}, **more}
    made = express(schema)
    assert not made.complete
    assert accepts(grammar(schema), '{"a": 1}')
    assert not accepts(grammar(schema), rejected)


@pytest.mark.requirement("constrain:schema:rest")
@pytest.mark.parametrize(
    ("schema", "good"),
    [
        ({"type": "string", "pattern": "^(?=.*[A-Z]).+$"}, '"a"'),
        ({"type": "string", "pattern": r"(a)\1"}, '"a"'),
        ({"type": "string", "pattern": r"\bfoo"}, '"a"'),
        ({"type": "string", "format": "idn-email"}, '"a"'),
        ({"type": "array", "uniqueItems": True}, "[1, 1]"),
        ({"type": "array", "contains": {"type": "integer"}}, "[]"),
        ({"type": "array", "contains": False}, "[1]"),
        ({"type": "object", "propertyNames": False}, '{"a": 1}'),
        ({"anyOf": [{"required": ["a"]}], "unevaluatedProperties": False}, '{"a": 1}'),
        ({"type": "integer", "minimum": 2**62}, "1"),
        ({"type": "number", "maximum": 1e300}, "1e5"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, "7"),
        ({"type": "string", "minLength": -1}, '""'),
        ({"type": "strange"}, "1"),
    ],
)
def test_a_single_word_that_cannot_be_expressed_is_told_of(schema: Schema, good: str) -> None:
    assert not express(schema).complete
    assert accepts(grammar(schema), good)


@pytest.mark.requirement("constrain:schema:rest")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5},
        {"type": [{"a": 1}]},
        {"type": []},
        {"properties": []},
        {"properties": {"a": 5}},
        {"required": [{}, 1]},
        {"required": "a"},
        {"format": ["date"]},
        {"pattern": 1},
        {"items": 5},
        {"prefixItems": {}},
        {"enum": "abc"},
        {"anyOf": {}},
        {"anyOf": []},
        {"oneOf": [1, {"type": [[]]}]},
        {"$ref": 5},
        {"minimum": "1"},
        {"maxItems": 1.5},
        {"exclusiveMinimum": True},
        {"allOf": [{"properties": 1}, {"required": [[]]}]},
    ],
)
def test_a_malformed_schema_raises_nothing_else(schema: Schema) -> None:
    express(schema)
    express({"properties": {"a": schema, "b": {"allOf": [schema, {"type": "string"}]}}})


@pytest.mark.requirement("constrain:schema:rest")
def test_a_reference_that_leads_to_itself_is_a_400() -> None:
    for schema in (
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    ):
        with pytest.raises(InvalidRequestError, match="leads to itself"):
            express(schema)


@pytest.mark.requirement("constrain:schema:ends")
def test_where_anything_goes_nesting_has_an_end() -> None:
    made = grammar({"type": "object", "properties": {"a": {}}})
    assert accepts(made, '{"a": ' + "[" * 16 + "1" + "]" * 16 + "}")
    assert not accepts(made, '{"a": ' + "[" * 17 + "1" + "]" * 17 + "}")
    for text in ('{"a":  1}', '{"a" : 1}', '{ "a": 1}', '{"a": 1\n}'):
        assert not accepts(made, text)


@pytest.mark.requirement("constrain:schema:ends", "constrain:schema:strict")
@pytest.mark.parametrize("name", [case[0] for case in STRICT])
def test_what_a_senseless_model_writes_under_it_is_valid(name: str) -> None:
    schema = next(case[1] for case in STRICT if case[0] == name)
    kind = jsonschema_rs.Draft7Validator if name == "old-tuple" else jsonschema_rs.Draft202012Validator
    valid = kind(schema, validate_formats=True)
    made, ended = grammar(schema), 0
    for seed in range(20):
        text = draw(made, seed)
        if text is not None:
            ended += 1
            assert valid.is_valid(json.loads(text)), text
    assert ended > 5


@pytest.mark.requirement("constrain:arguments")
def test_arguments_are_an_object_and_nothing_else() -> None:
    assert express_arguments(FunctionTool("f")).schema["additionalProperties"] is False
    assert (
        "properties"
        in express_arguments(FunctionTool("f", {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {}}}})).schema
    )
    assert express_arguments(FunctionTool("f", {"type": ["object", "null"]})).schema["type"] == "object"
    for kind in ("string", ["array"], 5):
        with pytest.raises(InvalidRequestError) as caught:
            express_arguments(FunctionTool("f", {"type": kind}), "tools[3].parameters")
        assert (caught.value.param, caught.value.code) == ("tools[3].parameters", "invalid_function_parameters")
    assert express_arguments(CustomTool("c")).schema["required"] == ["input"]


@pytest.mark.requirement("constrain:arguments")
def test_parameters_stand_alone_and_show_their_type() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    schema: Schema = {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}, "node": {"$ref": "#/$defs/node"}, "never": False},
        "required": ["city"],
        "anyOf": [
            {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["a", "b"]},
        ],
        "$defs": {"city": {"type": "string", "maxLength": 9}, "node": node},
    }
    found = parameters_of(express_arguments(FunctionTool("f", schema)).schema)
    assert [(parameter.name, parameter.required) for parameter in found] == [
        ("city", True), ("node", False), ("a", True), ("b", False)
    ]  # fmt: skip
    assert found[0].schema == {"type": "string", "maxLength": 9}
    assert found[1].schema["type"] == "object"
    assert len(found[1].schema["$defs"]) == 1
    assert found[2].schema == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    lark = Lark()
    for parameter in found:
        assert fault(lark.text(lark.rule(parameter.name, lark.json(parameter.schema)))) == ""


@pytest.mark.requirement("constrain:arguments")
def test_definitions_within_a_schema_are_its_own() -> None:
    ones = express({"properties": {"n": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"const": 1}}}).schema
    twos = express({"properties": {"n": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"const": 2}}}).schema
    lark = Lark()
    whole = {"type": "array", "prefixItems": [ones, twos], "items": False}
    made = lark.text(lark.rule("both", lark.json(whole)))
    assert accepts(made, '[{"n": 1}, {"n": 2}]')
    assert not accepts(made, '[{"n": 2}, {"n": 1}]')


@pytest.mark.requirement("constrain:schema:rest")
def test_keywords_are_dropped_where_they_are_keywords_only() -> None:
    schema = {
        "properties": {"pattern": {"type": "string", "pattern": "a"}},
        "anyOf": [{"pattern": "b"}],
        "items": [{"pattern": "c"}],
        "not": {"pattern": "d"},
        "const": {"pattern": "e"},
    }
    assert without(schema, {"pattern"}) == {
        "properties": {"pattern": {"type": "string"}},
        "anyOf": [{}],
        "items": [{}],
        "not": {},
        "const": {"pattern": "e"},
    }

"""Tools from whatever names one, and schemas closed for strict calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from antiphon.client.context import Tool
from antiphon.client.encode import encode
from antiphon.client.errors import DriverError
from antiphon.client.profiles import AZURE, GENERIC, OPENAI
from antiphon.client.tools import as_tool, encode_tools, function_tool
from antiphon.client.typed import can_close, close, schema_of
from antiphon.prompt.instance import smallest_instance

requirement = pytest.mark.requirement


def one(tool: Any) -> dict[str, Any]:
    [encoded] = encode_tools([tool])
    return encoded


def weather(city: str, unit: Literal["c", "f"] = "c", days: int = 1) -> str:
    """Tell the weather.

    It may rain.

    Args:
        city: Where it is,
            by its English name.
        unit (str): Of the degrees.

    Returns:
        Words.
    """
    return f"{city} {unit} {days}"


def nothing() -> None:
    """Does nothing."""


class Inner(BaseModel):
    n: int


class Model(BaseModel):
    """A model."""

    q: int = Field(description="The q.")
    inner: Inner | None = None
    next: Model | None = None


class Struct(msgspec.Struct):
    """A struct."""

    x: Annotated[int, msgspec.Meta(description="The x.")]
    rest: list[Inner] = []


class Typed(TypedDict):
    x: int


@dataclass
class Data:
    x: int


@requirement("driver:E12")
def test_a_function_is_a_tool_by_its_signature_and_docstring() -> None:
    assert one(weather) == {
        "type": "function",
        "name": "weather",
        "description": "Tell the weather.\n\nIt may rain.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"description": "Where it is, by its English name.", "type": "string"},
                "unit": {"description": "Of the degrees.", "enum": ["c", "f"]},
                "days": {"type": "integer"},
            },
            "required": ["city", "unit", "days"],
            "additionalProperties": False,
        },
        "strict": True,
    }
    assert as_tool(weather).function is weather


@requirement("driver:E12")
def test_a_docstring_may_name_parameters_in_fields() -> None:
    def find(text: Annotated[str, msgspec.Meta(min_length=1)], place: str) -> None:
        """Find it.

        :param text: What.
        :param str place: Where.
        """

    properties = one(find)["parameters"]["properties"]
    assert properties["text"] == {"description": "What.", "type": "string", "minLength": 1}
    assert properties["place"] == {"description": "Where.", "type": "string"}
    assert one(find)["description"] == "Find it."


@requirement("driver:E12")
def test_defaults_stay_where_a_tool_is_not_strict() -> None:
    schema = one(function_tool(weather, name="w", strict=False))
    assert (schema["name"], schema["strict"]) == ("w", False)
    assert schema["parameters"]["required"] == ["city"]
    assert schema["parameters"]["properties"]["days"] == {"type": "integer", "default": 1}

    def held(items: list[str] = ["a"], at: Any = object()) -> None: ...  # noqa: B006, B008

    assert one(held)["parameters"]["properties"] == {
        "items": {"type": "array", "items": {"type": "string"}},
        "at": {},
    }


@requirement("driver:E12")
@pytest.mark.parametrize("tool", [nothing, Tool("nothing", "Does nothing."), {"name": "nothing"}])
def test_a_function_without_parameters_has_an_empty_schema(tool: Any) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert (one(tool)["parameters"], one(tool)["strict"]) == (schema, True)


@requirement("driver:E12")
def test_one_that_is_not_strict_requires_nothing() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    assert one(Tool("nothing", strict=False))["parameters"] == schema
    assert one({"type": "function", "function": {"name": "nothing", "strict": False}})["parameters"] == schema


@requirement("driver:E12")
@pytest.mark.parametrize(("kind", "fields"), [(Model, ["q", "inner", "next"]), (Struct, ["x", "rest"]), (Typed, ["x"])])
def test_a_type_is_a_tool_by_its_fields(kind: Any, fields: list[str]) -> None:
    tool = one(kind)
    assert (tool["name"], tool["strict"]) == (kind.__name__, True)
    assert tool["parameters"]["type"] == "object"
    assert tool["parameters"]["required"] == fields
    assert "title" not in tool["parameters"]
    assert one(Model)["description"] == "A model."


@requirement("driver:E12")
def test_models_inside_of_structs_and_functions_are_defined_once_at_the_root() -> None:
    def use(model: Model, struct: Struct, data: Data) -> None: ...

    parameters = one(use)["parameters"]
    assert set(parameters["$defs"]) == {"Model", "Struct", "Data", "Inner"}
    assert parameters["properties"]["model"] == {"$ref": "#/$defs/Model"}
    assert parameters["$defs"]["Model"]["required"] == ["q", "inner", "next"]
    assert all(schema["additionalProperties"] is False for schema in parameters["$defs"].values())


@requirement("driver:E12")
def test_a_mapping_is_flat_nested_or_a_schema() -> None:
    schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
    wanted = {
        "type": "function",
        "name": "look",
        "description": "Looks.",
        "parameters": {**schema, "required": ["b", "a"], "additionalProperties": False},
        "strict": True,
    }
    flat = {"name": "look", "description": "Looks.", "parameters": schema}
    assert one(flat) == one(flat | {"type": "function"}) == one({"type": "function", "function": flat}) == wanted
    assert one(schema | {"title": "look", "description": "Looks."}) == wanted
    assert one(Tool("look", "Looks.", schema)) == wanted
    loose = wanted | {"parameters": schema, "strict": False}
    assert one(flat | {"strict": False}) == one({"function": flat, "strict": False}) == loose
    assert one(flat | {"parameters": Data})["parameters"]["required"] == ["x"]


@requirement("driver:E12")
def test_what_else_a_mapping_says_of_a_function_is_kept() -> None:
    assert (
        one({"name": "f", "defer_loading": True, "async": True, "output_schema": None}).items()
        >= {
            "defer_loading": True,
            "async": True,
        }.items()
    )
    assert "output_schema" not in one({"name": "f", "output_schema": None})
    assert one(Tool("f", defer_loading=True))["defer_loading"] is True
    assert "defer_loading" not in one(Tool("f", defer_loading=False))


@requirement("driver:E12")
def test_a_schema_that_is_open_is_not_strict_unless_it_must_be() -> None:
    def count(words: dict[str, int], rest: Any) -> None: ...

    assert one(count)["strict"] is False
    assert one(count)["parameters"]["properties"]["words"]["additionalProperties"] == {"type": "integer"}
    forced = one(function_tool(count, strict=True))
    assert forced["parameters"]["properties"]["words"]["additionalProperties"] is False


@requirement("driver:E12")
def test_no_tools_are_no_field() -> None:
    assert "tools" not in encode("hi", {"tools": []})
    assert [tool["name"] for tool in encode("hi", {"tools": [nothing, weather]})["tools"]] == ["nothing", "weather"]


def many(*args: int) -> None: ...
def named(**kwargs: int) -> None: ...
def positional(a: int, /) -> None: ...
def odd(a: complex) -> None: ...
def unknown(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@requirement("driver:E12")
@pytest.mark.parametrize(
    "tool",
    [
        many,
        named,
        positional,
        odd,
        unknown,
        lambda a: a,
        functools.partial(weather, unit="c"),
        7,
        {"type": "function"},
        {"name": "two words"},
        {"type": "object", "properties": {}},
    ],
)
def test_what_cannot_be_offered_is_refused(tool: Any) -> None:
    with pytest.raises(DriverError):
        encode_tools([tool])


@requirement("driver:E13")
@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "search_context_size": "low"},
        {"type": "web_search_preview"},
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        {"type": "mcp", "server_label": "s", "server_url": "https://s"},
        {"type": "x_search"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "code_interpreter", "container": "cntr_1"},
        {"type": "image_generation"},
        {"type": "tool_search", "execution": "client"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]},
        {"type": "custom", "name": "patch", "format": {"type": "text"}},
    ],
)
def test_hosted_tools_go_as_they_are(tool: dict[str, Any]) -> None:
    assert one(tool) == tool


@requirement("driver:E14")
@pytest.mark.parametrize("model", ["o3-deep-research", "o4-mini-deep-research-2025-06-26"])
def test_research_has_a_search(model: str) -> None:
    search = {"type": "web_search"}
    assert encode("hi", {}, OPENAI, model)["tools"] == [search]
    added = encode("hi", {"tools": [nothing]}, AZURE, model)["tools"]
    assert [tool["type"] for tool in added] == ["web_search", "function"]
    for own in ("web_search", "web_search_preview", "mcp", "file_search"):
        assert encode("hi", {"tools": [{"type": own}]}, OPENAI, model)["tools"] == [{"type": own}]
    assert "tools" not in encode("hi", {}, GENERIC, model)
    assert "tools" not in encode("hi", {}, OPENAI, "o3")


@requirement("driver:E12")
def test_strict_schemas_are_put_in_the_words_that_they_may_have() -> None:
    schema = {
        "type": "object",
        "properties": {
            "one": {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/D"}], "discriminator": {"propertyName": "k"}},
            "all": {"allOf": [{"$ref": "#/$defs/D"}], "description": "d"},
            "ref": {"$ref": "#/$defs/D", "description": "d", "default": {}},
            "deep": {"type": "array", "items": {"type": ["object", "null"], "properties": {"y": {"type": "null"}}}},
        },
        "$defs": {"D": {"type": "object", "properties": {"default": {"type": "integer", "default": 1}}}},
    }
    closed = close(schema)
    properties = closed["properties"]
    assert properties["one"] == {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/D"}]}
    assert properties["all"] == properties["ref"] == {"anyOf": [{"$ref": "#/$defs/D"}], "description": "d"}
    assert properties["deep"]["items"]["required"] == ["y"]
    assert closed["$defs"]["D"] == {
        "type": "object",
        "properties": {"default": {"type": "integer"}},
        "required": ["default"],
        "additionalProperties": False,
    }
    assert list(closed)[:3] == ["type", "properties", "$defs"]


@requirement("driver:E12")
def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    for judge in (close, can_close):
        with pytest.raises(DriverError, match="deeper"):
            judge(schema)


@requirement("driver:E12")
@pytest.mark.parametrize("kind", [complex, Callable[[], int]])
def test_a_type_without_a_schema_is_refused(kind: Any) -> None:
    with pytest.raises(DriverError, match="Schema"):
        schema_of(kind)


leaves = st.sampled_from([{"type": "string"}, {"type": "integer", "default": 1}, {"enum": ["a"]}, {"type": "object"}])
names = st.text("abc", min_size=1, max_size=2)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda p, r: {"type": "object", "properties": p, "required": r}, st.dictionaries(names, inner), st.just([])
        ),
    )


schemas = st.recursive(leaves, _grown, max_leaves=12)


def _objects(schema: Any) -> list[dict[str, Any]]:
    found = [schema] if schema.get("type") == "object" else []
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    inner += [schema["items"]] if "items" in schema else []
    return found + [entry for child in inner for entry in _objects(child)]


@requirement("driver:E12", "driver:E27")
@given(schemas)
def test_every_object_of_a_closed_schema_is_closed_and_keeps_its_order(schema: dict[str, Any]) -> None:
    before = msgspec.json.encode(schema)
    closed = close(schema)
    assert msgspec.json.encode(schema) == before
    originals = _objects(schema)
    for made, original in zip(_objects(closed), originals, strict=True):
        assert made["additionalProperties"] is False
        assert made["required"] == list(made["properties"]) == list(original.get("properties", {}))
    assert close(closed) == closed


@requirement("driver:E12")
@given(schemas)
def test_what_a_closed_schema_takes_the_open_one_took(schema: dict[str, Any]) -> None:
    closed = close(schema)
    instance = smallest_instance(closed)
    jsonschema.validate(instance, closed)
    jsonschema.validate(instance, schema)
    if can_close(schema):
        assert can_close(closed)

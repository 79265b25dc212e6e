"""Filters on attributes, in both ways of writing them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.corpus.filters import MOST_CONDITIONS, MOST_DEPTH, read_filters
from antiphon.errors import InvalidRequestError

requirement = pytest.mark.requirement

FILE = {"lang": "en", "year": 2024, "rate": 0.5, "draft": False, "tags": ["red", "Blue", 7], "by": {"name": "Ada"}}


def holds(*filters: dict[str, Any], of: dict[str, Any] = FILE) -> bool:
    found = read_filters(filters)
    return found is None or found(of)


OPENAI = [
    ("eq", "lang", "en", True),
    ("eq", "lang", "EN", False),
    ("eq", "year", 2024, True),
    ("eq", "year", 2024.0, True),
    ("eq", "year", "2024", False),
    ("eq", "draft", False, True),
    ("eq", "draft", 0, False),
    ("eq", "absent", "", False),
    ("ne", "lang", "de", True),
    ("ne", "lang", "en", False),
    ("ne", "absent", "x", True),
    ("gt", "year", 2023, True),
    ("gt", "year", 2024, False),
    ("gte", "year", 2024, True),
    ("lt", "rate", 1, True),
    ("lt", "rate", 0.5, False),
    ("lte", "rate", 0.5, True),
    ("gt", "lang", "de", True),
    ("gt", "lang", 3, False),
    ("lt", "draft", 3, False),
    ("in", "lang", ["de", "en"], True),
    ("in", "year", [2024.0], True),
    ("in", "draft", [0, "False"], False),
    ("in", "lang", [], False),
    ("nin", "lang", ["de"], True),
    ("nin", "lang", ["en"], False),
    ("nin", "absent", ["en"], True),
]


@requirement("search:filters:openai")
@pytest.mark.parametrize(("operator", "key", "value", "expected"), OPENAI)
def test_comparisons_of_openai(operator: str, key: str, value: Any, expected: bool):
    assert holds({"type": operator, "key": key, "value": value}) is expected


MIXEDBREAD = [
    ("eq", "tags", "red", True),
    ("eq", "tags", 7, True),
    ("not_eq", "tags", "red", False),
    ("not_eq", "tags", "green", True),
    ("in", "tags", ["green", "red"], True),
    ("not_in", "tags", ["green"], True),
    ("contains", "tags", "lu", True),
    ("contains", "lang", "e", True),
    ("contains", "lang", "E", False),
    ("contains", "year", 2024, True),
    ("starts_with", "lang", "e", True),
    ("starts_with", "lang", "n", False),
    ("starts_with", "year", "2", False),
    ("like", "lang", "E_", True),
    ("like", "lang", "e", False),
    ("like", "by.name", "%d%", True),
    ("like", "lang", "e.", False),
    ("not_like", "lang", "d%", True),
    ("not_like", "absent", "d%", True),
    ("regex", "lang", "^[a-f]n$", True),
    ("regex", "lang", "N", False),
    ("regex", "year", "2", False),
    ("eq", "by.name", "Ada", True),
    ("eq", "by.age", 3, False),
    ("eq", "lang.name", "en", False),
]


@requirement("search:filters:mixedbread")
@pytest.mark.parametrize(("operator", "key", "value", "expected"), MIXEDBREAD)
def test_conditions_of_mixedbread(operator: str, key: str, value: Any, expected: bool):
    assert holds({"operator": operator, "key": key, "value": value}) is expected


EN = {"type": "eq", "key": "lang", "value": "en"}
OLD = {"operator": "lt", "key": "year", "value": 2000}


@requirement("search:filters:openai", "search:filters:mixedbread")
def test_trees_join_what_is_in_them():
    assert not holds({"type": "and", "filters": [EN, OLD]})
    assert holds({"type": "or", "filters": [EN, OLD]})
    assert holds({"all": [EN], "none": [OLD], "any": [OLD, EN]})
    assert not holds({"all": [EN], "any": [OLD]})
    assert not holds({"none": [{"type": "and", "filters": [EN, {"none": [OLD]}]}]})
    assert holds()
    assert not holds(EN, OLD)
    assert holds({"all": [], "none": []})
    assert not holds({"any": []})
    a_dot = {"a.b": 1, "a": {"b": 2}}
    assert holds({"type": "eq", "key": "a.b", "value": 1}, of=a_dot)


NESTED: dict[str, Any] = EN
for _ in range(MOST_DEPTH):
    NESTED = {"all": [NESTED]}

REFUSED = [
    ([{"type": "is", "key": "a", "value": 1}], "filters.type"),
    ([{"key": "a", "value": 1}], "filters.type"),
    ([{"operator": 3, "key": "a", "value": 1}], "filters.operator"),
    ([{"type": "eq", "key": 3, "value": 1}], "filters.key"),
    ([{"type": "eq", "key": "", "value": 1}], "filters.key"),
    ([{"type": "eq", "key": "a"}], "filters.value"),
    ([{"type": "eq", "key": "a", "value": None}], "filters.value"),
    ([{"type": "eq", "key": "a", "value": {"$ne": 1}}], "filters.value"),
    ([{"type": "gt", "key": "a", "value": True}], "filters.value"),
    ([{"type": "in", "key": "a", "value": "b"}], "filters.value"),
    ([{"type": "in", "key": "a", "value": [[1]]}], "filters.value[0]"),
    ([{"type": "in", "key": "a", "value": [1] * 1_001}], "filters.value"),
    ([{"type": "eq", "key": "a", "value": "x" * 5_000}], "filters.value"),
    ([{"type": "and", "filters": {"a": 1}}], "filters.filters"),
    ([{"type": "or", "filters": [EN, 3]}], "filters.filters[1]"),
    ([{"all": [EN], "key": "a"}], "filters"),
    ([{"any": "x"}], "filters.any"),
    ([EN, {"type": "or", "filters": [{"any": [7]}]}], "filters[1].filters[0].any[0]"),
    ([{"operator": "regex", "key": "a", "value": "(a"}], "filters.value"),
    ([{"operator": "regex", "key": "a", "value": "(?=a)"}], "filters.value"),
    ([{"operator": "regex", "key": "a", "value": "a" * 2_000}], "filters.value"),
    ([{"operator": "like", "key": "a", "value": 4}], "filters.value"),
    ([NESTED], "filters" + ".all[0]" * MOST_DEPTH),
    ([{"any": [EN] * (MOST_CONDITIONS + 1)}], f"filters.any[{MOST_CONDITIONS - 1}]"),
    ([{"or": [EN]}], "filters.type"),
]


@requirement("search:filters:faults")
@pytest.mark.parametrize(("filters", "place"), REFUSED)
def test_what_cannot_be_read_is_refused_where_it_stands(filters: list[dict[str, Any]], place: str):
    with pytest.raises(InvalidRequestError) as caught:
        read_filters(filters)
    assert caught.value.param == place
    assert f"'{place}'" in caught.value.message
    assert len(caught.value.message) < 600


@requirement("search:filters:faults")
@pytest.mark.parametrize("key", ["a') OR 1=1--", "$..*", 'a"; DROP TABLE files; --', "__class__", "a.b.__dict__", "\0"])
def test_a_key_is_a_name_and_nothing_else(key: str):
    condition = {"type": "eq", "key": key, "value": 1}
    assert not holds(condition)
    assert holds(condition, of={key: 1})


@requirement("search:filters:faults")
def test_no_pattern_of_a_filter_takes_long():
    condition = {"operator": "regex", "key": "text", "value": "(a+)+$"}
    start = time.perf_counter()
    assert not holds(condition, of={"text": "a" * 100_000 + "b"})
    assert holds({"operator": "like", "key": "text", "value": "%a" * 200 + "%"}, of={"text": "a" * 4_000})
    assert time.perf_counter() - start < 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "operator", "key", "value", "filters", "all", "any", "none", "a"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@requirement("search:filters:faults")
@given(st.dictionaries(st.sampled_from(["type", "operator", "key", "value", "filters", "all"]), JSON), JSON)
def test_whatever_a_filter_says_it_is_read_or_refused(node: dict[str, Any], value: Any):
    try:
        found = read_filters([node])
    except InvalidRequestError as error:
        assert error.param
        return
    assert found is not None
    assert isinstance(found({"a": value, "key": value}), bool)

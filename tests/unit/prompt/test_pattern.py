"""A text made from a pattern is matched by it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.prompt.pattern import PatternError, smallest_match

PATTERNS = [
    "",
    "^$",
    "abc",
    r"^\d{4}-\d{2}-\d{2}$",
    r"^[A-Z]{2,3}\d+$",
    r"^(?:red|green|blue)$",
    r"^(?P<year>\d{4})(-\d\d)?$",
    r"^[^a0]{2}$",
    r"^[\w.+-]+@[\w-]+\.[a-z]{2,}$",
    r"^\+?[1-9]\d{1,14}$",
    r"[-a-z]x",
    r"[]]",
    r"^\x41B\t$",
    r"^a*?b+c{3}$",
    r"^.\.\\$",
    r"\bword\b",
    r"^(a|(b|c){2}|d)$",
]


@pytest.mark.requirement("prompt:instance:pattern")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_text_is_matched_by_its_pattern(pattern: str):
    assert re.search(pattern, smallest_match(pattern))


@pytest.mark.requirement("prompt:instance:pattern")
@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)b",
        "(?<!a)b",
        r"(a)\1",
        "(a",
        "a)",
        "*a",
        "[a",
        "a{x}",
        "a{1000000}",
        "(a{4000}){2}",
        "\\",
        "(" * 100 + ")" * 100,
        r"[^\x00-\uffff]",
    ],
)
def test_what_cannot_be_read_off_a_pattern_is_refused(pattern: str):
    with pytest.raises(PatternError):
        smallest_match(pattern)


simple = st.recursive(
    st.sampled_from(["a", "b", r"\d", r"\w", "[a-f]", "[^a]", r"\.", "."]),
    lambda inner: st.one_of(
        st.builds("({}|{})".format, inner, inner),
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{})*".format, inner),
        st.builds("(?:{})+".format, inner),
        st.builds("(?:{}){{2,3}}".format, inner),
    ),
    max_leaves=6,
)


@pytest.mark.requirement("prompt:instance:pattern")
@given(simple)
def test_any_pattern_of_the_plain_kind_has_a_text(pattern: str):
    assert re.fullmatch(pattern, smallest_match(pattern))

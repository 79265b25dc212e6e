"""Sequences that share memory read as copies would."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.prompt.growing import Chained, Growing

NUMBERS = st.lists(st.integers(), max_size=5)


@pytest.mark.requirement("api:chain:shared")
@given(NUMBERS, st.lists(st.tuples(st.integers(0, 10), NUMBERS)))
def test_what_grows_from_any_point_of_a_history_leaves_all_others_as_they_were(
    first: list[int], steps: list[tuple[int, list[int]]]
):
    grown, copies = [Growing(first)], [first]
    for place, more in steps:
        place %= len(grown)
        grown.append(grown[place].grown(more, more))
        copies.append(copies[place] + more + more)
    assert grown == copies
    for sequence, copy in zip(grown, copies, strict=True):
        assert len(sequence) == len(copy)
        assert [sequence[index] for index in range(-len(copy), len(copy))] == copy + copy
        assert sequence[1:-1] == copy[1:-1]


@pytest.mark.requirement("api:chain:shared")
def test_the_newest_of_a_history_grows_without_a_copy():
    first = Growing([1, 2])
    second = first.grown([3])
    third = second.grown([4])
    assert first._elements is second._elements is third._elements
    assert first.grown([5])._elements is not first._elements


@pytest.mark.requirement("api:chain:shared")
@given(st.lists(NUMBERS), st.slices(12))
def test_several_sequences_read_as_one(parts: list[list[int]], some: slice):
    whole = list(chain.from_iterable(parts))
    chained = Chained([Growing(part) for part in parts])
    assert chained == whole
    assert len(chained) == len(whole)
    assert chained[some] == whole[some]
    assert [chained[index] for index in range(-len(whole), len(whole))] == whole + whole
    for index in (len(whole), -len(whole) - 1):
        with pytest.raises(IndexError):
            chained[index]


@pytest.mark.requirement("api:chain:shared")
def test_equality_is_of_elements_and_only_with_sequences_of_them():
    assert Growing("ab") == Chained(["a", "b"]) == ["a", "b"]
    assert Growing("ab") != ["a"]
    assert Growing("ab") != "ab"
    assert repr(Growing("a")) == "Growing(['a'])"

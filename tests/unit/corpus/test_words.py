"""The words of a question."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.corpus.words import MOST_WORDS, share, words

requirement = pytest.mark.requirement


@requirement("search:words")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is the boundary layer of a wing?", ["boundary", "layer", "wing"]),
        ("who is who", ["who", "is"]),
        ("don't panic", ["panic"]),
        ("Größe der Gefäße", ["größe", "der", "gefäße"]),
        ("e\u0301te\u0301 2024", ["été", "2024"]),
        ('snake_case AND "quoted" OR NEAR(x*)', ["snake", "case", "quoted", "near", "x"]),
        ("wing wing Wing", ["wing"]),
        ("搜索 引擎", ["搜索", "引擎"]),
        ("... --- ***", []),
        ("", []),
    ],
)
def test_words_are_letters_and_digits_without_those_that_say_nothing(text: str, expected: list[str]):
    assert words(text) == expected


@requirement("search:words")
def test_a_long_text_gives_a_bounded_number_of_words():
    assert len(words(" ".join(f"w{number}" for number in range(10_000)))) == MOST_WORDS
    assert words("x" * 1_000_000) == []


@requirement("search:words")
@given(st.text())
def test_no_word_holds_anything_that_a_text_index_takes_for_more_than_a_word(text: str):
    for word in words(text):
        assert word
        assert all(letter.isalnum() for letter in word)


@requirement("search:words")
@pytest.mark.parametrize(
    ("asked", "text", "expected"),
    [
        (["wing", "layer"], "The layers of a WING.", 1.0),
        (["wing", "layer"], "wings", 0.5),
        (["e7", "kx"], "error E7", 0.5),
        (["plane"], "plate", 0.0),
        (["heating", "heated"], "heat", 1.0),
        ([], "heat", 0.0),
        (["heat"], "", 0.0),
    ],
)
def test_how_many_of_some_words_a_text_holds(asked: list[str], text: str, expected: float):
    assert share(asked, text) == expected

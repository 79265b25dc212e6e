"""Arguments are read while they are written, and say the same however their text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.machine.arguments import ArgumentReader, MalformedError, Piece, StringStart, Value

pytestmark = pytest.mark.requirement("tools:arguments")

scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(st.text(max_size=6), values, max_size=4)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    """Every value that is no container, with its place."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [leaf for place, inner in enumerate(value) for leaf in leaves(inner, (*path, place))]
    return [(path, value)]


def read(pieces: list[str]) -> list[tuple[tuple[str | int, ...], Any]]:
    reader = ArgumentReader()
    found: list[tuple[tuple[str | int, ...], Any]] = []
    for piece in pieces:
        for event in reader.feed(piece):
            if isinstance(event, StringStart):
                found.append((event.path, ""))
            elif isinstance(event, Piece):
                assert found[-1][0] == event.path
                found[-1] = (event.path, found[-1][1] + event.text)
            else:
                assert isinstance(event, Value)
                found.append((event.path, event.value))
    assert reader.ended
    return found


def cut(text: str, data: st.DataObject) -> list[str]:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


@given(objects, st.booleans(), st.sampled_from([None, 2]), st.data())
def test_every_value_is_told_with_its_place_however_the_text_is_cut(value, ascii_only, indent, data):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert read(cut(text, data)) == leaves(value)


def test_a_string_leaves_while_it_is_written():
    reader = ArgumentReader()
    assert reader.feed('{"a": "on') == [StringStart(("a",)), Piece(("a",), "on")]
    assert reader.in_string
    assert reader.feed("e\\") == [Piece(("a",), "e")]
    assert reader.feed("n") == [Piece(("a",), "\n")]
    assert reader.feed('", "b') == []
    assert not reader.in_string
    assert not reader.ended


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": "\\ud83d\\ude00"}', "😀"),
        ('{"a": "\\ud83d"}', "�"),
        ('{"a": "\\ud83dx"}', "�x"),
        ('{"a": "\\ude00"}', "�"),
        ('{"a": "\\u00e9\\/\\t"}', "é/\t"),
    ],
)
def test_halves_of_characters_are_joined_or_replaced(text, said):
    assert read([text]) == [(("a",), said)]
    assert read(list(text)) == [(("a",), said)]


def test_a_comma_too_many_is_forgiven():
    assert read(['{"a": 1,}']) == [(("a",), 1)]


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "[1]",
        '"a"',
        "{1: 2}",
        '{"a" 1}',
        '{"a": 1 2}',
        '{"a": nul}',
        '{"a": "\\x"}',
        '{"a": "\\u12g4"}',
        '{"a": [1}',
        '{"a": 1]',
        '{"a": 1} x',
        '{"a": ' + "1" * 100 + "}",
        '{"a": ' + "[" * 200,
    ],
)
def test_what_is_no_object_is_malformed(text):
    reader = ArgumentReader()
    with pytest.raises(MalformedError):
        reader.feed(text)

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.prompt.dialects.literals import LiteralReader

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def read(text: str, *, python: bool = False, whole: bool = True) -> tuple[str, str, bool]:
    """The JSON text, what was left of the text, and whether the value was sound."""
    reader = LiteralReader(python=python)
    if whole:
        place = reader.feed(text)
        return reader.take(), text[place:], reader.ended and not reader.broken
    parts: list[str] = []
    used = 0
    for char in text:
        used += reader.feed(char)
        parts.append(reader.take())
        if reader.ended:
            break
    return "".join(parts), text[used:], reader.ended and not reader.broken


@pytest.mark.requirement("prompt:literals:json")
@given(value=st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=4) | st.lists(JSON_VALUES, max_size=4))
def test_sound_json_comes_out_as_it_is(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert read(text + " rest") == (text, " rest", True)
        assert read(text + " rest", whole=False) == (text, " rest", True)


@pytest.mark.requirement("prompt:literals:python")
@given(value=JSON_VALUES)
def test_python_literals_come_out_as_json(value: Any) -> None:
    for text in (repr(value), str(ast.unparse(ast.parse(repr(value))))):
        made, rest, sound = read(text + ")", python=True)
        assert sound
        assert rest == ")"
        assert json.loads(made) == value
        assert read(text + ")", python=True, whole=False) == (made, rest, sound)


@pytest.mark.requirement("prompt:literals:json")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": "x\ny\t"}', {"a": "x\ny\t"}),
        ('{"a": "C:\\dir\\x"}', {"a": "C:\\dir\\x"}),
        ('{"a": "\\x41\\\'"}', {"a": "A'"}),
        ("{'a': 'say \"hi\"'}", {"a": 'say "hi"'}),
        ('{"a": True, "b": None, "c": False}', {"a": True, "b": None, "c": False}),
        ('{"a": 1,}', {"a": 1}),
        ("[1, 2, ]", [1, 2]),
        ("{a: 1}", {"a": 1}),
        ('{"a": 007, "b": +1, "c": .5, "d": 5., "e": 0x1f}', {"a": 7, "b": 1, "c": 0.5, "d": 5.0, "e": 31}),
        ('{"a": "\\u12"}', {"a": "\\u12"}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('["\\ud83d", "\\ude00", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\ud83d\\ude00", "\\ud83d\\u12"]',
         ["\ufffd", "\ufffd", "\ufffdx", "\ufffd\n", "\ufffd😀", "\ufffd\\u12"]),
    ],
)  # fmt: skip
def test_sloppy_json_is_mended(text: str, expected: Any) -> None:
    made, rest, sound = read(text)
    assert (json.loads(made), rest, sound) == (expected, "", True)
    assert read(text, whole=False) == (made, rest, sound)


@pytest.mark.requirement("prompt:literals:python")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Oslo)", "Oslo"),
        ("Île-de-France)", "Île-de-France"),
        ("(1, 'a',))", [1, "a"]),
        ("())", []),
        ("'''a 'b' \"c\"\nd'''", "a 'b' \"c\"\nd"),
        ('"""x\\""""', 'x"'),
        ("'')", ""),
        ("1_000)", 1000),
        ("-0b101]", -5),
        ("'\\a\\v\\0\\U0001F600\\\n.'", "\a\v\0😀."),
        ("{'k': [None, {1: True}]}", {"k": [None, {"1": True}]}),
        ("'\\ud83d\\ude00'", "😀"),
        ("'\\U00110000'", "\ufffd"),
    ],
)
def test_what_python_knows_beyond_json(text: str, expected: Any) -> None:
    made, rest, sound = read(text, python=True)
    assert (json.loads(made), sound) == (expected, True)
    assert rest in ("", ")", "]")
    assert read(text, python=True, whole=False) == (made, rest, sound)


@pytest.mark.requirement("prompt:literals:json")
@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("{1}", "}"),
        ('{"a" 1}', "1}"),
        ('{"a":}', "}"),
        ("[1,,2]", ",2]"),
        ("[1}", "}"),
        ("[Oslo]", "]"),
        ("(1)", "(1)"),
        ("{,}", ",}"),
        ("{.a: 1}", ".a: 1}"),
        ("[" * 200, "[" * 72),
        ("-)", ")"),
        ("0x" + "f" * 99 + " ", " "),
    ],
)
def test_what_is_no_value_is_broken_where_it_breaks(text: str, rest: str) -> None:
    for whole in (True, False):
        _, left, sound = read(text, whole=whole)
        assert (left, sound) == (rest, False)


@pytest.mark.requirement("prompt:literals:python")
@given(text=st.text(alphabet="'\"\\{}[](),: \n10.-+eEadDTrueNxuU_=", max_size=40), python=st.booleans(), data=st.data())
def test_cuts_change_nothing_and_what_ends_is_json(text: str, python: bool, data: st.DataObject) -> None:
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    reader = LiteralReader(python=python)
    parts: list[str] = []
    used = 0
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        if not reader.ended:
            used += reader.feed(text[start:end])
            parts.append(reader.take())
    whole = read(text, python=python)
    assert ("".join(parts), text[used:], reader.ended and not reader.broken) == whole
    if whole[2]:
        json.loads(whole[0])


@pytest.mark.requirement("prompt:literals:json")
def test_strings_leave_as_they_come() -> None:
    reader = LiteralReader()
    taken: list[str] = []
    for text in ('{"ci', 'ty": "Os', 'lo", "n', '": 1', "2", "}"):
        reader.feed(text)
        taken.append(reader.take())
    assert taken == ['{"ci', 'ty": "Os', 'lo", "n', '":', "", " 12}"]

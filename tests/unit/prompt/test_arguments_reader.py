from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.prompt.dialects.arguments import ArgumentsReader


def read(text: str, *, custom: bool = False, whole: bool = True) -> tuple[str, str, bool]:
    """What left, what was left of the text, and whether the arguments were sound."""
    reader = ArgumentsReader(custom=custom)
    parts: list[str] = []
    used = 0
    for piece in [text] if whole else text:
        if not reader.ended:
            used += reader.feed(piece)
            parts.append(reader.take())
    return "".join(parts), text[used:], reader.ended and not reader.broken


@pytest.mark.requirement("prompt:arguments")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (' {"city": "Oslo"} ', ('{"city": "Oslo"}', " ", True)),
        ('"{\\"a\\": 1}"<', ('{"a": 1}', "<", True)),
        ('""', ("{}", "", True)),
        ("null]", ("{}", "]", True)),
        ("<", ("", "<", False)),
        ("[1]", ("", "[1]", False)),
        ('{"a": <', ('{"a":', "<", False)),
        ("none ", ("", " ", False)),
    ],
)
def test_arguments_of_a_function_leave_as_an_object(text: str, expected: tuple[str, str, bool]) -> None:
    assert read(text) == expected
    assert read(text, whole=False) == expected


@pytest.mark.requirement("prompt:arguments")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"input": "ls"}', "ls"),
        ('{ "input" :\n"ls"}', "ls"),
        ('{"input": ""}', ""),
        ('{"why": "because", "input": "ls"}', "ls"),
        ('{"input": 5}', '{"input": 5}'),
        ('{"command": "ls"}', '{"command": "ls"}'),
        ('"ls -l"', "ls -l"),
        ('"{\\"input\\": \\"ls\\"}"', "ls"),
        ('{"' + "k" * 300 + '": 1, "input": "ls"}', "ls"),
        ('{"input": "a\nb"}', "a\nb"),
        ('{"input": "\\ud83d"}', "\ufffd"),
    ],
)
def test_the_input_of_a_custom_tool_leaves_alone(text: str, expected: str) -> None:
    assert read(text, custom=True) == (expected, "", True)
    assert read(text, custom=True, whole=False) == (expected, "", True)


@pytest.mark.requirement("prompt:arguments")
@given(text=st.text(max_size=30), ascii_only=st.booleans(), data=st.data())
def test_any_input_comes_out_as_it_was_meant(text: str, ascii_only: bool, data: st.DataObject) -> None:
    written = json.dumps({"input": text, "more": [1]}, ensure_ascii=ascii_only)
    places = sorted(data.draw(st.sets(st.integers(0, len(written)), max_size=6)))
    reader = ArgumentsReader(custom=True)
    parts: list[str] = []
    for start, end in zip([0, *places], [*places, len(written)], strict=True):
        reader.feed(written[start:end])
        parts.append(reader.take())
    assert "".join(parts) == text
    assert reader.ended


@pytest.mark.requirement("prompt:arguments")
def test_the_input_leaves_while_it_is_generated() -> None:
    reader = ArgumentsReader(custom=True)
    taken: list[str] = []
    for text in ('{"inp', 'ut": "ec', "ho \\", '"h', 'i\\n"', "}"):
        reader.feed(text)
        taken.append(reader.take())
    assert taken == ["", "ec", "ho ", '"h', "i\n", ""]

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.machine.deltas import ReasoningDelta
from antiphon.machine.reasoning import ReasoningSplitter, partial_suffix


def split(
    pieces: Sequence[str], *, primed: bool = False, markers: tuple[str, str] = ("<think>", "</think>")
) -> tuple[str, str]:
    splitter = ReasoningSplitter(*markers, primed=primed)
    deltas = [delta for piece in pieces for delta in splitter.feed(piece)] + splitter.finish()
    kinds = [type(delta) for delta in deltas]
    assert kinds == sorted(kinds, key=lambda kind: kind is not ReasoningDelta), "thinking comes before the answer"
    assert all(delta.text for delta in deltas)
    thinking = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return thinking, "".join(delta.text for delta in deltas if not isinstance(delta, ReasoningDelta))


@pytest.mark.requirement("prompt:reasoning:split")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>two and two</think>four", ("two and two", "four")),
        ("<think>\nwhy\n</think>\n\nBecause.", ("why", "Because.")),
        ("\n <think>a</think> b", ("a", "b")),
        ("no thinking at all", ("", "no thinking at all")),
        ("  led by space", ("", "  led by space")),
        ("<thing> is no marker", ("", "<thing> is no marker")),
        ("The tag <think> opens thinking.</think>", ("", "The tag <think> opens thinking.</think>")),
        ("<think>a</think>\n<think>b</think>c", ("ab", "c")),
        ("<think>cut off by the lim", ("cut off by the lim", "")),
        ("<think>a < b </ c</think>d", ("a < b </ c", "d")),
        ("<thi", ("", "<thi")),
        ("", ("", "")),
    ],
)
def test_thinking_is_split_from_the_answer(text: str, expected: tuple[str, str]) -> None:
    assert split([text]) == expected
    assert split(list(text)) == expected


@pytest.mark.requirement("prompt:reasoning:primed")
def test_a_primed_prompt_needs_the_closing_marker_only() -> None:
    assert split(["so be it", "</thi", "nk>\n\nyes"], primed=True) == ("so be it", "yes")
    assert split(["never closed "], primed=True) == ("never closed", "")


@pytest.mark.requirement("prompt:reasoning:empty")
@pytest.mark.parametrize("text", ["<think></think>x", "<think>\n\n</think>\n\nx", "<think> \t</think>x"])
def test_blank_thinking_is_nothing(text: str) -> None:
    assert split([text]) == ("", "x")
    assert split([text.removeprefix("<think>")], primed=True) == ("", "x")


@pytest.mark.requirement("prompt:reasoning:split")
def test_the_markers_are_parameters() -> None:
    assert split(["[THINK]a[/TH", "INK]b"], markers=("[THINK]", "[/THINK]")) == ("a", "b")


@pytest.mark.requirement("prompt:reasoning:split")
def test_thinking_leaves_while_it_is_generated() -> None:
    splitter = ReasoningSplitter()
    assert splitter.feed("<think>first ") == [ReasoningDelta("first")]
    assert splitter.thinking
    assert splitter.feed("second</") == [ReasoningDelta(" second")]
    assert splitter.feed("think>") == []
    assert not splitter.thinking


FRAGMENTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<th", "ink>", "</", "a", "b c", " ", "\n", "<", ">"]), max_size=12
)


@pytest.mark.requirement("prompt:reasoning:cuts")
@given(fragments=FRAGMENTS, primed=st.booleans(), data=st.data())
def test_cuts_change_nothing(fragments: list[str], primed: bool, data: st.DataObject) -> None:
    text = "".join(fragments)
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    whole = split([text], primed=primed)
    assert split(pieces, primed=primed) == whole
    assert "</think>" not in whole[0]


@given(text=st.text(alphabet="<>/thinka ", max_size=20))
@pytest.mark.requirement("prompt:reasoning:cuts")
def test_a_partial_suffix_is_the_longest(text: str) -> None:
    size = partial_suffix(text, "</think>")
    expected = max(n for n in range(8) if n == 0 or text.endswith("</think>"[:n]))
    assert size == expected

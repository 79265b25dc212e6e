"""Links of an answer to files of containers: found however deltas cut them, and only where they end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.machine.deltas import AnnotationDelta, MessageStart, Routed, Stop, TextDelta
from antiphon.machine.links import MOST, Links
from antiphon.machine.usage import NOTHING_USED

requirement = pytest.mark.requirement

FILES = {
    f"/mnt/data/{path}": {"type": "container_file_citation", "file_id": path}
    for path in ("a.txt", "a.txt.gz", "b c.png", "sub/ü.csv", "d")
}
TEXT = (
    "See [a](sandbox:/mnt/data/a.txt), sandbox:/mnt/data/a.txt.gz and sandbox:sandbox:/mnt/data/b%20c.png; "
    "sandbox:/mnt/data/b c.png. No sandbox:/mnt/data/a.txt2, sandbox:/mnt/data/missing, sandbox: or "
    "sandbox:/mnt/data/d-e. But sandbox:/mnt/data/sub/ü.csv and sandbox:/mnt/data/d"
)
CITED = ["a.txt", "a.txt.gz", "b c.png", "b c.png", "sub/ü.csv", "d"]


def cited(told: list[Routed]) -> list[tuple[str, int, int]]:
    found = [delta.annotation for delta in told if isinstance(delta, AnnotationDelta)]
    return [(one["file_id"], one["start_index"], one["end_index"]) for one in found]


def said(told: list[Routed]) -> str:
    return "".join(delta.text for delta in told if isinstance(delta, TextDelta))


@requirement("code:citations")
@given(st.lists(st.integers(0, len(TEXT)), max_size=30))
def test_links_are_found_however_the_text_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(TEXT)]
    deltas: list[Routed] = [TextDelta(TEXT[one:two]) for one, two in zip(places, places[1:], strict=False)]
    links = Links(FILES)
    told = [*links.feed(deltas), *links.feed([Stop("stop", NOTHING_USED)])]
    assert said(told) == TEXT
    assert isinstance(told[-1], Stop)
    assert [name for name, _, _ in cited(told)] == CITED
    for name, start, end in cited(told):
        assert TEXT[start:end] in (f"sandbox:/mnt/data/{name}", "sandbox:/mnt/data/b%20c.png")


@requirement("code:citations")
def test_positions_begin_anew_with_each_message_and_annotations_are_bounded() -> None:
    links = Links(FILES)
    link = "sandbox:/mnt/data/d"
    told = links.feed([TextDelta(link), MessageStart("commentary"), TextDelta(f"x {link}"), Stop("stop", NOTHING_USED)])
    assert cited(told) == [("d", 0, len(link)), ("d", 2, 2 + len(link))]
    assert [type(delta) for delta in told[:3]] == [TextDelta, AnnotationDelta, MessageStart]
    many = Links(FILES).feed([TextDelta(f"{link} " * (MOST + 5)), Stop("stop", NOTHING_USED)])
    assert len(cited(many)) == MOST

"""Marks of citations in a model's text become annotations, however deltas split them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.machine.assembler import Assembler
from antiphon.machine.citations import Citations
from antiphon.machine.deltas import AnnotationDelta, MessageStart, ReasoningDelta, Stop, TextDelta, ToolCallStart
from antiphon.machine.log import EventLog
from antiphon.machine.restore import restore
from antiphon.protocol.parts import Logprob
from antiphon.protocol.response import Response
from support.programs import USAGE

FILE = {"type": "file_citation", "file_id": "f", "filename": "a.md", "chunk_id": "f:0", "store_id": "vs"}
PAGE = {"type": "url_citation", "url": "https://a", "title": "A"}
SOURCES = {7: FILE, 8: {**FILE, "chunk_id": "f:1"}, 9: PAGE}
STOP = Stop("stop", USAGE)


def cited(*deltas):
    stage = Citations(SOURCES)
    told = [made for delta in deltas for made in stage.feed([delta])]
    text = "".join(delta.text for delta in told if isinstance(delta, TextDelta))
    return text, [delta.annotation for delta in told if isinstance(delta, AnnotationDelta)]


def said(text, sizes=()):
    """The deltas of a text cut into pieces."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(text[start : start + size])
        start += size
    return [TextDelta(piece) for piece in [*pieces, text[start:]]]


@pytest.mark.requirement("hosted:citations")
@pytest.mark.parametrize(
    ("written", "text", "found"),
    [
        ('It is so <cite i="7"/>.', "It is so .", [(7, 9)]),
        ('One.<cite i="7"/> Two.<cite i="8" />', "One. Two.", [(7, 4), (8, 9)]),
        ("A<cite i=7/>B<cite i='8'/>", "AB", [(7, 1), (8, 2)]),
        ('A<cite i="7, 8"/>', "A", [(7, 1), (8, 1)]),
        ('A<cite i="7"></cite>B', "AB", [(7, 1)]),
        ('A<cite i="7">B', "AB", [(7, 1)]),
        ('A<cite i="7">', "A", [(7, 1)]),
        ('<cite i="7"/>Abc', "Abc", [(7, 0)]),
        ('A<cite i="1"/>B', "AB", []),
        ("a < b, <cite>, <cite i=x/>, <c", "a < b, <cite>, <cite i=x/>, <c", []),
        ('A<cite i="7', 'A<cite i="7', []),
        ('A<cite i="7"/', 'A<cite i="7"/', []),
    ],
)
def test_marks_are_taken_out_and_cite_at_their_place(written, text, found):
    annotations = [{**SOURCES[number], "index": place} for number, place in found]
    assert cited(TextDelta(written), STOP) == (text, annotations)
    assert cited(*(TextDelta(letter) for letter in written), STOP) == (text, annotations)


words = st.lists(
    st.sampled_from(
        ["<", "<cite", " i=", '"', "7", "8", "99", ",", " ", "/>", ">", "</cite>", "text. ", '<cite i="7"/>']
    )
).map("".join)


@pytest.mark.requirement("hosted:citations")
@given(words, st.lists(st.integers(1, 5), max_size=40))
def test_how_a_text_is_split_changes_nothing(written, sizes):
    assert cited(*said(written, sizes), STOP) == cited(TextDelta(written), STOP)


@pytest.mark.requirement("hosted:citations")
def test_a_page_is_cited_with_the_sentence_before_the_mark():
    for written in ('One. Two is so<cite i="9"/>.', 'One. Two is so. <cite i="9"/>'):
        text, (annotation,) = cited(*said(written, [3] * 10), STOP)
        assert text[annotation["start_index"] : annotation["end_index"]].strip(". ") == "Two is so"


@pytest.mark.requirement("hosted:citations")
def test_every_part_of_text_counts_from_its_beginning():
    deltas = [
        TextDelta('One<cite i="7"/>'),
        MessageStart(),
        TextDelta('T<cite i="7"/>'),
        ReasoningDelta("hm"),
        TextDelta('Two<cite i="8"/>'),
        ToolCallStart("f"),
        STOP,
    ]
    text, annotations = cited(*deltas)
    assert (text, [each["index"] for each in annotations]) == ("OneTTwo", [3, 1, 3])


@pytest.mark.requirement("hosted:citations")
def test_text_without_marks_passes_at_once_and_as_it_is():
    stage = Citations(SOURCES)
    delta = TextDelta("Plain text.")
    assert stage.feed([delta]) == [delta]
    assert stage.feed([TextDelta("a <")]) == [TextDelta("a ")]
    assert stage.feed([TextDelta("b>")]) == [TextDelta("<b>")]
    assert stage.feed([ReasoningDelta(""), STOP]) == [ReasoningDelta(""), STOP]


@pytest.mark.requirement("hosted:citations")
def test_log_probabilities_go_with_their_text_and_those_of_marks_go():
    tokens = ["So", " <", "cite", ' i="7"', "/>", ".", ""]
    entries = {token: [Logprob(token, list(token.encode()), -1.0, [])] for token in tokens}
    stage = Citations(SOURCES)
    told = stage.feed([*(TextDelta(token, entries[token]) for token in tokens), STOP])
    texts = [delta for delta in told if isinstance(delta, TextDelta)]
    assert "".join(delta.text for delta in texts) == "So ."
    assert [entry.token for delta in texts for entry in delta.logprobs or ()] == ["So", " <", ".", ""]


@pytest.mark.requirement("hosted:citations", "hosted:law")
@pytest.mark.parametrize("cut", range(9))
def test_a_turn_that_is_run_again_cites_nothing_twice(cut):
    pieces = ["One", '.<cite i="7', '"/> T', "wo", ".<ci", 'te i="8"/>', " Three", '<cite i="9"/>', "."]

    def opened():
        log = EventLog(Response(id="resp_1", created_at=1, model="m"))
        log.open()
        return log, Assembler(log)

    log, assembler = opened()
    stage = Citations(SOURCES)
    for piece in pieces[:cut]:
        assembler.feed(stage.feed([TextDelta(piece)]))
    restored = restore(list(log.frames))
    again, suppressor = Citations(SOURCES), restored.suppressor()
    for delta in [*map(TextDelta, pieces), STOP]:
        restored.assembler.feed(suppressor.feed(again.feed([delta])))
    restored.assembler.finish(2)
    (part,) = restored.log.response.output[0].content
    assert part.text == "One. Two. Three."
    assert [each.get("index", each.get("end_index")) for each in part.annotations] == [4, 9, 15]

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engines.florence.coordinates import TASKS, parse_answer, task_prompt
from antiphon.protocol.florence import FlorenceResult

WIDTH, HEIGHT = 2000, 1000
"""A bin is two pixels wide and one high here: its centre is x = 2 * bin + 1, y = bin."""


def locations(*bins: int) -> str:
    return "".join(f"<loc_{number}>" for number in bins)


def answered(task: str, generated: str, banned: frozenset[str] = frozenset()) -> tuple[dict[str, object], str]:
    result, text = parse_answer(task, generated, WIDTH, HEIGHT, banned)
    return msgspec.to_builtins(result), text


BOX_TASKS = ["<OD>", "<DENSE_REGION_CAPTION>", "<CAPTION_TO_PHRASE_GROUNDING>"]
TEXT_TASKS = [
    "<CAPTION>",
    "<DETAILED_CAPTION>",
    "<MORE_DETAILED_CAPTION>",
    "<REGION_TO_CATEGORY>",
    "<REGION_TO_DESCRIPTION>",
    "<REGION_TO_OCR>",
    "<OCR>",
]
POLYGON_TASKS = ["<REFERRING_EXPRESSION_SEGMENTATION>", "<REGION_TO_SEGMENTATION>"]


@pytest.mark.requirement("florence:tasks")
def test_every_task_is_one_of_those_tested_here() -> None:
    others = ["<REGION_PROPOSAL>", "<OPEN_VOCABULARY_DETECTION>", "<OCR_WITH_REGION>"]
    assert sorted(TASKS) == sorted(BOX_TASKS + TEXT_TASKS + POLYGON_TASKS + others)


@pytest.mark.requirement("florence:text")
@pytest.mark.parametrize("task", TEXT_TASKS)
def test_an_answer_of_text_is_the_text_without_marks(task: str) -> None:
    result, text = answered(task, "</s><s>A green car, 3 < 4 & é.</s><pad><pad>")
    assert result == {"task": task, "kind": "text"}
    assert text == "A green car, 3 < 4 & é."


@pytest.mark.requirement("florence:boxes")
@pytest.mark.parametrize("task", BOX_TASKS)
def test_each_four_numbers_after_a_label_are_a_box_of_it(task: str) -> None:
    generated = (
        f"</s><s>car{locations(0, 0, 999, 999)}{locations(1, 2, 3, 4)}door handle{locations(10, 20, 30, 40)}</s>"
    )
    result, text = answered(task, generated)
    assert result == {
        "task": task,
        "kind": "bboxes",
        "bboxes": [[1, 0, 1999, 999], [3, 2, 7, 4], [21, 20, 61, 40]],
        "labels": ["car", "car", "door handle"],
    }
    assert text == "car: [1, 0, 1999, 999]\ncar: [3, 2, 7, 4]\ndoor handle: [21, 20, 61, 40]"


@pytest.mark.requirement("florence:boxes")
def test_numbers_without_a_label_and_those_that_make_no_box_are_left_out() -> None:
    result, _ = answered("<OD>", f"{locations(1, 2, 3, 4)}car{locations(1, 2, 3)}dog{locations(1, 2, 3, 4, 5, 6)}cat")
    assert (result["bboxes"], result["labels"]) == ([[3, 2, 7, 4]], ["dog"])


@pytest.mark.requirement("florence:boxes")
def test_phrases_that_the_model_names_are_no_grounding() -> None:
    generated = f"an image{locations(1, 2, 3, 4)}a car{locations(1, 2, 3, 4)}"
    banned = frozenset({"an image"})
    assert answered("<CAPTION_TO_PHRASE_GROUNDING>", generated, banned)[0]["labels"] == ["a car"]
    assert answered("<OD>", generated, banned)[0]["labels"] == ["an image", "a car"]


@pytest.mark.requirement("florence:boxes")
def test_proposals_are_boxes_with_empty_labels() -> None:
    result, text = answered("<REGION_PROPOSAL>", f"</s><s>{locations(0, 1, 2, 3, 4, 5, 6, 7)}</s>")
    assert result == {
        "task": "<REGION_PROPOSAL>",
        "kind": "bboxes",
        "bboxes": [[1, 1, 5, 3], [9, 5, 13, 7]],
        "labels": ["", ""],
    }
    assert text == "[1, 1, 5, 3]\n[9, 5, 13, 7]"


@pytest.mark.requirement("florence:quads")
def test_texts_have_four_corners() -> None:
    first, second = range(8), range(10, 18)
    result, text = answered(
        "<OCR_WITH_REGION>", f"</s><s>STOP{locations(*first)}A < B\n{locations(*second)}cut{locations(1, 2)}</s>"
    )
    assert result == {
        "task": "<OCR_WITH_REGION>",
        "kind": "quad_boxes",
        "quad_boxes": [[1, 1, 5, 3, 9, 5, 13, 7], [21, 11, 25, 13, 29, 15, 33, 17]],
        "labels": ["STOP", "A < B"],
    }
    assert text == "STOP: [1, 1, 5, 3, 9, 5, 13, 7]\nA < B: [21, 11, 25, 13, 29, 15, 33, 17]"


@pytest.mark.requirement("florence:polygons")
@pytest.mark.parametrize("task", POLYGON_TASKS)
def test_outlines_of_one_thing_are_together(task: str) -> None:
    result, text = answered(task, f"</s><s>{locations(0, 0, 1, 0, 1, 1, 5)}<sep>{locations(2, 2, 3, 2, 3, 3)}</s>")
    assert result == {
        "task": task,
        "kind": "polygons",
        "polygons": [[[1, 0, 3, 0, 3, 1], [5, 2, 7, 2, 7, 3]]],
        "labels": [""],
    }
    assert text == "[1, 0, 3, 0, 3, 1] [5, 2, 7, 2, 7, 3]"


@pytest.mark.requirement("florence:polygons")
def test_marks_around_outlines_part_one_thing_from_the_next() -> None:
    one, two = locations(0, 0, 1, 1), locations(2, 2, 3, 3)
    result, _ = answered("<REGION_TO_SEGMENTATION>", f"cup<poly>{one}<sep>{two}</poly><poly>{two}</poly>pot<poly>{one}")
    assert result["polygons"] == [[[1, 0, 3, 1], [5, 2, 7, 3]], [[5, 2, 7, 3]], [[1, 0, 3, 1]]]
    assert result["labels"] == ["cup", "cup", "pot"]


@pytest.mark.requirement("florence:either")
def test_what_is_sought_by_name_is_a_box_or_an_outline() -> None:
    box, outline = locations(1, 2, 3, 4), locations(0, 0, 1, 0, 1, 1)
    result, text = answered("<OPEN_VOCABULARY_DETECTION>", f"</s><s>car{box}tree<poly>{outline}</poly></s>")
    assert result == {
        "task": "<OPEN_VOCABULARY_DETECTION>",
        "kind": "bboxes_or_polygons",
        "bboxes": [[3, 2, 7, 4]],
        "bboxes_labels": ["car"],
        "polygons": [[[1, 0, 3, 0, 3, 1]]],
        "polygons_labels": ["tree"],
    }
    assert text == "car: [3, 2, 7, 4]\ntree: [1, 0, 3, 0, 3, 1]"


@pytest.mark.requirement("florence:pixels")
@pytest.mark.parametrize(
    ("width", "height", "box"),
    [(1, 1, [0, 0, 0, 0]), (640, 480, [0, 0, 639, 479]), (999, 1001, [0, 0, 998, 1000])],
)
def test_a_place_is_the_centre_of_its_bin(width: int, height: int, box: list[int]) -> None:
    result, _ = parse_answer("<OD>", f"x{locations(0, 0, 999, 999)}", width, height)
    assert result.bboxes == [box]


@pytest.mark.requirement("florence:tasks")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<OD>", ("<OD>", "")),
        ("  <OCR_WITH_REGION>\n", ("<OCR_WITH_REGION>", "")),
        ("<CAPTION_TO_PHRASE_GROUNDING> a > b ", ("<CAPTION_TO_PHRASE_GROUNDING>", "a > b")),
        ("<REGION_TO_OCR><loc_1><loc_2>", ("<REGION_TO_OCR>", "<loc_1><loc_2>")),
        ("<od>", None),
        ("<OD", None),
        ("What is <OD>?", None),
        ("", None),
    ],
)
def test_a_task_is_what_a_text_begins_with(text: str, found: tuple[str, str] | None) -> None:
    assert task_prompt(text) == found


PIECES = st.one_of(
    st.integers(0, 1200).map(lambda number: f"<loc_{number}>"),
    st.sampled_from(
        ["<sep>", "<poly>", "</poly>", "<s>", "</s>", "<pad>", "<loc_", "<loc_-1>", "<", ">", "\n", "<od>"]
    ),
    st.text(max_size=5),
)


@pytest.mark.requirement("florence:any-sequence")
@given(
    task=st.sampled_from(sorted(TASKS)),
    pieces=st.lists(PIECES, max_size=60),
    width=st.integers(1, 20_000),
    height=st.integers(1, 20_000),
)
def test_any_sequence_gives_places_inside_the_image(task: str, pieces: list[str], width: int, height: int) -> None:
    result, text = parse_answer(task, "".join(pieces), width, height)
    assert isinstance(text, str)
    runs: list[tuple[list[int], int | None]] = [(box, 4) for box in result.bboxes or []]
    runs += [(box, 8) for box in result.quad_boxes or []]
    runs += [(outline, None) for thing in result.polygons or [] for outline in thing]
    for run, length in runs:
        assert len(run) == (length or len(run) // 2 * 2) > 0
        assert all(0 <= x < width for x in run[::2])
        assert all(0 <= y < height for y in run[1::2])
    check_labels(result)


def check_labels(result: FlorenceResult) -> None:
    kinds = {
        "text": (),
        "bboxes": (("bboxes", "labels"),),
        "quad_boxes": (("quad_boxes", "labels"),),
        "polygons": (("polygons", "labels"),),
        "bboxes_or_polygons": (("bboxes", "bboxes_labels"), ("polygons", "polygons_labels")),
    }
    wire = msgspec.to_builtins(result)
    assert set(wire) == {"task", "kind"}.union(*kinds[result.kind])
    for places, labels in kinds[result.kind]:
        assert len(wire[places]) == len(wire[labels])

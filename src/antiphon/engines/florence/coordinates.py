"""From what Florence-2 generates to labels and pixel coordinates; no library but msgspec is needed for it.

The model writes places as `<loc_0>` to `<loc_999>`: bins, of which a thousand span the width of the image for an x and
its height for a y. A place is the centre of its bin, rounded down to a whole pixel, as the published post-processing of
the model has it (M50). What comes after a label belongs to it: four numbers are a box (left, top, right, bottom), eight
are the corners of a text, and pairs are the outline of something; `<sep>` stands between the outlines of one thing, and
`<poly>` and `</poly>` around them. Numbers that are too few for a place are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from typing import Final

from msgspec import Struct, field

from antiphon.protocol.florence import FlorenceKind, FlorenceResult

__all__ = [
    "BINS",
    "TASKS",
    "FlorenceTask",
    "parse_answer",
    "render_answer",
    "task_prompt",
]

BINS: Final = 1000
"""Bins along each side of an image."""


class FlorenceTask(Struct, frozen=True):
    """A task of the model. `question` is what it was trained to be asked, with `{input}` where the user's text goes.

    `unlabelled` says that places without a label count.
    """

    kind: FlorenceKind
    question: str
    unlabelled: bool = False

    @property
    def takes_input(self) -> bool:
        """Whether a text of the user's goes with it, and has to."""
        return "{input}" in self.question


TASKS: Final[Mapping[str, FlorenceTask]] = {
    "<CAPTION>": FlorenceTask("text", "What does the image describe?"),
    "<DETAILED_CAPTION>": FlorenceTask("text", "Describe in detail what is shown in the image."),
    "<MORE_DETAILED_CAPTION>": FlorenceTask("text", "Describe with a paragraph what is shown in the image."),
    "<OD>": FlorenceTask("bboxes", "Locate the objects with category name in the image."),
    "<DENSE_REGION_CAPTION>": FlorenceTask("bboxes", "Locate the objects in the image, with their descriptions."),
    "<REGION_PROPOSAL>": FlorenceTask("bboxes", "Locate the region proposals in the image.", unlabelled=True),
    "<CAPTION_TO_PHRASE_GROUNDING>": FlorenceTask("bboxes", "Locate the phrases in the caption: {input}"),
    "<REFERRING_EXPRESSION_SEGMENTATION>": FlorenceTask(
        "polygons", "Locate {input} in the image with mask", unlabelled=True
    ),
    "<REGION_TO_SEGMENTATION>": FlorenceTask("polygons", "What is the polygon mask of region {input}", unlabelled=True),
    "<OPEN_VOCABULARY_DETECTION>": FlorenceTask("bboxes_or_polygons", "Locate {input} in the image."),
    "<REGION_TO_CATEGORY>": FlorenceTask("text", "What is the region {input}?"),
    "<REGION_TO_DESCRIPTION>": FlorenceTask("text", "What does the region {input} describe?"),
    "<REGION_TO_OCR>": FlorenceTask("text", "What text is in the region {input}?"),
    "<OCR>": FlorenceTask("text", "What is the text in the image?"),
    "<OCR_WITH_REGION>": FlorenceTask("quad_boxes", "What is the text in the image, with regions?"),
}
"""The tasks by their prompts."""

_BOX: Final = 4
_QUAD: Final = 8
_MARK = re.compile(
    r"<loc_(?P<bin>\d{1,3})>|(?P<sep><sep>)|(?P<poly></?poly>)"
    r"|<(?:/?s|pad|unk|mask|ground|obj|/?(?:od|box|bbox|cap|dcap|ncap|ocr|grounding|seg|region_cap|proposal))>",
    re.ASCII,
)


class _Phrase(Struct):
    """A label and the numbers after it: `things` are runs of outlines, each a run of bins."""

    label: str
    things: list[list[list[int]]] = field(default_factory=list[list[list[int]]])
    outlined: bool = False


def task_prompt(text: str) -> tuple[str, str] | None:
    """The task that a text begins with and the rest of it; None where it begins with no known one."""
    text = text.strip()
    task, mark, rest = text.partition(">")
    return (task + mark, rest.strip()) if task + mark in TASKS else None


def parse_answer(
    task: str, generated: str, width: int, height: int, banned: Set[str] = frozenset()
) -> tuple[FlorenceResult, str]:
    """What the generated text says about an image of that many pixels, and it rendered as text.

    `banned` are phrases that a caption's grounding leaves out, which the model's folder names.

    Raises:
        KeyError: there is no such task.
        ValueError: the image has no pixels.
    """
    if width < 1 or height < 1:
        raise ValueError("an image has at least one pixel")
    known = TASKS[task]
    result = FlorenceResult(task, known.kind)
    if known.kind == "text":
        return result, _MARK.sub("", generated).strip()
    phrases = [phrase for phrase in _phrases(generated) if phrase.label or known.unlabelled]
    if task == "<CAPTION_TO_PHRASE_GROUNDING>":
        phrases = [phrase for phrase in phrases if phrase.label not in banned]
    if known.kind == "polygons":
        result.polygons, result.labels = _polygons(phrases, width, height)
    elif known.kind == "quad_boxes":
        result.quad_boxes, result.labels = _boxes(phrases, _QUAD, width, height)
    elif known.kind == "bboxes":
        result.bboxes, result.labels = _boxes(phrases, _BOX, width, height)
    else:
        plain = [phrase for phrase in phrases if not phrase.outlined]
        result.bboxes, result.bboxes_labels = _boxes(plain, _BOX, width, height)
        outlined = [phrase for phrase in phrases if phrase.outlined]
        result.polygons, result.polygons_labels = _polygons(outlined, width, height)
    return result, render_answer(result)


def render_answer(result: FlorenceResult) -> str:
    """What was found as text: a line for each thing, its label before its numbers. Without places it is empty."""
    boxes = (result.bboxes or []) + (result.quad_boxes or [])
    labels = (result.labels or []) + (result.bboxes_labels or [])
    outlined = result.labels or result.polygons_labels or []
    lines = [_line(label, str(box)) for label, box in zip(labels, boxes, strict=False)]
    lines += [
        _line(label, " ".join(map(str, outlines)))
        for label, outlines in zip(outlined, result.polygons or [], strict=False)
    ]
    return "\n".join(lines)


def _line(label: str, numbers: str) -> str:
    return f"{' '.join(label.split())}: {numbers}" if label else numbers


def _phrases(generated: str) -> Iterator[_Phrase]:
    """Labels with the numbers after them."""
    phrase = _Phrase("")
    text = ""
    # What of the next number: it begins a thing, begins an outline, or goes on with the last one.
    begins = "thing"
    end = 0
    for mark in _MARK.finditer(generated):
        text += generated[end : mark.start()]
        end = mark.end()
        number, poly = mark["bin"], mark["poly"]
        if number is None and poly != "<poly>":
            if mark["sep"] and begins == "more":
                begins = "outline"
            elif poly:
                begins = "thing"
            continue
        if text.strip():
            yield phrase
            phrase = _Phrase(text.strip())
            begins = "thing"
        text = ""
        if number is None:
            phrase.outlined = True
            begins = "thing"
            continue
        if begins == "thing":
            phrase.things.append([])
        if begins != "more":
            phrase.things[-1].append([])
        phrase.things[-1][-1].append(int(number))
        begins = "more"
    yield phrase


def _boxes(phrases: list[_Phrase], size: int, width: int, height: int) -> tuple[list[list[int]], list[str]]:
    """Every run of that many numbers, with its label; texts have one quadrilateral each."""
    boxes: list[list[int]] = []
    labels: list[str] = []
    for phrase in phrases:
        bins = [number for thing in phrase.things for outline in thing for number in outline]
        if size == _QUAD:
            del bins[_QUAD:]
        for start in range(0, len(bins) - size + 1, size):
            boxes.append(_pixels(bins[start : start + size], width, height))
            labels.append(phrase.label)
    return boxes, labels


def _polygons(phrases: list[_Phrase], width: int, height: int) -> tuple[list[list[list[int]]], list[str]]:
    """The outlines of every thing, with its label; one that has no whole point is none."""
    polygons: list[list[list[int]]] = []
    labels: list[str] = []
    for phrase in phrases:
        for thing in phrase.things:
            outlines = [_pixels(outline[: len(outline) // 2 * 2], width, height) for outline in thing]
            outlines = [outline for outline in outlines if outline]
            if outlines:
                polygons.append(outlines)
                labels.append(phrase.label)
    return polygons, labels


def _pixels(bins: list[int], width: int, height: int) -> list[int]:
    """The centres of bins, x and y in turn; always a pixel of the image."""
    return [(2 * number + 1) * (height if place % 2 else width) // (2 * BINS) for place, number in enumerate(bins)]

"""What Florence-2 found in an image, as the message of a chat completion has it (M50)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

__all__ = ["FlorenceKind", "FlorenceResult"]

FlorenceKind = Literal["text", "bboxes", "quad_boxes", "polygons", "bboxes_or_polygons"]
"""Which of its arrays a result has."""


class FlorenceResult(Struct):
    """What was found in an image, as `message.florence2_result` (M50). The arrays of its kind are there.

    Coordinates are whole pixels from the top left corner: a box is left, top, right, bottom; a quadrilateral is the x
    and y of four corners; a thing's polygons are its outlines, each x and y in turn. Labels are by position.
    """

    task: str
    kind: FlorenceKind
    bboxes: list[list[int]] | UnsetType = UNSET
    quad_boxes: list[list[int]] | UnsetType = UNSET
    polygons: list[list[list[int]]] | UnsetType = UNSET
    labels: list[str] | UnsetType = UNSET
    bboxes_labels: list[str] | UnsetType = UNSET
    polygons_labels: list[str] | UnsetType = UNSET

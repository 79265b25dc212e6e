"""A child of the Florence-2 engine that has no model: what it generates stands here, by the question.

Run as a program it speaks the frames of `antiphon.engines.florence.child`, with nothing but the standard library. A
word in a caption to be grounded makes it misbehave: `die`, `hang` (until it is cancelled), `garbage`, `endless` (a
frame that is too long), `stray` (an answer to nothing, and no other) and `fault=CODE`. Arguments: a file that it notes
what it is asked in, and how it loads: `well`, `never`, `badly`, `wrongly` or `dead`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["CONTEXT", "GENERATED", "command", "noted"]

CONTEXT = 64
"""Tokens of the longest prompt; each word is one, and the image is five."""

IMAGE_TOKENS = 5
BANNED = ["it"]

GENERATED = {
    "What does the image describe?": "a car",
    "Describe in detail what is shown in the image.": "a red car",
    "Describe with a paragraph what is shown in the image.": "a red car on a road",
    "Locate the objects with category name in the image.": "car<loc_0><loc_0><loc_499><loc_999>",
    "Locate the objects in the image, with their descriptions.": "a red car<loc_0><loc_0><loc_499><loc_999>",
    "Locate the region proposals in the image.": "<loc_0><loc_0><loc_499><loc_999>",
    "What is the text in the image?": "STOP",
    "What is the text in the image, with regions?": "STOP" + "<loc_0><loc_999>" * 4,
    "Locate the car in the image with mask": "<loc_0><loc_0><loc_499><loc_0><loc_499><loc_999>",
    "What is the polygon mask of region the car": "<loc_0><loc_0><loc_499><loc_0><loc_499><loc_999>",
    "Locate the car in the image.": "car<loc_0><loc_0><loc_499><loc_999>"
    "road<poly><loc_0><loc_0><loc_499><loc_0></poly>",
    "What is the region the car?": "car",
    "What does the region the car describe?": "a red car",
    "What text is in the region the car?": "STOP",
}
"""What is generated for a question; for a caption to be grounded it is `car`, with the box of an object, and `it`."""

_STRAY = b'{"id":[]}'
_SAID_INSTEAD = {
    "hang": b"",
    "stray": len(_STRAY).to_bytes(4, "big") + _STRAY,
    "garbage": b"\0\0\0\2no",
    "endless": b"\xff\xff\xff\xff",
}
_CAPTION = "Locate the phrases in the caption: "
_GROUNDED = "car<loc_0><loc_0><loc_499><loc_999>it<loc_0><loc_0><loc_499><loc_999>"


def command(notes: Path, loads: str = "well") -> Sequence[str]:
    """What runs it."""
    return (sys.executable, "-P", __file__, str(notes), loads)


def noted(notes: Path) -> list[str]:
    """What it was asked so far: `loaded`, `count ID`, `task ID` and `cancel ID`."""
    return notes.read_text().splitlines() if notes.exists() else []


def _read() -> dict[str, Any] | None:
    prefix = sys.stdin.buffer.read(4)
    if len(prefix) < 4:
        return None
    return json.loads(sys.stdin.buffer.read(struct.unpack(">I", prefix)[0]))


def _write(value: Any) -> None:
    data = json.dumps(value).encode()
    sys.stdout.buffer.write(struct.pack(">I", len(data)) + data)
    sys.stdout.buffer.flush()


def _answer(frame: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to a task; None where there is none."""
    question: str = frame["question"]
    words = question.removeprefix(_CAPTION).split()
    for word in words:
        if word == "die":
            os._exit(7)
        if word in _SAID_INSTEAD:
            sys.stdout.buffer.write(_SAID_INSTEAD[word])
            sys.stdout.buffer.flush()
            return None
        if word.startswith("fault="):
            return {"fault": word.removeprefix("fault=")}
    head = base64.b64decode(frame["image"], validate=True)
    width, height = struct.unpack(">II", head[16:24])
    generated = _GROUNDED if question.startswith(_CAPTION) else GENERATED[question]
    tokens = [*re.findall(r"<\w+>|[^<]+", generated), "</s>"]
    most: int = frame["most"] or len(tokens)
    text = "".join(tokens[:most])
    cut = most < len(tokens)
    return {"text": text, "width": width, "height": height, "tokens": min(most, len(tokens)), "cut": cut}


def main(notes: Path, loads: str) -> None:
    """Answer until standard input ends."""

    def note(line: str) -> None:
        with notes.open("a") as file:
            file.write(line + "\n")

    _read()
    if loads == "never":
        threading.Event().wait()
    if loads == "dead":
        sys.stderr.write("out of memory\n")
        return
    if loads == "badly":
        _write({"fault": "OSError: no weights"})
        return
    _write(
        {"ready": {"context_length": "none"} if loads == "wrongly" else {"context_length": CONTEXT, "banned": BANNED}}
    )
    note("loaded")
    hanging: set[int] = set()
    while (frame := _read()) is not None:
        if "cancel" in frame:
            note(f"cancel {frame['cancel']}")
            if frame["cancel"] in hanging:
                _write({"id": frame["cancel"], "fault": "cancelled"})
            continue
        identity: int = frame["id"]
        if "count" in frame:
            note(f"count {identity}")
            words = str(frame["count"]).split()
            _write(
                {"id": identity, "fault": "control"}
                if "<image>" in words
                else {"id": identity, "tokens": IMAGE_TOKENS + len(words)}
            )
            continue
        note(f"task {identity}")
        answer = _answer(frame)
        if answer is None:
            hanging.add(identity)
        else:
            _write({"id": identity, **answer})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""Where an assembler stands between two deltas, and what may be open there."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.protocol.parts import Annotation, Logprob

__all__ = [
    "COMMAND",
    "CUSTOM",
    "FUNCTION",
    "HOSTED",
    "NOTHING",
    "PATCH",
    "REASONING",
    "REFUSAL",
    "SHELL",
    "SUMMARY",
    "TEXT",
    "Standing",
]

NOTHING: Final = ""
TEXT: Final = "text"
REFUSAL: Final = "refusal"
REASONING: Final = "reasoning"
FUNCTION: Final = "function"
CUSTOM: Final = "custom"
SHELL: Final = "shell"
COMMAND: Final = "command"
PATCH: Final = "patch"
SUMMARY: Final = "summary"
HOSTED: Final = "hosted"


class Standing(Struct):
    """Where an assembler stands between two deltas.

    `kind` is what is open, empty for nothing, `item` the open item and `pieces` the text that has come of it, of its
    last part; `logprobs` and `annotations` are those of that part. `calls`, `tokens` and `thinking` count the calls,
    and the deltas of all kinds and of thinking.
    """

    kind: str = NOTHING
    item: Any = None
    output_index: int = -1
    content_index: int = -1
    pieces: list[str] = msgspec.field(default_factory=list[str])
    logprobs: list[Logprob] = msgspec.field(default_factory=list[Logprob])
    annotations: list[Annotation] = msgspec.field(default_factory=list[Annotation])
    calls: int = 0
    tokens: int = 0
    thinking: int = 0

"""What of a turn has been told already, so that a part of it that is drawn again tells nothing twice. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.machine.deltas import (
    Delta,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.standing import CUSTOM, FUNCTION, REASONING, REFUSAL, TEXT
from antiphon.machine.suppressor import RAW, Segment, Suppressor

__all__ = ["Told"]

_KINDS = {TextDelta: TEXT, ReasoningDelta: REASONING, RefusalDelta: REFUSAL}


class Told:
    """The deltas of one turn that have left the engine, joined."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Segment, list[str]]] = []
        self._logprobs = 0

    def add(self, deltas: Sequence[Delta]) -> None:
        """These have left."""
        for delta in deltas:
            if isinstance(delta, ToolCallStart):
                kind = CUSTOM if delta.custom else FUNCTION
                self._pieces.append((Segment(kind, name=delta.name, namespace=delta.namespace, whole=False), []))
            elif isinstance(delta, ToolCallDelta):
                self._pieces[-1][1].append(delta.text)
            elif isinstance(delta, TextDelta | ReasoningDelta | RefusalDelta):
                self._text(delta)
            elif isinstance(delta, RawItemDelta):
                self._pieces.append((Segment(RAW, body=delta.body), []))

    def suppressor(self) -> Suppressor:
        """What passes on of the same turn, drawn again from its start, only what has not left yet."""
        segments = [
            Segment(
                segment.kind,
                "".join(parts),
                segment.name,
                segment.namespace,
                segment.body,
                whole=place < len(self._pieces) - 1,
            )
            for place, (segment, parts) in enumerate(self._pieces)
        ]
        return Suppressor(segments, open_logprobs=self._logprobs)

    def _text(self, delta: TextDelta | ReasoningDelta | RefusalDelta) -> None:
        kind = _KINDS[type(delta)]
        if not self._pieces or self._pieces[-1][0].kind != kind:
            self._pieces.append((Segment(kind, whole=False), []))
            self._logprobs = 0
        self._pieces[-1][1].append(delta.text)
        if isinstance(delta, TextDelta):
            self._logprobs += len(delta.logprobs or ())

"""What is open of a response while its events are made: an item, and a part of it, that begin, grow and end.

An item is open from its first delta until something else begins or the turn ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from antiphon.machine.callitems import identity_of
from antiphon.machine.hosted import cut_item
from antiphon.machine.log import Deltas, EventLog
from antiphon.machine.standing import (
    COMMAND,
    CUSTOM,
    FUNCTION,
    HOSTED,
    NOTHING,
    PATCH,
    REASONING,
    REFUSAL,
    SHELL,
    SUMMARY,
    TEXT,
    Standing,
)
from antiphon.protocol import events as e
from antiphon.protocol.ids import new_id
from antiphon.protocol.items import Message, Reasoning
from antiphon.protocol.parts import (
    Annotation,
    Logprob,
    OutputText,
    ReasoningText,
    Refusal,
    StreamLogprob,
    StreamTopLogprob,
    SummaryText,
)

__all__ = ["Opened"]


class Opened:
    """What is open, and the events by which it begins, grows and ends.

    `whole_parts` gives each part one delta event, at its end; `seal` makes the `encrypted_content` of thinking.
    """

    def __init__(self, log: EventLog, *, whole_parts: bool, seal: Callable[[str], str] | None) -> None:
        self._log = log
        self._seal = seal
        self._whole_parts = whole_parts
        self._calls = 0
        self._open = NOTHING
        self._item: Any = None
        self._item_id = ""
        self._output_index: int = -1
        self._content_index: int = -1
        self._pieces: list[str] = []
        self._deltas: Deltas | None = None
        self._logprobs: list[Logprob] = []
        self._annotations: list[Annotation] = []
        self._phase: str | None = None
        self._sealed = ""
        self._limits: dict[str, int | None] = {}
        self._tokens = 0
        self._thinking = 0
        self._summary = ""
        self._hosted: set[str] = set()

    def take_up(self, standing: Standing) -> None:
        """Go on where an earlier life of this assembler stood; its events are in the log."""
        self._open = standing.kind
        self._item = standing.item
        self._item_id = "" if standing.item is None else identity_of(standing.item)
        self._output_index = standing.output_index
        self._content_index = standing.content_index
        self._pieces = standing.pieces
        self._logprobs = standing.logprobs
        self._annotations = standing.annotations
        self._calls = standing.calls
        self._tokens = standing.tokens
        self._thinking = standing.thinking
        self._hosted = {item["id"] for item in self._log.items() if isinstance(item, dict)}

    def _think(self, kind: str) -> None:
        """Begin a part of thinking, its text or its summary; what is summed up is not thought on."""
        if kind == SUMMARY and self._open in (REASONING, SUMMARY):
            self._close_part()
        else:
            self._close("completed")
            self._add(Reasoning(id=new_id("rs"), content=[], status="in_progress"), kind)
        self._open = kind
        self._content_index = len(self._item.content if kind == REASONING else self._item.summary)

    def _more(self, text: str, logprobs: Sequence[Logprob] = ()) -> None:
        self._pieces.append(text)
        self._tokens += 1
        if self._whole_parts:
            return
        if logprobs:
            self._log.append(self._delta(text, logprobs))
            return
        if self._deltas is None:
            self._deltas = self._log.deltas(self._delta("", ()))
        self._deltas.append(text)

    def _many(self, texts: list[str]) -> None:
        """The same as `_more` with each of these texts."""
        self._pieces += texts
        self._tokens += len(texts)
        if self._whole_parts:
            return
        if self._deltas is None:
            self._deltas = self._log.deltas(self._delta("", ()))
        self._deltas.extend(texts)

    def _delta(self, text: str, logprobs: Sequence[Logprob]) -> object:
        """The event of more text of what is open."""
        kind = self._open
        if kind == TEXT:
            entries = [_without_bytes(entry) for entry in logprobs]
            return e.OutputTextDelta(self._item_id, self._output_index, self._content_index, text, entries)
        if kind == SUMMARY:
            return e.ReasoningSummaryTextDelta(self._item_id, self._output_index, self._content_index, text)
        if kind == REASONING:
            return e.ReasoningTextDelta(self._item_id, self._output_index, self._content_index, text)
        if kind == FUNCTION:
            return e.FunctionCallArgumentsDelta(self._item_id, self._output_index, text)
        if kind == CUSTOM:
            return e.CustomToolCallInputDelta(self._item_id, self._output_index, text)
        if kind == COMMAND:
            return e.ShellCommandDelta(self._output_index, self._content_index, text)
        if kind == PATCH:
            return e.ApplyPatchDiffDelta(self._item_id, self._output_index, text)
        return e.RefusalDelta(self._item_id, self._output_index, self._content_index, text)

    def _begin_text(self) -> None:
        self._begin_part(TEXT)
        self._logprobs, self._annotations = [], []

    def _begin_part(self, kind: str) -> None:
        if self._open in (TEXT, REFUSAL):
            self._close_part()
            self._content_index += 1
        else:
            self._close("completed")
            phase = UNSET if self._phase is None else self._phase
            item = Message(role="assistant", content=[], id=new_id("msg"), status="in_progress", phase=phase)
            self._add(item, kind)
            self._content_index, self._phase = 0, None
        self._open = kind
        part = Refusal(refusal="") if kind == REFUSAL else OutputText(text="")
        self._log.append(e.ContentPartAdded(self._item_id, self._output_index, self._content_index, part))

    def _add(self, item: Any, kind: str) -> None:
        self._open = kind
        self._item = item
        self._item_id = identity_of(item)
        self._output_index += 1
        self._pieces = []
        self._log.append(e.OutputItemAdded(output_index=self._output_index, item=item))

    def _close(self, status: str) -> None:
        if self._open == NOTHING:
            return
        if self._open == HOSTED:
            # Whatever ends it here, its run did not come to its end.
            self._log.append(e.OutputItemDone(output_index=self._output_index, item=cut_item(self._item)))
            self._open = NOTHING
            return
        if self._open in (FUNCTION, CUSTOM):
            self._close_call(status)
        elif self._open in (SHELL, COMMAND):
            self._close_command()
            self._item["action"].update(self._limits)
            self._limits = {}
        elif self._open == PATCH:
            self._close_patch()
        else:
            self._close_part()
            if self._open in (REASONING, SUMMARY):
                self._end_thinking()
        if self._open == PATCH and status == "incomplete":
            # OpenAI's types know no incomplete patch.
            status = "in_progress"
        if self._open in (SHELL, COMMAND, PATCH):
            self._item["status"] = status
        else:
            self._item.status = status
        self._log.append(e.OutputItemDone(output_index=self._output_index, item=self._item))
        self._open = NOTHING

    def _end_thinking(self) -> None:
        summary, self._summary = self._summary, ""
        if summary:
            place = (self._item_id, self._output_index, 0)
            part = SummaryText(summary)
            self._log.append(e.ReasoningSummaryPartAdded(*place, SummaryText("")))
            self._log.append(e.ReasoningSummaryTextDelta(*place, summary))
            self._log.append(e.ReasoningSummaryTextDone(*place, summary))
            self._log.append(e.ReasoningSummaryPartDone(*place, part))
            self._item.summary = [part]
        sealed, self._sealed = self._sealed, ""
        if sealed:
            self._item.encrypted_content = sealed
        elif self._seal is not None and self._item.content:
            self._item.encrypted_content = self._seal("".join(part.text for part in self._item.content))

    def _close_part(self) -> None:
        text = self._whole_text()
        place = (self._item_id, self._output_index, self._content_index)
        if self._open == TEXT:
            self._log.append(e.OutputTextDone(*place, text, [_without_bytes(entry) for entry in self._logprobs]))
            part: Any = OutputText(text=text, annotations=self._annotations, logprobs=self._logprobs)
        elif self._open == REFUSAL:
            self._log.append(e.RefusalDone(*place, text))
            part = Refusal(refusal=text)
        elif self._open == SUMMARY:
            self._log.append(e.ReasoningSummaryTextDone(*place, text))
            self._log.append(e.ReasoningSummaryPartDone(*place, SummaryText(text)))
            return
        else:
            self._log.append(e.ReasoningTextDone(*place, text))
            part = ReasoningText(text=text)
        self._log.append(e.ContentPartDone(*place, part))

    def _whole_text(self) -> str:
        text = "".join(self._pieces)
        if self._whole_parts and self._pieces:
            self._log.append(self._delta(text, self._logprobs))
        self._pieces = []
        self._deltas = None
        return text

    def _close_call(self, status: str) -> None:
        text = self._whole_text()
        if self._open == CUSTOM:
            self._item.input = text
            self._log.append(e.CustomToolCallInputDone(self._item_id, self._output_index, text))
            return
        if not text and status == "completed":
            text = "{}"
        self._item.arguments = text
        self._log.append(e.FunctionCallArgumentsDone(self._item_id, self._output_index, self._item.name, text))

    def _close_command(self) -> None:
        if self._open == COMMAND:
            text = self._whole_text()
            self._item["action"]["commands"][self._content_index :] = [text]
            self._log.append(e.ShellCommandDone(self._output_index, self._content_index, text))

    def _close_patch(self) -> None:
        operation = self._item["operation"]
        if "diff" in operation:
            text = operation["diff"] = self._whole_text()
            self._log.append(e.ApplyPatchDiffDone(self._item_id, self._output_index, text))


def _without_bytes(entry: Logprob) -> StreamLogprob:
    return StreamLogprob(
        entry.token, entry.logprob, [StreamTopLogprob(top.token, top.logprob) for top in entry.top_logprobs]
    )

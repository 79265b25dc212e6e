"""What a stream is handed on as: chunks of content, thinking, tool calls, parts, and all that is about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.client.context import PhaseItem, ProviderBlock, ReasoningDetail, ResponsesReplay
from antiphon.client.response import FinishReason, Problem, Usage

__all__ = [
    "ArgumentsFragment",
    "Chunk",
    "ContentChunk",
    "ContentPartChunk",
    "MetaChunk",
    "SummaryPart",
    "ThinkingChunk",
    "ToolCallChunk",
    "thinking_text",
]


class ContentChunk(Struct, frozen=True, tag_field="chunk", tag="content", omit_defaults=True):
    """Text of the answer; `phase` and `output_index` are set where its item announced a phase (S1)."""

    text: str
    refusal: bool = False
    phase: str | None = None
    output_index: int | None = None


class ThinkingChunk(Struct, frozen=True, tag_field="chunk", tag="thinking", omit_defaults=True):
    """Text of the model's thinking; of a summary it says of which part (S3). `thinking_text` joins them."""

    text: str
    item_id: str | None = None
    output_index: int | None = None
    summary_index: int | None = None


class ToolCallChunk(Struct, frozen=True, tag_field="chunk", tag="tool_call", omit_defaults=True):
    """A tool call (S5, S7).

    `arguments` is None while its fragments are still to come, which `expects_arg_fragments` says. `index` is the
    output index, by which they are told apart.
    """

    id: str
    name: str
    index: int
    arguments: str | None = None
    expects_arg_fragments: bool = False
    builtin: bool = False
    type: str = "function_call"
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class ArgumentsFragment(Struct, frozen=True):
    """More of the arguments of the call at `index` (S6)."""

    index: int
    fragment: str


class SummaryPart(Struct, frozen=True, omit_defaults=True):
    """A part of a reasoning summary begins or ends (S4)."""

    status: Literal["added", "done"]
    item_id: str | None = None
    output_index: int | None = None
    summary_index: int | None = None
    text: str = ""


class ContentPartChunk(Struct, frozen=True, tag_field="chunk", tag="content_part", omit_defaults=True):
    """A whole part that is not text, such as a compaction (S7)."""

    part: ProviderBlock
    output_index: int | None = None


class MetaChunk(Struct, frozen=True, tag_field="chunk", tag="meta", omit_defaults=True):
    """Anything about the answer; what is None is not said.

    The last one of a stream is `terminal` and says how it ended (S10 to S14); `problem` is set where it failed.
    """

    terminal: bool = False
    response_id: str | None = None
    model: str | None = None
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    usage: Usage | None = None
    problem: Problem | None = None
    tool_call_args: ArgumentsFragment | None = None
    reasoning_summary_part: SummaryPart | None = None
    reasoning_details: list[ReasoningDetail] | None = None
    annotations: list[dict[str, Any]] | None = None
    builtin_tool_started: dict[str, Any] | None = None
    code_interpreter_item: dict[str, Any] | None = None
    provider_meta: dict[str, Any] | None = None
    phase: str | None = None
    phase_items: list[PhaseItem] | None = None
    responses_replay: ResponsesReplay | None = None


Chunk: TypeAlias = ContentChunk | ThinkingChunk | ToolCallChunk | ContentPartChunk | MetaChunk
"""One piece of a streamed answer."""


def thinking_text(chunks: Iterable[Chunk]) -> str:
    """What the thinking of a stream adds up to: summaries first, a blank line between parts (S3, D4)."""
    summaries: dict[tuple[int | None, int | None], list[str]] = {}
    contents: dict[int | None, list[str]] = {}
    for chunk in chunks:
        if not isinstance(chunk, ThinkingChunk):
            continue
        if chunk.summary_index is None:
            contents.setdefault(chunk.output_index, []).append(chunk.text)
        else:
            summaries.setdefault((chunk.output_index, chunk.summary_index), []).append(chunk.text)
    return "\n\n".join("".join(pieces) for pieces in (*summaries.values(), *contents.values()))

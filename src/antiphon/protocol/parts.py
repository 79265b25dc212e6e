"""Content parts of messages, tool outputs and reasoning (responses-api 3; chat spellings: issue 2, Input)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

__all__ = [
    "Annotation",
    "ContentPart",
    "ImageUrlPart",
    "InputAudio",
    "InputFile",
    "InputImage",
    "InputText",
    "InputVideo",
    "Logprob",
    "OutputText",
    "ReasoningText",
    "Refusal",
    "StreamLogprob",
    "SummaryText",
    "TextPart",
    "VideoUrlPart",
]

Annotation = dict[str, Any]
"""A citation as it came: file_citation, url_citation, container_file_citation, file_path or an unknown one."""


class TopLogprob(Struct):
    """One alternative at a token's place: its text, its bytes and its natural-log probability."""

    token: str
    bytes: list[int]
    logprob: float


class Logprob(Struct):
    """The chosen token's log probability and its alternatives, as a finished part holds them."""

    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[TopLogprob]


class StreamTopLogprob(Struct):
    """An alternative as a delta event holds it: without bytes."""

    token: str
    logprob: float


class StreamLogprob(Struct):
    """A token's log probability as a delta event holds it: without bytes."""

    token: str
    logprob: float
    top_logprobs: list[StreamTopLogprob]


class InputText(Struct, tag="input_text"):
    """Text of a user, system or developer message, or of a tool output."""

    text: str
    prompt_cache_breakpoint: dict[str, Any] | None | UnsetType = UNSET


class InputImage(Struct, tag="input_image"):
    """An image by URL, data URI or uploaded file; `detail` is low, high, auto or original."""

    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = "auto"
    prompt_cache_breakpoint: dict[str, Any] | None | UnsetType = UNSET


class InputFile(Struct, tag="input_file", omit_defaults=True):
    """A document by base64 data, URL or uploaded file."""

    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    detail: str | None = None
    prompt_cache_breakpoint: dict[str, Any] | None | UnsetType = UNSET


class InputAudio(Struct, tag="input_audio"):
    """Audio: `{data, format}` with base64 data."""

    input_audio: dict[str, Any]


class InputVideo(Struct, tag="input_video"):
    """A video by URL (Open Responses)."""

    video_url: str


class OutputText(Struct, tag="output_text"):
    """Text that a model wrote, with citations and, on request, log probabilities."""

    text: str
    annotations: list[Annotation] | None = msgspec.field(default_factory=list[Annotation])
    logprobs: list[Logprob] | None = msgspec.field(default_factory=list[Logprob])


class Refusal(Struct, tag="refusal"):
    """What a model said instead of an answer."""

    refusal: str


class ReasoningText(Struct, tag="reasoning_text"):
    """A model's thinking, as it was generated."""

    text: str


class SummaryText(Struct, tag="summary_text"):
    """A summary of a model's thinking."""

    text: str


class TextPart(Struct, tag="text"):
    """The chat-completions spelling of a text part."""

    text: str


class ImageUrlPart(Struct, tag="image_url"):
    """The chat-completions spelling of an image part: `{url, detail}` or a bare URL."""

    image_url: str | dict[str, Any]


class VideoUrlPart(Struct, tag="video_url"):
    """The chat-completions spelling of a video part: `{url}` or a bare URL."""

    video_url: str | dict[str, Any]


ContentPart = (
    InputText
    | InputImage
    | InputFile
    | InputAudio
    | InputVideo
    | OutputText
    | Refusal
    | ReasoningText
    | SummaryText
    | TextPart
    | ImageUrlPart
    | VideoUrlPart
)
"""Every part that a message or an array-valued tool output may hold."""

"""Parts of content as the parts of chat messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.errors import InvalidRequestError
from antiphon.protocol.parts import (
    ContentPart,
    InputAudio,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    OutputText,
    ReasoningText,
    Refusal,
    SummaryText,
    TextPart,
    VideoUrlPart,
)

__all__ = ["Parts", "content_of", "render_parts", "text_of"]

Parts = list[dict[str, Any]]
"""Parts of a chat message."""


def render_parts(parts: Sequence[ContentPart]) -> tuple[Parts, set[str], bool]:
    """The parts of a message, the kinds of media in them, and whether any of it counts as input (M6).

    Raises:
        InvalidRequestError: an image part holds neither a URL nor a file id.
    """
    rendered: Parts = []
    media: set[str] = set()
    substance = False
    for part in parts:
        told, kind = _part(part)
        rendered.append(told)
        if kind is not None:
            media.add(kind)
        substance = substance or told["type"] != "text" or isinstance(part, Refusal) or bool(told["text"].strip())
    return rendered, media, substance


def text_of(parts: Parts) -> str:
    """The text in parts, joined by newlines."""
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def content_of(parts: Parts) -> str | Sequence[Mapping[str, Any]]:
    """The content of a message of these parts: plain text, where there is nothing else."""
    if all(part["type"] == "text" for part in parts):
        return text_of(parts)
    return parts


def _part(part: ContentPart) -> tuple[dict[str, Any], str | None]:
    """One part, and the kind of its media."""
    if isinstance(part, InputText | OutputText | TextPart | ReasoningText | SummaryText):
        return {"type": "text", "text": part.text}, None
    if isinstance(part, Refusal):
        return {"type": "text", "text": part.refusal}, None
    if isinstance(part, InputImage):
        return _image(part), "image"
    if isinstance(part, InputFile):
        return {"type": "file", "file": _file(part)}, "file"
    if isinstance(part, InputAudio):
        return {"type": "input_audio", "input_audio": part.input_audio}, "audio"
    if isinstance(part, InputVideo | VideoUrlPart):
        url = part.video_url
        return {"type": "video_url", "video_url": {"url": url} if isinstance(url, str) else url}, "video"
    return {"type": "image_url", "image_url": part.image_url}, "image"


def _image(part: InputImage) -> dict[str, Any]:
    if part.image_url is not None:
        return {"type": "image_url", "image_url": {"url": part.image_url, "detail": part.detail or "auto"}}
    if part.file_id is not None:
        return {"type": "image_url", "image_url": {"file_id": part.file_id, "detail": part.detail or "auto"}}
    raise InvalidRequestError(
        "An input_image needs 'image_url' or 'file_id'.", param="input", code="missing_required_parameter"
    )


def _file(part: InputFile) -> dict[str, Any]:
    fields = ("filename", "file_id", "file_url", "file_data")
    return {name: value for name in fields if (value := getattr(part, name)) is not None}

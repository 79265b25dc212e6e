"""Media of a conversation as llama.cpp takes them: markers in the prompt, and base64 beside it. Pure.

llama.cpp puts one marker into the rendered prompt for each part that is media, and reads the data in the order of the
markers. Data is taken from the request alone: given an address llama.cpp would fetch it, so none gets that far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from antiphon.errors import InvalidRequestError
from antiphon.prompt.prompt import ChatMessage

__all__ = ["check_inline", "inline_media", "kinds", "marked"]

_HEAD_END: Final = ";base64,"


def kinds(modalities: Mapping[str, bool]) -> frozenset[str]:
    """The kinds of media that a projector reads, by what `/props` says of it."""
    # llama.cpp claims video for every model that sees; it would run a program of the system's for it.
    names = {"vision": "image", "audio": "audio"}
    return frozenset(kind for name, kind in names.items() if modalities.get(name))


def check_inline(messages: Sequence[ChatMessage]) -> None:
    """Refuse media that are not in the messages themselves.

    Raises:
        InvalidRequestError: one is an address, or of a kind that no projector reads.
    """
    for message in messages:
        if not isinstance(message.content, str):
            for part in _media(message.content):
                _place(part)


def inline_media(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The base64 data of all media in chat-completions messages, in their order.

    Raises:
        InvalidRequestError: as above.
    """
    found: list[str] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            for part in _media(cast("list[Mapping[str, Any]]", content)):
                text, first = _place(part)
                found.append(text[first:])
    return found


def _media(content: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    return (part for part in content if part.get("type") != "text")


def _place(part: Mapping[str, Any]) -> tuple[str, int]:
    """A text and where the data begin in it: large data are not copied before they are needed."""
    kind = part.get("type")
    if kind == "image_url":
        url = str(part["image_url"]["url"])
        found = url.find(_HEAD_END)
        if found < 0 or not url.startswith("data:"):
            raise InvalidRequestError("An image must be a data URI in base64 for this model.", param="input")
        return url, found + len(_HEAD_END)
    if kind == "input_audio":
        return str(part["input_audio"]["data"]), 0
    raise InvalidRequestError("This model reads text, images and audio only.", param="input")


def marked(rendered: str, marker: str, media: Sequence[str]) -> None:
    """Refuse a prompt in which the template has not placed all media.

    Raises:
        InvalidRequestError: there are fewer or more markers in it than media.
    """
    if rendered.count(marker) != len(media):
        raise InvalidRequestError(
            "The model's chat template does not take media where this conversation has them.",
            param="input",
            code="template_error",
        )

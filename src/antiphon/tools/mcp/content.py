"""What a tool gives, as the text that the model reads: bounded, and with what is no text named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from antiphon.protocol.json import encode

__all__ = ["cut", "text_of"]


def text_of(content: Sequence[Mapping[str, Any]], structured: Any = None) -> str:
    """The text of a result; what it holds as data stands for it where it has no text at all."""
    parts = [part for block in content for part in _parts(block)]
    if not parts and structured is not None:
        return encode(structured).decode()
    return "\n".join(parts)


def cut(text: str, characters: int) -> str:
    """The text, or as much of it as may be, and how much is missing."""
    if len(text) <= characters:
        return text
    note = f"\n[{len(text) - characters} more characters were cut off]"
    return text[: max(0, characters - len(note))] + note


def _parts(block: Mapping[str, Any]) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text":
        yield str(block.get("text", ""))
    elif kind in ("image", "audio"):
        yield f"[{kind}: {block.get('mimeType')}, {_size(block.get('data'))} bytes, which this text cannot hold]"
    elif kind == "resource":
        resource = cast("Mapping[str, Any]", block.get("resource") or {})
        if isinstance(resource.get("text"), str):
            yield f"[resource {resource.get('uri')}]\n{resource['text']}"
        else:
            size = _size(resource.get("blob"))
            kind = resource.get("mimeType")
            yield f"[resource {resource.get('uri')}: {kind}, {size} bytes, which this text cannot hold]"
    elif kind == "resource_link":
        about = block.get("description") or block.get("title") or block.get("name")
        yield f"[resource {block.get('uri')}: {about}]"


def _size(data: object) -> int:
    """The bytes that a base64 text stands for, without reading it."""
    return len(data) * 3 // 4 if isinstance(data, str) else 0
